"""Rows: from what a statement answers to a `JobState`, and from a `JobState` to the columns of a row.

A row that cannot be read (a damaged definition, a number that stands for nothing) is left out, logged and counted; the others go
on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from tocsin.model.ids import made_at_ms
from tocsin.model.job import JobState, Lane, Line, decode_definition
from tocsin.store import codes
from tocsin.store.numbers import number_of

log = logging.getLogger("tocsin.store")

# What damaged contents raise when they are read.
DAMAGE = (msgspec.DecodeError, LookupError, ValueError)


class Look(NamedTuple):
    """The part of a live job's row that conditions are about (`jobs.look`); `status` 0: there is no such live job."""

    job_id: str
    status: int
    version: int
    attempt: int
    due_at: int
    expires_at: int | None
    claimed_at: int | None
    timeout_ms: int
    lease_ms: int | None
    lease_until: int | None
    beaten_at: int | None


def looks_of(rows: Sequence[Any], job_ids: Sequence[str]) -> list[Look]:
    """What was seen of these jobs, in their order."""
    found = {row[0]: Look(*row) for row in rows}
    return [found.get(job_id) or Look(job_id, 0, 0, 0, 0, None, None, 0, None, None, None) for job_id in job_ids]


class Unreadable:
    """Counts the rows that could not be read."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, name: str, exc: Exception) -> None:
        """One more, by a name that gives away nothing of its contents."""
        self.count += 1
        log.error("%a cannot be read and is passed over (%s); examine the store with `tocsin doctor`", name, exc)

    def state(self, row: Sequence[Any]) -> JobState | None:
        """The job of a row of `reads.live` or `reads.ended`; None, and noted, if it cannot be read."""
        try:
            return job_state(row)
        except DAMAGE as exc:
            self.note(row[0], exc)
            return None


def line_of(tenant: str, queue: str, lane: int, handler: str, hold: str, suspect: bool) -> Line:
    """A line as its columns tell it."""
    return Line(tenant, queue, _LANES[lane], handler, hold, suspect)


_LANES = {lane.value: lane for lane in Lane}


def job_state(row: Sequence[Any]) -> JobState:
    """The job of a row of `reads.live` or `reads.ended`."""
    definition = decode_definition(row[29])
    return JobState(
        job_id=row[0],
        line=line_of(*row[1:7]),
        priority=row[7],
        status=codes.STATUS[row[8]],
        version=row[9],
        attempt=row[10],
        tries=row[11],
        due_at=row[12],
        fire_at=row[13],
        created_at=made_at_ms(row[0]) if definition.made_at is None else definition.made_at,
        queued_at=row[14],
        started_at=row[15],
        claimed_at=row[16],
        lease_until=row[17],
        lease_ms=row[18],
        beaten_at=row[19],
        worker=row[20],
        losses=row[21],
        releases=row[22],
        expires_at=row[23],
        finished_at=row[24],
        last_error=row[25],
        progress=row[26],
        result=row[27],
        outcome=None if row[28] is None else codes.OUTCOME[row[28]],
        definition=definition,
    )


def columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Rows as one list for each column, as `unnest` takes them."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def live_row(job: JobState, doc: str | None) -> tuple[Any, ...]:
    """The columns of `jobs.put`."""
    return (
        job.job_id,
        *job.line,
        job.priority,
        codes.STATUS_CODE[job.status],
        job.version,
        job.attempt,
        job.tries,
        job.due_at,
        job.fire_at,
        job.definition.timeout_ms,
        job.expires_at,
        job.queued_at,
        job.started_at,
        job.claimed_at,
        job.lease_until,
        job.lease_ms,
        job.beaten_at,
        job.worker,
        job.losses,
        job.releases,
        job.finished_at,
        _outcome(job),
        storable(job.last_error),
        job.progress,
        _schedule(job),
        doc,
    )


def ended_row(job: JobState, finished_at: int, doc: str | None) -> tuple[Any, ...]:
    """The columns of `finished.move`."""
    return (
        job.job_id,
        *job.line,
        job.priority,
        codes.STATUS_CODE[job.status],
        job.version,
        job.attempt,
        job.tries,
        job.due_at,
        job.fire_at,
        job.expires_at,
        job.queued_at,
        job.started_at,
        job.claimed_at,
        job.worker,
        job.losses,
        job.releases,
        finished_at,
        _outcome(job),
        storable(job.last_error),
        job.progress,
        job.result,
        _schedule(job),
        doc,
    )


def storable(text: str | None) -> str | None:
    """A text that was not checked at the border, as a column can hold it: without NUL and lone surrogates."""
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _outcome(job: JobState) -> int | None:
    return None if job.outcome is None else codes.OUTCOME_CODE[job.outcome]


def _schedule(job: JobState) -> int | None:
    schedule_id = job.definition.schedule_id
    return None if schedule_id is None else number_of(schedule_id)
