"""`ScheduleStore` over the databases of an installation: each schedule lives in one, and lists are merged.

What the clock or the end of a job waits for (moves, and the looks that they are decided from) goes by the urgent connections, so
that it never waits behind a list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TypeVar

from tocsin.model.ids import SLICES, is_schedule_id, slice_of_key
from tocsin.model.job import GOING, JobState
from tocsin.model.partition import partition_of
from tocsin.store.port import JobStore
from tocsin.store.postgres.databases import Database, Databases, gathered
from tocsin.store.postgres.group import Kind, Writers
from tocsin.store.postgres.move import move
from tocsin.store.postgres.rows import Unreadable
from tocsin.store.postgres.schedulereads import CROWD_MOST, ScheduleReads
from tocsin.store.postgres.skips import add_skips
from tocsin.store.schedules import Move, Moved, ScheduleFilter, ScheduleRow, SkipRow
from tocsin.wire import ScheduleStatus, Status

Item = TypeVar("Item")

# A move is a fire, a new job and a row, so it is served with the fires.
MOVE: Kind[Move, Moved] = Kind("move", 2, move, Moved.REFUSED, 200_000, attrgetter("schedule_id"), batch=250)
SKIP: Kind[SkipRow, None] = Kind("skip", 2, add_skips, None, 100_000)


class PostgresSchedules:
    """Schedules and their skips in all databases."""

    def __init__(
        self, databases: Databases, writers: Sequence[Writers], jobs: JobStore, unreadable: Unreadable
    ) -> None:
        self._databases, self._writers, self._jobs = databases, writers, jobs
        self._reads = ScheduleReads(unreadable, databases.partitions)

    async def move(self, moves: Sequence[Move]) -> list[Moved]:
        async def ask(database: Database, mine: list[Move]) -> list[Moved]:
            return await self._writers[database.shard].submit(MOVE, mine)

        return await self._databases.spread(moves, lambda one: self._of_schedule(one.schedule_id), ask, Moved.REFUSED)

    async def get(self, schedule_ids: Sequence[str]) -> list[ScheduleRow | None]:
        async def ask(database: Database, mine: list[str]) -> list[ScheduleRow | None]:
            return await self._reads.get(database.urgent, mine)

        return await self._databases.spread(schedule_ids, self._of_schedule, ask, None)

    async def named(self, tenant: str, names: Sequence[str]) -> list[ScheduleRow | None]:
        async def ask(database: Database, mine: list[str]) -> list[ScheduleRow | None]:
            return await self._reads.named(database.reads, tenant, mine)

        return await self._databases.spread(names, lambda name: self._of_name(tenant, name), ask, None)

    async def of_jobs(self, job_ids: Sequence[str]) -> list[tuple[JobState, ScheduleRow | None] | None]:
        jobs = await self._jobs.states(job_ids)
        makers = {job.definition.schedule_id for job in jobs if job is not None} - {None}
        wanted = [schedule_id for schedule_id in makers if schedule_id is not None]
        rows = dict(zip(wanted, await self.get(wanted), strict=True))
        return [
            None if job is None or job.definition.schedule_id is None else (job, rows[job.definition.schedule_id])
            for job in jobs
        ]

    async def list_schedules(self, wanted: ScheduleFilter, after: str | None, limit: int) -> list[ScheduleRow]:
        if wanted.name is not None:
            (row,) = await self.named(wanted.tenant, [wanted.name])
            listed = (
                row is not None and wanted.status in (None, row.status) and (after is None or row.schedule_id < after)
            )
            return [row] if row is not None and listed else []
        pages = await self._databases.each(lambda each: self._reads.list_schedules(each, wanted, after, limit))
        found = [row for page in pages for row in page]
        return sorted(found, key=attrgetter("schedule_id"), reverse=True)[:limit]

    async def overdue(self, partitions: Sequence[int], before: int, limit: int) -> list[ScheduleRow]:
        shares = self._shares(partitions, self._databases.of_partition)
        pages = await gathered([self._reads.overdue(each, mine, before, limit) for each, mine in shares])
        found: dict[int, list[ScheduleRow]] = {partition: [] for partition in partitions}
        for page in pages:
            for row in page:
                found[partition_of(row.schedule_id, self._databases.partitions)].append(row)
        return [row for partition in partitions for row in found[partition]]

    async def walk(self, partition: int, after: str, limit: int) -> list[ScheduleRow]:
        return await self._reads.walk(self._databases.of_partition(partition), partition, after, limit)

    async def going(self, schedule_ids: Sequence[str]) -> dict[str, list[JobState]]:
        found: dict[str, list[JobState]] = {schedule_id: [] for schedule_id in schedule_ids}
        for job in await self._unfinished(schedule_ids, going=True):
            maker = job.definition.schedule_id
            if maker is not None and maker in found:
                found[maker].append(job)
        return found

    async def waiting(self, schedule_id: str) -> list[JobState]:
        jobs = await self._unfinished([schedule_id], going=False)
        return [job for job in jobs if job.definition.schedule_id == schedule_id]

    async def skips(self, schedule_id: str, after: tuple[int, str] | None, limit: int) -> list[SkipRow]:
        database = self._of_schedule(schedule_id)
        return [] if database is None else await self._reads.skips(database, schedule_id, after, limit)

    async def add_skips(self, skips: Sequence[SkipRow]) -> None:
        async def ask(database: Database, mine: list[SkipRow]) -> list[None]:
            return await self._writers[database.shard].submit(SKIP, mine)

        await self._databases.spread(skips, lambda one: self._of_schedule(one.schedule_id), ask, None)

    async def counts(self) -> dict[ScheduleStatus, int]:
        total: Counter[ScheduleStatus] = Counter()
        for counts in await self._databases.each(self._reads.counts):
            total.update(counts)
        return dict(total)

    async def crowd(self, first: int, minutes: int) -> list[int]:
        found = await self._databases.each(lambda each: self._reads.crowd(each, first, minutes))
        return [min(CROWD_MOST, sum(counts)) for counts in zip(*found, strict=True)]

    async def _unfinished(self, schedule_ids: Sequence[str], *, going: bool) -> list[JobState]:
        """The jobs as they are now: one that has gone on since it was found is told as what it is, or not at all."""
        shares = self._shares(schedule_ids, self._of_schedule)
        found = await gathered([self._reads.unfinished(each.urgent, mine, going=going) for each, mine in shares])
        job_ids = [job_id for ids in found for job_id in ids]
        jobs = await self._jobs.states(job_ids) if job_ids else []
        wanted = GOING if going else {Status.SCHEDULED}
        return [job for job in jobs if job is not None and job.status in wanted]

    def _shares(
        self, items: Sequence[Item], where: Callable[[Item], Database | None]
    ) -> list[tuple[Database, list[Item]]]:
        """Which of these each database has."""
        shares: dict[int, list[Item]] = {}
        for item in items:
            database = where(item)
            if database is not None:
                shares.setdefault(database.shard, []).append(item)
        return [(self._databases.all[shard], mine) for shard, mine in shares.items()]

    def _of_schedule(self, schedule_id: str) -> Database | None:
        if not is_schedule_id(schedule_id):
            return None
        return self._databases.of_partition(partition_of(schedule_id, self._databases.partitions))

    def _of_name(self, tenant: str, name: str) -> Database:
        return self._databases.of_partition(slice_of_key(tenant, name) * self._databases.partitions // SLICES)
