"""Load: read five minutes ahead. Brings fire timers from the store into the near tier before they are due.

Each bucket of an owned partition is read once, in key order and in pages; the near tier keeps a tenant's earliest members and
refuses the rest behind a cut, which is then passed over and read on from when the set has room. So a tenant with 50 million jobs
for one second costs the memory of its first ones. A crash: everything is offered again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tocsin.clock import Clock
from tocsin.errors import ServerUnavailable
from tocsin.flow.horizon import HORIZON_MS
from tocsin.lease.port import Leases
from tocsin.model.partition import BUCKET_MS, bucket_of
from tocsin.near.port import Cut, NearTier
from tocsin.service import Alarm
from tocsin.store.port import FAR, FIRE, WATCH, DuePage, JobStore, TimerKey

PAGE = 2_000
CUTS_EVERY_MS = 100


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one pass read."""

    read: int = 0
    offered: int = 0
    more: bool = False


@dataclass(slots=True)
class _Progress:
    """How far a partition has been read: buckets up to `through` wholly, the next ones up to `key`."""

    through: int
    reading: int = 0
    key: TimerKey | None = None


class Loader(Alarm):
    """Keeps the near tier five minutes ahead."""

    name = "load"
    rhythmic = True

    def __init__(self, store: JobStore, near: NearTier, leases: Leases, clock: Clock, page: int = PAGE) -> None:
        super().__init__(clock)
        self._store, self._near, self._leases, self._clock, self._page = store, near, leases, clock, page
        self._progress: dict[int, _Progress] = {}
        self._cut_at = 0
        self._cuts_open = False

    def begin(self, partition: int, through: int) -> None:
        """A partition was taken over: what lies in buckets up to `through` has been read by the recovery."""
        self._progress[partition] = _Progress(through)

    async def step(self) -> Loaded:
        """One page of one partition that is behind, else of the sets that were cut."""
        target = bucket_of(self._clock.now_ms() + HORIZON_MS)
        for partition in self._leases.owned():
            progress = self._progress.get(partition)
            if progress is not None and progress.through > target:
                # The clock has stepped back: what was read ahead was not yet the timers that are written from now on.
                self._progress[partition] = progress = _Progress(bucket_of(self._clock.now_ms()) - 1)
            if progress is not None and progress.through < target:
                return await self._read(partition, progress, target)
        return await self._refill(target)

    async def next_at(self) -> int | None:
        behind = [progress.through for p, progress in self._progress.items() if p in self._leases.owned()]
        if not behind:
            return None
        ahead = (min(behind) + 1) * BUCKET_MS - HORIZON_MS
        return min(ahead, max(self._cut_at, self._clock.now_ms())) if self._cuts_open else ahead

    async def _read(self, partition: int, progress: _Progress, target: int) -> Loaded:
        if progress.key is None:
            progress.reading = target
        page = await self._store.read_due(partition, progress.through + 1, progress.reading, progress.key, self._page)
        refused = await self._near.offer(page.dues) if page.dues else []
        progress.key = page.next_key
        if refused and page.next_key is not None:
            bucket, lane, tenant, *_ = page.next_key
            if (lane, tenant) == (refused[-1].line.lane, refused[-1].line.tenant):
                # The rest of this bucket, lane and tenant lies behind the cut too; nothing of anybody else's is passed over.
                progress.key = (bucket, lane, tenant, FAR, "", 0)
        if progress.key is None:
            progress.through = progress.reading
        return Loaded(len(page.dues), len(page.dues) - len(refused), more=True)

    async def _refill(self, target: int) -> Loaded:
        self._cut_at = self._clock.now_ms() + CUTS_EVERY_MS
        read, more = 0, False
        cuts = await self._near.cuts(self._leases.owned())
        self._cuts_open = bool(cuts)
        for cut in cuts:
            page = await self._read_on(cut, target)
            read += len(page.dues)
            # Also behind a page whose jobs have all fired already: a burst leaves many such in its minute.
            more |= bool(page.dues) or page.next_key is not None
        return Loaded(read, read, more=more)

    async def _read_on(self, cut: Cut, target: int) -> DuePage:
        page = await self._store.read_due(
            cut.partition,
            bucket_of(cut.from_time),
            target,
            cut.after,
            self._page,
            lane=cut.lane,
            tenant=cut.tenant,
            from_time=cut.from_time if cut.after is None else None,
        )
        await self._near.move_cut(cut, None if page.next_key is None else page.next_key[3], page.next_key)
        if page.dues:
            try:
                await self._near.offer(page.dues)
            except ServerUnavailable:
                # The set is said to hold them now: read them once more, or only the recheck would find them.
                self.begin(cut.partition, bucket_of(cut.from_time) - 1)
                raise
        return page


async def quiet_until(store: JobStore, partitions: Iterable[int]) -> int | None:
    """Until when (ms) no stage that looks for timers could find one in these partitions; None: there are none at all."""
    found: list[int] = []
    for partition in partitions:
        fire = await store.read_timers(partition, FIRE, FAR, None, 1)
        found += [timer.bucket * BUCKET_MS - HORIZON_MS - 2 * BUCKET_MS for timer in fire.timers]
        watch = await store.read_timers(partition, WATCH, FAR, None, 1)
        found += [timer.bucket * BUCKET_MS for timer in watch.timers]
    return min(found, default=None)
