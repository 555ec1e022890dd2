"""Moves of schedules: one wins, all of it is written or nothing, and whatever it brings is written with it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from msgspec import Raw, structs

from tests.conformance.yard import LEASE_MS, LINE, WORKER, Yard, due, fired, skip, step
from tocsin.model.job import decode_definition
from tocsin.model.partition import bucket_of
from tocsin.store.port import FIRE, Change, Due, Fired, JobFilter, Success
from tocsin.store.schedules import Move, Moved, ScheduleRow, SkipRow
from tocsin.wire import Outcome, Status

MINUTE_MS = 60_000


def edit(row: ScheduleRow, **changes: Any) -> Move:
    """A move that changes nothing but the row."""
    return Move(schedule_id=row.schedule_id, serial=row.serial, after=step(row, **changes))


def gone(row: ScheduleRow, **brings: Any) -> Move:
    """A move that deletes a schedule."""
    return Move(schedule_id=row.schedule_id, serial=row.serial, after=None, **brings)


# making


async def test_a_new_schedule_is_there_with_its_first_job(yard: Yard) -> None:
    row, job = await yard.begun(at_in_ms=MINUTE_MS)
    assert await yard.row(row.schedule_id) == row
    found = await yard.state(job.job_id)
    assert (found.status, found.version, found.due_at) == (Status.SCHEDULED, 1, job.fire_at)
    assert found.definition == decode_definition(job.definition)
    assert found.created_at == yard.now
    (timer,) = await yard.timers(FIRE)
    assert (timer.job_id, timer.bucket, timer.time) == (job.job_id, bucket_of(job.fire_at), job.fire_at)


async def test_a_job_that_is_due_already_is_queued_with_its_timer(yard: Yard) -> None:
    row = yard.schedule()
    job = yard.occurrence(row, queued=True)
    assert await yard.move(Move(schedule_id=row.schedule_id, serial=0, after=row, jobs=(job,))) is Moved.WON
    found = await yard.state(job.job_id)
    assert (found.status, found.queued_at) == (Status.QUEUED, yard.now)
    assert [timer.job_id for timer in await yard.timers(FIRE)] == [job.job_id]
    (claimed,) = await yard.jobs.claim([job.job_id], WORKER, LEASE_MS)
    assert claimed is not None
    assert claimed.definition == decode_definition(job.definition)


async def test_a_name_stands_for_one_schedule_of_a_tenant(yard: Yard) -> None:
    row, _ = await yard.begun("nightly")
    yard.clock.advance(1)
    again, other = yard.schedule("nightly"), yard.schedule("nightly", tenant="bolt")
    job = yard.occurrence(again)
    assert await yard.move(Move(schedule_id=again.schedule_id, serial=0, after=again, jobs=(job,))) is Moved.LOST
    assert await yard.move(Move(schedule_id=other.schedule_id, serial=0, after=other)) is Moved.WON
    assert await yard.schedules.named("acme", ["nightly"]) == [row]
    assert await yard.schedules.named("bolt", ["nightly"]) == [other]
    assert await yard.jobs.states([job.job_id]) == [None]


async def test_of_two_new_ones_with_one_name_in_a_batch_one_is_made(yard: Yard) -> None:
    rows = [yard.schedule("same"), yard.schedule("same"), yard.schedule("other")]
    moves = [Move(schedule_id=row.schedule_id, serial=0, after=row) for row in rows]
    assert sorted(moved.value for moved in await yard.schedules.move(moves)) == ["lost", "won", "won"]


async def test_the_same_schedule_is_made_once(yard: Yard) -> None:
    row, _ = await yard.begun()
    assert await yard.move(Move(schedule_id=row.schedule_id, serial=0, after=row)) is Moved.LOST
    assert await yard.row(row.schedule_id) == row


# moving


async def test_a_move_fires_the_waiting_job_and_makes_the_next(yard: Yard) -> None:
    row, job = await yard.begun()
    following = yard.occurrence(row, MINUTE_MS)
    move = fired(row, job, following, look_at=yard.now + 3 * MINUTE_MS, state='{"runs":1}')
    assert await yard.move(move) is Moved.WON
    assert await yard.row(row.schedule_id) == move.after
    assert move.after is not None
    assert move.after.serial == 2
    found = await yard.state(job.job_id)
    assert (found.status, found.version, found.queued_at) == (Status.QUEUED, 1, yard.now)
    assert (await yard.state(following.job_id)).status is Status.SCHEDULED
    assert {one.job_id for one in await yard.dues()} == {following.job_id}
    assert await yard.jobs.fire([due(job)]) == [Fired.ALREADY]


async def test_many_schedules_fire_in_one_batch(yard: Yard) -> None:
    begun = [await yard.begun(f"s{number}") for number in range(40)]
    moves = [
        fired(row, job, yard.occurrence(row, MINUTE_MS), state=f"{number}") for number, (row, job) in enumerate(begun)
    ]
    assert await yard.schedules.move(moves) == [Moved.WON] * 40
    rows = await yard.schedules.get([row.schedule_id for row, _ in begun])
    assert rows == [move.after for move in moves]
    states = await yard.jobs.states([job.job_id for _, job in begun])
    assert {state and state.status for state in states} == {Status.QUEUED}
    assert {one.job_id for one in await yard.dues()} == {move.jobs[0].job_id for move in moves}


async def test_in_a_batch_each_move_stands_alone(yard: Yard) -> None:
    begun = [await yard.begun(f"s{number}") for number in range(9)]
    moves = [fired(row, job, yard.occurrence(row, MINUTE_MS)) for row, job in begun]
    moves[2] = structs.replace(moves[2], serial=7)
    moves[5] = structs.replace(moves[5], fires=(due(begun[5][1], version=2),))
    unknown = yard.schedule("unknown")
    moves[7] = edit(unknown)
    expected = [Moved.WON] * 9
    expected[2], expected[5], expected[7] = Moved.LOST, Moved.STALE, Moved.LOST
    assert await yard.schedules.move(moves) == expected
    for (row, job), move, moved in zip(begun, moves, expected, strict=True):
        won = moved is Moved.WON
        assert await yard.row(row.schedule_id) == (move.after if won else row)
        assert await yard.status(job.job_id) is (Status.QUEUED if won else Status.SCHEDULED)
        (made,) = await yard.jobs.states([job.job_id for job in move.jobs] or [job.job_id])
        assert (made is not None) == (won or not move.jobs)


async def test_of_many_moves_from_one_row_one_wins(yard: Yard) -> None:
    row, job = await yard.begun()
    moves = [fired(row, job, state=f"{number}") for number in range(20)]
    answers = [moved for (moved,) in await asyncio.gather(*(yard.schedules.move([move]) for move in moves))]
    assert sorted(moved.value for moved in answers) == ["lost"] * 19 + ["won"]
    assert (await yard.row(row.schedule_id)).state == f"{answers.index(Moved.WON)}"


async def test_of_two_moves_of_one_schedule_in_a_batch_the_later_sees_the_earlier(yard: Yard) -> None:
    row = yard.schedule()
    job, following, third = (yard.occurrence(row, at) for at in (0, MINUTE_MS, 2 * MINUTE_MS))
    first = Move(schedule_id=row.schedule_id, serial=0, after=row, jobs=(job,))
    second = fired(row, job, following)
    assert second.after is not None
    late = structs.replace(fired(row, job, third), serial=1)
    more = edit(second.after, state="last")
    assert await yard.schedules.move([first, second, late, more]) == [Moved.WON, Moved.WON, Moved.LOST, Moved.WON]
    assert await yard.row(row.schedule_id) == more.after
    assert await yard.status(job.job_id) is Status.QUEUED
    assert await yard.jobs.states([third.job_id]) == [None]


async def test_a_change_of_everything_is_kept(yard: Yard) -> None:
    row, _ = await yard.begun()
    for changes in (
        {"state": "s"},
        {"spec": "other", "revision": 2},
        {"spec": "other again"},
        {"status": "paused", "look_at": None},
        {"status": "broken", "state": "x" * 5_000, "spec": "y" * 100_000},
        {"status": "finished", "revision": 3},
        {"status": "active", "look_at": 0},
        {"spec": "", "state": ""},
        {"spec": 'a"\x1e\x00\n\u2028ä', "state": 'a"\x1e\x00\n\u2028ä'},
    ):
        move = edit(row, **changes)
        assert await yard.move(move) is Moved.WON
        row = await yard.row(row.schedule_id)
        assert row == move.after


# conditions on jobs


async def test_a_job_that_is_not_waiting_at_that_version_makes_the_move_stale(yard: Yard) -> None:
    row, job = await yard.begun()
    following = yard.occurrence(row, MINUTE_MS)
    for wrong in (due(job, version=2), due(job, at=job.fire_at - 1), due(following)):
        move = structs.replace(fired(row, job, following), fires=(wrong,))
        assert await yard.move(move) is Moved.STALE
        assert await yard.row(row.schedule_id) == row
        assert await yard.jobs.states([following.job_id]) == [None]
    await yard.cancelled(job.job_id)
    assert await yard.move(fired(row, job, following)) is Moved.STALE
    assert await yard.move(edit(row)) is Moved.WON


async def test_one_stale_job_keeps_the_whole_move_from_being_written(yard: Yard) -> None:
    row, first = await yard.begun()
    second = yard.occurrence(row, 1_000)
    await yard.jobs.create([second])
    before = await yard.state(first.job_id)
    cancel = Change(before=before, after=replace(before, status=Status.CANCELLED, finished_at=yard.now))
    stale = Change(before=replace(before, version=9), after=cancel.after)
    moves = [
        Move(schedule_id=row.schedule_id, serial=1, after=step(row), fires=(due(second, 4),), changes=(cancel,)),
        Move(
            schedule_id=row.schedule_id,
            serial=1,
            after=step(row),
            fires=(due(second),),
            changes=(stale,),
            skips=(skip(row, 5),),
        ),
    ]
    assert await yard.schedules.move(moves) == [Moved.STALE, Moved.STALE]
    assert await yard.status(first.job_id) is Status.SCHEDULED
    assert await yard.status(second.job_id) is Status.SCHEDULED
    assert await yard.schedules.skips(row.schedule_id, None, 10) == []
    assert await yard.row(row.schedule_id) == row


async def test_a_retrying_job_is_not_fired_by_a_move(yard: Yard) -> None:
    row = yard.schedule()
    await yard.move(Move(schedule_id=row.schedule_id, serial=0, after=row))
    job = await yard.retrying(schedule_id=row.schedule_id)
    fire = Due(job.due_at, job.job_id, job.version, job.line, 0)
    assert await yard.move(structs.replace(edit(row), fires=(fire,))) is Moved.STALE


async def test_a_move_changes_its_jobs(yard: Yard) -> None:
    row, job = await yard.begun(at_in_ms=MINUTE_MS)
    running = yard.occurrence(row, -MINUTE_MS, queued=True)
    await yard.jobs.create([running])
    await yard.jobs.claim([running.job_id], WORKER, LEASE_MS)
    waits, runs = await yard.state(job.job_id), await yard.state(running.job_id)
    moved = replace(waits, version=2, fire_at=waits.fire_at + 7, due_at=waits.due_at + 7)
    move = structs.replace(
        edit(row),
        changes=(
            Change(before=waits, after=moved, timer=True),
            Change(before=runs, after=replace(runs, status=Status.CANCEL_REQUESTED)),
        ),
    )
    assert await yard.move(move) is Moved.WON
    assert await yard.state(job.job_id) == moved
    assert await yard.status(running.job_id) is Status.CANCEL_REQUESTED
    assert {(one.job_id, one.version, one.due_at) for one in await yard.dues()} == {(job.job_id, 2, moved.due_at)}
    assert await yard.move(structs.replace(move, serial=2)) is Moved.STALE


async def test_a_heartbeat_that_came_between_makes_a_change_stale(yard: Yard) -> None:
    row, job = await yard.begun()
    await yard.move(fired(row, job))
    await yard.jobs.claim([job.job_id], WORKER, LEASE_MS)
    read = await yard.state(job.job_id)
    cancel = Change(before=replace(read, beaten_at=yard.now), after=replace(read, status=Status.CANCEL_REQUESTED))
    row = await yard.row(row.schedule_id)
    assert await yard.move(structs.replace(edit(row), changes=(cancel,))) is Moved.STALE


async def test_a_skipped_job_ends_with_the_move_and_its_skip(yard: Yard) -> None:
    row, job = await yard.begun()
    waits = await yard.state(job.job_id)
    ended = replace(waits, status=Status.SKIPPED, finished_at=yard.now, last_error="paused")
    why = skip(row, job.fire_at)
    move = structs.replace(edit(row, status="paused"), changes=(Change(before=waits, after=ended),), skips=(why,))
    assert await yard.move(move) is Moved.WON
    assert await yard.status(job.job_id) is Status.SKIPPED
    assert await yard.schedules.skips(row.schedule_id, None, 10) == [why]
    assert await yard.schedules.waiting(row.schedule_id) == []


async def test_a_waiting_job_is_given_another_template_and_another_queue(yard: Yard) -> None:
    row, job = await yard.begun(at_in_ms=MINUTE_MS)
    waits = await yard.state(job.job_id)
    line = LINE._replace(queue="reports", handler="build")
    definition = structs.replace(waits.definition, payload=Raw(b'"new"'))
    after = replace(waits, line=line, definition=definition, priority=1)
    assert await yard.move(structs.replace(edit(row), changes=(Change(before=waits, after=after),))) is Moved.WON
    assert await yard.state(job.job_id) == after
    assert [
        one.job_id for one in (await yard.jobs.list_jobs(JobFilter(tenant="acme", queue="mail"), None, 9)).jobs
    ] == []
    page = await yard.jobs.list_jobs(JobFilter(tenant="acme", queue="reports"), None, 9)
    assert page.jobs == [after]
    assert [one.line for one in await yard.dues()] == [line]
    yard.clock.advance(60)
    again = await yard.row(row.schedule_id)
    assert await yard.move(fired(again, job)) is Moved.WON
    (claimed,) = await yard.jobs.claim([job.job_id], WORKER, LEASE_MS)
    assert claimed is not None
    assert (claimed.definition, claimed.line) == (definition, line)
    assert await yard.jobs.succeed([Success(job_id=job.job_id, attempt=1)]) == [True]
    assert (await yard.state(job.job_id)).definition == definition


# new jobs


async def test_a_job_that_is_there_already_is_left_as_it_is(yard: Yard) -> None:
    row, job = await yard.begun()
    waits = await yard.state(job.job_id)
    other = structs.replace(
        job, definition=yard.occurrence(row, 0, name="other").definition, line=LINE._replace(queue="x")
    )
    fresh = yard.occurrence(row, MINUTE_MS)
    assert await yard.move(structs.replace(edit(row), jobs=(other, fresh))) is Moved.WON
    assert await yard.state(job.job_id) == waits
    assert await yard.status(fresh.job_id) is Status.SCHEDULED
    assert len(await yard.timers()) == 2
    assert [one.job_id for one in (await yard.jobs.list_jobs(JobFilter(tenant="acme"), None, 9)).jobs] == [
        fresh.job_id,
        job.job_id,
    ]


async def test_a_job_that_has_ended_is_not_made_again(yard: Yard) -> None:
    row, job = await yard.begun()
    await yard.move(fired(row, job))
    await yard.jobs.claim([job.job_id], WORKER, LEASE_MS)
    await yard.jobs.succeed([Success(job_id=job.job_id, attempt=1)])
    assert await yard.move(structs.replace(edit(step(row)), jobs=(job,))) is Moved.WON
    assert await yard.status(job.job_id) is Status.SUCCEEDED
    assert (await yard.schedules.going([row.schedule_id]))[row.schedule_id] == []
    assert await yard.dues() == []


async def test_a_job_of_another_queue_that_is_there_is_not_made_a_second_time(yard: Yard) -> None:
    row, job = await yard.begun()
    waits = await yard.state(job.job_id)
    elsewhere = replace(waits, line=LINE._replace(queue="reports"))
    move = structs.replace(edit(row), changes=(Change(before=waits, after=elsewhere),))
    assert await yard.move(move) is Moved.WON
    assert await yard.move(structs.replace(edit(step(row)), jobs=(job,))) is Moved.WON
    assert await yard.jobs.create([job])
    assert (await yard.state(job.job_id)).line.queue == "reports"
    assert len((await yard.jobs.list_jobs(JobFilter(tenant="acme"), None, 9)).jobs) == 1
    assert len((await yard.jobs.list_jobs(JobFilter(tenant="acme", queue="mail"), None, 9)).jobs) == 0


# deleting


async def test_a_deleted_schedule_is_gone_with_its_skips_and_its_jobs_stay(yard: Yard) -> None:
    row, job = await yard.begun()
    other, _ = await yard.begun("other")
    following = yard.occurrence(row, MINUTE_MS)
    assert await yard.move(fired(row, job, following)) is Moved.WON
    await yard.schedules.add_skips([skip(row, 1), skip(other, 1)])
    waits = await yard.state(following.job_id)
    cancelled = replace(waits, status=Status.CANCELLED, finished_at=yard.now, outcome=Outcome.CANCELLED)
    move = gone(step(row), changes=(Change(before=waits, after=cancelled),))
    assert await yard.move(structs.replace(move, serial=1)) is Moved.LOST
    assert await yard.move(move) is Moved.WON
    assert await yard.schedules.get([row.schedule_id, other.schedule_id]) == [None, other]
    assert await yard.schedules.named("acme", ["nightly"]) == [None]
    assert await yard.schedules.skips(row.schedule_id, None, 10) == []
    assert len(await yard.schedules.skips(other.schedule_id, None, 10)) == 1
    listed = await yard.jobs.list_jobs(JobFilter(tenant="acme", schedule_id=row.schedule_id), None, 10)
    assert [(one.job_id, one.status) for one in listed.jobs] == [
        (following.job_id, Status.CANCELLED),
        (job.job_id, Status.QUEUED),
    ]
    ((of_job, maker),) = [pair for pair in await yard.schedules.of_jobs([job.job_id]) if pair is not None]
    assert (of_job.job_id, maker) == (job.job_id, None)
    assert await yard.move(move) is Moved.LOST


async def test_the_name_of_a_deleted_schedule_is_free(yard: Yard) -> None:
    row, _ = await yard.begun()
    await yard.move(gone(row))
    yard.clock.advance(1)
    again, _ = await yard.begun()
    assert again.schedule_id != row.schedule_id
    assert await yard.schedules.named("acme", ["nightly"]) == [again]
    assert await yard.schedules.skips(again.schedule_id, None, 10) == []


# what a schedule's job leaves when it expires


@pytest.mark.parametrize("how", ["fire", "claim"])
async def test_an_occurrence_that_expires_leaves_a_skip(yard: Yard, how: str) -> None:
    row = yard.schedule()
    jobs = [yard.occurrence(row, at, expires_in_ms=1_000, queued=how == "claim") for at in (-1, 0)]
    unplanned = structs.replace(yard.new(expires_in_ms=1_000, queued=how == "claim", schedule_id=row.schedule_id))
    again = yard.occurrence(row, -2, expires_in_ms=1_000, queued=how == "claim", origin="backfill")
    plain = yard.new(expires_in_ms=1_000, queued=how == "claim")
    await yard.move(Move(schedule_id=row.schedule_id, serial=0, after=row, jobs=tuple(jobs)))
    await yard.jobs.create([unplanned, again, plain])
    yard.clock.advance(2)
    every = [*jobs, unplanned, again, plain]
    if how == "fire":
        assert await yard.jobs.fire([due(job) for job in every]) == [Fired.EXPIRED] * 5
    else:
        assert await yard.jobs.claim([job.job_id for job in every], WORKER, LEASE_MS) == [None] * 5
    assert [await yard.status(job.job_id) for job in every] == [Status.SKIPPED] * 5
    found = await yard.schedules.skips(row.schedule_id, None, 10)
    assert [(one.first, one.last, one.count, one.reason, one.recorded_at) for one in found] == [
        (job.fire_at, job.fire_at, 1, "expired", yard.now) for job in reversed(jobs)
    ]


async def test_a_job_that_expires_shortens_no_skip_that_begins_with_it(yard: Yard) -> None:
    row = yard.schedule()
    job = yard.occurrence(row, -1, expires_in_ms=1_000)
    await yard.move(Move(schedule_id=row.schedule_id, serial=0, after=row, jobs=(job,)))
    longer = SkipRow(
        schedule_id=row.schedule_id,
        first=job.fire_at,
        last=job.fire_at + 60_000,
        count=2,
        reason="expired",
        recorded_at=1,
    )
    await yard.schedules.add_skips([longer])
    yard.clock.advance(2)
    assert await yard.jobs.fire([due(job)]) == [Fired.EXPIRED]
    assert await yard.schedules.skips(row.schedule_id, None, 10) == [longer]


async def test_a_job_that_outlived_its_schedule_expires_without_a_skip(yard: Yard) -> None:
    row = yard.schedule()
    job = yard.occurrence(row, expires_in_ms=1_000)
    await yard.move(Move(schedule_id=row.schedule_id, serial=0, after=row, jobs=(job,)))
    await yard.move(gone(row))
    yard.clock.advance(2)
    assert await yard.jobs.fire([due(job)]) == [Fired.EXPIRED]
    assert await yard.schedules.skips(row.schedule_id, None, 10) == []
