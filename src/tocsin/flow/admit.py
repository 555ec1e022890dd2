"""Admit: a wish becomes a job. The first stage of the flow.

Decides everything that needs the tenant's settings, the time and the job's ID: defaults, the instant it fires, its line. What
concerns the request alone was checked at the border. Writes the idempotency record, the timer and the job; only then the near
tier is told, once, and a failure of that is nobody's: the loader or the recheck finds the timer.

A crash after the write and before the answer: the client repeats with its key and gets the same job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from msgspec import UNSET

from tocsin import telemetry, wire
from tocsin.clock import Clock, Entropy, ms_of
from tocsin.errors import Refused
from tocsin.flow.horizon import Horizon
from tocsin.flow.park import Parker
from tocsin.flow.queues import QueueBook, retrying_of
from tocsin.flow.quotas import Limits, Quotas, over
from tocsin.flow.tally import Tally
from tocsin.model.ids import keyed_id, new_ids
from tocsin.model.job import (
    PRIORITY,
    Definition,
    JobState,
    Lane,
    Line,
    Retrying,
    Status,
    encode_definition,
    handler_of,
)
from tocsin.model.spread import spread_ms
from tocsin.model.urls import host_key
from tocsin.near.port import NearTier
from tocsin.store.port import Created, Due, JobStore, Key, Made, NewJob

HORIZON_MS = wire.HORIZON_S * 1000
FLEXIBLE, PRECISE = wire.Timing(class_="flexible"), wire.Timing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A job that a client asks for. `key` is its idempotency key, `body_hash` (16 bytes) what the key is bound to."""

    job: wire.JobCreate
    key: str | None = None
    body_hash: bytes = b""
    window_s: float = 0.0
    traceparent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A job that is durable. `job` is None for a replay: it is what it is by now."""

    job_id: str
    status: Status
    replayed: bool
    job: JobState | None


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
    ) -> None:
        self._store, self._parker, self._horizon = store, parker, Horizon(near, clock)
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
        drafts: list[tuple[int, JobState, NewJob]] = []
        for at, wish in enumerate(wanted):
            if at >= allowed:
                answers[at] = over("creates_per_s", limits.creates_per_s, 1.0)
                continue
            job_id = fresh[at] if wish.key is None else keyed_id(now, self._entropy, tenant, wish.key)
            try:
                job = self._draft(tenant, wish, job_id, now, policies[wish.job.queue], limits)
            except Refused as refused:
                answers[at] = refused
                continue
            drafts.append((at, job, self._new(job, wish)))
        if drafts:
            created = await self._store.create([new for _, _, new in drafts])
            drafts = [_as_created(draft, answer) for draft, answer in zip(drafts, created, strict=True)]
            await self._announce(drafts, created)
            for (at, job, _), answer in zip(drafts, created, strict=True):
                answers[at] = _answer(job, answer)
            await self._look_at_replays(answers)
        return [answer for answer in answers if answer is not None]

    def _draft(self, tenant: str, wish: Wanted, job_id: str, now: int, default: Retrying, limits: Limits) -> JobState:
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
            retry=merged_policy(ask.retry, default),
            expires_after_s=ask.expires_after_s,
            tags=ask.tags or {},
            traceparent=wish.traceparent,
        )
        queued = fire_at <= now
        return JobState(
            job_id=job_id,
            line=line,
            priority=PRIORITY[ask.priority or "normal"],
            status=Status.QUEUED if queued else Status.SCHEDULED,
            version=1,
            attempt=0,
            tries=0,
            due_at=fire_at,
            fire_at=fire_at,
            created_at=now,
            queued_at=now if queued else None,
            expires_at=None if ask.expires_after_s is None else fire_at + round(ask.expires_after_s * 1000),
            definition=definition,
        )

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

    def _new(self, job: JobState, wish: Wanted) -> NewJob:
        key = None
        if wish.key is not None:
            key = Key(tenant=job.line.tenant, text=wish.key, body_hash=wish.body_hash)
        return NewJob(
            job_id=job.job_id,
            line=job.line,
            priority=job.priority,
            fire_at=job.fire_at,
            queued=job.status is Status.QUEUED,
            definition=encode_definition(job.definition),
            expires_at=job.expires_at,
            key=key,
        )

    async def _announce(self, drafts: list[tuple[int, JobState, NewJob]], created: list[Created]) -> None:
        ready: list[Due] = []
        later: list[Due] = []
        lines: Counter[tuple[Line, Status]] = Counter()
        for (_, job, _), answer in zip(drafts, created, strict=True):
            if answer.made is Made.CREATED:
                lines[job.line, job.status] += 1
                due = Due(job.due_at, job.job_id, 1, job.line, job.priority)
                (ready if job.status is Status.QUEUED else later).append(due)
        for (line, status), count in lines.items():
            self._tally.moved(line, None, status, count)
        telemetry.CREATED.inc(len(ready) + len(later))
        if later:
            await self._horizon.offer(later)
        if ready:
            await self._parker.push(ready)

    async def _look_at_replays(self, answers: list[Admitted | Refused | None]) -> None:
        replays = [a for a in answers if isinstance(a, Admitted) and a.replayed]
        if not replays:
            return
        telemetry.REPLAYED.inc(len(replays))
        states = await self._store.states([a.job_id for a in replays])
        status = {state.job_id: state.status for state in states if state is not None}
        for at, answer in enumerate(answers):
            if isinstance(answer, Admitted) and answer.replayed and answer.job_id in status:
                answers[at] = Admitted(job_id=answer.job_id, status=status[answer.job_id], replayed=True, job=None)


def checked_run_at(at_ms: int, now_ms: int) -> int:
    """An asked instant; Refused when it lies more than 366 days ahead."""
    if at_ms > now_ms + HORIZON_MS:
        raise invalid("/run_at", "more than 366 days ahead")
    return at_ms


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
    """The line that a job with these settings waits in."""
    lane = Lane.FLEXIBLE if timing.class_ == "flexible" else Lane.PRECISE
    hold = _hold_of(target.url) if isinstance(target, wire.HttpTarget) else ""
    return _line(tenant, queue, lane, handler_of(target), hold)


@lru_cache(maxsize=65_536)
def _line(tenant: str, queue: str, lane: Lane, handler: str, hold: str) -> Line:
    # One object per line, shared by all its members: a million of them must not carry a million copies.
    return Line(tenant, queue, lane, handler, hold)


@lru_cache(maxsize=8_192)
def _hold_of(url: str) -> str:
    scheme, host, port = host_key(url)
    return f"{scheme}://{host}:{port}"


def _spread(job_id: str, timing: wire.Timing, window_s: float) -> int:
    own = 0 if timing.window_s is None else spread_ms(job_id, round(timing.window_s * 1000))
    return own + (round(window_s * 1000 * spread_share(job_id)) if window_s else 0)


def spread_share(job_id: str) -> float:
    """A number in [0, 1) from a job's ID, other than the one that its own window uses."""
    return spread_ms(job_id[::-1], 1 << 30, whole=True) / (1 << 30)


def _as_created(draft: tuple[int, JobState, NewJob], created: Created) -> tuple[int, JobState, NewJob]:
    """The draft under the ID it was made under: another one where this create ended an earlier, cut one of the same key."""
    at, job, new = draft
    if created.made is Made.CREATED and created.job_id != job.job_id:
        return at, replace(job, job_id=created.job_id), new
    return draft


def _answer(job: JobState, created: Created) -> Admitted | Refused:
    match created.made:
        case Made.CREATED:
            return Admitted(job_id=job.job_id, status=job.status, replayed=False, job=job)
        case Made.REPLAYED:
            return Admitted(job_id=created.job_id, status=job.status, replayed=True, job=None)
        case Made.REFUSED:
            return invalid("", "a number in this job is too large or too small to be stored")
        case Made.CONFLICT:
            return Refused(
                409,
                "idempotency-key-conflict",
                "Idempotency-Key is bound to another request",
                f"this Idempotency-Key was used for another body and stands for {created.job_id}; use a new key",
            )
