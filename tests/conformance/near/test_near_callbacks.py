"""Callbacks: the executor takes those of all tenants, in fair order."""

from __future__ import annotations

import pytest

from tests.conformance.near.world import World, ids
from tocsin.model.job import Lane
from tocsin.near.port import QueueGate

TENANTS = ("a", "b", "c")


async def open_all(world: World) -> None:
    for tenant in TENANTS:
        for queue in ("q", "r"):
            await world.near.configure(tenant, queue, QueueGate())


async def test_tasks_are_not_handed_to_the_executor(world: World) -> None:
    await world.open()
    await world.near.push([world.due()])
    assert await world.claim(world.executor_wish()) == []


async def test_a_tenants_callbacks_come_best_score_first_over_its_queues_and_hosts(world: World) -> None:
    await open_all(world)
    dues = [world.callback(at, tenant="a", queue="qr"[at % 2], host=f"h{at % 7}") for at in range(40)]
    urgent = world.callback(100, tenant="a", queue="q", priority=1)
    await world.near.push([*dues[::-1], urgent])
    assert await world.claim(world.executor_wish(5)) == ids([urgent, *dues[:4]])
    assert await world.claim(world.executor_wish()) == ids(dues[4:])


async def test_the_precise_lane_of_all_tenants_goes_first(world: World) -> None:
    await open_all(world)
    flexible = world.callback(-9_000, tenant="a", queue="q", lane=Lane.FLEXIBLE)
    precise = world.callback(tenant="b", queue="q")
    await world.near.push([flexible, precise])
    assert await world.claim(world.executor_wish()) == ids([precise, flexible])


async def test_tenants_share_by_weight_and_a_burst_delays_nobody(world: World) -> None:
    await open_all(world)
    await world.near.set_weight("a", 2.0)
    lots = [world.callback(tenant="a", queue="q") for _ in range(3_000)]
    some = [world.callback(1, tenant="b", queue="q") for _ in range(3_000)]
    one = world.callback(2, tenant="c", queue="q")
    await world.near.push([*lots, *some, one])
    first = await world.claim(world.executor_wish(300))
    assert one.job_id in first
    for _ in range(5):
        first += await world.claim(world.executor_wish(300))
    share = len(set(first) & set(ids(lots)))
    assert 1_100 <= share <= 1_300


async def test_a_paused_queue_stands_in_nobodys_way(world: World) -> None:
    await open_all(world)
    await world.near.configure("a", "q", QueueGate(paused=True))
    paused = [world.callback(at, tenant="a", queue="q") for at in range(3)]
    others = [world.callback(10, tenant="a", queue="r"), world.callback(11, tenant="b", queue="q")]
    await world.near.push([*paused, *others])
    assert await world.claim(world.executor_wish()) == ids(others)
    await world.near.push([more := world.callback(-5, tenant="a", queue="q")])
    assert await world.claim(world.executor_wish()) == []
    await world.near.configure("a", "q", QueueGate())
    assert await world.claim(world.executor_wish()) == ids([more, *paused])


async def test_a_pause_with_an_end_gives_callbacks_back_by_itself(world: World) -> None:
    await world.near.configure("a", "q", QueueGate(paused=True, paused_until=world.now + 5_000))
    await world.near.push([due := world.callback(tenant="a", queue="q")])
    assert await world.claim(world.executor_wish()) == []
    assert await world.claim(world.executor_wish()) == []
    world.clock.advance(5)
    assert await world.claim(world.executor_wish()) == [due.job_id]


async def test_a_longer_pause_replaces_a_shorter_one(world: World) -> None:
    await world.near.configure("a", "q", QueueGate(paused=True, paused_until=world.now + 5_000))
    await world.near.push([due := world.callback(tenant="a", queue="q")])
    await world.pop(world.executor_wish())
    await world.near.configure("a", "q", QueueGate(paused=True, paused_until=world.now + 9_000))
    await world.pop(world.executor_wish())
    world.clock.advance(5)
    assert await world.claim(world.executor_wish()) == []
    world.clock.advance(4)
    assert await world.claim(world.executor_wish()) == [due.job_id]


async def test_queues_without_known_settings_are_asked_for_and_others_are_served(world: World) -> None:
    await world.near.configure("b", "q", QueueGate())
    unknown, known = world.callback(tenant="a", queue="q"), world.callback(1, tenant="b", queue="q")
    await world.near.push([unknown, known])
    wish = world.executor_wish()
    popped = await world.near.pop(wish)
    assert popped.ask == (("a", "q"),)
    await world.near.configure("a", "q", QueueGate())
    # The same request looks again: what it had in hand, if anything, is not lost and the other comes at the latest next.
    got = ids((await world.near.pop(wish)).dues)
    await world.near.settle(wish.request_id, [(job, 1) for job in got])
    got += await world.claim(world.executor_wish())
    assert sorted(got) == sorted(ids([unknown, known]))


async def test_a_queue_whose_jobs_were_removed_is_not_asked_for(world: World) -> None:
    await world.near.push([due := world.callback(tenant="a", queue="q")])
    assert (await world.pop(world.executor_wish())).ask == (("a", "q"),)
    await world.near.remove([due.job_id])
    assert (await world.pop(world.executor_wish())).ask == ()


@pytest.mark.parametrize("most", [50, 60, 200])
async def test_suspect_callbacks_are_handed_out_alone_and_neither_kind_starves(world: World, most: int) -> None:
    await open_all(world)
    ordinary = [world.callback(at, tenant="a", queue="q") for at in range(600)]
    suspects = [world.callback(at, tenant=tenant, queue="q", suspect=True) for tenant in "bc" for at in range(3)]
    await world.near.push(ordinary + suspects)
    claims = [await world.claim(world.executor_wish(most)) for _ in range(30)]
    suspect_ids = set(ids(suspects))
    alone = [at for at, claim in enumerate(claims) if set(claim) & suspect_ids]
    assert all(len(claims[at]) == 1 for at in alone)
    assert len(alone) == 6
    assert max(alone) < 13, "suspects starve behind ordinary jobs"
    assert sorted(job for claim in claims for job in claim) == sorted(ids(ordinary + suspects))
    assert len(claims[1 - alone[0]]) == most, "ordinary jobs starve behind suspects"
