"""Recur, row by row: the schedule's row with all that the step brings, then the near tier."""

import asyncio
from itertools import count
from typing import Any

import pytest

from tests.amount import one_in
from tests.flow.ledgers import all_jobs, all_skips, sound, state_of
from tests.flow.recurring import TENANT, change, define, jobs_of, skips_of
from tests.life.disk import Crashed
from tests.life.sqliteworld import SqliteWorld
from tests.life.world import Process, World
from tocsin import wire
from tocsin.errors import StoreUnavailable
from tocsin.flow.horizon import due_of
from tocsin.store.port import Beaten
from tocsin.store.schedules import Move, Moved
from tocsin.wire import Status

MINUTELY = {"cron": "* * * * *"}


async def _made(kind, folder):
    world = World() if kind == "step" else SqliteWorld(folder)
    await world.start()
    return world


async def test_the_writes_are_in_the_order_of_the_table(world):
    await define(world, **MINUTELY)
    world.clock.advance(60)
    world.fault.clear()
    await world.on.dispatch.step()
    writes = [
        "schedules",
        "timers",
        "jobs",
        "jobs",
        "schedules",
    ]  # the row, then what it owes, then that it owes nothing
    assert world.fault.writes() == ["near.take", *writes, "near.offer", "near.push", "near.drop"]


async def test_what_is_remembered_costs_no_read(any_world):
    world = any_world
    made = await define(world, **MINUTELY)
    reads = []
    schedules, jobs = world.on.store.schedules, world.on.store.jobs
    of_jobs, states = schedules.of_jobs, jobs.states

    async def looked(ids):
        reads.append(ids)
        return await of_jobs(ids)

    async def asked(ids):
        reads.append(ids)
        return await states(ids)

    schedules.of_jobs, jobs.states = looked, asked
    for _ in range(3):
        world.clock.advance(60)
        await world.on.dispatch.step()
    assert reads == []
    schedules.of_jobs, jobs.states = of_jobs, states
    assert [job.status for job in await jobs_of(world, made)] == [*[Status.QUEUED] * 3, Status.SCHEDULED]


@pytest.mark.parametrize("kind", ["step", "sqlite"])
@pytest.mark.parametrize(
    "fields", [{}, {"overlap": "forbid"}, {"overlap": "replace"}, {"missed_runs": {"policy": "run_all"}}]
)
async def test_a_crash_anywhere_in_a_fire_starts_the_occurrence_once_and_makes_one_next(kind, fields, tmp_path):
    struck = 0
    for strikes in count() if kind == "step" else one_in(4):
        (folder := tmp_path / str(strikes)).mkdir()
        world = await _made(kind, folder)
        made = await define(world, **MINUTELY, **fields)
        since = world.clock.now_ms()
        await world.advance(60)
        if fields:
            assert len(await world.claim()) == 1
        world.clock.advance(60)
        world.fault.after(strikes)
        died = False
        try:
            await world.on.dispatch.step()
        except (Crashed, StoreUnavailable):
            died = True
        if died or getattr(world, "crashed", False):
            await world.restart()
        left = world.fault.planned
        world.fault.clear()
        await world.settle()
        await sound(world, made.schedule_id, since=since)
        await world.advance(180)
        await sound(world, made.schedule_id, since=since)
        await world.on.store.close()
        if left:
            break
        struck = strikes
    assert struck > 4


async def test_a_store_that_is_away_puts_the_members_back(any_world):
    world = any_world
    made = await define(world, **MINUTELY)
    world.clock.advance(60)
    world.fault.always(StoreUnavailable("down"))
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await world.on.dispatch.step()
    world.fault.always(None)
    await world.settle()
    assert [job.status for job in await jobs_of(world, made)] == [Status.QUEUED, Status.SCHEDULED]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("fields", [{}, {"overlap": "forbid"}, {"missed_runs": {"policy": "run_all"}}])
