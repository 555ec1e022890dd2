"""The single rows of the store without transactions: each write conditional, with a point before and after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.life.disk import Disk, Fault, JobRow
from tests.life.stepreads import StepReads
from tocsin.clock import Clock
from tocsin.model.job import JobState
from tocsin.model.partition import bucket_of, partition_of
from tocsin.store.port import AttemptRecord, TimerKind
from tocsin.store.schedules import SkipRow

Decide = Callable[[JobRow | None], JobRow | None]


class StepRows(StepReads):
    """Writes of one row each. Where `yielding`, others may write at every point."""

    def __init__(self, disk: Disk, clock: Clock, partitions: int, fault: Fault, *, yielding: bool) -> None:
        super().__init__(disk, partitions)
        self._clock, self._fault, self.yielding = clock, fault, yielding

    async def point(self, name: str) -> None:
        self._fault.point(name)
        if self.yielding:
            await asyncio.sleep(0)

    async def write_job(self, job_id: str, decide: Decide) -> JobRow | None:
        """One conditional write of a job's row; `decide` sees the row as it is at the write, None: the condition failed."""
        await self.point("before jobs put")
        before = self.disk.jobs.get(job_id)
        after = decide(before)
        if after is None:
            return None
        self.disk.jobs[job_id] = after
        for tell in self.disk.watchers:
            tell(None if before is None else before.job, after.job)
        await self.point("after jobs put")
        return after

    async def _put_record(self, job_id: str, record: AttemptRecord) -> None:
        await self.point("before records put")
        self.disk.records[job_id][record.attempt] = record
        await self.point("after records put")

    async def _add_timer(self, kind: TimerKind, job_id: str, version: int, time: int, lane: int, tenant: str) -> None:
        await self.point("before timers put")
        bucket = bucket_of(max(time, self._clock.now_ms()))
        key = (bucket, int(lane), tenant, time, job_id, version)
        self.disk.timers[partition_of(job_id, self.partitions), kind].add(key)
        await self.point("after timers put")

    async def _drop_timer(self, partition: int, kind: TimerKind, key: tuple[int, int, str, int, str, int]) -> None:
        await self.point("before timers delete")
        self.disk.timers[partition, kind].discard(key)
        await self.point("after timers delete")

    async def put_skip(self, skip: SkipRow, *, over_longer: bool = True) -> None:
        """Unless `over_longer`, a skip that has grown meanwhile is left."""
        await self.point("before skips put")
        rows, key = self.disk.skips[skip.schedule_id], (skip.first, skip.reason)
        exists = any(
            one.row is not None and one.row.schedule_id == skip.schedule_id for one in self.disk.schedules.values()
        )
        if exists and (over_longer or key not in rows or rows[key].last <= skip.last):
            rows[key] = skip
        await self.point("after skips put")

    async def drop_skips(self, recorded_before: int) -> None:
        old = [
            (rows, key)
            for rows in self.disk.skips.values()
            for key, one in rows.items()
            if one.recorded_at < recorded_before
        ]
        for rows, key in old:
            await self.point("before skips delete")
            rows.pop(key, None)
            await self.point("after skips delete")


def stands(row: JobRow, before: JobState) -> bool:
    """Whether the row is still what a change was decided on. The lease is part of it: a heartbeat that came in between was
    accepted, so neither may its lease be taken nor what it wrote be undone."""
    job = row.job
    return (
        not row.gone
        and job.status is before.status
        and job.version == before.version
        and job.attempt == before.attempt
        and job.lease_until == before.lease_until
        and job.beaten_at == before.beaten_at
    )
