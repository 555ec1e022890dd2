"""Timers and parked jobs: what the recheck and full lines write and delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tocsin.model.job import ready_score
from tocsin.model.partition import partition_of
from tocsin.store import codes
from tocsin.store.port import FIRST_WATCH_MS, WATCH, Due, NewTimer, TimerKind, TimerRow
from tocsin.store.postgres.group import Work
from tocsin.store.postgres.rows import columns
from tocsin.store.postgres.statements import block

_ADD = block("timers", "add")
_DELETE = block("timers", "delete")
_SWEEP = block("timers", "sweep_void")
_PARK = block("timers", "park")
_UNPARK = block("timers", "unpark")

Key = tuple[int, int, str, int, str, int]
FIRST: Key = (-(2**63), -(2**15), "", -(2**63), "", -(2**63))


class Swept(NamedTuple):
    """One slice of a sweep: how many timers went, and where to go on (None: at the end)."""

    deleted: int
    after: Key | None


async def watch(work: Work, timers: Sequence[NewTimer]) -> list[None]:
    """Write watch timers in the bucket of max(time, now)."""
    rows = sorted(
        (
            partition_of(timer.job_id, work.partitions),
            int(timer.line.lane),
            timer.line.tenant,
            timer.time,
            timer.job_id,
            timer.version,
        )
        for timer in timers
    )
    await work.fetch(_ADD, work.now, codes.KIND_CODE[WATCH], *columns(rows, 6))
    return [None] * len(timers)


async def delete_timers(work: Work, timers: Sequence[TimerRow]) -> list[None]:
    """Delete exactly these timers."""
    rows = sorted(
        {
            (
                partition_of(timer.job_id, work.partitions),
                codes.KIND_CODE[timer.kind],
                timer.bucket,
                int(timer.lane),
                timer.tenant,
                timer.time,
                timer.job_id,
                timer.version,
            )
            for timer in timers
        }
    )
    await work.fetch(_DELETE, *columns(rows, 8))
    return [None] * len(timers)


async def sweep_void(work: Work, partition: int, kind: TimerKind, last_bucket: int, after: Key, rows: int) -> Swept:
    """Look at the next `rows` timers beyond `after` and delete the void ones among them."""
    found = await work.fetch(_SWEEP, partition, codes.KIND_CODE[kind], last_bucket, *after, rows)
    if not found:
        return Swept(0, None)
    *key, looked, deleted = found[0]
    bucket, lane, tenant, time, job_id, version = key
    return Swept(deleted, (bucket, lane, tenant, time, job_id, version) if looked == rows else None)


async def park(work: Work, dues: Sequence[Due]) -> list[None]:
    """Remember these; the same job and version twice is one."""
    rows = sorted((*_park_key(work, due), due.due_at, due.priority) for due in dues)
    await work.fetch(_PARK, *columns(rows, 12))
    return [None] * len(dues)


async def unpark(work: Work, dues: Sequence[Due]) -> list[None]:
    """Forget these: first a watch timer for each, so that none is ever without a timer."""
    at = work.now + FIRST_WATCH_MS
    async with work.transaction():
        await watch(work, [NewTimer(job_id=due.job_id, version=due.version, time=at, line=due.line) for due in dues])
        await work.fetch(_UNPARK, *columns(sorted(_park_key(work, due) for due in dues), 10))
    return [None] * len(dues)


def _park_key(work: Work, due: Due) -> tuple[Any, ...]:
    tenant, queue, lane, handler, hold, suspect = due.line
    return (
        partition_of(due.job_id, work.partitions),
        tenant,
        queue,
        int(lane),
        handler,
        hold,
        suspect,
        ready_score(due.due_at, due.priority),
        due.job_id,
        due.version,
    )