async def test_two_dispatchers_with_the_same_member_fire_it_once(together, fields):
    world = World(yielding=True)
    first = await world.start()
    made = await define(world, **MINUTELY, **fields)
    second = Process(world, first.store, first.near)
    world.clock.advance(60)
    (job,) = await jobs_of(world, made)
    if together:
        done = list(await asyncio.gather(first.recur.fire([due_of(job)]), second.recur.fire([due_of(job)])))
    else:
        done = [await first.recur.fire([due_of(job)]), await second.recur.fire([due_of(job)])]
    assert sum(len(one.fired) for one in done) == 1
    assert all([due.job_id for due in one.ready] == [job.job_id] for one in done)
    assert [one.status for one in await jobs_of(world, made)] == [Status.QUEUED, Status.SCHEDULED]
    await sound(world, made.schedule_id)


async def test_a_memory_that_is_out_of_date_is_refused_and_read_again():
    world = World()
    first = await world.start()
    made = await define(world, **MINUTELY)
    second = Process(world, first.store, first.near)
    await second.define.patch(TENANT, made.schedule_id, wire.SchedulePatch(overlap="forbid"), None)
    await world.advance(60)
    assert [job.status for job in await jobs_of(world, made)] == [Status.QUEUED, Status.SCHEDULED]
    row, _ = await state_of(world, made.schedule_id)
    assert '"forbid"' in row.spec


async def test_an_occurrence_that_was_patched_fires_as_it_is_now(any_world):
    world = any_world
    made = await define(world, **MINUTELY)
    (job,) = await jobs_of(world, made)
    await world.patch(job.job_id, payload={"n": 1})
    await world.advance(60)
    fired, ahead = await jobs_of(world, made)
    assert (fired.status, bytes(fired.definition.payload)) == (Status.QUEUED, b'{"n":1}')
    assert bytes(ahead.definition.payload) == b"null"


async def test_a_retry_of_an_occurrence_fires_as_any_job_and_moves_nothing(any_world):
    world = any_world
    made = await define(world, cron="0 * * * *")
    await world.advance(1800)
    claimed = await world.claim_one()
    row, _ = await state_of(world, made.schedule_id)
    await world.complete(claimed.lease_token, "retryable_failure")
    await world.advance(60)
    again = await world.claim_one()
    assert (again.job_id, again.attempt) == (claimed.job_id, 2)
    assert (await state_of(world, made.schedule_id))[0] == row


async def test_an_occurrence_whose_schedule_is_gone_is_cancelled(any_world):
    world = any_world
    made = await define(world, **MINUTELY)
    (job,) = await jobs_of(world, made)
    row, _ = await state_of(world, made.schedule_id)
    gone = Move(schedule_id=row.schedule_id, serial=row.serial, after=None)
    assert await world.on.store.schedules.move([gone]) == [Moved.WON]
    await world.advance(60)
    assert (await world.job(job.job_id)).status is Status.CANCELLED
    assert await world.claim(10) == []


async def test_a_step_that_no_store_can_hold_breaks_the_schedule_and_stops_nobody(any_world):
    world = any_world
    odd, other = await define(world, "odd", **MINUTELY), await define(world, "other", **MINUTELY)
    move = world.on.store.schedules.move

    async def refusing(moves):
        refused = [one.schedule_id == odd.schedule_id and len(one.fires) > 0 for one in moves]
        answers = iter(await move([one for one, no in zip(moves, refused, strict=True) if not no]))
        return [Moved.REFUSED if no else next(answers) for no in refused]

    world.on.store.schedules.move = refusing
    await world.advance(120)
    world.on.store.schedules.move = move
    row, state = await state_of(world, odd.schedule_id)
    assert (row.status, "cannot hold" in (state.broken or "")) == ("broken", True)
    assert [job.status for job in await jobs_of(world, odd)] == [Status.QUEUED]
    assert [job.status for job in await jobs_of(world, other)] == [Status.QUEUED, Status.QUEUED, Status.SCHEDULED]


