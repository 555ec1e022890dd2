"""Move: one step of a schedule, with the jobs and skips that it brings (§5, stages *fire* and *recur*).

At the top of a minute tens of thousands of schedules take the same plain step: the waiting job fires, the next one is made, the
row goes on. A batch of these is first written as if nothing stood against any of them; only when fewer rows than expected
changed is that taken back, everything looked at and each move judged. A crash before the commit leaves all as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

import msgspec
from msgspec import Struct

from tocsin.model.partition import partition_of
from tocsin.store import codes
from tocsin.store.numbers import number_of
from tocsin.store.schedules import Move, Moved, ScheduleRow, SkipRow
from tocsin.store.sqlite.create import fresh, insert
from tocsin.store.sqlite.finish import unchanged, write_changes
from tocsin.store.sqlite.fire import all_fire
from tocsin.store.sqlite.statements import Many, block
from tocsin.store.sqlite.work import Look, Work, in_rounds, json_text

_STEP = Many("schedules", "step")
_LOOK = block("schedules", "look")
_NAMES = Many("schedules", "names")
_PUT = Many("schedules", "put")
_LAST_SPEC = block("schedules", "last_spec")
_PUT_SPECS = Many("schedules", "put_specs")
_DELETE = block("schedules", "delete")
_DELETE_SPECS = block("schedules", "delete_specs")
_DELETE_SKIPS = block("skips", "delete")
_PUT_SKIPS = Many("skips", "put")
_FIRE = block("jobs", "fire_scheduled")
_FIRE_THESE = block("jobs", "fire_these")

# What became of a move, and which of its jobs were there already.
Answer = tuple[Moved, tuple[str, ...]]


class Seen(Struct, array_like=True, frozen=True):
    """What `schedules.look` tells of a row; `serial` 0: there is none."""

    serial: int
    schedule_id: str
    revision: int
    status: int
    spec_crc: int
    spec_id: int


_SEEN = msgspec.json.Decoder(list[Seen])
_TAKEN = msgspec.json.Decoder(list[tuple[int, str]])


def move(work: Work, moves: Sequence[Move]) -> list[Answer]:
    """Write each move whole, or nothing of it."""
    plain = all(one.serial and one.after is not None and not one.changes for one in moves)
    if plain and len({one.schedule_id for one in moves}) == len(moves):
        if _quick(work, moves):
            return [(Moved.WON, ())] * len(moves)
        work.undo()
    return in_rounds(moves, lambda one: one.schedule_id, lambda part: _careful(work, part))


def add_skips(work: Work, skips: Sequence[SkipRow]) -> list[None]:
    """Write skips; the later of two with the same key stands."""
    rows = {(number_of(skip.schedule_id), skip.first, skip.reason): skip for skip in skips}
    _PUT_SKIPS.run(
        work.conn, [(*key, one.last, one.count, one.recorded_at, one.detail) for key, one in sorted(rows.items())]
    )
    return [None] * len(skips)


# --- as if all won


def _quick(work: Work, moves: Sequence[Move]) -> bool:
    """Whether all have won; if not, nothing of it may stay."""
    steps = [_step_row(one.serial, one.after) for one in moves if one.after is not None]
    steps.sort()
    if _STEP.run(work.conn, steps) != len(steps):
        return False
    if not all_fire(work, [due for one in moves for due in one.fires], _FIRE):
        return False
    if not insert(work, [job for one in moves for job in one.jobs]):
        return False
    add_skips(work, [skip for one in moves for skip in one.skips])
    return True


# --- looked at and judged


def _careful(work: Work, moves: Sequence[Move]) -> list[Answer]:
    """Moves of schedules that are all different."""
    numbers = [number_of(one.schedule_id) for one in moves]
    seen = _SEEN.decode(work.row(_LOOK, json_text(numbers))[0])
    taken = _names_taken(work, moves)
    jobs = _look(work, moves)
    touched: set[str] = set()
    answers, won = [], []
    for one, row in zip(moves, seen, strict=True):
        answer = _judge_row(work, one, row, taken)
        if answer is Moved.WON:
            answer = _judge_jobs(one, jobs, touched)
        if answer is Moved.WON:
            touched |= _concerns(one)
            won.append((one, row))
            if not one.serial and one.after is not None:
                taken.add((work.lines.tenant_id(one.after.tenant), one.after.name))
        answers.append(answer)
    made = _write(work, won)
    return [
        (answer, tuple(job.job_id for job in one.jobs if job.job_id not in made) if answer is Moved.WON else ())
        for one, answer in zip(moves, answers, strict=True)
    ]


def _names_taken(work: Work, moves: Sequence[Move]) -> set[tuple[int, str]]:
    """Which of the names that new schedules want are in use."""
    names = {
        (work.lines.tenant_id(one.after.tenant), one.after.name)
        for one in moves
        if not one.serial and one.after is not None
    }
    return {name for (page,) in _NAMES.rows(work.conn, sorted(names)) for name in _TAKEN.decode(page)}


def _concerns(one: Move) -> set[str]:
    return {due.job_id for due in one.fires} | {change.before.job_id for change in one.changes}


def _look(work: Work, moves: Sequence[Move]) -> dict[str, Look]:
    job_ids = list({job_id for one in moves for job_id in _concerns(one)})
    return dict(zip(job_ids, work.look(job_ids), strict=True)) if job_ids else {}


def _judge_row(work: Work, one: Move, row: Seen, taken: set[tuple[int, str]]) -> Moved:
    if row.serial != one.serial or (row.serial and row.schedule_id != one.schedule_id):
        return Moved.LOST
    if one.serial or one.after is None:
        return Moved.WON
    name = (work.lines.tenant_id(one.after.tenant), one.after.name)
    return Moved.LOST if name in taken else Moved.WON


def _judge_jobs(one: Move, jobs: dict[str, Look], touched: set[str]) -> Moved:
    """STALE also where another schedule's move of this batch has just written one of the jobs."""
    if not touched.isdisjoint(_concerns(one)):
        return Moved.STALE
    for due in one.fires:
        job = jobs[due.job_id]
        if job.status != codes.SCHEDULED or job.version != due.version or job.due_at > due.due_at:
            return Moved.STALE
    as_read = all(unchanged(change.before, jobs[change.before.job_id]) for change in one.changes)
    return Moved.WON if as_read else Moved.STALE


