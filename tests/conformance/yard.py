"""Where the suite's jobs are made and brought to the state that a test begins with."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from msgspec import Raw, structs

from tocsin.clock import ManualClock, SeededEntropy
from tocsin.model.ids import keyed_id, new_ids, new_schedule_id, occurrence_id
from tocsin.model.job import Definition, JobState, Lane, Line, encode_definition
from tocsin.model.partition import bucket_of
from tocsin.store.port import (
    FIRE,
    AttemptRecord,
    Change,
    Claimed,
    Due,
    Key,
    NewJob,
    Store,
    TimerKind,
    TimerRow,
)
from tocsin.store.schedules import Move, Moved, ScheduleRow, SkipRow
from tocsin.wire import Outcome, SkipReason, Status, TaskTarget

START = datetime(2027, 3, 1, 8, 0, 30, tzinfo=UTC)
PARTITIONS = 4
LINE = Line("acme", "mail", Lane.PRECISE, "send", "")
LEASE_MS = 30_000
WORKER = "w-1"


class Yard:
    """A store with a clock, and short ways to jobs in every state."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.jobs, self.schedules, self.clock = store, store.jobs, store.schedules, clock
        self.entropy = SeededEntropy(7)

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    def new(
        self,
        due_in_ms: int = 0,
        *,
        line: Line = LINE,
        queued: bool = False,
        priority: int = 0,
        expires_in_ms: int | None = None,
        key: Key | None = None,
        timeout_s: float = 3600.0,
        **definition: Any,
    ) -> NewJob:
        """A job that is not in the store yet."""
        at = self.now + due_in_ms
        job_id = (
            new_ids(1, self.now, self.entropy)[0]
            if key is None
            else keyed_id(self.now, self.entropy, key.tenant, key.text)
        )
        fields = {"payload": Raw(b'{"to":"ada"}'), **definition}
        asked = Definition(target=TaskTarget(handler="send", timeout_s=timeout_s), run_at=at, key_at=at, **fields)
        return NewJob(
            job_id=job_id,
            line=line,
            priority=priority,
            fire_at=at,
            timeout_ms=asked.timeout_ms,
            queued=queued,
            definition=encode_definition(asked),
            expires_at=None if expires_in_ms is None else self.now + expires_in_ms,
            key=key,
            schedule_id=asked.schedule_id,
        )

    def schedule(self, name: str = "nightly", *, look_in_ms: int | None = 60_000, **fields: Any) -> ScheduleRow:
        """A schedule's first row, that is not in the store yet."""
        tenant = fields.get("tenant", "acme")
        row = ScheduleRow(
            schedule_id=new_schedule_id(self.now, self.entropy, tenant, name),
            tenant="acme",
            name=name,
            revision=1,
            serial=1,
            status="active",
            look_at=None if look_in_ms is None else self.now + look_in_ms,
            spec='{"cron":"0 2 * * *"}',
            state='{"runs":0}',
        )
        return structs.replace(row, **fields)

    def occurrence(self, row: ScheduleRow, at_in_ms: int = 0, *, origin: str = "schedule", **wanted: Any) -> NewJob:
        """A job of a schedule that is not in the store yet."""
        at = self.now + at_in_ms
        fields = {"schedule_id": row.schedule_id, "occurrence_at": at, "origin": origin, "made_at": self.now, **wanted}
        job_id = occurrence_id(row.schedule_id, row.revision, at, origin, leader=False)
        return structs.replace(self.new(at_in_ms, **fields), job_id=job_id)

    async def move(self, move: Move) -> Moved:
        """One move."""
        (moved,) = await self.schedules.move([move])
        return moved

    async def begun(self, name: str = "nightly", *, at_in_ms: int = 0, **fields: Any) -> tuple[ScheduleRow, NewJob]:
        """A schedule in the store with its waiting job."""
        row = self.schedule(name, **fields)
        job = self.occurrence(row, at_in_ms, line=LINE._replace(tenant=row.tenant))
        assert await self.move(Move(schedule_id=row.schedule_id, serial=0, after=row, jobs=(job,))) is Moved.WON
        return row, job

    async def row(self, schedule_id: str) -> ScheduleRow:
        """A schedule's row as it is; it must be there."""
        (row,) = await self.schedules.get([schedule_id])
        assert row is not None
        return row

    async def made(self, count: int = 1, due_in_ms: int = 0, **wanted: Any) -> list[NewJob]:
        """Jobs in the store."""
        jobs = [self.new(due_in_ms, **wanted) for _ in range(count)]
        await self.jobs.create(jobs)
        return jobs

    async def queued(self, count: int = 1, **wanted: Any) -> list[str]:
        """The IDs of QUEUED jobs."""
        return [job.job_id for job in await self.made(count, queued=True, **wanted)]

    async def running(
        self, count: int = 1, *, worker: str = WORKER, lease_ms: int = LEASE_MS, **wanted: Any
    ) -> list[Claimed]:
        """Jobs in the first attempt."""
        got = await self.jobs.claim(await self.queued(count, **wanted), worker, lease_ms)
        return [job for job in got if job is not None]

    async def retrying(self, **wanted: Any) -> JobState:
        """A job that failed once and waits for its second attempt, due in a second."""
        (job,) = await self.running(**wanted)
        before = await self.state(job.job_id)
        after = replace(
            before,
            status=Status.RETRYING,
            version=before.version + 1,
            due_at=self.now + 1_000,
            lease_until=None,
            lease_ms=None,
            last_error="boom",
            outcome=Outcome.RETRYABLE_FAILURE,
        )
        record = self.record(before, Outcome.RETRYABLE_FAILURE, error="boom")
        assert await self.jobs.change([Change(before=before, after=after, timer=True, record=record)]) == [True]
        return await self.state(job.job_id)

    async def dead(self, error: str = "boom", **wanted: Any) -> JobState:
        """A dead letter."""
        (job,) = await self.running(**wanted)
        before = await self.state(job.job_id)
        after = replace(
            before,
            status=Status.DEAD,
            lease_until=None,
            lease_ms=None,
            finished_at=self.now,
            last_error=error,
            outcome=Outcome.FATAL_FAILURE,
        )
        record = self.record(before, Outcome.FATAL_FAILURE, error=error)
        assert await self.jobs.change([Change(before=before, after=after, record=record)]) == [True]
        return await self.state(job.job_id)

    async def cancelled(self, job_id: str) -> JobState:
        """That waiting job, cancelled."""
        before = await self.state(job_id)
        after = replace(before, status=Status.CANCELLED, finished_at=self.now, outcome=Outcome.CANCELLED)
        assert await self.jobs.change([Change(before=before, after=after)]) == [True]
        return await self.state(job_id)

    def record(self, job: JobState, outcome: Outcome, *, error: str | None = None) -> AttemptRecord:
        """The record of the attempt that a job is in."""
        assert job.claimed_at is not None
        return AttemptRecord(
            attempt=job.attempt,
            worker=job.worker,
            claimed_at=job.claimed_at,
            finished_at=self.now,
            outcome=outcome,
            error=error,
            due_at=job.due_at,
        )

    async def state(self, job_id: str) -> JobState:
        """What that job is; it must be there."""
        (job,) = await self.jobs.states([job_id])
        assert job is not None
        return job

    async def status(self, job_id: str) -> Status:
        """Where that job stands."""
        return (await self.state(job_id)).status

    async def timers(self, kind: TimerKind = FIRE, last_bucket: int | None = None) -> list[TimerRow]:
        """All timers of a kind, of all partitions."""
        last = bucket_of(self.now) + 1_000_000 if last_bucket is None else last_bucket
        found: list[TimerRow] = []
        for partition in range(PARTITIONS):
            page = await self.jobs.read_timers(partition, kind, last, None, 1_000)
            assert page.next_key is None
            found += page.timers
        return found

    async def dues(self, first_bucket: int = 0, last_bucket: int | None = None) -> list[Due]:
        """All that `read_due` finds, in all partitions."""
        last = bucket_of(self.now) + 1_000_000 if last_bucket is None else last_bucket
        found: list[Due] = []
        for partition in range(PARTITIONS):
            page = await self.jobs.read_due(partition, first_bucket, last, None, 1_000)
            assert page.next_key is None
            found += page.dues
        return found