# --- after an outage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "ran", "skipped"),
    [
        ("run_latest", ["03:40"], [("03:31", "03:39", 9, "missed")]),
        ("skip", [], [("03:31", "03:40", 10, "missed")]),
        ("run_all", [f"03:{minute}" for minute in range(38, 41)], [("03:31", "03:37", 7, "catch_up_limit")]),
    ],
)
async def test_what_was_missed_in_an_outage_goes_by_the_policy(any_world, policy, ran, skipped):
    world = any_world
    made = await define(world, **MINUTELY, missed_runs={"policy": policy, "max_catch_up": 3})
    world.clock.advance(10 * 60 + 5)
    await world.restart()
    await world.settle()
    seen = []
    while claimed := await world.claim(10):
        assert len(claimed) == 1
        seen.append(claimed[0].run_at[11:16])
        await world.complete(claimed[0].lease_token)
        await world.settle()
    assert seen == ran
    assert [(a[11:16], b[11:16], n, why) for a, b, n, why in await skips_of(world, made)] == skipped
    _, state = await state_of(world, made.schedule_id)
    assert (state.held, state.backlogs, state.runs) == ((), (), len(ran))
    await world.advance(60)
    assert len(await world.claim(10)) == 1


async def test_many_that_catch_up_are_spread_over_time(any_world):
    world = any_world
    made = [await define(world, f"s{number}", **MINUTELY) for number in range(20)]
    world.clock.advance(300)
    await world.on.dispatch.step()
    statuses = [[job.status for job in await jobs_of(world, one)][-2] for one in made]
    assert statuses.count(Status.QUEUED) < 20
    await world.advance(1)
    assert [[job.status for job in await jobs_of(world, one)][-2] for one in made] == [Status.QUEUED] * 20


# --- what waits for the end of others ---------------------------------------------------------------------------------


async def test_with_replace_the_newest_starts_when_the_running_one_has_ended(any_world):
    world = any_world
    made = await define(world, **MINUTELY, overlap="replace")
    await world.advance(60)
    first = await world.claim_one()
    for _ in range(4):
        await world.advance(15)
        beaten = await world.beat(first.lease_token)
    assert await world.claim() == []
    assert (await world.job(first.job_id)).status is Status.CANCEL_REQUESTED
    assert isinstance(beaten, Beaten)
    await world.complete(first.lease_token, "cancelled")
    await world.settle()
    second = await world.claim_one()
    assert second.run_at.endswith("03:32:00Z")
    assert [job.status for job in await jobs_of(world, made)] == [Status.CANCELLED, Status.RUNNING, Status.SCHEDULED]
    await sound(world, made.schedule_id)


async def test_with_replace_a_worker_that_is_gone_does_not_hold_up_the_next(any_world):
    world = any_world
    await define(world, cron="*/5 * * * *", overlap="replace")
    await world.advance(300)
    first = await world.claim_one()
    for _ in range(29):
        await world.advance(10)
        await world.beat(first.lease_token)
    await world.advance(10)  # the next one is due, and the worker is gone
    await world.advance(45)
    assert (await world.claim_one()).run_at.endswith("03:40:00Z")


async def test_an_end_that_is_forgotten_in_a_crash_is_found(any_world):
    world = any_world
    made = await define(world, **MINUTELY, missed_runs={"policy": "run_all"})
    world.clock.advance(180)
    await world.settle()
    first = await world.claim_one()
    await world.complete(first.lease_token)
    await world.restart()  # what was told in memory is lost
    await world.advance(120)
    second = await world.claim_one()
    assert second.run_at > first.run_at
    await sound(world, made.schedule_id)


