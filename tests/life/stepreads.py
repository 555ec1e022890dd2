"""The reading half of the store without transactions.

A job is looked for in `jobs` first and then in `finished`: a move writes the second before it leaves the first, so whoever reads
in this order cannot miss it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy

from tests.life.disk import Disk, JobRow
from tocsin.model.ids import id_bound
from tocsin.model.job import HELD, PENDING, JobState, Line
from tocsin.store.port import (
    FIRE,
    AttemptRecord,
    DeadFilter,
    Due,
    DuePage,
    JobFilter,
    JobPage,
    Parked,
    StatePage,
    TimerKey,
    TimerKind,
    TimerRow,
)
from tocsin.wire import Outcome, Status


class StepReads:
    """Reads of a `Disk`."""

    def __init__(self, disk: Disk, partitions: int) -> None:
        self.disk, self.partitions = disk, partitions

    async def states(self, job_ids: Sequence[str]) -> list[JobState | None]:
        rows = [self._row(job_id) for job_id in job_ids]
        return [None if row is None else copy(row.job) for row in rows]

    async def attempts(self, job_id: str) -> list[AttemptRecord]:
        row = self._row(job_id)
        if row is None:
            return []
        job = row.job
        # A record is written before the job's own row; until that is written too, the attempt has not ended.
        records = {
            number: record
            for number, record in self.disk.records.get(job_id, {}).items()
            if number < job.attempt or job.status not in HELD
        }
        if job.status is Status.SUCCEEDED:
            records[job.attempt] = AttemptRecord(
                attempt=job.attempt,
                worker=job.worker,
                claimed_at=job.claimed_at or 0,
                finished_at=job.finished_at or 0,
                outcome=Outcome.SUCCEEDED,
                error=None,
                due_at=job.due_at,
                status_code=row.status_code,
                response=row.response,
            )
        return [record for _, record in sorted(records.items())]

    async def list_jobs(self, wanted: JobFilter, after: str | None, limit: int) -> JobPage:
        rows = {**self.disk.finished, **self.disk.jobs}
        found = [
            row.job
            for job_id, row in sorted(rows.items(), reverse=True)
            if (after is None or job_id < after) and _matches(row.job, wanted)
        ]
        page = found[:limit]
        return JobPage(jobs=[copy(job) for job in page], after=page[-1].job_id if len(found) > limit else None)

    async def list_dead(self, wanted: DeadFilter, after: tuple[int, str] | None, limit: int) -> list[JobState]:
        found = [job for job in self._dead(wanted) if after is None or (job.finished_at or 0, job.job_id) < after]
        return [copy(job) for job in found[:limit]]

    async def count_dead(self, wanted: DeadFilter) -> int:
        return len(self._dead(wanted))

    def _dead(self, wanted: DeadFilter) -> list[JobState]:
        dead = [
            row.job
            for row in self.disk.jobs.values()
            if row.job.status is Status.DEAD and not row.gone and _dead_matches(row.job, wanted)
        ]
        return sorted(dead, key=lambda job: (job.finished_at or 0, job.job_id), reverse=True)

    # timers

    async def read_due(
        self,
        partition: int,
        first_bucket: int,
        last_bucket: int,
        after: TimerKey | None,
        limit: int,
        *,
        lane: int | None = None,
        tenant: str | None = None,
        from_time: int | None = None,
    ) -> DuePage:
        keys = [
            key
            for key in self._keys(partition, FIRE, first_bucket, last_bucket, after)
            if (lane is None or key[1] == lane)
            and (tenant is None or key[2] == tenant)
            and (from_time is None or key[3] >= from_time)
        ]
        dues = []
        for key in keys[:limit]:
            job = self._at_version(key[4], key[5])
            # A crash may have left a timer of this version at another time; the job's own time counts.
            if job is not None and job.status in PENDING and job.due_at <= key[3]:
                dues.append(Due(job.due_at, job.job_id, job.version, job.line, job.priority))
        return DuePage(dues=dues, next_key=keys[limit - 1] if len(keys) > limit else None)

    async def read_timers(
        self,
        partition: int,
        kind: TimerKind,
        last_bucket: int,
        after: TimerKey | None,
        limit: int,
        *,
        first_bucket: int = 0,
    ) -> StatePage:
        keys = self._keys(partition, kind, first_bucket, last_bucket, after)
        rows = []
        for key in keys[:limit]:
            bucket, lane, tenant, time, job_id, version = key
            job = self._at_version(job_id, version)
            rows.append(
                TimerRow(
                    kind=kind,
                    bucket=bucket,
                    time=time,
                    tenant=tenant,
                    lane=lane,
                    job_id=job_id,
                    version=version,
                    job=None if job is None else copy(job),
                )
            )
        return StatePage(timers=rows, next_key=keys[limit - 1] if len(keys) > limit else None)

    async def floors(self) -> dict[int, int]:
        return dict(self.disk.floors)

    async def parked(self, partition: int, line: Line | None, limit: int) -> list[Parked]:
        rows = [
            Parked(due=due, score=key[6])
            for key, due in self.disk.parked[partition].items()
            if line is None or due.line == line
        ]
        return sorted(rows, key=lambda row: (row.score, row.due.job_id))[:limit]

    async def parked_lines(self, partition: int) -> dict[Line, int]:
        return dict(Counter(due.line for due in self.disk.parked[partition].values()))

    # inside

    def _row(self, job_id: str) -> JobRow | None:
        return self.disk.jobs.get(job_id) or self.disk.finished.get(job_id)

    def _at_version(self, job_id: str, version: int) -> JobState | None:
        row = self.disk.jobs.get(job_id)
        return row.job if row is not None and row.job.version == version else None

    def _keys(self, partition: int, kind: TimerKind, first: int, last: int, after: TimerKey | None) -> list[TimerKey]:
        return sorted(
            key
            for key in self.disk.timers[partition, kind]
            if first <= key[0] <= last and (after is None or key > after)
        )


def _matches(job: JobState, wanted: JobFilter) -> bool:
    made, line = job.definition, job.line
    return (
        line.tenant == wanted.tenant
        and wanted.queue in (None, line.queue)
        and wanted.status in (None, job.status)
        and wanted.schedule_id in (None, made.schedule_id)
        and all(made.tags.get(key) == value for key, value in wanted.tags)
        and _made_between(job, wanted)
    )


def _made_between(job: JobState, wanted: JobFilter) -> bool:
    """By the time in the ID; for a schedule's job by its creation, in the schedule's own list by that alone."""
    after, before = wanted.created_after, wanted.created_before
    made = job.definition.made_at
    by_creation = made is None or ((after is None or made >= after) and (before is None or made < before))
    by_id = (after is None or job.job_id >= id_bound(after)) and (before is None or job.job_id < id_bound(before))
    return by_creation and (by_id or (made is not None and wanted.schedule_id is not None))


def _dead_matches(job: JobState, wanted: DeadFilter) -> bool:
    died_at = job.finished_at or 0
    return (
        job.line.tenant == wanted.tenant
        and job.line.queue == wanted.queue
        and (wanted.job_ids is None or job.job_id in wanted.job_ids)
        and (wanted.error_contains is None or wanted.error_contains in (job.last_error or ""))
        and (wanted.tag is None or job.definition.tags.get(wanted.tag[0]) == wanted.tag[1])
        and (wanted.dead_after is None or died_at >= wanted.dead_after)
        and (wanted.dead_before is None or died_at < wanted.dead_before)
    )
