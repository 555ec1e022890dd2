"""Retell: what the near tier could not be told, because it was away for a moment, is told as soon as it answers again.

Where its content was lost its owners rebuild everything (`flow.custody`); where it was only unreachable nobody would look for these
jobs before the recheck, one to two minutes later. The list is this process's memory: a crash leaves the jobs to the recheck, and so
does a list that is full. Told from the jobs as they are by then, so that what has been cancelled or has run meanwhile is not told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tocsin.clock import Clock
from tocsin.flow.horizon import Horizon, due_of
from tocsin.flow.park import Parker
from tocsin.model.job import PENDING, Status
from tocsin.near.port import NearTier
from tocsin.service import Alarm
from tocsin.store.port import Due, JobStore

BATCH = 500
MOST_OWED = 100_000


class Owed:
    """The jobs of which the near tier is to be told again."""

    def __init__(self) -> None:
        self._jobs: dict[str, None] = {}

    def add(self, dues: Sequence[Due]) -> None:
        """Remember members that could not be told; beyond the bound they are left to the recheck."""
        if len(self._jobs) + len(dues) <= MOST_OWED:
            self._jobs.update((due.job_id, None) for due in dues)

    def first(self, most: int) -> list[str]:
        """The first of them."""
        return [job_id for job_id, _ in zip(self._jobs, range(most), strict=False)]

    def paid(self, job_ids: Sequence[str]) -> None:
        """These have been told."""
        for job_id in job_ids:
            self._jobs.pop(job_id, None)


@dataclass(frozen=True, slots=True)
class Retold:
    """How many jobs were told of."""

    jobs: int = 0

    @property
    def more(self) -> bool:
        return self.jobs > 0


class Reteller(Alarm):
    """Tells the near tier what is owed to it."""

    name = "retell"

    def __init__(self, store: JobStore, near: NearTier, parker: Parker, owed: Owed, clock: Clock) -> None:
        super().__init__(clock)
        self._store, self._parker, self._owed = store, parker, owed
        self._horizon = Horizon(near, clock)

    async def step(self) -> Retold:
        """A batch. Raises StoreUnavailable, NearUnavailable; then it stays owed."""
        job_ids = self._owed.first(BATCH)
        if not job_ids:
            return Retold()
        jobs = [job for job in await self._store.states(job_ids) if job is not None]
        if waiting := [due_of(job) for job in jobs if job.status in PENDING]:
            await self._horizon.offer(waiting)
        await self._parker.push([due_of(job) for job in jobs if job.status is Status.QUEUED])
        self._owed.paid(job_ids)
        return Retold(len(job_ids))

    async def next_at(self) -> int | None:
        return None
