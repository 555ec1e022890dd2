"""A store without transactions: the port's order of writes, unrolled into single rows.

What the port promises must hold with nothing stronger than conditional writes on single rows in a stated order. This is that
promise as a program: each operation is a sequence of such writes on a `Disk`, with a point before and after each. So a test can
end the process between any two, and, where `yielding`, let others write there.

The end of a job, in three writes: its row in `jobs` takes the terminal state (the condition), the `finished` row is written, the
row leaves `jobs`. A crash in between leaves a cut move: the job has ended for every reader, and `end_moves`, called by the
recheck, does the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from hashlib import blake2b

from tests.life.disk import Disk, Fault, JobRow, KeyRow, ParkKey
from tests.life.steprows import StepRows, stands
from tests.life.stepschedules import StepSchedules, expired_skip
from tests.life.stepsettings import StepSettings
from tocsin.clock import Clock
from tocsin.model.job import FINISHED, HELD, PENDING, JobState, decode_definition, expired, ready_score
from tocsin.model.partition import partition_of
from tocsin.store.port import (
    FIRE,
    WATCH,
    Beat,
    Beaten,
    Change,
    Claimed,
    Created,
    Due,
    Fired,
    Made,
    NewJob,
    NewTimer,
    NotYours,
    Success,
    TimerKind,
    TimerRow,
)
from tocsin.wire import Outcome, Status

KEY_KEPT_MS = 7 * 86_400_000
WRITE_LIMIT_MS = 30_000
TIMEOUT_GRACE_MS = 10_000
_ROUNDS = 20


class StepStore(StepRows):
    """Jobs on a `Disk`, one row at a time."""

    def __init__(
        self, disk: Disk, clock: Clock, partitions: int = 4, fault: Fault | None = None, *, yielding: bool = False
    ) -> None:
        super().__init__(disk, clock, partitions, fault or Fault(), yielding=yielding)
        self.jobs, self.settings, self.schedules = self, StepSettings(disk), StepSchedules(self, clock)

    async def ping(self) -> None:
        await self.point("before ping")

    async def now_ms(self) -> int:
        return self._clock.now_ms()

    async def oldest_snapshot_s(self) -> float | None:
        return None

    async def close(self) -> None:
        pass

    # create

    async def create(self, jobs: Sequence[NewJob]) -> list[Created]:
        return [await self._create(job) for job in jobs]

    async def _create(self, new: NewJob) -> Created:
        bound = await self._bind(new)
        if isinstance(bound, Created):
            return bound
        job_id, fresh = bound
        if job_id in self.disk.jobs or job_id in self.disk.finished:
            ours = job_id == new.job_id and not fresh  # an earlier try of this very create, of which nobody heard
            return Created(Made.CREATED if ours else Made.REPLAYED, job_id)
        return Created(Made.CREATED if await self.add(new, job_id) else Made.REPLAYED, job_id)

    async def add(self, new: NewJob, job_id: str) -> bool:
        """The timer and the row of a new job; whether the row was not there yet."""
        await self._add_timer(FIRE, job_id, 1, new.fire_at, new.line.lane, new.line.tenant)
        definition = decode_definition(new.definition)

        def add(row: JobRow | None) -> JobRow | None:
            now = self._clock.now_ms()
            if row is not None or job_id in self.disk.finished:
                return None
            return JobRow(
                job=JobState(
                    job_id=job_id,
                    line=new.line,
                    priority=new.priority,
                    status=Status.QUEUED if new.queued else Status.SCHEDULED,
                    version=1,
                    attempt=0,
                    tries=0,
                    due_at=new.fire_at,
                    fire_at=new.fire_at,
                    created_at=now if definition.made_at is None else definition.made_at,
                    queued_at=now if new.queued else None,
                    expires_at=new.expires_at,
                    definition=definition,
                )
            )

        return await self.write_job(job_id, add) is not None

    async def _bind(self, new: NewJob) -> tuple[str, bool] | Created:
        """The ID under which the job is to be made and whether that was bound just now, or the answer if the key is taken.

        A record whose job is not there was left by a crash, or belongs to a create that is still under way: an equal body ends
        it under the same ID, so that both can only make the same job; another body waits until it cannot be under way any more.
        """
        if new.key is None:
            return new.job_id, False
        name = (new.key.tenant, blake2b(new.key.text.encode(), digest_size=16).digest())
        for _ in range(_ROUNDS):
            now = self._clock.now_ms()
            seen = self.disk.keys.get(name)
            if seen is not None and not self._replaceable(seen, now, new.key.body_hash):
                if seen.body_hash != new.key.body_hash:
                    return Created(Made.CONFLICT, seen.job_id)
                return seen.job_id, False
            fresh = KeyRow(body_hash=new.key.body_hash, job_id=new.job_id, bound_at=now, expires_at=now + KEY_KEPT_MS)
            await self.point("before keys put")
            if self.disk.keys.get(name) is seen:
                self.disk.keys[name] = fresh
                await self.point("after keys put")
                return new.job_id, True
        raise AssertionError("a key cannot be replaced twenty times while one create looks at it")

    def _replaceable(self, key: KeyRow, now: int, body_hash: bytes) -> bool:
        row = self.disk.jobs.get(key.job_id)
        if row is not None and row.job.status not in FINISHED | {Status.DEAD}:
            return False
        if key.expires_at <= now:
            return True
        never_made = row is None and key.job_id not in self.disk.finished
        return never_made and key.body_hash != body_hash and now - key.bound_at > WRITE_LIMIT_MS

    # fire and claim

    async def fire(self, dues: Sequence[Due]) -> list[Fired]:
        return [await self._fire(due) for due in dues]

    async def _fire(self, due: Due) -> Fired:
        answer = Fired.VOID

        def step(row: JobRow | None) -> JobRow | None:
            nonlocal answer
            answer = Fired.VOID
            if row is None or row.job.version != due.version or row.job.due_at > due.due_at:
                return None
            job, now = row.job, self._clock.now_ms()
            if expired(job.status, job.attempt, job.expires_at, now):
                answer = Fired.EXPIRED
                return replace(row, job=_skipped(job, now), expired=True)
            if job.status in PENDING:
                answer = Fired.WON
                return replace(row, job=replace(job, status=Status.QUEUED, queued_at=now))
            if job.status is Status.QUEUED:
                answer = Fired.ALREADY
            return None

        await self.write_job(due.job_id, step)
        if answer is Fired.EXPIRED:
            await self._move(due.job_id)
        return answer

    async def claim(self, job_ids: Sequence[str], worker: str, lease_ms: int) -> list[Claimed | None]:
        return [await self._claim(job_id, worker, lease_ms) for job_id in job_ids]

    async def _claim(self, job_id: str, worker: str, lease_ms: int) -> Claimed | None:
        def step(row: JobRow | None) -> JobRow | None:
            if row is None or row.job.status is not Status.QUEUED:
                return None
            job, now = row.job, self._clock.now_ms()
            if expired(job.status, job.attempt, job.expires_at, now):
                return replace(row, job=_skipped(job, now), expired=True)
            held = replace(
                job,
                status=Status.RUNNING,
                attempt=job.attempt + 1,
                tries=job.tries + 1,
                started_at=job.started_at or now,
                claimed_at=now,
                lease_until=now + lease_ms,
                lease_ms=lease_ms,
                beaten_at=None,
                worker=worker,
            )
            return replace(row, job=held)

        row = await self.write_job(job_id, step)
        if row is None:
            return None
        if row.job.status is Status.SKIPPED:
            await self._move(job_id)
            return None
        return _claimed(row.job)

    async def reclaim(self, jobs: Sequence[tuple[str, int]], worker: str) -> list[Claimed | None]:
        rows = [(self.disk.jobs.get(job_id), attempt) for job_id, attempt in jobs]
        return [
            _claimed(row.job)
            if row is not None and row.job.status in HELD and row.job.attempt == attempt and row.job.worker == worker
            else None
            for row, attempt in rows
        ]

    async def heartbeat(self, beats: Sequence[Beat]) -> list[Beaten | NotYours]:
        return [await self._beat(beat) for beat in beats]

    async def _beat(self, beat: Beat) -> Beaten | NotYours:
        answer: NotYours = NotYours.UNKNOWN

        def step(row: JobRow | None) -> JobRow | None:
            nonlocal answer
            if row is None:
                answer = NotYours.SUPERSEDED if beat.job_id in self.disk.finished else NotYours.UNKNOWN
                return None
            job, now = row.job, self._clock.now_ms()
            if job.status not in HELD or job.attempt != beat.attempt:
                answer = NotYours.SUPERSEDED
                return None
            most = (job.claimed_at or 0) + job.definition.timeout_ms + TIMEOUT_GRACE_MS
            if now >= most:
                answer = NotYours.TIMED_OUT
                return None
            until = min(now + (job.lease_ms or 0), most)
            progress = job.progress if beat.progress is None else beat.progress
            return replace(row, job=replace(job, lease_until=until, beaten_at=now, progress=progress))

        row = await self.write_job(beat.job_id, step)
        if row is None:
            return answer
        return Beaten(row.job.lease_until or 0, row.job.lease_ms or 0, row.job.status is Status.CANCEL_REQUESTED)

    # endings and changes

    async def succeed(self, reports: Sequence[Success]) -> list[bool]:
        return [await self._succeed(report) for report in reports]

    async def _succeed(self, report: Success) -> bool:
        def step(row: JobRow | None) -> JobRow | None:
            if row is None or row.job.status not in HELD or row.job.attempt != report.attempt:
                return None
            job = replace(
                row.job,
                status=Status.SUCCEEDED,
                outcome=Outcome.SUCCEEDED,
                finished_at=self._clock.now_ms(),
                lease_until=None,
                result=report.result,
            )
            return replace(row, job=job, status_code=report.status_code, response=report.response)

        if await self.write_job(report.job_id, step) is None:
            return False
        await self._move(report.job_id)
        return True

    async def change(self, changes: Sequence[Change]) -> list[bool]:
        return [await self.change_one(change, stands) for change in changes]

    async def change_one(self, change: Change, as_read: Callable[[JobRow, JobState], bool]) -> bool:
        """One change, where the job's row is `as_read`."""
        before, after = change.before, change.after
        seen = self.disk.jobs.get(before.job_id)
        if seen is None or not as_read(seen, before):
            return False
        if change.timer:
            await self._add_timer(FIRE, after.job_id, after.version, after.due_at, after.line.lane, after.line.tenant)
        if change.record is not None:
            await self._put_record(before.job_id, change.record)

        def step(row: JobRow | None) -> JobRow | None:
            if row is None or not as_read(row, before):
                return None
            return replace(row, job=copy(after), gone=change.gone)

        if await self.write_job(before.job_id, step) is None:
            return False
        if change.record is not None and self.disk.records[before.job_id].get(change.record.attempt) != change.record:
            # Another writer of the same end was between our two writes; the job tells who won, so must its record.
            await self._put_record(before.job_id, change.record)
        if after.status in FINISHED or change.gone:
            await self._move(before.job_id)
        return True

    async def end_moves(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            await self._move(job_id)

    async def _move(self, job_id: str) -> None:
        """An ended job's row: into `finished`, then out of `jobs`."""
        row = self.disk.jobs.get(job_id)
        if row is None or not (row.gone or row.job.status in FINISHED):
            return
        made = row.job.definition
        own = made.origin == "schedule"
        if row.expired and own and made.schedule_id is not None and made.occurrence_at is not None:
            skip = expired_skip(made.schedule_id, made.occurrence_at, self._clock.now_ms())
            await self.put_skip(skip, over_longer=False)
        await self.point("before finished put")
        self.disk.finished[job_id] = row
        await self.point("after finished put")
        await self.point("before jobs delete")
        if self.disk.jobs.get(job_id) is row:
            del self.disk.jobs[job_id]
        await self.point("after jobs delete")

    # timers

    async def sweep_void(self, partition: int, kind: TimerKind, last_bucket: int, limit: int) -> int:
        void = [
            key
            for key in sorted(self.disk.timers[partition, kind])
            if key[0] <= last_bucket and self._at_version(key[4], key[5]) is None
        ][:limit]
        for key in void:
            await self._drop_timer(partition, kind, key)
        return len(void)

    async def watch(self, timers: Sequence[NewTimer]) -> None:
        for timer in timers:
            await self._add_timer(WATCH, timer.job_id, timer.version, timer.time, timer.line.lane, timer.line.tenant)

    async def delete_timers(self, timers: Sequence[TimerRow]) -> None:
        for row in timers:
            key = (row.bucket, row.lane, row.tenant, row.time, row.job_id, row.version)
            await self._drop_timer(partition_of(row.job_id, self.partitions), row.kind, key)

    async def set_floor(self, partition: int, bucket: int) -> None:
        await self.point("before floors put")
        self.disk.floors[partition] = max(bucket, self.disk.floors.get(partition, 0))
        await self.point("after floors put")

    # parked jobs

    async def park(self, dues: Sequence[Due]) -> None:
        for due in dues:
            await self.point("before parked put")
            self.disk.parked[partition_of(due.job_id, self.partitions)][_park_key(due)] = due
            await self.point("after parked put")

    async def unpark(self, dues: Sequence[Due]) -> None:
        for due in dues:
            await self._add_timer(
                WATCH, due.job_id, due.version, self._clock.now_ms() + 300_000, due.line.lane, due.line.tenant
            )
            await self.point("before parked delete")
            self.disk.parked[partition_of(due.job_id, self.partitions)].pop(_park_key(due), None)
            await self.point("after parked delete")

    # upkeep

    async def archive(self, finished_before: int, limit: int) -> int:
        rows = {**self.disk.finished, **{j: r for j, r in self.disk.jobs.items() if r.job.status is Status.DEAD}}
        old = [
            job_id
            for job_id, row in rows.items()
            if row.job.finished_at is not None and row.job.finished_at < finished_before
        ][:limit]
        for job_id in old:
            await self.point("before records delete")
            self.disk.records.pop(job_id, None)
            await self.point("after records delete")
            dead = self.disk.jobs.get(job_id)
            if dead is not None and dead.job.status is Status.DEAD and (dead.job.finished_at or 0) < finished_before:
                await self.point("before jobs delete")
                del self.disk.jobs[job_id]
                await self.point("after jobs delete")
            self.disk.finished.pop(job_id, None)
        await self.drop_skips(finished_before)
        return len(old)

    async def sweep_keys(self, limit: int) -> int:
        now = self._clock.now_ms()
        over = [
            name
            for name, key in self.disk.keys.items()
            if key.expires_at <= now and self._replaceable(key, now, key.body_hash)
        ][:limit]
        for name in over:
            await self.point("before keys delete")
            self.disk.keys.pop(name, None)
            await self.point("after keys delete")
        return len(over)

    async def live_counts(self) -> dict[tuple[str, str, Status], int]:
        rows = [r.job for r in self.disk.jobs.values() if not r.gone and r.job.status not in FINISHED]
        return dict(Counter((job.line.tenant, job.line.queue, job.status) for job in rows))


def _skipped(job: JobState, now: int) -> JobState:
    return replace(job, status=Status.SKIPPED, finished_at=now, last_error="expired: it could not start in time")


def _claimed(job: JobState) -> Claimed:
    return Claimed(
        job_id=job.job_id,
        attempt=job.attempt,
        tries=job.tries,
        due_at=job.due_at,
        lease_until=job.lease_until or 0,
        lease_ms=job.lease_ms or 0,
        fire_at=job.fire_at,
        line=job.line,
        definition=job.definition,
        progress=job.progress,
    )


def _park_key(due: Due) -> ParkKey:
    line = due.line
    return (
        line.tenant,
        line.queue,
        int(line.lane),
        line.handler,
        line.hold,
        line.suspect,
        ready_score(due.due_at, due.priority),
        due.job_id,
        due.version,
    )