async def test_an_end_between_the_look_and_the_write_is_not_waited_for(any_world):
    world = any_world
    made = await define(world, **MINUTELY, overlap="replace")
    await world.advance(60)
    first = await world.claim_one()
    looks, left = world.on.agenda.looks, [1]

    async def slow(entries):
        found = await looks(entries)
        if left and any(look.going for look in found):
            left.pop()
            await world.complete(first.lease_token)
            await world.on.follow.step()
        return found

    world.on.agenda.looks = slow
    world.clock.advance(60)
    await world.on.dispatch.step()
    assert left == []
    assert [job.status for job in await jobs_of(world, made)] == [Status.SUCCEEDED, Status.QUEUED, Status.SCHEDULED]


async def test_a_claim_between_the_look_and_the_write_is_waited_for(any_world):
    world = any_world
    made = await define(world, **MINUTELY, overlap="replace")
    await world.advance(60)
    looks = world.on.agenda.looks
    claimed: list[Any] = []

    async def slow(entries):
        found = await looks(entries)
        if not claimed and any(look.going for look in found):
            claimed.append(await world.claim_one())
        return found

    world.on.agenda.looks = slow
    world.clock.advance(60)
    await world.on.dispatch.step()
    assert len(claimed) == 1
    assert [job.status for job in await jobs_of(world, made)] == [
        Status.CANCEL_REQUESTED,
        Status.SCHEDULED,
        Status.SCHEDULED,
    ]
    await world.complete(claimed[0].lease_token)
    await world.settle()
    assert [job.status for job in await jobs_of(world, made)] == [Status.SUCCEEDED, Status.QUEUED, Status.SCHEDULED]


async def test_the_follower_and_the_sweeper_start_the_next_once():
    world = World(yielding=True)
    await world.start()
    made = await define(world, **MINUTELY, missed_runs={"policy": "run_all"})
    world.clock.advance(300)
    await world.settle()
    for _ in range(3):
        claimed = await world.claim_one()
        await world.complete(claimed.lease_token)
        row, _ = await state_of(world, made.schedule_id)
        await asyncio.gather(world.on.follow.step(), world.on.follow.go_on([row]), world.on.follow.go_on([row]))
        going = [job for job in await all_jobs(world, made.schedule_id) if job.status is Status.QUEUED]
        assert len(going) == 1
    await sound(world, made.schedule_id)


async def test_what_falls_due_during_a_catch_up_waits_and_runs_in_its_turn(any_world):
    world = any_world
    made = await define(world, **MINUTELY, missed_runs={"policy": "run_all"})
    world.clock.advance(185)
    await world.settle()
    await world.advance(60)
    _, state = await state_of(world, made.schedule_id)
    assert len(state.held) == 1
    assert await skips_of(world, made) == []
    seen = []
    while claimed := await world.claim(10):
        assert len(claimed) == 1
        seen.append(claimed[0].run_at[11:16])
        await world.complete(claimed[0].lease_token)
        await world.settle()
    assert seen == ["03:31", "03:32", "03:33", "03:34"]


async def test_a_job_that_expires_before_anybody_claims_it_is_a_skip(any_world):
    world = any_world
    made = await define(world, cron="0 * * * *", template={"expires_after_s": 60})
    await world.advance(1800)
    await world.advance(61)
    assert await world.claim(10) == []
    assert [(skip.count, skip.reason) for skip in await all_skips(world, made.schedule_id)] == [(1, "expired")]


async def test_a_change_of_the_queue_takes_the_waiting_job_along_in_the_figures(any_world):
    world = any_world
    made = await define(world, **MINUTELY)
    await change(world, made, job_template={"queue": "other", "target": {"type": "task", "handler": "do"}})
    count = world.on.tally.count
    assert (count(TENANT, "q", Status.SCHEDULED), count(TENANT, "other", Status.SCHEDULED)) == (0, 1)
    await world.advance(60)
    assert (count(TENANT, "other", Status.QUEUED), world.on.tally.waiting(TENANT)) == (1, 2)
    assert len(await world.claim(10, queue="other")) == 1
