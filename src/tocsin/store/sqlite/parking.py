"""Parked jobs: those whose ready line was full, remembered by line and score until there is room."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.model.job import ready_score
from tocsin.model.partition import partition_of
from tocsin.store.port import FIRST_WATCH_MS, Due, NewTimer
from tocsin.store.sqlite.statements import Many
from tocsin.store.sqlite.timers import watch
from tocsin.store.sqlite.work import Work

_ADD = Many("parking", "add")
_DELETE = Many("parking", "delete")


def park(work: Work, dues: Sequence[Due]) -> list[None]:
    """Remember these; the same job and version twice is one."""
    rows = [(*_key(work, due), due.due_at, due.priority) for due in dues]
    _ADD.run(work.conn, sorted(rows))
    return [None] * len(rows)


def unpark(work: Work, dues: Sequence[Due]) -> list[None]:
    """Forget these: first a watch timer for each, so that none is ever without a timer."""
    at = work.now + FIRST_WATCH_MS
    watch(work, [NewTimer(job_id=due.job_id, version=due.version, time=at, line=due.line) for due in dues])
    _DELETE.run(work.conn, sorted(_key(work, due) for due in dues))
    return [None] * len(dues)


def _key(work: Work, due: Due) -> tuple[int, int, int, str, int]:
    partition = partition_of(due.job_id, work.partitions)
    score = ready_score(due.due_at, due.priority)
    return partition, work.lines.ids(due.line).line_id, score, due.job_id, due.version
