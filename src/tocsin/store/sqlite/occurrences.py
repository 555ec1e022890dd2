"""What a job means to the schedule that made it: it is listed there, it is going on there, and where it expires that is a skip.

A schedule is known in these tables by its number (`store/numbers.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tocsin.store.numbers import number_of
from tocsin.store.port import NewJob
from tocsin.store.sqlite.statements import Many, block
from tocsin.store.sqlite.work import Work, json_text

_ADD = Many("occurrences", "add")
_KNOWN = Many("occurrences", "known")
_MAKERS = block("occurrences", "makers")
_DELETE = Many("occurrences", "delete")
_SKIP_EXPIRED = block("occurrences", "skip_expired")
_NAMES = msgspec.json.Decoder(list[str])
_PAIRS = msgspec.json.Decoder(list[tuple[str, str]])


def add(work: Work, rows: list[tuple[int, str]]) -> int:
    """List jobs (schedule's number, job's ID); how many were not listed before."""
    return _ADD.run(work.conn, sorted(rows))


def known(work: Work, jobs: Sequence[NewJob]) -> set[str]:
    """Which of these jobs a schedule made before, wherever they are now."""
    rows = sorted((number_of(job.schedule_id), job.job_id) for job in jobs if job.schedule_id is not None)
    return {name for (page,) in _KNOWN.rows(work.conn, rows) for name in _NAMES.decode(page)}


def forget(work: Work, jobs: Sequence[tuple[int, str]]) -> None:
    """Unlist jobs (queue's number, job's ID) whose definitions are about to be deleted."""
    made = _PAIRS.decode(work.row(_MAKERS, json_text(jobs))[0])
    _DELETE.run(work.conn, sorted((number_of(schedule_id), job_id) for schedule_id, job_id in made))


def skip_expired(work: Work, job_ids: str) -> None:
    """Record the skips of jobs (a JSON list) that expire now; those that no schedule made are passed over."""
    work.write(_SKIP_EXPIRED, work.now, job_ids)
