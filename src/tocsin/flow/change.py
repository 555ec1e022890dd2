"""Change: PATCH, cancel and run-now, the client's steps in a job's life.

Each reads the job, decides, and writes where the state that was read still stands; a lost race is read again. A change of the
time writes the new timer at version+1 before the job, so that a crash between the two leaves a void timer and an unchanged job.
After the commit the near tier is told: offered, pushed or forgotten.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from msgspec import UNSET, Raw

from tocsin import telemetry, wire
from tocsin.clock import Clock, ms_of
from tocsin.errors import Refused
from tocsin.flow.admit import checked_run_at, invalid, line_of, merged_policy
from tocsin.flow.ends import Ends
from tocsin.flow.horizon import Horizon, due_of
from tocsin.flow.intervene import Intervener
from tocsin.flow.look import not_found
from tocsin.flow.park import Parker
from tocsin.flow.queues import QueueBook, retrying_of
from tocsin.flow.retell import Owed
from tocsin.flow.tally import Tally
from tocsin.flow.telling import told
from tocsin.model.ids import is_schedules
from tocsin.model.job import PENDING, PRIORITY, Definition, JobState, Status
from tocsin.model.spread import spread_ms
from tocsin.model.urls import host_key
from tocsin.near.port import NearTier
from tocsin.store.port import Change, JobStore

ROUNDS = 16


class Changer:
    """Changes jobs at their owners' wish."""

    def __init__(
        self,
        store: JobStore,
        near: NearTier,
        queues: QueueBook,
        parker: Parker,
        intervener: Intervener,
        ends: Ends,
        tally: Tally,
        clock: Clock,
        owed: Owed | None = None,
    ) -> None:
        self._owed = owed or Owed()
        self._store, self._near, self._queues, self._parker = store, near, queues, parker
        self._intervener, self._ends = intervener, ends
        self._horizon = Horizon(near, clock)
        self._tally, self._clock = tally, clock

    async def patch(self, tenant: str, job_id: str, patch: wire.JobPatch, if_match: int | None) -> JobState:
        """Change a SCHEDULED job; Refused 404, 409, 412 or 422."""
        for _ in range(ROUNDS):
            job = await self._job(tenant, job_id)
            if if_match is not None and if_match != job.version:
                raise Refused(
                    412, "version-mismatch", "Version mismatch", f"the job is at version {job.version}, not {if_match}"
                )
            if job.status is not Status.SCHEDULED:
                raise _wrong_state(job, "changed", "only a SCHEDULED job can be")
            after = await self._patched(job, patch)
            if after is None:
                return job
            if await self._write(job, after):
                return after
        raise _too_busy(job_id)

    async def run_now(self, tenant: str, job_id: str) -> JobState:
        """Fire a SCHEDULED or RETRYING job at once; Refused 404 or 409."""
        for _ in range(ROUNDS):
            job = await self._job(tenant, job_id)
            if job.status not in PENDING:
                raise _wrong_state(job, "run now", "only a SCHEDULED or RETRYING job can be")
            after = self._queued(job, job.definition)
            if await self._write(job, after):
                return after
        raise _too_busy(job_id)

    async def cancel(self, tenant: str, job_id: str) -> JobState:
        """Cancel a job that has not started, or ask its worker to stop; Refused 404 or 409."""
        for _ in range(ROUNDS):
            job = await self._job(tenant, job_id)
            match job.status:
                case Status.CANCELLED | Status.CANCEL_REQUESTED:
                    return job
                case Status.SCHEDULED | Status.QUEUED | Status.RETRYING:
                    after = replace(job, status=Status.CANCELLED, finished_at=self._clock.now_ms(), lease_until=None)
                case Status.RUNNING:
                    after = replace(job, status=Status.CANCEL_REQUESTED)
                case Status.SUCCEEDED | Status.DEAD | Status.SKIPPED:
                    raise _wrong_state(job, "cancelled", "it is over")
                case _:
                    assert_never(job.status)
            taken_out = await self._taken_out(job, after)
            if taken_out:
                self._ends.tell([job_id])
                return after
            if taken_out is None and (await self._store.change([Change(before=job, after=after)]))[0]:
                self._tally.moved(job.line, job.status, after.status)
                if after.status is Status.CANCELLED:
                    self._ends.tell([job_id])
                    telemetry.CANCELLED.inc()
                    await told("cancelled", self._near.remove([job_id]))
                return after
        raise _too_busy(job_id)

    async def _job(self, tenant: str, job_id: str) -> JobState:
        job = (await self._store.states([job_id]))[0]
        if job is None or job.line.tenant != tenant:
            raise not_found(job_id)
        return job

    async def _write(self, job: JobState, after: JobState) -> bool:
        taken_out = await self._taken_out(job, after)
        if taken_out is not None:
            return taken_out
        if not (await self._store.change([Change(before=job, after=after, timer=True)]))[0]:
            return False
        self._tally.moved(after.line, job.status, after.status)
        await told("changed", self._near.remove([job.job_id]))
        due = [due_of(after)]
        telling = self._parker.push(due) if after.status is Status.QUEUED else self._horizon.offer(due)
        if not await told("changed", telling):
            self._owed.add(due)
        return True

    async def _taken_out(self, job: JobState, after: JobState) -> bool | None:
        """Whether a schedule's job that had not started was taken out of its hands by this change; None if that does not concern a
        schedule."""
        waits = job.status is Status.SCHEDULED and after.status is not Status.SCHEDULED
        unstarted = job.status is Status.QUEUED and job.attempt == 0 and after.status is Status.CANCELLED
        if not is_schedules(job.job_id) or not (waits or unstarted):
            return None
        return await self._intervener.take_out(job, after)

    def _queued(self, job: JobState, definition: Definition) -> JobState:
        now = self._clock.now_ms()
        return replace(
            job,
            status=Status.QUEUED,
            version=job.version + 1,
            due_at=now,
            fire_at=now if job.attempt == 0 else job.fire_at,
            queued_at=now,
            expires_at=_expires_at(definition, now if job.attempt == 0 else job.fire_at),
            definition=definition,
        )

    async def _patched(self, job: JobState, patch: wire.JobPatch) -> JobState | None:
        """The job after the patch, or None when nothing would change."""
        old, now = job.definition, self._clock.now_ms()
        policy = old.retry
        if patch.retry is not UNSET:
            policy = merged_policy(patch.retry, retrying_of(await self._queues.get(job.line.tenant, job.line.queue)))
        timing = old.timing if patch.timing is UNSET else patch.timing or wire.Timing()
        if timing != old.timing and old.schedule_id is not None:
            # A wider window would let it fire after its successor, which it makes only then.
            raise _belongs_to_schedule()
        asked = self._asked_at(job, patch, now)
        new = Definition(
            target=old.target if patch.target is UNSET else unmasked(patch.target, old.target),
            run_at=asked,
            key_at=old.key_at,
            payload=old.payload if patch.payload is UNSET else Raw(bytes(patch.payload)),
            name=old.name if patch.name is UNSET else patch.name,
            timing=timing,
            retry=policy,
            expires_after_s=old.expires_after_s if patch.expires_after_s is UNSET else patch.expires_after_s,
            tags=old.tags if patch.tags is UNSET else patch.tags or {},
            traceparent=old.traceparent,
            schedule_id=old.schedule_id,
            occurrence_at=old.occurrence_at,
            origin=old.origin,
            made_at=old.made_at,
        )
        priority = job.priority if patch.priority is UNSET else PRIORITY[patch.priority or "normal"]
        fire_at = job.fire_at
        if asked != old.run_at or timing != old.timing:
            window_ms = 0 if timing.window_s is None else round(timing.window_s * 1000)
            fire_at = max(asked + spread_ms(job.job_id, window_ms), now)
        if priority == job.priority and fire_at == job.fire_at and _same(new, old):
            return None
        line = line_of(job.line.tenant, job.line.queue, timing, new.target)
        # An occurrence whose time has come fires where its schedule is asked about it, not because somebody has changed its payload.
        due_at = fire_at if old.schedule_id is None else job.due_at
        if fire_at <= now and old.schedule_id is None:
            return replace(self._queued(job, new), line=line, priority=priority)
        return replace(
            job,
            version=job.version + 1,
            due_at=due_at,
            fire_at=fire_at,
            expires_at=_expires_at(new, fire_at),
            line=line,
            priority=priority,
            definition=new,
        )

    def _asked_at(self, job: JobState, patch: wire.JobPatch, now: int) -> int:
        if patch.run_at is UNSET and patch.delay_s is UNSET:
            return job.definition.run_at
        if job.definition.schedule_id is not None:
            raise _belongs_to_schedule()
        if patch.run_at is not UNSET and patch.run_at is not None:
            if patch.delay_s is not UNSET and patch.delay_s is not None:
                raise invalid("/delay_s", "give run_at or delay_s, not both")
            return checked_run_at(ms_of(patch.run_at), now)
        if patch.delay_s is not UNSET and patch.delay_s is not None:
            return now + round(patch.delay_s * 1000)
        return now


