"""Admit: a wish becomes a job. The first stage of the flow.

Decides everything that needs the tenant's settings, the time and the job's ID: defaults, the instant it fires, its line. What
concerns the request alone was checked at the border. Writes the idempotency record, the timer and the job; only then the near
tier is told, once, and a failure of that is nobody's: the loader or the recheck finds the timer.

A crash after the write and before the answer: the client repeats with its key and gets the same job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

from msgspec import UNSET, Struct, structs

from tocsin import telemetry, wire
from tocsin.clock import Clock, Entropy, ms_of
from tocsin.errors import Refused
from tocsin.flow.horizon import Horizon
from tocsin.flow.park import Parker
from tocsin.flow.queues import QueueBook, retrying_of
from tocsin.flow.quotas import Limits, Quotas, over
from tocsin.flow.retell import Owed
from tocsin.flow.tally import Tally
from tocsin.flow.telling import told
from tocsin.model.ids import in_slice, new_ids, slice_of_key
from tocsin.model.job import (
    HTTP,
    PRIORITY,
    Definition,
    JobState,
    Lane,
    Line,
    Retrying,
    Status,
    encode_definition,
)
from tocsin.model.spread import spread_ms
from tocsin.model.urls import host_key
from tocsin.near.port import NearTier
from tocsin.store.port import Created, Due, JobStore, Key, Made, NewJob

HORIZON_MS = wire.HORIZON_S * 1000
# The year 1 in UTC: with an offset an instant can be asked for that no datetime can show.
EARLIEST_MS = ms_of(datetime.min.replace(tzinfo=UTC))
FLEXIBLE, PRECISE = wire.Timing(class_="flexible"), wire.Timing()


class Wanted(Struct, frozen=True, kw_only=True):
    """A job that a client asks for. `key` is its idempotency key, `body_hash` (16 bytes) what the key is bound to."""

    job: wire.JobCreate
    key: str | None = None
    body_hash: bytes = b""
    window_s: float = 0.0
    traceparent: str | None = None


class Admitted(Struct, frozen=True, kw_only=True):
    """A job that is durable. `draft` is None for a replay: that job is what it is by now."""

    job_id: str
    status: Status
    replayed: bool
    draft: Draft | None = None


class Draft(Struct, frozen=True):
    """A job as it was created, before anything happened to it."""

    new: NewJob
    definition: Definition
    made_at: int

    def under(self, created: Created) -> Draft:
        """The draft under the ID it was made under: another one where this create ended an earlier, cut one of its key."""
        if created.made is not Made.CREATED or created.job_id == self.new.job_id:
            return self
        return Draft(structs.replace(self.new, job_id=created.job_id), self.definition, self.made_at)

    def state(self) -> JobState:
        """The whole job."""
        new = self.new
        return JobState(
            job_id=new.job_id,
            line=new.line,
            priority=new.priority,
            status=Status.QUEUED if new.queued else Status.SCHEDULED,
            version=1,
            attempt=0,
            tries=0,
            due_at=new.fire_at,
            fire_at=new.fire_at,
            created_at=self.made_at,
            queued_at=self.made_at if new.queued else None,
            expires_at=new.expires_at,
            definition=self.definition,
        )


class Admitter:
    """Creates jobs."""

    def __init__(
        self,
        store: JobStore,
        near: NearTier,
        parker: Parker,
        queues: QueueBook,
        quotas: Quotas,
        tally: Tally,
        clock: Clock,
        entropy: Entropy,
        owed: Owed | None = None,
    ) -> None:
        self._store, self._parker, self._horizon = store, parker, Horizon(near, clock)
        self._owed = owed or Owed()
        self._queues, self._quotas, self._tally = queues, quotas, tally
        self._clock, self._entropy = clock, entropy

    async def create(self, tenant: str, wanted: Sequence[Wanted]) -> list[Admitted | Refused]:
        """Create jobs, each for itself; the answers are in the order of the request. Raises StoreUnavailable."""
        limits = await self._quotas.limits_of(tenant)
        allowed = self._quotas.take_creates(tenant, limits, len(wanted))
        policies = {name: retrying_of(await self._queues.get(tenant, name)) for name in {w.job.queue for w in wanted}}
        now = self._clock.now_ms()
        fresh = new_ids(allowed, now, self._entropy)
        answers: list[Admitted | Refused | None] = [None] * len(wanted)
        drafts: list[tuple[int, Draft]] = []
        for at, wish in enumerate(wanted):
            if at >= allowed:
                answers[at] = over("creates_per_s", limits.creates_per_s, 1.0)
                continue
            job_id = fresh[at] if wish.key is None else in_slice(fresh[at], slice_of_key(tenant, wish.key))
            try:
                drafts.append((at, self._draft(tenant, wish, job_id, now, policies[wish.job.queue], limits)))
            except Refused as refused:
                answers[at] = refused
        if drafts:
            created = await self._store.create([draft.new for _, draft in drafts])
            drafts = [(at, draft.under(answer)) for (at, draft), answer in zip(drafts, created, strict=True)]
            await self._announce([draft.new for _, draft in drafts], created)
            for (at, draft), answer in zip(drafts, created, strict=True):
                answers[at] = _answer(draft, answer)
            await self._look_at_replays(answers)
        return [answer for answer in answers if answer is not None]

    def _draft(self, tenant: str, wish: Wanted, job_id: str, now: int, default: Retrying, limits: Limits) -> Draft:
        ask = wish.job
        timing = ask.timing or PRECISE
        base = self._asked_at(ask, now)
        fire_at = max(base + _spread(job_id, timing, wish.window_s), now)
        line = line_of(tenant, ask.queue, timing, ask.target)
        quota = self._quotas.place(tenant, limits, fire_at, line.lane)
        if quota is not None:
            fire_at = self._widened(job_id, timing, base, now, quota, limits)
        definition = Definition(
            target=ask.target,
            run_at=base,
            key_at=fire_at,
            payload=ask.payload,
            name=ask.name,
            timing=timing,
            retry=default if ask.retry is None else merged_policy(ask.retry, default),
            expires_after_s=ask.expires_after_s,
            tags=ask.tags or {},
            traceparent=wish.traceparent,
        )
        new = NewJob(
            job_id=job_id,
            line=line,
            priority=PRIORITY[ask.priority or "normal"],
            fire_at=fire_at,
            timeout_ms=definition.timeout_ms,
            queued=fire_at <= now,
            definition=encode_definition(definition),
            expires_at=None if ask.expires_after_s is None else fire_at + round(ask.expires_after_s * 1000),
            key=None if wish.key is None else Key(tenant=tenant, text=wish.key, body_hash=wish.body_hash),
        )
        return Draft(new, definition, now)

    def _asked_at(self, ask: wire.JobCreate, now: int) -> int:
        if ask.run_at is not None:
            return checked_run_at(ms_of(ask.run_at), now)
        return now if ask.delay_s is None else now + round(ask.delay_s * 1000)

    def _widened(self, job_id: str, timing: wire.Timing, base: int, now: int, quota: str, limits: Limits) -> int:
        """A later instant within ten times the window, where the job may be widened; otherwise the quota's problem."""
        if timing.may_widen and timing.window_s is not None and quota != "waiting_jobs":
            wider_ms = round(timing.window_s * 10_000)
            telemetry.JOBS.labels("widened").inc()
            return max(base, now) + spread_ms(job_id, wider_ms)
        raise over(quota, getattr(limits, quota), 60.0 if quota == "jobs_per_minute_bucket" else 1.0)

    async def _announce(self, jobs: list[NewJob], created: list[Created]) -> None:
        made = [job for job, answer in zip(jobs, created, strict=True) if answer.made is Made.CREATED]
        ready = [Due(job.fire_at, job.job_id, 1, job.line, job.priority) for job in made if job.queued]
        later = [Due(job.fire_at, job.job_id, 1, job.line, job.priority) for job in made if not job.queued]
        for status, dues in ((Status.QUEUED, ready), (Status.SCHEDULED, later)):
            for line, count in Counter(due.line for due in dues).items():
                self._tally.moved(line, None, status, count)
        telemetry.CREATED.inc(len(made))
        # The jobs are durable and their timers will be found; the client must not hear that they are not.
        if later and not await told("created", self._horizon.offer(later)):
            self._owed.add(later)
        if ready and not await told("created", self._parker.push(ready)):
            self._owed.add(ready)

    async def _look_at_replays(self, answers: list[Admitted | Refused | None]) -> None:
        replays = [a for a in answers if isinstance(a, Admitted) and a.replayed]
        if not replays:
            return
        telemetry.REPLAYED.inc(len(replays))
        states = await self._store.states([a.job_id for a in replays])
        status = {state.job_id: state.status for state in states if state is not None}
        for at, answer in enumerate(answers):
            if isinstance(answer, Admitted) and answer.replayed and answer.job_id in status:
                answers[at] = Admitted(job_id=answer.job_id, status=status[answer.job_id], replayed=True)


