"""Several processes on one server: what one offers the other takes, and hears of at once."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.near.world import World, ids
from tests.redis.conftest import Open
from tests.redis.keys import client, litter
from tests.servers.redis import RedisServer, new_installation
from tocsin.model.job import Lane


@pytest.fixture
async def two(redis_server: RedisServer, opens: Open) -> tuple[World, World]:
    """Two processes; the second one owns all partitions."""
    installation = new_installation()
    first = await opens(redis_server, installation)
    return first, await opens(redis_server, installation, clock=first.clock)


async def test_what_one_process_offers_another_takes_once(two: tuple[World, World]) -> None:
    api, node = two
    await api.near.offer([due := api.due()])
    assert await node.take() == [due]
    assert await node.take() == []
    assert await api.take() == []
    await node.near.drop([due])


async def test_an_offer_elsewhere_ends_the_wait_and_is_taken_in_the_next_pass(two: tuple[World, World]) -> None:
    api, node = two
    assert await node.take() == []
    assert await node.near.next_due(node.all) is None
    await node.near.wait_due(0)
    waiting = asyncio.ensure_future(node.near.wait_due(60))
    await node.turns()
    assert not waiting.done()
    await api.near.offer([due := api.due()])
    await asyncio.wait_for(waiting, 10)
    assert await node.near.next_due(node.all) == due.due_at
    assert await node.take() == [due]


async def test_a_lost_wake_up_costs_half_a_second_and_no_job(two: tuple[World, World]) -> None:
    api, node = two
    assert await node.take() == []
    await node.near._wakes.close()  # type: ignore[attr-defined]
    await api.near.offer([due := api.due()])
    assert await node.take() == []
    node.clock.advance(0.5)
    assert await node.take() == [due]


async def test_an_offer_that_an_answer_on_its_way_does_not_know_is_not_forgotten(two: tuple[World, World]) -> None:
    _, node = two
    heads = node.near._taker._heads  # type: ignore[attr-defined]
    assert await node.take() == []
    sent = heads.sending()
    heads.hear(f"1 {node.now}")
    heads.learn(1, None, sent)
    assert heads.due([0, 1, 2, 3], node.now, at_once=False) == [1]


async def test_a_version_that_comes_while_an_older_one_is_in_hand_elsewhere_stays(two: tuple[World, World]) -> None:
    api, node = two
    old = api.due()
    await api.near.offer([old])
    taken = await node.take()
    await api.near.offer([new := api.due(0, job_id=old.job_id, version=2, lane=Lane.FLEXIBLE)])
    await node.near.drop(taken)
    assert await node.take() == [new]


async def test_leases_of_one_process_are_seen_over_by_another(two: tuple[World, World]) -> None:
    api, node = two
    job_id = api.job_id()
    await api.near.lease([(job_id, 1, 1_000)])
    assert await node.near.leases_over(node.all, 2_000, 10) == [(job_id, 1)]


async def test_a_listener_that_was_cut_off_listens_again(redis_server: RedisServer, two: tuple[World, World]) -> None:
    api, node = two
    assert await node.take() == []
    with client(redis_server) as redis:
        redis.client_kill_filter(_type="pubsub")
    # It tries again after a moment of its clock; until then it hears nothing.
    for _ in range(200):
        node.clock.advance(0.6)
        await node.take()
        await node.near.wait_due(0)
        waiting = asyncio.ensure_future(node.near.wait_due(1e9))
        await node.turns()
        await api.near.offer([due := api.due()])
        await node.turns()
        heard = waiting.done()
        waiting.cancel()
        await node.near.drop([due])
        if heard:
            break
    assert heard


async def test_only_bookkeeping_is_left_when_all_is_dropped(shared: World, redis_server: RedisServer) -> None:
    dues = [shared.due(at, lane=Lane(at % 2), tenant=f"tenant {at % 3}") for at in range(100)]
    await shared.near.offer(dues)
    leases = [(due.job_id, 1, 1_000) for due in dues]
    await shared.near.lease(leases)
    name = next(iter(shared.near._due._tags))  # type: ignore[attr-defined]
    installation = name.removeprefix("{").partition(":")[0]
    assert litter(redis_server, installation) != []
    shared.clock.advance(1)
    await shared.near.remove(ids(dues[:10]))
    await shared.take_and_drop(50)
    rest = await shared.take()
    await shared.near.restore(rest)
    await shared.take_and_drop()
    await shared.near.unlease([(job_id, attempt) for job_id, attempt, _ in leases])


async def test_what_lay_ready_is_due_again_when_the_partitions_are_ours_after_a_moment(
    two: tuple[World, World],
) -> None:
    """The session was not certain for one pass, and certain again before anybody had looked: nobody begins the partitions anew."""
    api, node = two
    dues = [api.due(at) for at in range(40)]
    await api.near.offer(dues)
    node.clock.advance(1)
    await node.near.drop(await node.take(4))
    assert await node.near.take((), node.now, 100) == []
    assert await node.take() == dues[4:]
    await node.near.drop(dues)


async def test_a_job_that_is_changed_while_it_lies_ready_fires_as_it_is_now(two: tuple[World, World]) -> None:
    api, node = two
    dues = [api.due(at) for at in range(40)]
    await api.near.offer(dues)
    node.clock.advance(1)
    await node.near.drop(await node.take(4))
    lying = max(node.near._taker._basket._versions)  # type: ignore[attr-defined]
    await api.near.offer([changed := api.due(-60_000, job_id=lying, version=2)])
    node.clock.advance(1)
    rest = await node.take(1) + await node.take()
    assert sorted(rest) == sorted([changed, *(due for due in dues[4:] if due.job_id != lying)])
    await node.near.drop(rest)


async def test_who_asks_what_is_due_in_one_partition_takes_nothing_from_the_dispatcher(
    two: tuple[World, World],
) -> None:
    """A list of all partitions asks one after another, in the process that dispatches them."""
    api, node = two
    dues = [api.due(at, partition=at % 4) for at in range(40)]
    await api.near.offer(dues)
    node.clock.advance(1)
    taken = await node.take(4)
    basket = node.near._taker._basket  # type: ignore[attr-defined]
    lying = dict(basket._versions)
    assert lying
    for near in (node.near, api.near):
        assert [await near.next_due([each]) is not None for each in node.all] == [True] * 4
    assert basket._versions == lying
    await node.near.drop(taken)
    assert await node.take() == dues[4:]
    await node.near.drop(dues)