def step(row: ScheduleRow, **changes: Any) -> ScheduleRow:
    """A schedule's row after its next move."""
    return structs.replace(row, serial=row.serial + 1, **changes)


def fired(row: ScheduleRow, job: NewJob, following: NewJob | None = None, **changes: Any) -> Move:
    """The move in which a schedule's waiting job fires and the next one is made."""
    return Move(
        schedule_id=row.schedule_id,
        serial=row.serial,
        after=step(row, **changes),
        fires=(due(job),),
        jobs=() if following is None else (following,),
    )


def skip(
    row: ScheduleRow, first: int, reason: SkipReason = "paused", *, last: int | None = None, **fields: Any
) -> SkipRow:
    """A skip of a schedule."""
    end = first if last is None else last
    one = SkipRow(schedule_id=row.schedule_id, first=first, last=end, count=1, reason=reason, recorded_at=first)
    return structs.replace(one, **fields)


def due(job: NewJob, version: int = 1, at: int | None = None) -> Due:
    """A job's member in the near tier."""
    return Due(job.fire_at if at is None else at, job.job_id, version, job.line, job.priority)


def due_of(job: JobState) -> Due:
    """The same of a job as the store has it."""
    return Due(job.due_at, job.job_id, job.version, job.line, job.priority)


def key(text: str = "order-7", body: bytes = b"1", tenant: str = "acme") -> Key:
    """An idempotency key with the hash of a body."""
    return Key(tenant=tenant, text=text, body_hash=body.ljust(16, b"."))
