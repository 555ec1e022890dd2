"""Count: the store's own count of jobs sets the figures of queues right, which are estimates between two counts.

A count may take a thousandth of the time, so that a small store is counted every minute and a large one now and then. Where there
are many processes the coordinator counts for all of them, into the shared counts of the near tier; also as soon as those were
lost. A crash: the next count is made a little later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from tocsin.clock import Clock
from tocsin.flow.tally import CountKey
from tocsin.service import Alarm
from tocsin.store.port import JobStore

SOONEST_MS = 60_000
LATEST_MS = 600_000
SHARE = 1_000


@dataclass(frozen=True, slots=True)
class Counted:
    """How many kinds of jobs (tenant, queue, status) were counted."""

    kinds: int = 0
    more: bool = False


class Counter(Alarm):
    """Counts now and then. `put` takes the counts, `leads` says whether it is for this process to count, and `generation` names
    where they are kept: another one than before has none."""

    name = "count"
    rhythmic = True

    def __init__(
        self,
        store: JobStore,
        put: Callable[[Mapping[CountKey, int]], Awaitable[None]],
        clock: Clock,
        leads: Callable[[], bool] = lambda: True,
        generation: Callable[[], str | None] = lambda: None,
    ) -> None:
        super().__init__(clock)
        self._store, self._put, self._clock = store, put, clock
        self._leads, self._generation = leads, generation
        self._counted_in: str | None = None
        self._next_at = 0
        self._led = False

    async def step(self) -> Counted:
        """Count, if it is time. Raises StoreUnavailable, NearUnavailable."""
        now, generation, leads = self._clock.now_ms(), self._generation(), self._leads()
        # Who has just begun to lead does not know when the one before it counted.
        due = not now < self._next_at <= now + LATEST_MS or generation != self._counted_in or leads > self._led
        if not due or not leads:
            self._led = leads
            return Counted()
        began_s = self._clock.elapsed_s()
        counts = await self._store.live_counts()
        await self._put(counts)
        took_ms = (self._clock.elapsed_s() - began_s) * 1000
        self._next_at = now + min(max(round(took_ms * SHARE), SOONEST_MS), LATEST_MS)
        self._counted_in, self._led = generation, leads
        return Counted(len(counts))

    async def next_at(self) -> int | None:
        return self._next_at if self._leads() else None
