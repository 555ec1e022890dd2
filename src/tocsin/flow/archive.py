"""Archive: history ends after its retention. Also the other slow duties: expired keys, the true counts.

Deletes what finished before the retention, and skips of that age, in bounded passes, with its attempts; a crash continues where it was.
"""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.clock import Clock
from tocsin.flow.quotas import Quotas
from tocsin.flow.tally import Tally
from tocsin.service import Alarm
from tocsin.store.port import JobStore

BATCH = 1_000
EVERY_MS = 60_000
# The figures of queues are estimates between two counts. A count may take a thousandth of the time, so that a small store
# is counted with every pass and a large one now and then.
COUNT_EVERY_MS = 600_000
COUNT_SHARE = 1_000


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

    def __init__(self, store: JobStore, tally: Tally, quotas: Quotas, clock: Clock, retention_ms: int) -> None:
        super().__init__(clock)
        self._store, self._tally, self._quotas = store, tally, quotas
        self._clock, self._retention_ms = clock, retention_ms
        self._next_at = 0
        self._count_at = 0

    async def step(self) -> Archived:
        """One bounded pass."""
        now = self._clock.now_ms()
        if now < self._next_at <= now + EVERY_MS:
            return Archived()
        if now >= self._count_at or self._count_at > now + COUNT_EVERY_MS:
            began_s = self._clock.elapsed_s()
            self._tally.reset(await self._store.live_counts())
            took_ms = (self._clock.elapsed_s() - began_s) * 1000
            self._count_at = now + min(round(took_ms * COUNT_SHARE), COUNT_EVERY_MS)
        jobs = await self._store.archive(now - self._retention_ms, BATCH)
        keys = await self._store.sweep_keys(BATCH)
        done = Archived(jobs, keys)
        if not done.more:
            self._quotas.forget_past()
            self._next_at = now + EVERY_MS
        return done

    async def next_at(self) -> int | None:
        return self._next_at