def _write(work: Work, won: Sequence[tuple[Move, Seen]]) -> set[str]:
    """Write moves that were judged; which of their jobs are new."""
    gone = {number_of(one.schedule_id): row.spec_id for one, row in won if one.after is None and row.serial}
    if gone:
        numbers = json_text(list(gone))
        work.write(_DELETE, numbers)
        work.write(_DELETE_SKIPS, numbers)
        work.write(_DELETE_SPECS, json_text(list(gone.values())))
    _put(work, [(one.serial, one.after, row) for one, row in won if one.after is not None])
    moves = [one for one, _ in won]
    fires = [due.job_id for one in moves for due in one.fires]
    if fires:
        work.write(_FIRE_THESE, work.now, json_text(fires))
    write_changes(work, [change for one in moves for change in one.changes])
    new = fresh(work, [job for one in moves for job in one.jobs])
    if not insert(work, new):
        raise ValueError("a job's ID is in use in another queue")
    add_skips(work, [skip for one in moves if one.after is not None for skip in one.skips])
    return {job.job_id for job in new}


def _put(work: Work, rows: Iterable[tuple[int, ScheduleRow, Seen]]) -> None:
    steps, whole, specs = list[Any](), list[Any](), list[Any]()
    last_spec = None
    for serial, after, seen in rows:
        step = _step_row(serial, after)
        number, _, revision, status, spec_crc, look_at, state = step
        if serial and (revision, status, spec_crc) == (seen.revision, seen.status, seen.spec_crc):
            steps.append(step)
            continue
        spec_id = seen.spec_id
        if not serial:
            spec_id = last_spec = 1 + (work.row(_LAST_SPEC)[0] if last_spec is None else last_spec)
        if not serial or (revision, spec_crc) != (seen.revision, seen.spec_crc):
            specs.append((spec_id, after.spec))
        partition, tenant_id = partition_of(after.schedule_id, work.partitions), work.lines.tenant_id(after.tenant)
        key = (number, after.schedule_id, partition, tenant_id, after.name)
        whole.append((*key, revision, serial + 1, status, look_at, spec_crc, state, spec_id))
    _STEP.run(work.conn, sorted(steps))
    _PUT_SPECS.run(work.conn, sorted(specs))
    _PUT.run(work.conn, sorted(whole))


def _step_row(serial: int, after: ScheduleRow) -> tuple[Any, ...]:
    """A row of `schedules.step`. The sum and the revision tell that the spec is what it was, without reading it."""
    return (
        number_of(after.schedule_id),
        serial,
        after.revision,
        codes.SCHEDULE_STATUS_CODE[after.status],
        crc32(after.spec.encode()),
        after.look_at,
        after.state,
    )


__all__ = ["Answer", "add_skips", "move"]
