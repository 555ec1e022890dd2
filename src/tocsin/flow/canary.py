"""Canary: a small job per partition and minute goes the whole way, so that a path that is stuck is noticed before anybody's job is.

Each node makes them for the partitions that it owns, a minute ahead and spread over the minute, in a queue of its own session,
and claims and completes them as a worker does, through the same stages. What comes back late, or not at all, is a metric. A canary
is an ordinary job of a tenant that nobody can be; it expires after five minutes, so those of a node that died end by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from tocsin import telemetry, wire
from tocsin.clock import Clock, Entropy
from tocsin.flow.admit import line_of
from tocsin.flow.claim import Claimer
from tocsin.flow.complete import Completer
from tocsin.flow.horizon import Horizon
from tocsin.flow.tally import Tally
from tocsin.flow.telling import told
from tocsin.flow.tokens import LeaseTokens
from tocsin.lease.port import Leases
from tocsin.model.ids import SLICES, in_slice, new_ids
from tocsin.model.job import Definition, Retrying, Status, encode_definition
from tocsin.model.partition import partition_of
from tocsin.near.port import NearTier
from tocsin.service import Alarm
from tocsin.store.port import Due, JobStore, NewJob
from tocsin.telemetry import log

TENANT = "~canary"
HANDLER = "canary"
MINUTE_MS = 60_000
EXPIRES_S = 300.0
LOOK_MS = 250
# Overdue by so much a canary is given up (its expiry has ended it), and its partition's next one counts.
FORGET_MS = 360_000


@dataclass(frozen=True, slots=True)
class Sung:
    """How many canaries were made, and how many came back."""

    made: int = 0
    back: int = 0
    more: bool = False


class Canary(Alarm):
    """Proves, a minute at a time, that what this node owns fires and can be claimed and completed."""

    name = "canary"
    rhythmic = True

    def __init__(
        self,
        store: JobStore,
        near: NearTier,
        leases: Leases,
        claimer: Claimer,
        completer: Completer,
        tokens: LeaseTokens,
        tally: Tally,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        super().__init__(clock)
        self._store, self._horizon, self._leases = store, Horizon(near, clock), leases
        self._claimer, self._completer, self._tokens = claimer, completer, tokens
        self._tally, self._clock, self._entropy = tally, clock, entropy
        self._queue = f"canary-{entropy.bytes(6).hex()}"
        self._made_for: dict[int, int] = {}  # partition -> the last minute that has one
        self._out: dict[str, int] = {}  # job -> due
        self._look_at = 0

    async def step(self) -> Sung:
        """Make what the next minute lacks, take back what has fired. Raises StoreUnavailable, NearUnavailable."""
        now = self._clock.now_ms()
        if now < self._look_at <= now + LOOK_MS:
            return Sung()
        made = await self._make(now)
        back = await self._take_back() if self._out else 0
        # Not before: a pass that failed is repeated with ever longer waits, as long as none succeeds.
        self._look_at = now + LOOK_MS
        self._measure()
        return Sung(made, back)

    async def next_at(self) -> int | None:
        return self._look_at

    async def _make(self, now: int) -> int:
        minute = now // MINUTE_MS + 1
        partitions = [p for p in self._leases.owned() if self._made_for.get(p) != minute]
        if not partitions:
            return 0
        jobs = [self._job(job_id, partition, minute) for partition, job_id in self._ids(partitions, now)]
        await self._store.create(jobs)
        self._made_for = {p: minute for p in self._leases.owned() if p in self._made_for or p in partitions}
        self._out.update((job.job_id, job.fire_at) for job in jobs)
        for job in jobs:
            self._tally.moved(job.line, None, Status.SCHEDULED)
        dues = [Due(job.fire_at, job.job_id, 1, job.line, job.priority) for job in jobs]
        await told("canaries", self._horizon.offer(dues))
        return len(jobs)

    def _ids(self, partitions: list[int], now: int) -> list[tuple[int, str]]:
        share = SLICES // self._store.partitions
        fresh = new_ids(len(partitions), now, self._entropy)
        return [(p, in_slice(job_id, p * share)) for p, job_id in zip(partitions, fresh, strict=True)]

    def _job(self, job_id: str, partition: int, minute: int) -> NewJob:
        fire_at = minute * MINUTE_MS + partition * MINUTE_MS // self._store.partitions
        target = wire.TaskTarget(handler=HANDLER, timeout_s=60.0)
        made = Definition(
            target=target,
            run_at=fire_at,
            key_at=fire_at,
            retry=Retrying(max_attempts=1),
            expires_after_s=EXPIRES_S,
        )
        return NewJob(
            job_id=job_id,
            line=line_of(TENANT, self._queue, wire.Timing(), target),
            priority=0,
            fire_at=fire_at,
            timeout_ms=made.timeout_ms,
            queued=False,
            definition=encode_definition(made),
            expires_at=fire_at + round(EXPIRES_S * 1000),
        )

    async def _take_back(self) -> int:
        request = wire.ClaimRequest(worker=HANDLER, max=1_000)
        jobs = await self._claimer.claim(TENANT, self._queue, request)
        if not jobs:
            return 0
        now = self._clock.now_ms()
        leases = [lease for job in jobs if (lease := self._tokens.read(job.lease_token)) is not None]
        await self._completer.complete([(lease, wire.Completion(outcome="succeeded")) for lease in leases])
        late = [max(now - due_at, 0) / 1000 for job in jobs if (due_at := self._out.pop(job.job_id, None)) is not None]
        telemetry.CANARY_LATENESS.observe("precise", late)
        return len(jobs)

    def _measure(self) -> None:
        now = self._clock.now_ms()
        for job_id, due_at in list(self._out.items()):
            if now - due_at > FORGET_MS:
                del self._out[job_id]
                telemetry.CANARIES_LOST.inc()
                partition = partition_of(job_id, self._store.partitions)
                log.error(
                    "canary_lost", partition=partition, job=job_id, next="look at this partition's owner and floor"
                )
        oldest = min(self._out.values(), default=now)
        telemetry.CANARY_AGE.set(max(now - oldest, 0) / 1000)
