"""Sightings: which workers asked for jobs lately, told to all processes every few seconds. A list to look at; a crash forgets a few."""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.clock import Clock
from tocsin.near.port import NearTier, WorkerSeen
from tocsin.service import Alarm

EVERY_MS = 2_000
MOST_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Noted:
    """How many workers were told of."""

    workers: int = 0
    more: bool = False


class Sightings(Alarm):
    """Remembers who asks, and tells."""

    name = "sightings"
    rhythmic = True

    def __init__(self, near: NearTier, clock: Clock) -> None:
        super().__init__(clock)
        self._near, self._clock = near, clock
        self._claimed: dict[tuple[str, str, str], int] = {}
        self._seen: dict[tuple[str, str, str], int] = {}
        self._next_at = 0

    def saw(self, tenant: str, worker: str, queue: str, claimed: int) -> None:
        """A worker has asked, and was given so many jobs."""
        key = tenant, worker, queue
        if key not in self._claimed and len(self._claimed) >= MOST_REMEMBERED:
            self._claimed.clear()
            self._seen.clear()
        self._claimed[key] = self._claimed.get(key, 0) + claimed
        self._seen[key] = self._clock.now_ms()

    async def step(self) -> Noted:
        """Tell what was seen since the last pass. Raises NearUnavailable; then it is told later."""
        now = self._clock.now_ms()
        if now < self._next_at <= now + EVERY_MS:
            return Noted()
        self._next_at = now + EVERY_MS
        seen = [
            WorkerSeen(tenant=key[0], worker=key[1], queue=key[2], seen_at=at, claimed=self._claimed.get(key, 0))
            for key, at in self._seen.items()
        ]
        if seen:
            await self._near.note_workers(seen)
            for sighting in seen:
                key = sighting.tenant, sighting.worker, sighting.queue
                if self._seen.get(key) == sighting.seen_at:
                    del self._seen[key]
        return Noted(len(seen))

    async def next_at(self) -> int | None:
        return self._next_at
