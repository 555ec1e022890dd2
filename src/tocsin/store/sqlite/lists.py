"""Lists of jobs: newest first over all queues of a tenant or of one schedule, and the dead letters of a queue.

A list walks an index that a job's life never moves (the bodies of a queue, the occurrences of a schedule), and looks up each
job where it then is, all in one snapshot: so each job is seen exactly once, also while it moves from `jobs` to `finished`.

The ID of a schedule's job has its occurrence's instant, not its creation, so a schedule's list judges `created_*` job by job.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import islice
from sqlite3 import Connection

from tocsin.model.ids import id_bound
from tocsin.model.job import JobState
from tocsin.store.numbers import number_of
from tocsin.store.port import DeadFilter, JobFilter, JobPage
from tocsin.store.sqlite.lines import find_queues
from tocsin.store.sqlite.reads import Readers, states
from tocsin.store.sqlite.rows import SEPARATOR, split
from tocsin.store.sqlite.statements import block
from tocsin.store.sqlite.work import json_text

MOST_ROWS = 5_000
_CHUNK = 500
_LAST = "~"  # above every ID
_INFINITY = 2**63 - 1

_IDS = block("reads", "ids_of_queue")
_OCCURRENCES = block("occurrences", "ids")
_DEAD = block("reads", "dead")
_COUNT_DEAD = block("reads", "count_dead")


def list_jobs(readers: Readers, wanted: JobFilter, after: str | None, limit: int) -> Callable[[Connection], JobPage]:
    """Jobs newest first, at most `limit`, reading at most 5,000."""

    def read(conn: Connection) -> JobPage:
        ids = islice(
            heapq.merge(*_walks(conn, wanted, _LAST if after is None else after, limit), reverse=True), MOST_ROWS
        )
        found: list[JobState] = []
        looked, last = 0, None
        while chunk := list(islice(ids, min(_CHUNK, limit))):
            looked += len(chunk)
            for job_id, job in zip(chunk, states(readers, chunk)(conn), strict=True):
                last = job_id
                if job is not None and _matches(job, wanted):
                    found.append(job)
                    if len(found) == limit:
                        return JobPage(jobs=found, after=job_id)
        return JobPage(jobs=found, after=last if looked == MOST_ROWS else None)

    return read


def _walks(conn: Connection, wanted: JobFilter, below: str, limit: int) -> list[Iterator[str]]:
    """What the IDs of a list are merged from."""
    if wanted.schedule_id is not None:
        page = max(1, min(limit + 1, MOST_ROWS))
        return [_walk(conn, _OCCURRENCES, (number_of(wanted.schedule_id),), below, (), page)]
    queues = find_queues(conn, wanted.tenant, wanted.queue)
    if wanted.created_before is not None:
        below = min(below, id_bound(wanted.created_before))
    least = "" if wanted.created_after is None else id_bound(wanted.created_after)
    page = max(1, min(limit + 1, MOST_ROWS // max(len(queues), 1)))
    return [_walk(conn, _IDS, (queue_id,), below, (least,), page) for queue_id in queues]


def _walk(
    conn: Connection, sql: str, key: tuple[object, ...], below: str, more: tuple[object, ...], page: int
) -> Iterator[str]:
    """The IDs of one index, newest first, read page by page."""
    while True:
        ids = split(conn.execute(sql, (SEPARATOR, *key, below, *more, page)).fetchone()[0])
        yield from ids
        if len(ids) < page:
            return
        below = ids[-1]


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


def list_dead(
    readers: Readers, wanted: DeadFilter, after: tuple[int, str] | None, limit: int
) -> Callable[[Connection], list[JobState]]:
    """Dead letters of a queue, newest death first."""

    def read(conn: Connection) -> list[JobState]:
        ids: list[str] = []
        for queue_id in find_queues(conn, wanted.tenant, wanted.queue):
            values = _dead_values(queue_id, wanted, after)
            ids += split(conn.execute(_DEAD, (SEPARATOR, *values, limit)).fetchone()[0])
        return [job for job in states(readers, ids)(conn) if job is not None]

    return read


def count_dead(wanted: DeadFilter) -> Callable[[Connection], int]:
    """How many dead letters match."""

    def read(conn: Connection) -> int:
        return sum(
            int(conn.execute(_COUNT_DEAD, (SEPARATOR, *_dead_values(queue_id, wanted, None))).fetchone()[0])
            for queue_id in find_queues(conn, wanted.tenant, wanted.queue)
        )

    return read


def _dead_values(queue_id: int, wanted: DeadFilter, after: tuple[int, str] | None) -> tuple[object, ...]:
    return (
        queue_id,
        *(after or (_INFINITY, _LAST)),
        -_INFINITY if wanted.dead_after is None else wanted.dead_after,
        _INFINITY if wanted.dead_before is None else wanted.dead_before,
        None if wanted.job_ids is None else json_text(wanted.job_ids),
        wanted.error_contains,
        *(wanted.tag or (None, None)),
    )
