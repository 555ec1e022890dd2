"""Move: one step of a schedule, with the jobs and skips that it brings (§5, stages *fire* and *recur*).

At the top of a minute tens of thousands of schedules take the same plain step: the waiting job fires, the next one is made, the
row goes on. A batch of any moves is a handful of statements over all of them, in one transaction: the schedules' rows are locked,
then the jobs that are fired or changed, each in the order of their keys; what is locked stays as it is seen, so each move is
judged by itself, and of those that stand everything is written. Another process that moves one of these schedules waits for
the lock and then sees the new serial. A crash before the commit leaves all as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple
from zlib import crc32

from tocsin.model.partition import partition_of
from tocsin.store import codes
from tocsin.store.numbers import number_of
from tocsin.store.port import NewJob
from tocsin.store.postgres.create import insert_new, job_row
from tocsin.store.postgres.finish import lock, prepare, unchanged, write_changes
from tocsin.store.postgres.fire import write_fires
from tocsin.store.postgres.group import Work
from tocsin.store.postgres.rows import Look, columns
from tocsin.store.postgres.skips import put_skips
from tocsin.store.postgres.statements import block
from tocsin.store.schedules import Move, Moved, ScheduleRow

_LOCK = block("schedules", "lock")
_STEP = block("schedules", "step")
_ADD = block("schedules", "add")
_PUT_SPECS = block("schedules", "put_specs")
_DELETE = block("schedules", "delete")
_DELETE_REST = block("schedules", "delete_rest")
_MAKE_JOBS = block("schedules", "make_jobs")
_FIRE = block("jobs", "fire_scheduled")
_job_id = attrgetter("job_id")


class Seen(NamedTuple):
    """A locked schedule's row."""

    number: int
    schedule_id: str
    serial: int
    revision: int
    status: int
    spec_crc: int


class Step(NamedTuple):
    """A row of `schedules.step`."""

    number: int
    serial: int
    revision: int
    status: int
    look_at: int | None
    spec_crc: int
    state: bytes


class Addition(NamedTuple):
    """A row of `schedules.add`."""

    number: int
    schedule_id: str
    partition: int
    tenant: str
    name: str
    revision: int
    status: int
    look_at: int | None
    spec_crc: int
    state: bytes


async def move(work: Work, moves: Sequence[Move]) -> list[Moved]:
    """Write each move whole, or nothing of it; no two are of one schedule."""
    await work.database.queues.need(work.fetch, (job.line for one in moves for job in one.jobs))
    await prepare(work, [change for one in moves for change in one.changes])
    async with work.transaction():
        return await _move(work, moves)


async def _move(work: Work, moves: Sequence[Move]) -> list[Moved]:
    numbers = [number_of(one.schedule_id) for one in moves]
    seen = {row[0]: Seen(*row) for row in await work.fetch(_LOCK, sorted(numbers))}
    standing = [_stands(one, seen.get(number)) for one, number in zip(moves, numbers, strict=True)]
    job_ids = sorted(
        {job_id for one, stands in zip(moves, standing, strict=True) if stands for job_id in _concerns(one)}
    )
    jobs = {look.job_id: look for look in await lock(work, job_ids)} if job_ids else {}
    touched: set[str] = set()
    answers = [
        _judge_jobs(one, jobs, touched) if stands else Moved.LOST for one, stands in zip(moves, standing, strict=True)
    ]
    won = [one for one, answer in zip(moves, answers, strict=True) if answer is Moved.WON]
    taken = await _add(work, [one.after for one in won if not one.serial and one.after is not None])
    await _write(work, [one for one in won if one.schedule_id not in taken], seen)
    return [
        Moved.LOST if answer is Moved.WON and one.schedule_id in taken else answer
        for one, answer in zip(moves, answers, strict=True)
    ]


def _stands(one: Move, row: Seen | None) -> bool:
    """Whether the row is as the move's maker read it; `add` has the last word about a new one."""
    if row is None:
        return one.serial == 0
    return row.serial == one.serial and row.schedule_id == one.schedule_id


def _concerns(one: Move) -> set[str]:
    return {due.job_id for due in one.fires} | {change.before.job_id for change in one.changes}


