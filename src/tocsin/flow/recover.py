"""Recover: what a start, a new owner or the loss of the near tier rebuilds before anything else.

Reads, and decides nothing: fire timers from the floor to now and all watch timers, joined with their jobs. What waits for its
time is offered, QUEUED is pushed (or parked, where its line is full), held jobs' leases are watched again; lines with parked jobs
are marked. Loading ahead and rechecking then go on from here at their own pace. A crash in the middle: the next start reads again.
"""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.clock import Clock
from tocsin.flow.load import Loader
from tocsin.flow.park import Parker, Unparker
from tocsin.flow.recheck import Rechecker, by_need
from tocsin.model.partition import bucket_of
from tocsin.near.port import NearTier
from tocsin.store.port import FAR, FIRE, WATCH, JobStore, TimerKey, TimerKind
from tocsin.telemetry import log

PAGE = 2_000
# How far the time can be beyond a stored floor: its bucket, the delay of its recheck, and one for the recheck to be behind.
AHEAD_OF_FLOOR = 3


@dataclass(slots=True)
class Recovered:
    """What was found."""

    offered: int = 0
    pushed: int = 0
    held: int = 0


class Recoverer:
    """Rebuilds the near tier of a partition."""

    def __init__(
        self,
        store: JobStore,
        near: NearTier,
        parker: Parker,
        unparker: Unparker,
        loader: Loader,
        rechecker: Rechecker,
        clock: Clock,
    ) -> None:
        self._store, self._near, self._parker, self._unparker = store, near, parker, unparker
        self._loader, self._rechecker, self._clock = loader, rechecker, clock

    async def recover(self, partitions: tuple[int, ...]) -> Recovered:
        """Take partitions over."""
        found = Recovered()
        floors = await self._store.floors()
        now_bucket = bucket_of(self._clock.now_ms())
        for partition in partitions:
            floor = floors.get(partition, 0)
            # A floor ahead of the clock: that has stepped back, and jobs have fired from buckets that are still to come.
            until = now_bucket if floor <= now_bucket else floor + AHEAD_OF_FLOOR
            await self._unparker.mark(partition)
            await self._read(partition, FIRE, 0, until, found)
            await self._read(partition, WATCH, 0, FAR, found)
            self._loader.begin(partition, until)
            self._rechecker.begin(partition, floor)
        log.info("recovered", partitions=len(partitions), offered=found.offered, pushed=found.pushed, held=found.held)
        return found

    async def _read(self, partition: int, kind: TimerKind, first: int, until: int, found: Recovered) -> None:
        key: TimerKey | None = None
        while True:
            page = await self._store.read_timers(partition, kind, until, key, PAGE, first_bucket=first)
            need = by_need(page.timers, self._clock.now_ms())
            refused = await self._near.offer(need.offer) if need.offer else []
            # Also what has expired: recovery decides nothing, and the claim or the recheck ends it.
            await self._parker.push(need.push + need.expired)
            if need.leases:
                await self._near.lease(need.leases)
            found.offered += len(need.offer) - len(refused)
            found.pushed += len(need.push) + len(need.expired)
            found.held += len(need.leases)
            key = page.next_key
            last = page.timers[-1] if page.timers else None
            if kind == FIRE and refused and last is not None and key is not None and last.job_id == refused[-1].job_id:
                # The rest of this bucket, lane and tenant lies behind the cut as well. Watch timers are not in order of
                # their jobs' due times, and one that is passed over may be that of a running job.
                key = (last.bucket, last.lane, last.tenant, FAR, "", 0)
            if key is None:
                return
