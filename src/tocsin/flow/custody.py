"""Custody: a partition that came into this process's hands is rebuilt in the near tier, and so is everything when that was lost.

`Leases` says which partitions are ours, the near tier's `generation` which content is there. Whatever is ours and has not been
rebuilt in the present generation is opened there, all of it at once, and then recovered, a few partitions at a time; what was in
the near tier already, and what comes to it, is dispatched meanwhile. A crash: the next owner does the same.

The first pass after a start recovers before the process says that it is ready.
"""

from __future__ import annotations

from dataclasses import dataclass

from tocsin import telemetry
from tocsin.clock import Clock
from tocsin.flow.recover import Recoverer
from tocsin.lease.port import Leases
from tocsin.near.port import NearTier
from tocsin.service import Alarm
from tocsin.telemetry import log

EVERY_MS = 500
BATCH = 4


@dataclass(frozen=True, slots=True)
class Kept:
    """What one pass rebuilt and gave up."""

    rebuilt: int = 0
    lost: int = 0
    more: bool = False


class Custodian(Alarm):
    """Sees that what this process owns is in the near tier."""

    name = "custody"

    def __init__(self, near: NearTier, leases: Leases, recoverer: Recoverer, clock: Clock) -> None:
        super().__init__(clock)
        self._near, self._leases, self._recoverer, self._clock = near, leases, recoverer, clock
        self._generation: str | None = None
        self._rebuilt: set[int] = set()
        self._again: set[int] = set()
        self._begun: set[int] = set()
        self._looked_s = -1.0

    def gained(self, partitions: tuple[int, ...]) -> None:
        """These have just become ours. They are rebuilt even if they had been ours until a moment ago, or are being rebuilt now: in
        between they may have been somebody else's."""
        self._rebuilt.difference_update(partitions)
        self._begun.difference_update(partitions)
        self._again.update(partitions)
        self.ring()

    def behind(self) -> list[int]:
        """The owned partitions that have not been rebuilt yet."""
        return [partition for partition in self._leases.owned() if partition not in self._rebuilt]

    @property
    def generation(self) -> str | None:
        """The near tier's generation as of the last look."""
        return self._generation

    async def step(self) -> Kept:
        """Look at the near tier, and rebuild up to `BATCH` partitions. Raises NearUnavailable, StoreUnavailable."""
        if self._clock.elapsed_s() >= self._looked_s + EVERY_MS / 1000:
            await self._look()
        lost = self._rebuilt.difference(self._leases.owned())
        if lost:
            self._rebuilt -= lost
            self._begun -= lost
            await self._near.forget(sorted(lost))
        first = self.behind()[:BATCH]
        if first:
            self._again.clear()
            await self._begin()
            await self._recoverer.recover(tuple(first))
            self._rebuilt.update(set(first) - self._again)
        telemetry.PARTITIONS_BEHIND.set(len(self.behind()))
        return Kept(len(first), len(lost), more=bool(self.behind()))

    async def _begin(self) -> None:
        """Open all that is to be rebuilt: as long as one is closed, a pass over all of them fails."""
        closed = [partition for partition in self.behind() if partition not in self._begun]
        if closed:
            await self._near.begin(closed)
            self._begun.update(set(closed) - self._again)

    async def next_at(self) -> int | None:
        left_s = self._looked_s + EVERY_MS / 1000 - self._clock.elapsed_s()
        return self._clock.now_ms() + max(round(left_s * 1000), 0)

    async def _look(self) -> None:
        generation = await self._near.generation()
        self._looked_s = self._clock.elapsed_s()
        if generation == self._generation:
            return
        if self._generation is not None:
            telemetry.GENERATIONS.inc()
            log.warning("near_tier_lost", partitions=len(self._rebuilt), next="its content is rebuilt from the store")
        self._generation = generation
        self._rebuilt.clear()
        self._begun.clear()
