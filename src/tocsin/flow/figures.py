"""Figures: how much the near tier holds, for the metrics. A look every five seconds; a crash leaves nothing behind."""

from __future__ import annotations

from dataclasses import dataclass

from tocsin import telemetry
from tocsin.clock import Clock
from tocsin.lease.port import Leases
from tocsin.near.port import NearTier
from tocsin.service import Alarm

EVERY_MS = 5_000


@dataclass(frozen=True, slots=True)
class Measured:
    """The gauges are set."""

    more: bool = False


class Gauger(Alarm):
    """Sets the gauges of the near tier."""

    name = "figures"

    def __init__(self, near: NearTier, leases: Leases, clock: Clock) -> None:
        super().__init__(clock)
        self._near, self._leases, self._clock = near, leases, clock
        self._next_at = 0

    async def step(self) -> Measured:
        """Measure, if it is time."""
        now = self._clock.now_ms()
        if now < self._next_at <= now + EVERY_MS:
            return Measured()
        self._next_at = now + EVERY_MS
        figures = await self._near.figures(self._leases.owned())
        telemetry.NEAR.labels("due").set(figures.due)
        telemetry.NEAR.labels("ready").set(figures.ready)
        telemetry.NEAR.labels("in_hand").set(figures.in_hand)
        telemetry.NEAR.labels("leases").set(figures.leases)
        return Measured()

    async def next_at(self) -> int | None:
        return self._next_at