def _judge_jobs(one: Move, jobs: dict[str, Look], touched: set[str]) -> Moved:
    """STALE also where another schedule's move of this batch is about to write one of the jobs."""
    concerns = _concerns(one)
    if not touched.isdisjoint(concerns):
        return Moved.STALE
    for due in one.fires:
        job = jobs[due.job_id]
        if job.status != codes.SCHEDULED or job.version != due.version or job.due_at > due.due_at:
            return Moved.STALE
    if not all(unchanged(change.before, jobs[change.before.job_id]) for change in one.changes):
        return Moved.STALE
    touched |= concerns
    return Moved.WON


async def _add(work: Work, rows: Sequence[ScheduleRow]) -> set[str]:
    """Write new rows; the IDs of those whose number or name is taken. Sorted by what may make them wait for another process."""
    if not rows:
        return set()
    additions = [_addition(row, work.partitions) for row in sorted(rows, key=lambda row: (row.tenant, row.name))]
    added = {number for (number,) in await work.fetch(_ADD, *columns(additions, 10))}
    mine = [row for row in rows if number_of(row.schedule_id) in added]
    await _put_specs(work, mine)
    return {row.schedule_id for row in rows} - {row.schedule_id for row in mine}


async def _write(work: Work, won: Sequence[Move], seen: dict[int, Seen]) -> None:
    """Write moves that were judged; new rows are there already."""
    gone = sorted((number_of(one.schedule_id), one.serial) for one in won if one.after is None and one.serial)
    if gone:
        _all_of(gone, await work.fetch(_DELETE, *columns(gone, 2)))
        await work.fetch(_DELETE_REST, [number for number, _ in gone])
    rows = [(one.serial, one.after) for one in won if one.serial and one.after is not None]
    steps = sorted(_step(serial, row) for serial, row in rows)
    if steps:
        _all_of(steps, await work.fetch(_STEP, *columns(steps, 7)))
    await _put_specs(work, [row for _, row in rows if _is_respecified(row, seen[number_of(row.schedule_id)])])
    fires = sorted((due for one in won for due in one.fires), key=_job_id)
    _all_of(fires, await write_fires(work, fires, _FIRE))
    await write_changes(work, [change for one in won for change in one.changes])
    await _make_jobs(work, [job for one in won for job in one.jobs])
    await put_skips(work, [skip for one in won if one.after is not None for skip in one.skips])


async def _make_jobs(work: Work, jobs: Sequence[NewJob]) -> None:
    """Write the jobs that are not there yet. One that no schedule made is not listed, and looked for."""
    made = {job.job_id: job for job in reversed(jobs) if job.schedule_id is not None}
    if made:
        await work.fetch(_MAKE_JOBS, work.now, *columns([job_row(work, made[job_id]) for job_id in sorted(made)], 15))
    await insert_new(work, [job for job in jobs if job.schedule_id is None])


def _all_of(asked: Sequence[Any], written: Sequence[Any]) -> None:
    """What was locked and judged cannot have changed before it was written: if it has, nothing may be committed."""
    if len(asked) != len(written):
        raise RuntimeError(f"{len(asked)} locked rows were to be written and {len(written)} were")


def _is_respecified(row: ScheduleRow, seen: Seen) -> bool:
    """The sum and the revision tell that the spec is what it was, without reading it."""
    return (row.revision, crc32(row.spec.encode())) != (seen.revision, seen.spec_crc)


async def _put_specs(work: Work, rows: Sequence[ScheduleRow]) -> None:
    specs = sorted((number_of(row.schedule_id), row.spec.encode()) for row in rows)
    if specs:
        await work.fetch(_PUT_SPECS, *columns(specs, 2))


def _step(serial: int, row: ScheduleRow) -> Step:
    return Step(
        number_of(row.schedule_id),
        serial,
        row.revision,
        codes.SCHEDULE_STATUS_CODE[row.status],
        row.look_at,
        crc32(row.spec.encode()),
        row.state.encode(),
    )


def _addition(row: ScheduleRow, partitions: int) -> Addition:
    return Addition(
        number_of(row.schedule_id),
        row.schedule_id,
        partition_of(row.schedule_id, partitions),
        row.tenant,
        row.name,
        row.revision,
        codes.SCHEDULE_STATUS_CODE[row.status],
        row.look_at,
        crc32(row.spec.encode()),
        row.state.encode(),
    )
