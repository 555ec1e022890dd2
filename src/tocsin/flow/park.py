"""Park: jobs whose line is full wait in the store, so that one tenant's pile never fills everybody's memory.

`Parker.push` is how every stage puts jobs into lines: what is refused gets a park row and its line is marked, so that nothing
overtakes what is parked. `Unparker` brings them back by score once the line is under half full. A park row stands for the job's
timer: a crash before the row is written leaves the fire timer, whose recheck pushes (and parks) again; one after the push and
before the row goes leads to a second push of the same job, which changes nothing.

What has waited past its expiry ends here and at the recheck, because a line that nobody claims from would keep it for ever.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from tocsin import telemetry
from tocsin.clock import Clock
from tocsin.flow.ends import Ends
from tocsin.flow.tally import Tally
from tocsin.lease.port import Leases
from tocsin.model.ids import is_schedules
from tocsin.model.job import Line, Status
from tocsin.model.partition import partition_of
from tocsin.near.port import NearTier
from tocsin.service import Alarm
from tocsin.store.port import Due, Fired, JobStore

BATCH = 1_000


class Parker:
    """Pushes jobs into their lines, and parks what does not fit."""

    def __init__(self, store: JobStore, near: NearTier, ends: Ends, tally: Tally) -> None:
        self._store, self._near, self._ends, self._tally = store, near, ends, tally

    async def push(self, dues: Sequence[Due]) -> list[Due]:
        """Push; what was parked instead is answered (its park row stands for its timer)."""
        if not dues:
            return []
        refused = await self._near.push(dues)
        if refused:
            await self._store.park(refused)
            telemetry.PARKED.inc(len(refused))
            for line, partition in {(due.line, partition_of(due.job_id, self._store.partitions)) for due in refused}:
                await self._near.set_parked(line, partition, True)
        return refused

    async def have_expired(self, dues: Sequence[Due], before: Status) -> None:
        """These jobs have expired: tell the figures, and whoever waits for their end. A backfill's or a trigger's is no skip."""
        telemetry.SKIPPED.inc(len(dues))
        for due in dues:
            self._tally.moved(due.line, before, Status.SKIPPED)
        ids = [due.job_id for due in dues if is_schedules(due.job_id)]
        for job in await self._store.states(ids) if ids else []:
            if job is not None and job.definition.origin == "schedule":
                telemetry.SCHEDULE_SKIPS.labels("expired").inc()
        self._ends.tell(ids)

    async def end_expired(self, dues: Sequence[Due]) -> list[Due]:
        """Skip those QUEUED jobs that have expired (the fire write judges); answers those that still wait for a claim."""
        if not dues:
            return []
        answers = await self._store.fire(dues)
        expired = [due for due, fired in zip(dues, answers, strict=True) if fired is Fired.EXPIRED]
        if expired:
            await self._near.remove([due.job_id for due in expired])
            await self.have_expired(expired, Status.QUEUED)
        return [due for due, fired in zip(dues, answers, strict=True) if fired in (Fired.WON, Fired.ALREADY)]


@dataclass(frozen=True, slots=True)
class Unparked:
    """What one pass brought back."""

    pushed: int = 0

    @property
    def more(self) -> bool:
        return self.pushed > 0


class Unparker(Alarm):
    """Refills lines from the park."""

    name = "unpark"

    def __init__(self, store: JobStore, near: NearTier, leases: Leases, parker: Parker, clock: Clock) -> None:
        super().__init__(clock)
        self._store, self._near, self._leases, self._parker = store, near, leases, parker
        self._clock = clock

    async def mark(self, partition: int) -> None:
        """Tell the near tier which lines have parked jobs: at a start, and whenever it lost what it knew."""
        for line in await self._store.parked_lines(partition):
            await self._near.set_parked(line, partition, True)

    async def step(self) -> Unparked:
        """One batch for each line that has room."""
        pushed = 0
        for line in await self._near.lines_with_room(self._leases.owned()):
            pushed += await self._refill(line)
        return Unparked(pushed)

    async def next_at(self) -> int | None:
        # Whether a line has room is known by asking, which a pass does anyway.
        return None

    async def _refill(self, line: Line) -> int:
        first = await self._first(line)
        if not first:
            # Marked first and looked at again: a job may have been parked between the look and the mark.
            for partition in self._leases.owned():
                await self._near.set_parked(line, partition, False)
            for parked in await self._first(line):
                await self._near.set_parked(line, partition_of(parked.job_id, self._store.partitions), True)
            return 0
        waiting = await self._parker.end_expired(first)
        refused = set(await self._near.push(waiting, unpark=True))
        back = [due for due in first if due not in refused]
        await self._store.unpark(back)
        telemetry.UNPARKED.inc(len(back))
        return len(back)

    async def _first(self, line: Line) -> list[Due]:
        """The next of a line's parked jobs by score, over all owned partitions: read a share of each, not the whole batch of each."""
        owned = self._leases.owned()
        share = min(BATCH, max(1, 2 * BATCH // max(len(owned), 1)))
        pages = [await self._store.parked(partition, line, share) for partition in owned]
        # Behind a full page its partition may hold jobs that come before the other pages' rest.
        known = min((page[-1].score for page in pages if len(page) == share), default=None)
        merged = heapq.merge(*pages, key=lambda parked: (parked.score, parked.due.job_id))
        return [parked.due for parked in merged if known is None or parked.score <= known][:BATCH]
