"""Create: idempotency record, timer and job of new jobs (§5, stage *accept*).

IDs are given before the first try, so a commit of unknown outcome may be repeated: a job that is there already, even a finished
one, answers CREATED and nothing is written. A batch is first written in one statement as if nothing of it were there; only when a
row turns out to exist does that fail as a whole, and each key and ID is looked up under locks. A crash leaves whole jobs or
nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import asyncpg

from tocsin.model.ids import made_at_ms
from tocsin.model.partition import partition_of
from tocsin.store import codes
from tocsin.store.numbers import number_of
from tocsin.store.port import Created, Made, NewJob
from tocsin.store.postgres.days import DAY_MS
from tocsin.store.postgres.group import Work
from tocsin.store.postgres.keys import answer_keys, key_rows, say_bound
from tocsin.store.postgres.rows import columns
from tocsin.store.postgres.statements import block

_QUICK = block("create", "quick")
_LIST = block("create", "list")
_CAREFUL = block("create", "careful")
_TIMERS = block("timers", "add")


async def create(work: Work, jobs: Sequence[NewJob]) -> list[Created]:
    """Create the jobs that are not there yet."""
    await work.database.queues.need(work.fetch, (job.line for job in jobs))
    answers = await say_bound(work, jobs)
    made = iter(await _create(work, [job for job, answer in zip(jobs, answers, strict=True) if answer is None]))
    return [next(made) if answer is None else answer for answer in answers]


def name_of(job: NewJob) -> Hashable:
    """What must not stand twice in one batch."""
    return job.job_id if job.key is None else (job.key.tenant, job.key.text)


async def _create(work: Work, jobs: Sequence[NewJob]) -> list[Created]:
    if not jobs:
        return []
    try:
        await _quick(work, jobs)
    except asyncpg.UniqueViolationError:
        return await _careful(work, jobs)
    return [Created(Made.CREATED, job.job_id) for job in jobs]


async def _quick(work: Work, jobs: Sequence[NewJob]) -> None:
    rows = sorted((job_row(work, job) for job in jobs), key=lambda row: row[0])
    least = min(made_at_ms(job.job_id) for job in jobs) - DAY_MS  # clocks differ, and step
    await work.fetch(_QUICK, work.now, *columns(rows, 15), least, *columns(key_rows(work, jobs), 5))


async def _careful(work: Work, jobs: Sequence[NewJob]) -> list[Created]:
    async with work.transaction():
        answers, missing = await answer_keys(work, jobs)
        await insert_new(work, missing)
    return answers


async def insert_new(work: Work, jobs: Sequence[NewJob]) -> set[str]:
    """Inside a transaction: write timers and jobs where they are not there yet, live or finished; which were not."""
    new = {job.job_id: job for job in reversed(jobs)}
    listed = sorted((number_of(job.schedule_id), job.job_id) for job in new.values() if job.schedule_id is not None)
    if listed:
        fresh = {row[0] for row in await work.fetch(_LIST, *columns(listed, 2))}
        new = {job_id: job for job_id, job in new.items() if job.schedule_id is None or job_id in fresh}
    if not new:
        return set()
    rows = [job_row(work, new[job_id]) for job_id in sorted(new)]
    made = {row[0] for row in await work.fetch(_CAREFUL, work.now, *columns(rows, 15))}
    timers = sorted(
        (partition_of(job_id, work.partitions), job.line.lane, job.line.tenant, job.fire_at, job_id, 1)
        for job_id, job in new.items()
        if job_id in made
    )
    await work.fetch(_TIMERS, work.now, codes.KIND_CODE["fire"], *columns(timers, 6))
    return made


def job_row(work: Work, job: NewJob) -> tuple[Any, ...]:
    """The columns of `create.rows`."""
    return (
        job.job_id,
        *job.line,
        job.priority,
        codes.QUEUED if job.queued else codes.SCHEDULED,
        job.fire_at,
        job.timeout_ms,
        job.expires_at,
        None if job.schedule_id is None else number_of(job.schedule_id),
        job.definition,
        partition_of(job.job_id, work.partitions),
    )
