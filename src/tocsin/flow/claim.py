"""Claim: a worker asks for jobs and holds them under leases.

Pop -> claim -> settle. A pop moves jobs out of their lines into the request's hand for ten seconds, the claim write makes them
RUNNING with attempt+1, then they leave the hand. A crash in between puts them back into their lines (not yet claimed) or lets the
lease end (claimed). A repeat of the request within a minute gets the same jobs, also at another process: what is still in the request's
hand and is held already by its worker was claimed for it.

A claim with nothing to give waits, up to `wait_s`, until a push, a resume or a freed slot says that it may look again; it looks
once a second in any case, because a hint may be lost.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum

from msgspec import DecodeError, Raw, json

from tocsin import telemetry, wire
from tocsin.clock import Clock, Entropy, rfc3339
from tocsin.errors import PartlyUnavailable, ServerUnavailable
from tocsin.flow.ends import Ends
from tocsin.flow.queues import DEFAULT_LEASE_MS, QueueBook
from tocsin.flow.sightings import Sightings
from tocsin.flow.tally import Tally
from tocsin.flow.telling import told
from tocsin.flow.tokens import LeaseTokens
from tocsin.model.job import HELD, NULL, JobState, Line, Status, idempotency_key
from tocsin.model.signing import body_of, signature_headers
from tocsin.near.port import NearTier, Pop
from tocsin.store.port import Claimed, Due, JobStore
from tocsin.store.settings import SettingsStore
from tocsin.telemetry import log

ACTIVE_SIGNING_KEYS = 2
KEYS_FRESH_S = 5.0
LATER_MS = 5_000
RECHECKED_AFTER_MS = 30_000


class _Then(Enum):
    """What a claim does whose look has given no jobs."""

    WAIT = "wait until there may be some"
    LOOK_AGAIN = "look again at once: others may be there"
    ANSWER = "answer with nothing"


class Claimer:
    """Hands out jobs."""

    def __init__(
        self,
        store: JobStore,
        near: NearTier,
        queues: QueueBook,
        tokens: LeaseTokens,
        signing: SigningKeys,
        tally: Tally,
        clock: Clock,
        entropy: Entropy,
        ends: Ends,
        patience: Clock | None = None,
        sightings: Sightings | None = None,
    ) -> None:
        # In virtual time a client still waits in its own: its connection must be answered while the clock stands still.
        self._patience = patience or clock
        self._store, self._near, self._queues = store, near, queues
        self._tokens, self._signing, self._tally = tokens, signing, tally
        self._clock, self._entropy, self._ends, self._sightings = clock, entropy, ends, sightings
        # Claims that are being worked on; those that wait for a job do not count. Virtual time stands still meanwhile.
        self.busy = 0

    async def claim(self, tenant: str, queue: str, request: wire.ClaimRequest) -> list[wire.ClaimedJob]:
        """Up to `request.max` task jobs of a queue; empty when there are none within `request.wait_s`."""
        with self._working():
            return await self._claim(tenant, queue, request)

    async def claim_callbacks(self, request: wire.ClaimRequest) -> list[wire.ExecutorJob]:
        """Up to `request.max` callbacks of all tenants, in fair order, with their signatures."""
        with self._working():
            return await self._claim_callbacks(request)

    async def _claim(self, tenant: str, queue: str, request: wire.ClaimRequest) -> list[wire.ClaimedJob]:
        wish = Pop(
            request_id=self._request_id(f"{tenant}/{queue}", request),
            tenant=tenant,
            queue=queue,
            handlers=None if request.handlers is None else tuple(request.handlers),
            most=request.max,
            now_ms=self._clock.now_ms(),
        )
        lease_ms = await self._lease_ms(tenant, queue, request)
        await self._queues.assure(tenant, queue)
        return self._shown(await self._wait(wish, request, lease_ms))

    async def _claim_callbacks(self, request: wire.ClaimRequest) -> list[wire.ExecutorJob]:
        wish = Pop(
            request_id=self._request_id("", request),
            tenant=None,
            queue=None,
            handlers=None,
            most=request.max,
            now_ms=self._clock.now_ms(),
        )
        lease_ms = DEFAULT_LEASE_MS if request.lease_s is None else round(request.lease_s * 1000)
        await self._queues.assure_changes()
        claimed = await self._wait(wish, request, lease_ms)
        for tenant, queue in {(job.line.tenant, job.line.queue) for job in claimed}:
            await told("queue changed", self._queues.assure(tenant, queue))
        secrets = {tenant: await self._signing.active(tenant) for tenant in {job.line.tenant for job in claimed}}
        now_s = self._clock.now_ms() // 1000
        return [
            _callback(job, plain, secrets[job.line.tenant], now_s)
            for job, plain in zip(claimed, self._shown(claimed), strict=True)
        ]

    @contextmanager
    def _working(self) -> Iterator[None]:
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1

    async def _wait(self, wish: Pop, request: wire.ClaimRequest, lease_ms: int) -> list[Claimed]:
        until = self._patience.elapsed_s() + request.wait_s
        while True:
            # Shielded: a client that hangs up must not leave a claim whose lease nobody watches.
            got, then = await asyncio.shield(self._take(wish, request.worker, lease_ms))
            if self._sightings is not None:
                self._sightings.saw(wish.tenant or "", request.worker, wish.queue or "", len(got))
            if got or then is _Then.ANSWER:
                return got
            if then is _Then.LOOK_AGAIN:
                continue
            left_s = until - self._patience.elapsed_s()
            if left_s <= 0 or not await self._idle(wish, left_s):
                return []
            wish = replace(wish, now_ms=self._clock.now_ms())

    async def _idle(self, wish: Pop, left_s: float) -> bool:
        """Wait for a reason to look again; False: there will be none. Who waits is not busy."""
        self.busy -= 1
        try:
            async with asyncio.timeout(left_s):
                return await self._near.wait_ready(wish, left_s)
        except TimeoutError:
            return True
        finally:
            self.busy += 1

    async def _take(self, wish: Pop, worker: str, lease_ms: int) -> tuple[list[Claimed], _Then]:
        popped = await self._near.pop(wish)
        if popped.ask:
            for tenant, queue in popped.ask:
                await self._queues.open_gate(tenant, queue)
            return [], _Then.LOOK_AGAIN
        if popped.repeated:
            # Also where nothing of it is held any more: this request is never given other jobs, so it has none to wait for.
            again = await self._store.reclaim(popped.attempts, worker)
            return [job for job in again if job is not None], _Then.ANSWER
        if not popped.dues:
            return [], _Then.WAIT
        later: frozenset[int] = frozenset()
        answers: Sequence[Claimed | None]
        try:
            answers = await self._store.claim([due.job_id for due in popped.dues], worker, lease_ms)
        except PartlyUnavailable as partly:
            answers, later = partly.answers, partly.unanswered
        except ServerUnavailable:
            await self._near.unpop(wish.request_id)
            raise
        got = [job for job in answers if job is not None]
        missing = [
            due
            for place, (due, job) in enumerate(zip(popped.dues, answers, strict=True))
            if job is None and place not in later
        ]
        states = await self._look_at(missing) if missing else []
        held = (await self._claimed_before(states, worker) if popped.again else []) + got
        # The recheck of a bucket does not begin before its minute has been over for as long as this.
        rechecked = self._clock.now_ms() - RECHECKED_AFTER_MS
        # The jobs are this worker's now, whatever the near tier says: an answer of 503 would let them wait for their leases' end.
        await told("claimed", self._near.settle(wish.request_id, [(job.job_id, job.attempt) for job in held]))
        for soon in (True, False):
            leases = [(job.job_id, job.attempt, job.lease_until) for job in held if (job.due_at > rechecked) is soon]
            if leases:
                await told("claimed", self._near.lease(leases, rechecked_soon=soon))
        self._count(got)
        if later:
            # In line they would be in the way of those behind them, whose database can be used.
            at = self._clock.now_ms() + LATER_MS
            await told(
                "postponed", self._near.offer([popped.dues[place]._replace(due_at=at) for place in sorted(later)])
            )
        return held, _Then.LOOK_AGAIN

    async def _claimed_before(self, states: Sequence[JobState | None], worker: str) -> list[Claimed]:
        """What an earlier try of this request has claimed, in a process that died or stalled before it could say so. Only who has a
        job in hand claims it; one that has had a heartbeat is being worked on and came into the line by mistake."""
        held = [(job.job_id, job.attempt) for job in states if job and job.status in HELD and job.beaten_at is None]
        try:
            return [job for job in await self._store.reclaim(held, worker) if job is not None] if held else []
        except ServerUnavailable as error:
            log.warning("claimed_before_unknown", jobs=len(held), error=str(error), next="their leases end")
            return []

    async def _look_at(self, missing: Sequence[Due]) -> Sequence[JobState | None]:
        """What the claim did not give may have expired just now, or run already: a claim whose answer was lost put it back into its
        line, or the process died before it told of the lease, and then nobody watches that but the recheck, after up to an hour.
        Where it cannot be looked up it is not counted: an error would let the jobs that were claimed wait for their leases' end.
        The jobs as they are."""
        states: Sequence[JobState | None]
        try:
            states = await self._store.states([due.job_id for due in missing])
        except ServerUnavailable as error:
            log.warning("expired_not_counted", jobs=len(missing), error=str(error), next="the next count sets it right")
            states = [None] * len(missing)
        held = [(job.job_id, job.attempt, job.lease_until or 0) for job in states if job and job.status in HELD]
        if held:
            await told("held", self._near.lease(held))
        for due, job in zip(missing, states, strict=True):
            if job is not None and job.status is Status.SKIPPED:
                telemetry.SKIPPED.inc()
                self._tally.moved(due.line, Status.QUEUED, Status.SKIPPED)
                if job.definition.origin == "schedule":
                    telemetry.SCHEDULE_SKIPS.labels("expired").inc()
        self._ends.tell(due.job_id for due in missing)
        return states

    def _count(self, got: Sequence[Claimed]) -> None:
        now = self._clock.now_ms()
        late: dict[Line, list[float]] = defaultdict(list)
        for job in got:
            late[job.line].append((now - job.due_at) / 1000)
        for line, values in late.items():
            self._tally.started(line, values)
            self._tally.moved(line, Status.QUEUED, Status.RUNNING, len(values))
        telemetry.CLAIMED.inc(len(got))

    async def _lease_ms(self, tenant: str, queue: str, request: wire.ClaimRequest) -> int:
        if request.lease_s is not None:
            return round(request.lease_s * 1000)
        return (await self._queues.get(tenant, queue)).lease_ms or DEFAULT_LEASE_MS

    def _request_id(self, scope: str, request: wire.ClaimRequest) -> str:
        name = self._entropy.bytes(12).hex() if request.request_id is None else f"={request.request_id}"
        return f"{scope}/{request.worker}/{name}"

    def _shown(self, claimed: Sequence[Claimed]) -> list[wire.ClaimedJob]:
        shown = []
        make = self._tokens.make
        for job in claimed:
            made, line, job_id = job.definition, job.line, job.job_id
            shown.append(
                wire.ClaimedJob(
                    job_id=job_id,
                    attempt=job.attempt,
                    tries=job.tries,
                    max_attempts=made.retry.max_attempts,
                    lease_token=make(job_id, job.attempt, line.tenant, line.queue),
                    lease_until=rfc3339(job.lease_until),
                    lease_s=job.lease_ms / 1000,
                    idempotency_key=idempotency_key(job_id, made.key_at),
                    handler=line.handler or None,
                    payload=made.payload,
                    timeout_s=made.target.timeout_s,
                    run_at=rfc3339(made.run_at),
                    fire_at=rfc3339(job.fire_at),
                    queue=line.queue,
                    name=made.name,
                    tags=made.tags,
                    schedule_id=made.schedule_id,
                    progress=NULL if job.progress is None else _readable(job.progress),
                    traceparent=made.traceparent,
                )
            )
        return shown


def _readable(progress: bytes) -> Raw:
    """What a worker noted, if it is JSON: a damaged row must not make the answer for all other jobs unreadable."""
    try:
        json.decode(progress)
    except DecodeError:
        log.error("progress_unreadable", next="the attempt begins without it")
        return NULL
    return Raw(progress)


def _callback(job: Claimed, plain: wire.ClaimedJob, secrets: Sequence[str], now_s: int) -> wire.ExecutorJob:
    """A callback: what a worker is told, whose it is, where it goes and how it is signed."""
    target = job.definition.target
    assert isinstance(target, wire.HttpTarget), "only callbacks stand in lines without a handler"
    body = body_of(target.method, bytes(job.definition.payload))
    return wire.ExecutorJob(
        **{name: getattr(plain, name) for name in plain.__struct_fields__},
        tenant=job.line.tenant,
        target=target,
        signature_headers=signature_headers(secrets, plain.idempotency_key, now_s, body),
    )


class SigningKeys:
    """The active signing secrets of tenants, cached for at most five seconds."""

    def __init__(self, settings: SettingsStore, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._cache: dict[str, tuple[float, tuple[str, ...]]] = {}

    async def active(self, tenant: str) -> tuple[str, ...]:
        """The newest two."""
        now = self._clock.elapsed_s()
        cached = self._cache.get(tenant)
        if cached is None or now - cached[0] >= KEYS_FRESH_S:
            rows = await self._settings.signing_keys(tenant)
            cached = self._cache[tenant] = (now, tuple(row.secret for row in rows[:ACTIVE_SIGNING_KEYS]))
        return cached[1]
