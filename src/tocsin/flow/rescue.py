"""Rescue: jobs whose worker went silent get another attempt.

Reads the lease index of the near tier two seconds after a lease ended, looks at the job, and ends the attempt as `lost` (or
`timed_out`, if the worker was heard of after the timeout) where it is still that attempt and its lease is still over. Two
rescuers that see the same dead attempt write once: the other's condition fails. The rescue is no job itself and needs no worker.

In a gap of our own (`flow.gap`) nobody is to blame: leases count from its end, and an attempt that could not report gives its try
back.
"""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.clock import Clock
from tocsin.flow.ending import Ender
from tocsin.flow.gap import Gap
from tocsin.lease.port import Leases
from tocsin.model.job import HELD, JobState
from tocsin.model.retry import LOST_ERROR, TIMED_OUT_ERROR
from tocsin.near.port import NearTier
from tocsin.service import Alarm
from tocsin.store.port import Change, JobStore
from tocsin.wire import Outcome

GRACE_MS = 2_000
BATCH = 500
GAP_REST_MS = 500


@dataclass(frozen=True, slots=True)
class Rescued:
    """What one pass found."""

    over: int = 0
    rescued: int = 0

    @property
    def more(self) -> bool:
        return self.rescued > 0


class Rescuer(Alarm):
    """Ends attempts whose lease is over."""

    name = "rescue"

    def __init__(self, store: JobStore, near: NearTier, leases: Leases, ender: Ender, gap: Gap, clock: Clock) -> None:
        super().__init__(clock)
        self._store, self._near, self._leases, self._ender = store, near, leases, ender
        self._gap, self._clock = gap, clock

    async def step(self) -> Rescued:
        """One batch of leases that are over; none in a gap, since what is over then is known only when the pulse has ended it."""
        if self._gap.open:
            return Rescued()
        over = await self._near.leases_over(self._leases.owned(), self._clock.now_ms() - GRACE_MS, BATCH)
        if not over:
            return Rescued()
        states = await self._store.states([job_id for job_id, _ in over])
        changes: list[Change] = []
        renewed: list[tuple[str, int, int]] = []
        gone: list[tuple[str, int]] = []
        for (job_id, attempt), job in zip(over, states, strict=True):
            if job is None or job.status not in HELD or job.attempt != attempt:
                gone.append((job_id, attempt))
            elif (until := self.over_at(job)) > self._clock.now_ms():
                renewed.append((job_id, attempt, until - GRACE_MS))
            else:
                changes.append(self._lost(job))
        await self._near.unlease(gone)
        await self._near.lease(renewed)
        # Where the write is lost to another, the lease stays in the index and the next pass looks again.
        won = await self._ender.write(changes)
        return Rescued(len(over), sum(won))

    async def next_at(self) -> int | None:
        if self._gap.open:
            return self._clock.now_ms() + GAP_REST_MS
        end = await self._near.next_lease_end(self._leases.owned())
        return None if end is None else end + GRACE_MS + 1

    def over_at(self, job: JobState) -> int:
        """When a held job may be taken from its worker."""
        now, lease_ms = self._clock.now_ms(), job.lease_ms or 0
        until = job.lease_until or 0
        if until > now + lease_ms:
            # No lease given or renewed by this clock ends so late: it has stepped back since, and nobody has been heard of
            # for as long as the index has waited.
            until = now - GRACE_MS
        return self._gap.lease_over(until, lease_ms) + GRACE_MS

    def _lost(self, job: JobState) -> Change:
        claimed_at = job.claimed_at or 0
        heard_at = job.beaten_at or claimed_at
        if not self._gap.charged(heard_at):
            return self._ender.change(job, Outcome.LOST, error=LOST_ERROR, charged=False)
        timeout_ms = job.definition.timeout_ms
        if heard_at >= claimed_at + timeout_ms:
            over_s = (heard_at - claimed_at - timeout_ms) / 1000
            error = TIMED_OUT_ERROR.format(over_s=over_s, timeout_s=timeout_ms / 1000)
            return self._ender.change(job, Outcome.TIMED_OUT, error=error)
        return self._ender.change(job, Outcome.LOST, error=LOST_ERROR)
