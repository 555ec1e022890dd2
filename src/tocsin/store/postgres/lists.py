"""Lists of jobs: newest first over the queues of a tenant or of one schedule, and the dead letters of a queue.

A list walks indexes by ID, page by page in every database at once, and looks up each job where it then is, in one statement: so
each job is seen exactly once, also while it moves from `jobs` to `finished`. The pages of the databases are merged: of so many
rows from each, the first so many of all are the first of all.

The ID of a schedule's job has its occurrence's instant, not its creation, so a schedule's list judges `created_*` job by job.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from tocsin.model.ids import PREFIX, SCHEDULE_PREFIX, id_bound, is_job_id, is_schedule_id
from tocsin.model.job import JobState
from tocsin.store.numbers import number_of
from tocsin.store.port import DeadFilter, JobFilter, JobPage
from tocsin.store.postgres.databases import Database, Databases, gathered
from tocsin.store.postgres.reads import states
from tocsin.store.postgres.rows import Unreadable, storable
from tocsin.store.postgres.statements import block

MOST_ROWS = 5_000
_CHUNK = 500
_LAST = "~"  # above every ID
_INFINITY = 2**63 - 1

_QUEUES = block("reads", "queues")
_IDS = block("reads", "ids")
_OF_SCHEDULE = block("reads", "ids_of_schedule")
_DEAD = block("reads", "dead")
_COUNT_DEAD = block("reads", "count_dead")


async def list_jobs(
    databases: Databases, unreadable: Unreadable, wanted: JobFilter, after: str | None, limit: int
) -> JobPage:
    """Jobs newest first, at most `limit`, reading at most 5,000 rows."""
    below, least = _LAST if after is None else after, ""
    if wanted.schedule_id is None:
        if wanted.created_before is not None:
            below = min(below, id_bound(wanted.created_before))
        if wanted.created_after is not None:
            least = id_bound(wanted.created_after)
    queues = [storable(wanted.queue) or ""] if wanted.queue is not None else await _queues(databases, wanted.tenant)
    # Each queue and each database may have all of the page's rows, so all of them are read.
    widest = max(1, MOST_ROWS // (max(len(queues), 1) * len(databases.all)))
    page = min(max(limit, 1), _CHUNK, widest)
    found: list[JobState] = []
    looked = 0
    while looked < MOST_ROWS:
        ids = await _ids(databases, wanted, queues, below, least, page)
        for job_id, job in zip(ids, await _states(databases, unreadable, ids), strict=True):
            if job is not None and _matches(job, wanted):
                found.append(job)
                if len(found) == limit:
                    return JobPage(jobs=found, after=job_id)
        if len(ids) < page:
            return JobPage(jobs=found, after=None)
        below = ids[-1]
        looked += page * max(len(queues), 1) * len(databases.all)
    return JobPage(jobs=found, after=below)


async def _queues(databases: Databases, tenant: str) -> list[str]:
    found = await databases.each(lambda database: database.lists.fetch(_QUEUES, tenant))
    return sorted({row[0] for rows in found for row in rows})


async def _ids(
    databases: Databases, wanted: JobFilter, queues: list[str], below: str, least: str, page: int
) -> list[str]:
    """The next IDs of all databases, newest first."""
    if wanted.schedule_id is not None:
        number = number_of(wanted.schedule_id)
        asked = [
            database.lists.fetch(_OF_SCHEDULE, number, below, page) for database in _of_schedule(databases, wanted)
        ]
        pages = await gathered(asked)
        return sorted((row[0] for rows in pages for row in rows), reverse=True)[:page]
    pages = await databases.each(lambda database: database.lists.fetch(_IDS, wanted.tenant, queues, below, least, page))
    return sorted((row[0] for rows in pages for row in rows), reverse=True)[:page]


def _of_schedule(databases: Databases, wanted: JobFilter) -> Sequence[Database]:
    """Where the jobs of a schedule live: where it does. Anywhere, if that is no schedule's ID."""
    schedule_id = wanted.schedule_id or ""
    if not is_schedule_id(schedule_id):
        return databases.all
    database = databases.of_job(PREFIX + schedule_id.removeprefix(SCHEDULE_PREFIX))
    return [] if database is None else [database]


async def _states(databases: Databases, unreadable: Unreadable, ids: list[str]) -> list[JobState | None]:
    return await databases.spread(
        ids, databases.of_job, lambda database, mine: states(database, unreadable, mine), None
    )


def _matches(job: JobState, wanted: JobFilter) -> bool:
    return (
        job.line.tenant == wanted.tenant
        and wanted.queue in (None, job.line.queue)
        and wanted.status in (None, job.status)
        and wanted.schedule_id in (None, job.definition.schedule_id)
        and (wanted.created_after is None or job.created_at >= wanted.created_after)
        and (wanted.created_before is None or job.created_at < wanted.created_before)
        and all(job.definition.tags.get(key) == value for key, value in wanted.tags)
    )


async def list_dead(
    databases: Databases, unreadable: Unreadable, wanted: DeadFilter, after: tuple[int, str] | None, limit: int
) -> list[JobState]:
    """Dead letters of a queue, newest death first."""
    found: list[JobState] = []
    if limit > 0:
        async for job in _dead(databases, unreadable, wanted, after, min(limit, _CHUNK)):
            found.append(job)
            if len(found) == limit:
                break
    return found


async def count_dead(databases: Databases, unreadable: Unreadable, wanted: DeadFilter) -> int:
    """How many dead letters match; tags are in the definitions, so for one of these each is read."""
    if wanted.tag is not None:
        return len([job async for job in _dead(databases, unreadable, wanted, None, _CHUNK)])
    values = _dead_values(wanted, None)
    return sum(int(rows[0][0]) for rows in await databases.each(lambda one: one.lists.fetch(_COUNT_DEAD, *values)))


async def _dead(
    databases: Databases, unreadable: Unreadable, wanted: DeadFilter, after: tuple[int, str] | None, page: int
) -> AsyncIterator[JobState]:
    """The dead letters of all databases that match, newest death first, read page by page."""
    while True:
        values = _dead_values(wanted, after)
        pages = await databases.each(partial(_dead_page, (*values, page)))
        rows = sorted((row for rows in pages for row in rows), key=_death, reverse=True)[:page]
        for row in rows:
            job = unreadable.state(row)
            if job is not None and (wanted.tag is None or job.definition.tags.get(wanted.tag[0]) == wanted.tag[1]):
                yield job
        if len(rows) < page:
            return
        after = _death(rows[-1])


async def _dead_page(values: tuple[object, ...], database: Database) -> list[Any]:
    return await database.lists.fetch(_DEAD, *values)


def _death(row: Any) -> tuple[int, str]:
    return row[24], row[0]


def _dead_values(wanted: DeadFilter, after: tuple[int, str] | None) -> tuple[object, ...]:
    return (
        wanted.tenant,
        storable(wanted.queue),
        *(after or (_INFINITY, _LAST)),
        -_INFINITY if wanted.dead_after is None else wanted.dead_after,
        _INFINITY if wanted.dead_before is None else wanted.dead_before,
        None if wanted.job_ids is None else [job_id for job_id in wanted.job_ids if is_job_id(job_id)],
        storable(wanted.error_contains),
    )