def checked_run_at(at_ms: int, now_ms: int) -> int:
    """An asked instant, not before the year 1; Refused when it lies more than 366 days ahead."""
    if at_ms > now_ms + HORIZON_MS:
        raise invalid("/run_at", "more than 366 days ahead")
    return max(at_ms, EARLIEST_MS)


def merged_policy(asked: wire.RetryPolicy | None, default: Retrying) -> Retrying:
    """A job's retry policy: what it asks for, then the queue's; Refused when the first wait exceeds the longest."""
    if asked is None:
        return default
    policy = Retrying(
        max_attempts=default.max_attempts if asked.max_attempts is UNSET else asked.max_attempts,
        initial_backoff_s=default.initial_backoff_s if asked.initial_backoff_s is UNSET else asked.initial_backoff_s,
        max_backoff_s=default.max_backoff_s if asked.max_backoff_s is UNSET else asked.max_backoff_s,
    )
    if policy.initial_backoff_s > policy.max_backoff_s:
        raise invalid(
            "/retry/initial_backoff_s",
            f"initial_backoff_s {policy.initial_backoff_s:g} exceeds max_backoff_s {policy.max_backoff_s:g}",
        )
    return policy


def invalid(pointer: str, detail: str) -> Refused:
    """A 422 with one field."""
    return Refused(422, "invalid", "Invalid request", f"{pointer}: {detail}", errors=((pointer, detail),))


