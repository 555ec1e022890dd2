"""Gaps: times in which this server itself could not write, and for which no worker is to blame.

A gap is a start, or more than five seconds in which writes were tried and none succeeded. Leases count from its end, and an
attempt without an accepted heartbeat since then is recorded lost but gives its try back: an outage of the server or the store
must not turn every running job into a dead one. `Pulse` tries one write a second, so that a gap is noticed without traffic.
"""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.clock import Clock
from tocsin.service import Alarm
from tocsin.store.port import Store
from tocsin.telemetry import log

GAP_S = 5.0
PULSE_MS = 1_000


class Gap:
    """When the last gap ended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wrote_s = clock.elapsed_s()
        self.ended_at = clock.now_ms()

    def wrote(self) -> None:
        """A write was accepted."""
        now_s = self._clock.elapsed_s()
        if now_s - self._wrote_s > GAP_S:
            log.warning("gap_ended", lasted_s=round(now_s - self._wrote_s, 1), next="leases count from now")
            self.ended_at = self._clock.now_ms()
        self._wrote_s = now_s

    def lease_over(self, lease_until: int, lease_ms: int) -> int:
        """When a lease is over, counted from the gap's end where that is later."""
        return max(lease_until, self.ended_at + lease_ms)

    def charged(self, proof_of_life_at: int) -> bool:
        """Whether a lost attempt, last heard of at that time, is its own fault."""
        return proof_of_life_at >= self.ended_at


@dataclass(frozen=True, slots=True)
class Pulsed:
    """The pulse wrote."""

    more: bool = False


class Pulse(Alarm):
    """One small durable write a second: the store can write, or it cannot and the gap grows."""

    name = "pulse"

    def __init__(self, store: Store, gap: Gap, clock: Clock) -> None:
        super().__init__(clock)
        self._store, self._gap, self._clock = store, gap, clock
        self._next_at = 0

    async def step(self) -> Pulsed:
        """Write if it is time; raises StoreUnavailable."""
        now = self._clock.now_ms()
        if now >= self._next_at or self._next_at - now > PULSE_MS:
            self._next_at = now + PULSE_MS
            await self._store.ping()
            self._gap.wrote()
        return Pulsed()

    async def next_at(self) -> int | None:
        return self._next_at
