"""What is asked of the connections that read: states, attempts, claims once more, parked jobs, floors and counts."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.model.ids import made_at_ms
from tocsin.model.job import HELD, JobState, Line
from tocsin.store import codes
from tocsin.store.port import AttemptRecord, Claimed, Due, Parked
from tocsin.store.postgres.databases import Database
from tocsin.store.postgres.days import DAY_MS
from tocsin.store.postgres.rows import Unreadable, line_of
from tocsin.store.postgres.statements import block
from tocsin.wire import Status

COUNT_ROWS = 50_000

_STATES = block("reads", "states")
_ATTEMPTS = block("reads", "attempts")
_PARKED = block("timers", "parked")
_PARKED_OF_LINE = block("timers", "parked_of_line")
_PARKED_LINES = block("timers", "parked_lines")
_FLOORS = block("timers", "floors")
_COUNTS = block("reads", "counts")
_COUNTS_BOUND = block("reads", "counts_bound")


async def states(database: Database, unreadable: Unreadable, job_ids: Sequence[str]) -> list[JobState | None]:
    """The jobs as they are, live or finished."""
    found: dict[str, JobState | None] = {}
    # A job finishes after it was made, so only the days since then are looked at first. What is not found there is sought in all:
    # a schedule's job can finish before the instant in its ID, and a clock may have been set back.
    made = [made_at_ms(job_id) for job_id in job_ids]
    for least in (min(made, default=0) - DAY_MS, 0):
        missing = sorted({job_id for job_id in job_ids if job_id not in found})
        if missing:
            rows = await database.reads.fetch(_STATES, missing, least)
            found.update((row[0], unreadable.state(row)) for row in rows)
    return [found.get(job_id) for job_id in job_ids]


async def reclaim(
    database: Database, unreadable: Unreadable, jobs: Sequence[tuple[str, int]], worker: str
) -> list[Claimed | None]:
    """What a claim answered for (job, attempt), as long as that attempt is still held by `worker`."""
    found = await states(database, unreadable, [job_id for job_id, _ in jobs])
    return [
        _as_claimed(job)
        if job is not None and job.status in HELD and job.attempt == attempt and job.worker == worker
        else None
        for job, (_, attempt) in zip(found, jobs, strict=True)
    ]


def _as_claimed(job: JobState) -> Claimed:
    assert job.lease_until is not None  # CHECK held_under_a_lease
    assert job.lease_ms is not None
    return Claimed(
        job_id=job.job_id,
        attempt=job.attempt,
        tries=job.tries,
        due_at=job.due_at,
        lease_until=job.lease_until,
        lease_ms=job.lease_ms,
        fire_at=job.fire_at,
        line=job.line,
        definition=job.definition,
        progress=job.progress,
    )


async def attempts(database: Database, job_id: str) -> list[AttemptRecord]:
    """Ended attempts, oldest first."""
    return [
        AttemptRecord(
            attempt=attempt,
            worker=worker,
            claimed_at=claimed_at,
            finished_at=finished_at,
            outcome=codes.OUTCOME[outcome],
            error=error,
            due_at=due_at,
            status_code=status_code,
            response=response,
        )
        for attempt, worker, claimed_at, finished_at, outcome, error, due_at, status_code, response in (
            await database.lists.fetch(_ATTEMPTS, job_id)
        )
    ]


async def parked(database: Database, partition: int, line: Line | None, limit: int) -> list[Parked]:
    """The first parked jobs of a line (of any line if None), by score."""
    if line is None:
        rows = await database.reads.fetch(_PARKED, partition, limit)
    else:
        rows = await database.reads.fetch(_PARKED_OF_LINE, partition, *line, limit)
    return [Parked(due=Due(row[9], row[7], row[8], line_of(*row[:6]), row[10]), score=row[6]) for row in rows]


async def parked_lines(database: Database, partition: int) -> dict[Line, int]:
    """Which lines have parked jobs, and how many."""
    return {line_of(*row[:6]): row[6] for row in await database.reads.fetch(_PARKED_LINES, partition)}


async def floors(database: Database) -> dict[int, int]:
    """The floors that were set."""
    return {row[0]: row[1] for row in await database.reads.fetch(_FLOORS)}


async def live_counts(database: Database) -> dict[tuple[str, str, Status], int]:
    """How many live and dead jobs there are by tenant, queue and status; slice by slice, so that no statement is long."""
    counts: dict[tuple[str, str, Status], int] = {}
    after: str | None = ""
    while after is not None:
        bound = await database.reads.fetch(_COUNTS_BOUND, after, COUNT_ROWS - 1)
        until = bound[0][0] if bound else None
        for tenant, queue, status, count in await database.reads.fetch(_COUNTS, after, until or "~"):
            key = (tenant, queue, codes.STATUS[status])
            counts[key] = counts.get(key, 0) + count
        after = until
    return counts
