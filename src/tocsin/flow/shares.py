"""Shares: tells the near tier the weights of tenants, which their turns in both lanes follow.

Every five seconds, so that a change anywhere is in force everywhere soon after; a crash loses nothing, the next start tells all.
"""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.clock import Clock
from tocsin.near.port import NearTier
from tocsin.service import Alarm
from tocsin.store.settings import SettingsStore

EVERY_MS = 5_000


@dataclass(frozen=True, slots=True)
class Shared:
    """How many weights were new."""

    changed: int = 0
    more: bool = False


class Sharer(Alarm):
    """Keeps the near tier's weights those of the store."""

    name = "shares"
    rhythmic = True

    def __init__(self, settings: SettingsStore, near: NearTier, clock: Clock) -> None:
        super().__init__(clock)
        self._settings, self._near, self._clock = settings, near, clock
        self._told: dict[str, float] = {}
        self._next_at = 0

    async def step(self) -> Shared:
        """Tell what has changed since the last pass."""
        now = self._clock.now_ms()
        if now < self._next_at <= now + EVERY_MS:
            return Shared()
        self._next_at = now + EVERY_MS
        changed = 0
        for row in await self._settings.tenants():
            if self._told.get(row.name, 1.0) != row.weight:
                await self._near.set_weight(row.name, row.weight)
                changed += 1
            self._told[row.name] = row.weight
        return Shared(changed)

    async def next_at(self) -> int | None:
        return self._next_at
