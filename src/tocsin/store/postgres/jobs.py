"""`JobStore` on open databases: what is written goes to the writers as items of a kind, what is read to the reading connections.

Every operation on a job goes to the database of its partition; one on many goes to each database for its own, at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from tocsin.clock import Clock
from tocsin.errors import PartlyUnavailable
from tocsin.model.job import JobState, Line
from tocsin.store import port
from tocsin.store.port import Beaten, Claimed, Created, Due, Fired, Made, NotYours
from tocsin.store.postgres import claim, create, due, finish, lists, reads, timers, upkeep
from tocsin.store.postgres.beat import heartbeat
from tocsin.store.postgres.databases import Database, Databases
from tocsin.store.postgres.fire import fire
from tocsin.store.postgres.group import Kind, Writers
from tocsin.store.postgres.rows import DAMAGE, Unreadable
from tocsin.store.postgres.statements import block
from tocsin.wire import Status

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_RAISE_FLOOR = block("timers", "raise_floor")
_job_id: Callable[[Any], str] = attrgetter("job_id")


def _changed(one: port.Change) -> str:
    return one.before.job_id


# Ranks are the order of service; bounds fall from the end of a job's life to its beginning, so that under overload what was
# begun is ended before more is taken in.
BEAT: Kind[port.Beat, Beaten | NotYours] = Kind("heartbeat", 0, heartbeat, NotYours.UNKNOWN, None, _job_id)
SUCCEED: Kind[port.Success, bool] = Kind("succeed", 1, finish.succeed, False, 200_000, _job_id)
CHANGE: Kind[port.Change, bool] = Kind("change", 1, finish.change, False, 50_000, _changed, batch=200)
FIRE: Kind[Due, Fired] = Kind("fire", 2, fire, Fired.VOID, 100_000, _job_id)
CLAIM: Kind[claim.Wanted, Any] = Kind("claim", 3, claim.claim, None, 50_000, _job_id)
PARK: Kind[Due, None] = Kind("park", 2, timers.park, None, 100_000)
UNPARK: Kind[Due, None] = Kind("unpark", 2, timers.unpark, None, 100_000)
CREATE: Kind[port.NewJob, Created] = Kind("create", 4, create.create, Created(Made.REFUSED, ""), 20_000, create.name_of)
WATCH: Kind[port.NewTimer, None] = Kind("watch", 5, timers.watch, None, 100_000)
UNWATCH: Kind[port.TimerRow, None] = Kind("delete timers", 5, timers.delete_timers, None, 100_000)
URGENT = (BEAT, SUCCEED, CHANGE, FIRE, CLAIM)
BULK = (PARK, UNPARK, CREATE, WATCH, UNWATCH, upkeep.SLICE)


class PostgresJobs:
    """Jobs, timers, attempts, finished jobs and idempotency records of all databases."""

    def __init__(self, databases: Databases, writers: Sequence[Writers], clock: Clock, unreadable: Unreadable) -> None:
        self._databases, self._writers, self._unreadable = databases, writers, unreadable
        self._upkeep = [upkeep.Upkeep(one, clock) for one in writers]
        self.partitions = databases.partitions

    @property
    def unreadable(self) -> int:
        """How many records could not be read and were passed over."""
        return self._unreadable.count

    @property
    def refused(self) -> int:
        """How many items could not be written and were refused."""
        return sum(one.refused_items for one in self._writers)

    async def create(self, jobs: Sequence[port.NewJob]) -> list[Created]:
        return await self._write(CREATE, jobs, Created(Made.REFUSED, ""))

    async def fire(self, dues: Sequence[Due]) -> list[Fired]:
        return await self._write(FIRE, dues, Fired.VOID)

    async def claim(self, job_ids: Sequence[str], worker: str, lease_ms: int) -> list[Claimed | None]:
        wanted = [claim.Wanted(job_id, worker, lease_ms) for job_id in job_ids]
        try:
            rows = await self._write(CLAIM, wanted, None)
        except PartlyUnavailable as partly:
            partly.answers = self._all_claimed(partly.answers)
            raise
        return self._all_claimed(rows)

    def _all_claimed(self, rows: Sequence[Any]) -> list[Claimed | None]:
        return [None if row is None else self._claimed(row) for row in rows]

    def _claimed(self, row: Sequence[Any]) -> Claimed | None:
        try:
            return claim.claimed(row)
        except DAMAGE as exc:
            self._unreadable.note(row[0], exc)
            return None

    async def reclaim(self, jobs: Sequence[tuple[str, int]], worker: str) -> list[Claimed | None]:
        return await self._databases.spread(
            jobs,
            lambda one: self._databases.of_job(one[0]),
            lambda database, mine: reads.reclaim(database, self._unreadable, mine, worker),
            None,
        )

    async def heartbeat(self, beats: Sequence[port.Beat]) -> list[Beaten | NotYours]:
        return await self._write(BEAT, beats, NotYours.UNKNOWN)

    async def succeed(self, reports: Sequence[port.Success]) -> list[bool]:
        return await self._write(SUCCEED, reports, False)

    async def change(self, changes: Sequence[port.Change]) -> list[bool]:
        return await self._write(CHANGE, changes, False, _changed)

    async def end_moves(self, job_ids: Sequence[str]) -> None:
        """Nothing: a job moves to `finished` in one transaction."""

    async def states(self, job_ids: Sequence[str]) -> list[JobState | None]:
        return await self._databases.spread(
            job_ids,
            self._databases.of_job,
            lambda database, mine: reads.states(database, self._unreadable, mine),
            None,
        )

    async def attempts(self, job_id: str) -> list[port.AttemptRecord]:
        database = self._databases.of_job(job_id)
        return [] if database is None else await reads.attempts(database, job_id)

    async def list_jobs(self, wanted: port.JobFilter, after: str | None, limit: int) -> port.JobPage:
        return await lists.list_jobs(self._databases, self._unreadable, wanted, after, limit)

    async def list_dead(self, wanted: port.DeadFilter, after: tuple[int, str] | None, limit: int) -> list[JobState]:
        return await lists.list_dead(self._databases, self._unreadable, wanted, after, limit)

    async def count_dead(self, wanted: port.DeadFilter) -> int:
        return await lists.count_dead(self._databases, self._unreadable, wanted)

    async def read_due(
        self,
        partition: int,
        first_bucket: int,
        last_bucket: int,
        after: port.TimerKey | None,
        limit: int,
        *,
        lane: int | None = None,
        tenant: str | None = None,
        from_time: int | None = None,
    ) -> port.DuePage:
        database, unreadable = self._databases.of_partition(partition), self._unreadable
        if lane is None and tenant is None and from_time is None:
            return await due.read_due(database, unreadable, partition, first_bucket, last_bucket, after, limit)
        return await due.read_due_of(
            database,
            unreadable,
            partition,
            first_bucket,
            last_bucket,
            after,
            limit,
            lane=lane,
            tenant=tenant,
            from_time=from_time,
        )

    async def read_timers(
        self,
        partition: int,
        kind: port.TimerKind,
        last_bucket: int,
        after: port.TimerKey | None,
        limit: int,
        *,
        first_bucket: int = 0,
    ) -> port.StatePage:
        database = self._databases.of_partition(partition)
        return await due.read_timers(
            database, self._unreadable, partition, kind, first_bucket, last_bucket, after, limit
        )

    async def sweep_void(self, partition: int, kind: port.TimerKind, last_bucket: int, limit: int) -> int:
        shard = self._databases.of_partition(partition).shard
        return await self._upkeep[shard].sweep_void(partition, kind, last_bucket, limit)

    async def watch(self, timers: Sequence[port.NewTimer]) -> None:
        await self._write(WATCH, timers, None)

    async def delete_timers(self, timers: Sequence[port.TimerRow]) -> None:
        await self._write(UNWATCH, timers, None)

    async def floors(self) -> dict[int, int]:
        try:
            found = dict.fromkeys(range(self.partitions), 0)
            answers: Sequence[dict[int, int]] = await self._databases.each(reads.floors)
        except PartlyUnavailable as partly:
            # Whoever takes over what can be reached needs no more.
            found = dict.fromkeys((each for each in found if each not in partly.partitions), 0)
            answers = partly.answers
        for some in answers:
            found |= some
        return found

    async def set_floor(self, partition: int, bucket: int) -> None:
        await self._databases.of_partition(partition).bulk.fetch(_RAISE_FLOOR, partition, bucket)

    async def park(self, dues: Sequence[Due]) -> None:
        await self._write(PARK, dues, None)

    async def parked(self, partition: int, line: Line | None, limit: int) -> list[port.Parked]:
        return await reads.parked(self._databases.of_partition(partition), partition, line, limit)

    async def parked_lines(self, partition: int) -> dict[Line, int]:
        return await reads.parked_lines(self._databases.of_partition(partition), partition)

    async def unpark(self, dues: Sequence[Due]) -> None:
        await self._write(UNPARK, dues, None)

    async def live_counts(self) -> dict[tuple[str, str, Status], int]:
        counts: dict[tuple[str, str, Status], int] = {}
        for some in await self._databases.each(reads.live_counts):
            for key, count in some.items():
                counts[key] = counts.get(key, 0) + count
        return counts

    async def archive(self, finished_before: int, limit: int) -> int:
        deleted = 0
        for one in self._upkeep:
            deleted += await one.archive(finished_before, max(limit - deleted, 0))
        return deleted

    async def sweep_keys(self, limit: int) -> int:
        deleted = 0
        for one in self._upkeep:
            deleted += await one.sweep_keys(max(limit - deleted, 0))
        return deleted

    async def _write(
        self,
        kind: Kind[Item, Answer],
        items: Sequence[Item],
        otherwise: Answer,
        job_id: Callable[[Item], str] = _job_id,
    ) -> list[Answer]:
        def submit(database: Database, mine: list[Item]) -> Any:
            return self._writers[database.shard].submit(kind, mine)

        return await self._databases.spread(items, lambda item: self._databases.of_job(job_id(item)), submit, otherwise)