def line_of(tenant: str, queue: str, timing: wire.Timing, target: wire.Target) -> Line:
    """The line that a job with these settings waits in; one object shared by all its members."""
    lane = Lane.PRECISE if timing.class_ == "precise" else Lane.FLEXIBLE
    if isinstance(target, wire.TaskTarget):
        return _line(tenant, queue, lane, target.handler, "")
    return _line(tenant, queue, lane, HTTP, _hold_of(target.url))


@lru_cache(maxsize=65_536)
def _line(tenant: str, queue: str, lane: Lane, handler: str, hold: str) -> Line:
    return Line(tenant, queue, lane, handler, hold)


@lru_cache(maxsize=8_192)
def _hold_of(url: str) -> str:
    scheme, host, port = host_key(url)
    return f"{scheme}://{host}:{port}"


def _spread(job_id: str, timing: wire.Timing, window_s: float) -> int:
    if timing.window_s is None and not window_s:
        return 0
    own = 0 if timing.window_s is None else spread_ms(job_id, round(timing.window_s * 1000))
    return own + (round(window_s * 1000 * spread_share(job_id)) if window_s else 0)


def spread_share(job_id: str) -> float:
    """A number in [0, 1) from a job's ID, other than the one that its own window uses."""
    return spread_ms(job_id[::-1], 1 << 30, whole=True) / (1 << 30)


def _answer(draft: Draft, created: Created) -> Admitted | Refused:
    match created.made:
        case Made.CREATED:
            status = Status.QUEUED if draft.new.queued else Status.SCHEDULED
            return Admitted(job_id=created.job_id, status=status, replayed=False, draft=draft)
        case Made.REPLAYED:
            return Admitted(job_id=created.job_id, status=Status.SCHEDULED, replayed=True)
        case Made.REFUSED:
            return invalid("", "a number in this job is too large or too small to be stored")
        case Made.CONFLICT:
            return Refused(
                409,
                "idempotency-key-conflict",
                "Idempotency-Key is bound to another request",
                f"this Idempotency-Key was used for another body and stands for {created.job_id}; use a new key",
            )
