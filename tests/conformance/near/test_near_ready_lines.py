"""Ready lines: jobs come out in order of score, inside their limits, and only where a gate is open."""

from __future__ import annotations

import pytest

from tests.conformance.near.world import Make, World, ids
from tocsin.model.job import Lane
from tocsin.near.port import QueueGate
from tocsin.store.port import Due


async def test_jobs_come_out_in_order_of_their_due_times(world: World) -> None:
    await world.open()
    dues = [world.due(at) for at in range(20)]
    await world.near.push(dues[10:])
    await world.near.push(dues[:10][::-1])
    assert await world.claim(world.wish(7)) == ids(dues[:7])
    assert await world.claim() == ids(dues[7:])


async def test_the_precise_lane_is_handed_out_first(world: World) -> None:
    await world.open()
    flexible, precise = world.due(-60_000, lane=Lane.FLEXIBLE), world.due()
    await world.near.push([flexible, precise])
    assert await world.claim() == ids([precise, flexible])


async def test_priority_is_worth_five_minutes_either_way(world: World) -> None:
    await world.open()
    low, normal, high = world.due(priority=-1), world.due(priority=0), world.due(priority=1)
    await world.near.push([low, normal, high])
    assert await world.claim(world.wish(1)) == [high.job_id]
    just_before, just_after = world.due(-300_001), world.due(-299_999)
    late_high = world.due(priority=1)
    await world.near.push([just_before, just_after, late_high])
    assert await world.claim() == ids([just_before, late_high, just_after, normal, low])


async def test_low_jobs_age_past_a_steady_stream_of_high_ones(world: World) -> None:
    # High ones arrive at 95 % of what is claimed, and there is a backlog of them: without ageing the low ones would starve.
    await world.open()
    low = [world.due(priority=-1) for _ in range(10)]
    await world.near.push([*low, *(world.due(priority=1) for _ in range(100))])
    waiting = set(ids(low))
    for turn in range(300):
        await world.near.push([world.due(priority=1) for _ in range(19)])
        claimed = await world.claim(world.wish(20))
        waiting -= set(claimed)
        if not waiting:
            break
        assert turn < 250, "the low jobs starve"
        world.clock.advance(4)
    assert turn >= 15, "the boost was worth nothing"


async def test_a_claim_gets_only_jobs_of_its_handlers_in_order_over_them(world: World) -> None:
    await world.open()
    dues = [world.due(at, handler="abc"[at % 3]) for at in range(60)]
    await world.near.push(dues)
    wanted = [due.job_id for due in dues if due.line.handler in "ac"]
    assert await world.claim(world.wish(9, handlers=("a", "c", "unheard"))) == wanted[:9]
    assert await world.claim(world.wish(handlers=("c", "a", "a"))) == wanted[9:]
    assert await world.claim(world.wish(handlers=("unheard",))) == []
    assert await world.claim() == [due.job_id for due in dues if due.line.handler == "b"]


async def test_lines_of_one_queue_are_merged_by_score(world: World) -> None:
    await world.open()
    dues = [world.due(at, hold=f"key {int(world.entropy.uniform() * 6)}") for at in range(100)]
    await world.near.push(dues[::2] + dues[1::2])
    got = []
    for most in (1, 2, 30, 67):
        got += await world.claim(world.wish(most))
    assert got == ids(dues)


async def test_queues_and_tenants_do_not_see_each_others_jobs(world: World) -> None:
    await world.open(("acme", "mail"), ("acme", "fax"), ("globex", "mail"))
    mine, fax, theirs = world.due(), world.due(queue="fax"), world.due(tenant="globex")
    await world.near.push([mine, fax, theirs])
    assert await world.claim() == [mine.job_id]
    assert await world.claim(world.wish(queue="fax")) == [fax.job_id]
    assert await world.claim(world.wish(tenant="globex")) == [theirs.job_id]


async def test_callbacks_are_not_handed_to_workers(world: World) -> None:
    await world.open()
    await world.near.push([world.callback()])
    assert await world.claim() == []


# --- once each --------------------------------------------------------------------------------------------------------


async def test_a_job_pushed_twice_is_in_line_once(world: World) -> None:
    await world.open()
    due = world.due()
    assert await world.near.push([due, due]) == []
    assert await world.near.push([due]) == []
    assert await world.claim() == [due.job_id]
    assert await world.claim() == []


async def test_a_job_in_hand_that_is_pushed_again_stays_in_hand(world: World) -> None:
    await world.open()
    due = world.due()
    await world.near.push([due])
    wish = world.wish()
    await world.pop(wish)
    assert await world.near.push([due]) == []
    assert await world.claim() == []
    await world.near.settle(wish.request_id, [(due.job_id, 1)])
    assert await world.claim() == []


