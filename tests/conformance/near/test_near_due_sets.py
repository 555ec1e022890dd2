"""Due sets: members come out once, at their time, in fair order."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.near.world import World, ids
from tocsin.model.job import Lane

DAY_MS = 86_400_000


async def test_a_member_is_taken_at_its_time_and_not_a_millisecond_before(world: World) -> None:
    due = world.due(1_500)
    await world.near.offer([due])
    world.clock.advance(1.499)
    assert await world.take() == []
    world.clock.advance(0.001)
    assert await world.take() == [due]


async def test_a_member_offered_again_and_again_is_taken_once(world: World) -> None:
    # A delay ten times as long as every interval of looking made copies elsewhere: see the faults of visibility time-outs.
    due = world.due(600_000)
    for _ in range(10):
        await world.near.offer([due, due])
        world.clock.advance(60)
        await world.near.offer([due])
    assert await world.take_and_drop() == [due]
    assert await world.take() == []


async def test_an_offer_of_a_member_in_hand_is_not_taken_again(world: World) -> None:
    due = world.due()
    await world.near.offer([due])
    assert await world.take() == [due]
    await world.near.offer([due])
    assert await world.take() == []


async def test_a_newer_version_replaces_the_older_one(world: World) -> None:
    old = world.due(1_000)
    new = world.due(9_000, job_id=old.job_id, version=2)
    await world.near.offer([old])
    await world.near.offer([new, old])
    world.clock.advance(1)
    assert await world.take() == []
    world.clock.advance(8)
    assert await world.take() == [new]


async def test_a_newer_version_in_another_lane_replaces_the_older_one(world: World) -> None:
    old = world.due(0)
    new = world.due(0, job_id=old.job_id, version=2, lane=Lane.FLEXIBLE)
    await world.near.offer([old])
    await world.near.offer([new])
    assert await world.take() == [new]


async def test_dropping_an_older_version_leaves_the_newer_one(world: World) -> None:
    old = world.due(0)
    new = world.due(5_000, job_id=old.job_id, version=2)
    await world.near.offer([old])
    taken = await world.take()
    await world.near.offer([new])
    await world.near.drop(taken)
    world.clock.advance(5)
    assert await world.take() == [new]


async def test_dropping_an_older_version_twice_leaves_the_newer_one(world: World) -> None:
    old = world.due(0)
    new = world.due(0, job_id=old.job_id, version=2)
    await world.near.offer([old])
    taken = await world.take_and_drop()
    await world.near.offer([new])
    await world.near.drop(taken)
    assert await world.take() == [new]


async def test_restored_members_are_due_again_and_dropped_ones_are_not(world: World) -> None:
    kept, gone = world.due(), world.due()
    await world.near.offer([kept, gone])
    await world.take()
    await world.near.restore([kept])
    await world.near.drop([gone])
    assert await world.take() == [kept]
    assert (await world.near.figures(world.all)).due == 1


async def test_restoring_twice_or_what_was_never_taken_makes_no_copies(world: World) -> None:
    due, never_taken = world.due(), world.due(10)
    await world.near.offer([due, never_taken])
    await world.take()
    await world.near.restore([due, due])
    await world.near.restore([due, never_taken])
    world.clock.advance(1)
    assert sorted(ids(await world.take())) == sorted(ids([due, never_taken]))


async def test_members_of_a_pass_that_died_come_back(world: World) -> None:
    due = world.due()
    await world.near.offer([due])
    assert await world.take() == [due]
    for _ in range(5):
        world.clock.advance(30)
        if again := await world.take():
            break
    assert again == [due]


async def test_a_member_that_was_removed_is_not_taken(world: World) -> None:
    dues = [world.due(at) for at in range(10)]
    await world.near.offer(dues)
    await world.near.remove(ids(dues[:5]))
    world.clock.advance(1)
    assert await world.take() == dues[5:]


async def test_a_removed_member_that_is_offered_anew_is_taken_once(world: World) -> None:
    due, other = world.due(10), world.due(20)
    await world.near.offer([due, other])
    await world.near.remove([due.job_id])
    await world.near.offer([due])
    world.clock.advance(1)
    assert await world.take_and_drop() == [due, other]
    assert await world.take() == []


async def test_far_times_neither_wrap_nor_fire_early(world: World) -> None:
    days = [24.8, 24.9, 49.8, 365.9]
    dues = [world.due(round(day * DAY_MS)) for day in days]
    await world.near.offer(dues)
    for due in dues:
        assert await world.near.next_due(world.all) == due.due_at
        world.clock.advance_to(due.due_at - 1)
        assert await world.take() == []
        world.clock.advance(0.001)
        assert await world.take_and_drop() == [due]


async def test_a_clock_that_steps_back_fires_nothing_early_and_loses_nothing(world: World) -> None:
    dues = [world.due(at * 1_000) for at in range(1, 6)]
    await world.near.offer(dues)
    world.clock.advance(2)
    assert await world.take_and_drop() == dues[:2]
    world.clock.step_wall(-3_600)
    assert await world.take() == []
    await world.near.offer([soon := world.due(500)])
    world.clock.advance(0.5)
    assert await world.take_and_drop() == [soon]
    world.clock.step_wall(3_600)
    world.clock.advance(3)
    assert await world.take_and_drop() == dues[2:]


# --- order and fairness -----------------------------------------------------------------------------------------------


async def test_the_precise_lane_goes_first_however_late_the_flexible_one_is(world: World) -> None:
    flexible = [world.due(at, lane=Lane.FLEXIBLE) for at in range(5)]
    precise = [world.due(100 + at, tenant="other") for at in range(5)]
    await world.near.offer(flexible + precise)
    world.clock.advance(1)
    assert await world.take(7) == precise + flexible[:2]


async def test_a_tenants_earliest_members_come_first_whatever_their_partition(world: World) -> None:
    dues = [world.due(at * 37, partition=at % world.partitions) for at in range(200)]
    await world.near.offer(dues[1::2])
    await world.near.offer(dues[::-2])
    await world.near.offer(dues[::2])
    world.clock.advance(60)
    taken = []
    while some := await world.take_and_drop(17):
        taken += some
    assert taken == dues


async def test_members_that_come_late_take_their_place_among_the_others(world: World) -> None:
    dues = [world.due(at) for at in range(100)]
    await world.near.offer(dues[::2])
    world.clock.advance(1)
    taken = await world.take_and_drop(1)
    late = dues[1::2]
    for at in range(0, 50, 5):
        await world.near.offer(late[at : at + 5][::-1])
        taken += await world.take_and_drop(3)
    taken += await world.take_and_drop()
    assert sorted(taken) == dues
    await world.near.offer(dues[::2])
    assert await world.take_and_drop(1) == dues[:1]
    await world.near.offer(late)
    assert await world.take_and_drop(7) == dues[1:8]
    assert await world.take_and_drop() == dues[8:]


async def test_one_tenants_burst_does_not_delay_anothers_single_member(world: World) -> None:
    await world.near.offer(world.dues(20_000, tenant="a"))
    await world.near.offer([one := world.due(1, tenant="b")])
    world.clock.advance(1)
    assert one in await world.take_and_drop(100)
    # A third one with a member a second: always in the next pass.
    for _ in range(20):
        await world.near.offer([each := world.due(tenant="c")])
        assert each in await world.take_and_drop(100)
        world.clock.advance(1)


async def test_shares_follow_weights_and_what_is_not_used_flows_on(world: World) -> None:
    await world.near.set_weight("heavy", 3.0)
    await world.near.offer(world.dues(6_000, tenant="heavy") + world.dues(6_000, tenant="light"))
    first = [due.line.tenant for _ in range(10) for due in await world.take_and_drop(400)]
    assert len(first) == 4_000
    assert 2_800 <= first.count("heavy") <= 3_200
    rest = [due.line.tenant for _ in range(20) for due in await world.take_and_drop(400)]
    assert len(rest) == 8_000


# --- partitions -------------------------------------------------------------------------------------------------------


async def test_only_members_of_the_asked_partitions_are_taken(world: World) -> None:
    dues = [world.due(at, partition=at % 4) for at in range(40)]
    await world.near.offer(dues)
    world.clock.advance(1)
    assert await world.near.take([], world.now, 100) == []
    assert await world.near.take([1, 2], world.now, 100) == [due for at, due in enumerate(dues) if at % 4 in (1, 2)]
    assert await world.near.next_due([3]) == dues[3].due_at
    assert await world.near.next_due([1]) is None
    assert await world.take_and_drop() == [due for at, due in enumerate(dues) if at % 4 in (0, 3)]


async def test_forgotten_partitions_leave_nothing_behind_but_what_others_reach(world: World) -> None:
    dues = [world.due(at, partition=at % 4) for at in range(40)]
    await world.near.offer(dues)
    world.clock.advance(1)
    await world.near.take([0], world.now, 5)
    await world.near.forget([0, 1])
    rest = await world.near.take([2, 3], world.now, 100)
    await world.near.drop(rest)
    assert rest == [due for at, due in enumerate(dues) if at % 4 in (2, 3)]
    assert (await world.near.figures(world.all)).due == (20 if world.shared else 0)


async def test_a_look_at_single_partitions_holds_nothing_back(world: World) -> None:
    """Lists of partitions look at each, also in a process that fires."""
    dues = [world.due(-at) for at in range(20)]
    await world.near.offer(dues)
    first = await world.near.take(world.all, world.now, 1)
    for partition in world.all:
        await world.near.next_due([partition])
    assert set(first + await world.take()) == set(dues)


async def test_what_an_owner_took_is_due_again_when_the_next_one_begins(world: World) -> None:
    dues = [world.due(at, partition=1) for at in range(5)]
    await world.near.offer(dues)
    world.clock.advance(1)
    assert await world.take(3) == dues[:3]
    await world.near.forget([1])
    await world.near.begin([1])
    assert await world.take() == (dues if world.shared else [])


# --- times ------------------------------------------------------------------------------------------------------------


async def test_the_next_time_is_that_of_the_earliest_waiting_member(world: World) -> None:
    assert await world.near.next_due(world.all) is None
    early, late = world.due(1_000, tenant="b"), world.due(2_000, lane=Lane.FLEXIBLE)
    await world.near.offer([late])
    assert await world.near.next_due(world.all) == late.due_at
    await world.near.offer([early])
    assert await world.near.next_due(world.all) == early.due_at
    await world.near.remove([early.job_id])
    assert await world.near.next_due(world.all) == late.due_at
    world.clock.advance(3)
    await world.take()
    assert await world.near.next_due(world.all) is None
    await world.near.restore([late])
    assert await world.near.next_due(world.all) == late.due_at


async def test_what_a_full_pass_left_behind_is_the_next_time(world: World) -> None:
    dues = [world.due(at) for at in range(10)]
    await world.near.offer(dues)
    world.clock.advance(1)
    await world.take_and_drop(4)
    assert await world.near.next_due(world.all) == dues[4].due_at


async def test_a_new_earliest_member_ends_the_wait_and_a_later_one_does_not(world: World) -> None:
    await world.near.offer([world.due(10_000)])
    await world.near.wait_due(0)
    waiting = asyncio.ensure_future(world.near.wait_due(0.5))
    await world.turns()
    await world.near.offer([world.due(20_000)])
    await world.turns()
    assert not waiting.done()
    await world.near.offer([world.due(5_000)])
    await world.turns()
    assert waiting.done()


async def test_a_member_that_is_due_now_ends_the_wait_also_for_a_tenant_that_was_just_served(world: World) -> None:
    dues = world.dues(100)
    later = world.due(30_000)
    await world.near.offer([*dues, later])
    assert len(await world.take_and_drop(100)) == 100
    await world.near.wait_due(0)
    waiting = asyncio.ensure_future(world.near.wait_due(0.5))
    await world.turns()
    await world.near.offer([world.due(1_000)])
    await world.turns()
    assert waiting.done()


async def test_the_wait_for_members_ends_at_its_time(world: World) -> None:
    waiting = asyncio.ensure_future(world.near.wait_due(0.5))
    await world.turns()
    world.clock.advance(0.4)
    await world.turns()
    assert not waiting.done()
    world.clock.advance(0.1)
    await world.turns()
    assert waiting.done()


@pytest.mark.parametrize("priority", [-1, 0, 1])
async def test_priority_has_no_say_in_when_a_member_is_due(world: World, priority: int) -> None:
    due = world.due(1_000, priority=priority)
    await world.near.offer([due])
    world.clock.advance(0.999)
    assert await world.take() == []
    world.clock.advance(0.001)
    assert await world.take() == [due]
