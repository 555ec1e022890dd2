"""Figures: how much the near tier holds and how old the oldest snapshot of the store is, for the metrics.

A look every five seconds; a crash leaves nothing behind.
"""

from __future__ import annotations

from dataclasses import dataclass

from tocsin import telemetry
from tocsin.clock import Clock
from tocsin.lease.port import Leases
from tocsin.near.port import NearTier
from tocsin.service import Alarm
from tocsin.store.port import Store

EVERY_MS = 5_000


@dataclass(frozen=True, slots=True)
class Measured:
    """The gauges are set."""

    more: bool = False


class Gauger(Alarm):
    """Sets the gauges of the near tier."""

    name = "figures"

    def __init__(self, store: Store, near: NearTier, leases: Leases, clock: Clock) -> None:
        super().__init__(clock)
        self._store = store
        self._near, self._leases, self._clock = near, leases, clock
        self._next_at = 0

    async def step(self) -> Measured:
        """Measure, if it is time."""
        now = self._clock.now_ms()
        if now < self._next_at <= now + EVERY_MS:
            return Measured()
        self._next_at = now + EVERY_MS
        owned = self._leases.owned()
        figures = await self._near.figures(owned)
        first = await self._near.next_due(owned) if owned else None
        telemetry.OVERDUE.set(0.0 if first is None else max(now - first, 0) / 1000)
        if figures.bytes_used is not None:
            telemetry.NEAR_BYTES.labels("used").set(figures.bytes_used)
            telemetry.NEAR_BYTES.labels("limit").set(figures.bytes_limit or 0)
        telemetry.NEAR.labels("due").set(figures.due)
        telemetry.NEAR.labels("ready").set(figures.ready)
        telemetry.NEAR.labels("in_hand").set(figures.in_hand)
        telemetry.NEAR.labels("leases").set(figures.leases)
        oldest_s = await self._store.oldest_snapshot_s()
        if oldest_s is not None:
            telemetry.OLDEST_SNAPSHOT.set(oldest_s)
        return Measured()

    async def next_at(self) -> int | None:
        return self._next_at
