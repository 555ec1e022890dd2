"""Gaps: times in which this server itself could not write, and for which no worker is to blame.

A gap is a start, or more than five seconds in which writes were tried and none succeeded. Leases count from its end, and an
attempt without an accepted heartbeat since then is recorded lost but gives its try back: an outage of the server or the store
must not turn every running job into a dead one. `Pulse` tries one write a second, so that a gap is noticed without traffic.

The wall clock steps. The gap's end is kept on the elapsed clock and told in the wall clock of the moment, so that a step back
does not put it into the future; a step forward by more than a gap's length counts as one, since it ends every lease at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tocsin.clock import Clock
from tocsin.errors import PartlyUnavailable
from tocsin.service import Alarm
from tocsin.store.port import Store
from tocsin.telemetry import log

GAP_S = 5.0
PULSE_MS = 1_000


class Gap:
    """When the last gap ended. `limit_s` is how long a silence of the store is none; infinite where no pulse looks."""

    def __init__(self, clock: Clock, limit_s: float = GAP_S) -> None:
        self._clock, self._limit_s = clock, limit_s
        self._wrote_s = self._ended_s = clock.elapsed_s()
        self._offset_ms = self._offset()

    @property
    def ended_at(self) -> int:
        """The gap's end in the wall clock as it is now."""
        self._look_at_the_clock()
        return self._clock.now_ms() - round((self._clock.elapsed_s() - self._ended_s) * 1000)

    @property
    def open(self) -> bool:
        """Whether no write has succeeded for so long that this is a gap, not known yet to be over."""
        return self._clock.elapsed_s() - self._wrote_s > self._limit_s

    def wrote(self) -> None:
        """A write was accepted."""
        self._look_at_the_clock()
        now_s = self._clock.elapsed_s()
        if now_s - self._wrote_s > self._limit_s:
            log.warning("gap_ended", lasted_s=round(now_s - self._wrote_s, 1), next="leases count from now")
            self._ended_s = now_s
        self._wrote_s = now_s

    def lease_over(self, lease_until: int, lease_ms: int) -> int:
        """When a lease is over, counted from the gap's end where that is later."""
        return max(lease_until, self.ended_at + lease_ms)

    def charged(self, proof_of_life_at: int) -> bool:
        """Whether a lost attempt, last heard of at that time, is its own fault."""
        return proof_of_life_at >= self.ended_at

    def _look_at_the_clock(self) -> None:
        before_ms, self._offset_ms = self._offset_ms, self._offset()
        if self._offset_ms - before_ms > GAP_S * 1000:
            log.warning("clock_stepped", forward_s=(self._offset_ms - before_ms) / 1000, next="leases count from now")
            self._ended_s = self._clock.elapsed_s()

    def _offset(self) -> int:
        return self._clock.now_ms() - round(self._clock.elapsed_s() * 1000)


@dataclass(frozen=True, slots=True)
class Pulsed:
    """The pulse wrote."""

    more: bool = False


class Pulse(Alarm):
    """One small durable write a second: the store can write, or it cannot and the gap grows."""

    name = "pulse"

    def __init__(
        self, store: Store, gap: Gap, clock: Clock, saw: Callable[[frozenset[int], str], None] = lambda *_: None
    ) -> None:
        super().__init__(clock)
        self._store, self._gap, self._clock, self._saw = store, gap, clock, saw
        self._next_at = 0

    async def step(self) -> Pulsed:
        """Write if it is time; raises StoreUnavailable. `saw` is told which partitions' databases could not be written to."""
        now = self._clock.now_ms()
        if now >= self._next_at or self._next_at - now > PULSE_MS:
            self._next_at = now + PULSE_MS
            try:
                await self._store.ping()
            except PartlyUnavailable as partly:
                # No write, as far as gaps go: who works on a job of the lost database cannot report, and is not to blame.
                self._saw(partly.partitions, str(partly))
                return Pulsed()
            self._saw(frozenset(), "")
            self._gap.wrote()
        return Pulsed()

    async def next_at(self) -> int | None:
        return self._next_at