async def test_a_newer_version_takes_the_place_of_the_older_one(world: World) -> None:
    await world.open()
    old = world.due(handler="a")
    new = world.due(handler="b", version=2, job_id=old.job_id)
    await world.near.push([old])
    await world.near.push([new])
    assert await world.claim(world.wish(handlers=("a",))) == []
    assert (await world.pop()).dues == [new]


async def test_a_newer_version_pushed_while_the_older_is_in_hand_is_not_lost(world: World) -> None:
    await world.open()
    old = world.due()
    new = world.due(version=2, job_id=old.job_id)
    await world.near.push([old])
    wish = world.wish()
    await world.pop(wish)
    await world.near.push([new])
    assert (await world.pop()).dues == []
    await world.near.settle(wish.request_id, [])
    assert (await world.pop()).dues == [new]


async def test_a_removed_job_is_not_handed_out(world: World) -> None:
    await world.open()
    dues = [world.due(at) for at in range(10)]
    await world.near.push(dues)
    await world.near.remove(ids(dues[::2]))
    await world.near.remove([world.job_id()])
    assert (await world.near.figures(world.all)).ready == 5
    assert await world.claim() == ids(dues[1::2])


async def test_a_removed_job_that_is_pushed_again_is_handed_out_once(world: World) -> None:
    await world.open()
    due, other = world.due(), world.due(1)
    await world.near.push([due, other])
    await world.near.remove([due.job_id])
    await world.near.push([due])
    assert await world.claim() == ids([due, other])
    assert (await world.near.figures(world.all)).ready == 0


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_a_full_line_refuses_and_others_do_not(make: Make) -> None:
    world = await make(line_limit=10, tenant_limit=1_000)
    dues = [world.due(at) for at in range(12)]
    assert await world.near.push(dues) == dues[10:]
    assert await world.near.push(dues[:3]) == [], "what is there already is not refused"
    assert await world.near.push([world.due(handler="other"), world.due(tenant="other")]) == []
    await world.open()
    await world.claim(world.wish(4))
    assert await world.near.push(dues[10:]) == []


async def test_a_tenants_lines_together_are_limited(make: Make) -> None:
    world = await make(line_limit=10, tenant_limit=15)
    dues = [world.due(at, handler=f"h{at}") for at in range(20)]
    assert await world.near.push(dues) == dues[15:]
    assert await world.near.push([world.due(tenant="other")]) == []


async def test_a_line_with_parked_jobs_takes_only_those(make: Make) -> None:
    world = await make(line_limit=10)
    line_job, parked_job, late = world.due(), world.due(1), world.due(2)
    await world.near.push([line_job])
    await world.near.set_parked(line_job.line, 0, True)
    assert await world.near.push([late, line_job]) == [late]
    assert await world.near.push([parked_job], unpark=True) == []
    await world.near.set_parked(line_job.line, 0, False)
    assert await world.near.push([late]) == []
    await world.open()
    assert await world.claim() == ids([line_job, parked_job, late])


async def test_lines_with_parked_jobs_have_room_when_they_are_under_half(make: Make) -> None:
    world = await make(line_limit=10)
    dues = [world.due(at) for at in range(10)]
    await world.near.push(dues)
    await world.open()
    assert await world.near.lines_with_room(world.all) == []
    await world.near.set_parked(dues[0].line, 0, True)
    await world.near.set_parked(world.due(queue="empty").line, 0, True)
    assert [line.queue for line in await world.near.lines_with_room(world.all)] == ["empty"]
    await world.claim(world.wish(5))
    assert [line.queue for line in await world.near.lines_with_room(world.all)] == ["empty"]
    await world.claim(world.wish(1))
    assert sorted(line.queue for line in await world.near.lines_with_room(world.all)) == ["empty", "mail"]
    await world.near.set_parked(dues[0].line, 0, False)
    assert [line.queue for line in await world.near.lines_with_room(world.all)] == ["empty"]


# --- gates ------------------------------------------------------------------------------------------------------------


async def test_a_queue_without_known_settings_is_asked_for_and_never_taken_for_open(world: World) -> None:
    await world.near.push([due := world.due()])
    popped = await world.pop()
    assert (popped.dues, popped.ask) == ([], (("acme", "mail"),))
    await world.open()
    assert await world.claim() == [due.job_id]


async def test_a_queue_without_jobs_is_not_asked_for(world: World) -> None:
    assert (await world.pop()).ask == ()


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(world: World) -> None:
    await world.near.push([due := world.due()])
    await world.near.configure("acme", "mail", QueueGate(paused=True))
    assert await world.claim() == []
    await world.open()
    assert await world.claim() == [due.job_id]


