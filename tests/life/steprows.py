"""The single rows of the store without transactions: each write conditional, with a point before and after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.life.disk import Disk, Fault, JobRow
from tests.life.stepreads import StepReads
from tocsin.clock import Clock
from tocsin.model.partition import bucket_of, partition_of
from tocsin.store.port import AttemptRecord, TimerKind

Decide = Callable[[JobRow | None], JobRow | None]


class StepRows(StepReads):
    """Writes of one row each. Where `yielding`, others may write at every point."""

    def __init__(self, disk: Disk, clock: Clock, partitions: int, fault: Fault, *, yielding: bool) -> None:
        super().__init__(disk, partitions)
        self._clock, self._fault, self._yielding = clock, fault, yielding

    async def _point(self, name: str) -> None:
        self._fault.point(name)
        if self._yielding:
            await asyncio.sleep(0)

    async def _write_job(self, job_id: str, decide: Decide) -> JobRow | None:
        """One conditional write of a job's row; `decide` sees the row as it is at the write, None: the condition failed."""
        await self._point("before jobs put")
        before = self._disk.jobs.get(job_id)
        after = decide(before)
        if after is None:
            return None
        self._disk.jobs[job_id] = after
        for tell in self._disk.watchers:
            tell(None if before is None else before.job, after.job)
        await self._point("after jobs put")
        return after

    async def _put_record(self, job_id: str, record: AttemptRecord) -> None:
        await self._point("before records put")
        self._disk.records[job_id][record.attempt] = record
        await self._point("after records put")

    async def _add_timer(self, kind: TimerKind, job_id: str, version: int, time: int, lane: int, tenant: str) -> None:
        await self._point("before timers put")
        bucket = bucket_of(max(time, self._clock.now_ms()))
        key = (bucket, int(lane), tenant, time, job_id, version)
        self._disk.timers[partition_of(job_id, self.partitions), kind].add(key)
        await self._point("after timers put")

    async def _drop_timer(self, partition: int, kind: TimerKind, key: tuple[int, int, str, int, str, int]) -> None:
        await self._point("before timers delete")
        self._disk.timers[partition, kind].discard(key)
        await self._point("after timers delete")