def _same(new: Definition, old: Definition) -> bool:
    return bytes(new.payload) == bytes(old.payload) and all(
        getattr(new, name) == getattr(old, name) for name in Definition.__struct_fields__ if name != "payload"
    )


def unmasked(new: wire.Target, old: wire.Target) -> wire.Target:
    """Header values come back masked in answers; one that is sent back masked keeps what is stored, at the same host only:
    who may change a job but not read its secrets must not be able to have them sent elsewhere."""
    if not isinstance(new, wire.HttpTarget) or not isinstance(old, wire.HttpTarget):
        return new
    masked = [name for name, value in new.headers.items() if value == wire.MASK and name in old.headers]
    if masked and host_key(new.url) != host_key(old.url):
        detail = (
            "the target is at another host; give the header's value anew, a masked one is kept for the same host only"
        )
        raise invalid(f"/target/headers/{masked[0]}", detail)
    headers = {
        name: old.headers.get(name, value) if value == wire.MASK else value for name, value in new.headers.items()
    }
    return wire.HttpTarget(url=new.url, method=new.method, headers=headers, timeout_s=new.timeout_s)


def _expires_at(definition: Definition, fire_at: int) -> int | None:
    return None if definition.expires_after_s is None else fire_at + round(definition.expires_after_s * 1000)


def _belongs_to_schedule() -> Refused:
    detail = "the time of a schedule's job cannot be changed; change the schedule, or cancel the job to skip it"
    return Refused(409, "occurrence-time", "The time belongs to the schedule", detail)


def _wrong_state(job: JobState, verb: str, rule: str) -> Refused:
    return Refused(
        409,
        "wrong-state",
        "Wrong state",
        f"the job is {job.status} and cannot be {verb}: {rule}",
        extra={"job_status": job.status.value},
    )


def _too_busy(job_id: str) -> Refused:
    return Refused(
        409, "busy", "Too many changes at once", f"{job_id} was changed by others {ROUNDS} times meanwhile; try again"
    )