async def test_a_pause_with_an_end_ends_by_itself(world: World) -> None:
    await world.near.push([due := world.due()])
    await world.near.configure("acme", "mail", QueueGate(paused=True, paused_until=world.now + 5_000))
    world.clock.advance(4.999)
    assert await world.claim() == []
    world.clock.advance(0.001)
    assert await world.claim() == [due.job_id]


# --- suspects ---------------------------------------------------------------------------------------------------------


async def test_a_suspect_job_is_handed_out_alone(world: World) -> None:
    await world.open()
    suspect = world.due(-1, suspect=True)
    ordinary = [world.due(at) for at in range(3)]
    await world.near.push([*ordinary, suspect])
    assert await world.claim() == [suspect.job_id]
    assert await world.claim() == ids(ordinary)


async def test_a_suspect_job_waits_for_its_score_and_never_joins_others(world: World) -> None:
    await world.open()
    suspect = world.due(1, suspect=True)
    ordinary = [world.due(at * 2) for at in range(3)]
    await world.near.push([*ordinary, suspect])
    assert await world.claim() == ids(ordinary)
    assert await world.claim() == [suspect.job_id]


async def test_suspect_and_ordinary_jobs_do_not_starve_each_other(world: World) -> None:
    await world.open()
    suspects = [world.due(-1_000 + at, suspect=True) for at in range(20)]
    ordinary = [world.due(at) for at in range(200)]
    await world.near.push(suspects + ordinary)
    claims = [await world.claim(world.wish(10)) for _ in range(40)]
    assert [job for claim in claims for job in claim if job in set(ids(suspects))] == ids(suspects)
    assert [job for claim in claims for job in claim if job in set(ids(ordinary))] == ids(ordinary)
    assert all(len(claim) == 1 for claim in claims if set(claim) & set(ids(suspects)))
    assert set(claims[0]) <= set(ids(suspects))
    assert len(claims[1]) == 10
    # A steady supply of earlier suspects does not hold ordinary jobs up.
    late = world.due(0)
    await world.near.push([late])
    for _ in range(3):
        await world.near.push([world.due(-9_000, suspect=True)])
        if late.job_id in await world.claim():
            break
    else:
        pytest.fail("an ordinary job starves behind suspects")


# --- figures ----------------------------------------------------------------------------------------------------------


async def test_the_figures_of_a_queue_count_all_its_lines(world: World) -> None:
    assert await world.near.ready_count("acme", "mail") == (0, None)
    dues: list[Due] = [
        world.due(50),
        world.due(30, handler="b"),
        world.callback(10, host="x"),
        world.due(20, lane=Lane.FLEXIBLE, suspect=True),
        world.due(40, priority=1),
    ]
    await world.near.push([*dues, world.due(-5, queue="other")])
    assert await world.near.ready_count("acme", "mail") == (5, dues[2].due_at)
    await world.near.remove([dues[2].job_id])
    assert await world.near.ready_count("acme", "mail") == (4, dues[3].due_at)
    await world.open()
    await world.claim()
    figures = await world.near.figures(world.all)
    assert (figures.ready, figures.in_hand) == (2, 0)


async def test_a_tenants_many_hosts_leave_no_lines_behind(world: World) -> None:
    await world.open()
    for start in range(0, 5_000, 100):
        await world.near.push([world.callback(host=f"h{at}") for at in range(start, start + 100)])
        popped = await world.near.pop(wish := world.executor_wish())
        assert len(popped.dues) == 100
        await world.near.settle(wish.request_id, [])
    assert await world.near.ready_count("acme", "mail") == (0, None)
    await world.near.push([due := world.callback(host="h1")])
    assert (await world.pop(world.executor_wish())).dues == [due]


async def test_full_lines_of_a_tenant_leave_every_other_line_a_reserve(make: Make) -> None:
    world = await make(line_limit=1_000, tenant_limit=1_000)
    paused = [world.due(queue="paused") for _ in range(1_000)]
    assert await world.near.push(paused) == []
    mine = [world.due(at, queue="mine") for at in range(3)]
    assert await world.near.push(mine) == mine[2:]
    await world.near.set_parked(mine[0].line, 0, True)
    await world.open(("acme", "mine"))
    assert await world.claim(world.wish(queue="mine")) == ids(mine[:2])
    assert mine[0].line in await world.near.lines_with_room(world.all)


async def test_a_line_is_closed_until_no_partition_has_parked_jobs_of_it(world: World) -> None:
    await world.open()
    job = world.due()
    await world.near.set_parked(job.line, 0, True)
    await world.near.set_parked(job.line, 2, True)
    assert await world.near.lines_with_room([1, 3]) == []
    assert await world.near.lines_with_room([2]) == [job.line]
    await world.near.set_parked(job.line, 0, False)
    assert await world.near.push([job]) == [job]
    await world.near.set_parked(job.line, 2, False)
    assert await world.near.push([job]) == []
