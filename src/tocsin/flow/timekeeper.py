"""Timekeeper: one time for the whole installation, the store's.

Machines' clocks differ. Every process that writes measures how far its own is from that of the store's server, goes by the
corrected time, and stops firing where the difference is so large that something must be wrong with a clock: a node whose clock
runs ahead would fire early, which nobody can take back. A sample is the server's time between two looks at our own; of several
the one with the shortest way there and back is the best (as in RFC 5905, section 8). A crash leaves nothing behind.
"""

from __future__ import annotations

from dataclasses import dataclass

from tocsin import telemetry
from tocsin.clock import CorrectedClock
from tocsin.service import Alarm
from tocsin.store.port import Store
from tocsin.telemetry import log

EVERY_MS = 10_000
SAMPLES = 5
LARGEST_OFFSET_MS = 250
# A sample that took longer says too little: the server may have answered at any moment of it.
LONGEST_SAMPLE_S = 0.4


@dataclass(frozen=True, slots=True)
class Measured:
    """What the clock differs by, where it was measured in this pass."""

    offset_ms: int | None = None
    more: bool = False


class Timekeeper(Alarm):
    """Keeps a process's clock corrected."""

    name = "timekeeper"
    rhythmic = True

    def __init__(self, store: Store, clock: CorrectedClock) -> None:
        super().__init__(clock)
        self._store, self._corrected = store, clock
        self._next_s = 0.0
        self._known = False

    @property
    def trusted(self) -> bool:
        """Whether this process may fire: its clock was measured, and differs by no more than it may."""
        return self._known and abs(self._corrected.offset_ms) <= LARGEST_OFFSET_MS

    @property
    def offset_ms(self) -> int | None:
        """What the store's clock shows more than ours; None if not known."""
        return self._corrected.offset_ms if self._known else None

    def reason(self) -> str | None:
        """Why not, for people."""
        if not self._known:
            return "the clock has not been compared with the store's yet"
        if not self.trusted:
            return (
                f"this machine's clock is {abs(self._corrected.offset_ms)} ms {'behind' if self._corrected.offset_ms > 0 else 'ahead of'}"
                f" the store's, more than the {LARGEST_OFFSET_MS} ms allowed: nothing is fired from here; set the clock right"
            )
        return None

    async def step(self) -> Measured:
        """Measure, if it is time; raises StoreUnavailable, and what was known before stays."""
        if self._clock.elapsed_s() < self._next_s:
            return Measured()
        samples = [await self._sample() for _ in range(SAMPLES)]
        self._next_s = self._clock.elapsed_s() + EVERY_MS / 1000
        took_s, offset_ms = min(samples)
        if took_s > LONGEST_SAMPLE_S:
            return Measured()
        was_trusted = self.trusted
        self._corrected.offset_ms, self._known = offset_ms, True
        telemetry.CLOCK_OFFSET.set(offset_ms / 1000)
        if was_trusted and not self.trusted:
            log.error("clock_off", offset_ms=offset_ms, next="this process fires nothing until its clock is right")
        return Measured(offset_ms)

    async def next_at(self) -> int | None:
        return self._clock.now_ms() + round(max(self._next_s - self._clock.elapsed_s(), 0) * 1000)

    async def _sample(self) -> tuple[float, int]:
        began_s, before = self._clock.elapsed_s(), self._corrected.own.now_ms()
        there = await self._store.now_ms()
        took_s = self._clock.elapsed_s() - began_s
        return took_s, there - before - round(took_s * 500)
