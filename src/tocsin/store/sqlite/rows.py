"""Reading a job's row: from the JSON that SQLite makes of it to a `JobState`.

A statement answers with one row whose texts are many records joined by a separator, because every row that Python fetches
hands the interpreter's lock over. A record that cannot be read (a damaged definition, a number out of range) is left out,
logged and counted; the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec
from msgspec import Struct

from tocsin.model.ids import made_at_ms
from tocsin.model.job import JobState, Line, decode_definition
from tocsin.store import codes

log = logging.getLogger("tocsin.store")

SEPARATOR = "\x1e"  # cannot occur in JSON text, RFC 8259 §7


class _Row(Struct, array_like=True, frozen=True):
    """The record `states.live` or `states.ended`."""

    job_id: str
    line_id: int
    priority: int
    status: int
    version: int
    attempt: int
    tries: int
    due_at: int
    fire_at: int
    queued_at: int | None
    started_at: int | None
    claimed_at: int | None
    lease_until: int | None
    lease_ms: int | None
    beaten_at: int | None
    worker: str | None
    losses: int
    releases: int
    expires_at: int | None
    finished_at: int | None
    last_error: str | None
    progress: str | None
    result: str | None
    outcome: int | None


_ROW = msgspec.json.Decoder(_Row)
# What damaged contents raise when they are read.
DAMAGE = (msgspec.DecodeError, LookupError, ValueError)


class Unreadable:
    """Counts the records that could not be read."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, name: str, exc: Exception) -> None:
        """One more, by a name that gives away nothing of its contents."""
        self.count += 1
        log.error("%a cannot be read and is passed over (%s); examine the store with `tocsin doctor`", name, exc)


def split(text: str | None) -> list[str]:
    """The records of a joined text."""
    return [] if text is None else text.split(SEPARATOR)


def job_state(record: str, doc: str, line: Callable[[int], Line], unreadable: Unreadable) -> JobState | None:
    """The job of one record and its definition; None where there is no job, or none that can be read."""
    if not record:
        return None
    try:
        row = _ROW.decode(record)
        definition = decode_definition(doc)
        return JobState(
            job_id=row.job_id,
            line=line(row.line_id),
            priority=row.priority,
            status=codes.STATUS[row.status],
            version=row.version,
            attempt=row.attempt,
            tries=row.tries,
            due_at=row.due_at,
            fire_at=row.fire_at,
            created_at=made_at_ms(row.job_id) if definition.made_at is None else definition.made_at,
            queued_at=row.queued_at,
            started_at=row.started_at,
            claimed_at=row.claimed_at,
            lease_until=row.lease_until,
            lease_ms=row.lease_ms,
            beaten_at=row.beaten_at,
            worker=row.worker,
            losses=row.losses,
            releases=row.releases,
            expires_at=row.expires_at,
            finished_at=row.finished_at,
            last_error=row.last_error,
            progress=_bytes(row.progress),
            result=_bytes(row.result),
            outcome=None if row.outcome is None else codes.OUTCOME[row.outcome],
            definition=definition,
        )
    except DAMAGE as exc:
        unreadable.note(record.partition(",")[0].strip('["'), exc)
        return None


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
