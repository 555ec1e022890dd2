"""Timers: written by the recheck, deleted by it, and the floors below which everything has been rechecked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tocsin.model.partition import partition_of
from tocsin.store import codes
from tocsin.store.port import NewTimer, TimerKind, TimerRow
from tocsin.store.sqlite.statements import Many, block
from tocsin.store.sqlite.work import Work

_WATCH = Many("timers", "add_watch", shared=1)
_DELETE = Many("timers", "delete")
_BOUND = block("timers", "void_bound")
_SWEEP = block("timers", "sweep_void")
_RAISE_FLOOR = block("timers", "raise_floor")

Key = tuple[int, int, int, int, str, int]
FIRST: Key = (-(2**63), 0, 0, 0, "", 0)


class Swept(NamedTuple):
    """One slice of a sweep: how many timers went, and where to go on (None: at the end)."""

    deleted: int
    after: Key | None


def watch(work: Work, timers: Sequence[NewTimer]) -> list[None]:
    """Write watch timers in the bucket of max(time, now)."""
    rows = [
        (partition_of(timer.job_id, work.partitions), ids.lane, ids.tenant_id, timer.time, timer.job_id, timer.version)
        for timer, ids in ((timer, work.lines.ids(timer.line)) for timer in timers)
    ]
    _WATCH.run(work.conn, sorted(rows), work.now)
    return [None] * len(rows)


def delete_timers(work: Work, timers: Sequence[TimerRow]) -> list[None]:
    """Delete exactly these timers."""
    rows = [_key(work, timer) for timer in timers]
    _DELETE.run(work.conn, sorted(rows))
    return [None] * len(rows)


def _key(work: Work, timer: TimerRow) -> tuple[Any, ...]:
    return (
        partition_of(timer.job_id, work.partitions),
        codes.KIND_CODE[timer.kind],
        timer.bucket,
        int(timer.lane),
        work.lines.tenant_id(timer.tenant),
        timer.time,
        timer.job_id,
        timer.version,
    )


def sweep_void(work: Work, partition: int, kind: TimerKind, last_bucket: int, after: Key, rows: int) -> Swept:
    """Look at the next `rows` timers beyond `after` and delete the void ones among them."""
    code = codes.KIND_CODE[kind]
    bound = work.row(_BOUND, partition, code, last_bucket, *after, rows - 1)
    until: Key = bound if bound is not None else (last_bucket, 2**63 - 1, 2**63 - 1, 2**63 - 1, "", 0)
    deleted = work.write(_SWEEP, partition, code, *after, *until)
    return Swept(deleted, bound)


def set_floor(work: Work, partition: int, bucket: int) -> None:
    """Raise a partition's floor."""
    work.write(_RAISE_FLOOR, partition, bucket)
