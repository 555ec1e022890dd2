"""Archive: history ends after its retention. Also the other slow duty: expired keys. In a fleet it is the coordinator's; two that
do it at once delete the same things.

Deletes what finished before the retention, and skips of that age, in bounded passes, with its attempts; a crash continues where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tocsin.clock import Clock
from tocsin.flow.quotas import Quotas
from tocsin.service import Alarm
from tocsin.store.port import JobStore

BATCH = 1_000
EVERY_MS = 60_000
LOOK_AGAIN_MS = 5_000  # somebody else's duty may become ours


@dataclass(frozen=True, slots=True)
class Archived:
    """What one pass deleted."""

    jobs: int = 0
    keys: int = 0

    @property
    def more(self) -> bool:
        return self.jobs >= BATCH or self.keys >= BATCH


class Archiver(Alarm):
    """Ends old history."""

    name = "archive"
    rhythmic = True

    def __init__(
        self,
        store: JobStore,
        quotas: Quotas,
        clock: Clock,
        retention_ms: int,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(clock)
        self._store, self._quotas, self._leads = store, quotas, leads
        self._clock, self._retention_ms = clock, retention_ms
        self._next_at = 0

    async def step(self) -> Archived:
        """One bounded pass."""
        now = self._clock.now_ms()
        if now < self._next_at <= now + EVERY_MS:
            return Archived()
        if not self._leads():
            self._quotas.forget_past()
            self._next_at = now + LOOK_AGAIN_MS
            return Archived()
        jobs = await self._store.archive(now - self._retention_ms, BATCH)
        keys = await self._store.sweep_keys(BATCH)
        done = Archived(jobs, keys)
        if not done.more:
            self._quotas.forget_past()
            self._next_at = now + EVERY_MS
        return done

    async def next_at(self) -> int | None:
        return self._next_at
