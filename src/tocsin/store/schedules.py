"""The store port for schedules: a schedule's row, its jobs, and the skips that say why one of its occurrences did not run.

All of a schedule lives in one partition: its ID, and the ID of every job that it makes, carry the slice of (tenant, name). The
store does not understand schedules: `spec` (what was asked for) and `state` (what was done about it) are texts of
`model.schedule`; it guards one thing only, the row's `serial`.

**A move is the only way to write.** It is decided from a row that was read and is written only while that row still has the same
serial, and while each job that it concerns is still as it was read; else nothing of it is written. So of two that look at the
same schedule one wins, and the other reads again. Whatever a move brings with it (the next occurrence's job, the fire of this
one, skips) is written with the row, never without.

Order of writes, for a store without transactions: the row first, with what it still owes (jobs, fires, changes, skips) in it;
then what it owes, each idempotent: a job by its ID, a fire or change by the state it leaves from, a skip by its key. The adapter
pays what a row owes before it takes the next move of that row, and at every read that finds some. Such a store looks at the
jobs before it writes the row, so a job that changes in between (a running one that ends) is left as it then is and the move has
still won.

A job of a schedule that expires (`JobStore.fire`, `JobStore.claim`) leaves a skip of its occurrence, written with it. A job
without an `occurrence_at` stands for no occurrence and leaves none, and neither does a backfill's: its occurrence had its turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from msgspec import Struct

from tocsin.model.job import JobState
from tocsin.store.port import Change, Due, NewJob
from tocsin.wire import ScheduleStatus, SkipReason


class ScheduleRow(Struct, frozen=True, kw_only=True, gc=False):
    """A schedule as it stands. `serial` grows by one at every move. `look_at` (ms): by then somebody should have moved it, and the
    sweep finds it if nobody has; None: nothing is to happen by itself."""

    schedule_id: str
    tenant: str
    name: str
    revision: int
    serial: int
    status: ScheduleStatus
    look_at: int | None
    spec: str
    state: str


class SkipRow(Struct, frozen=True, kw_only=True, gc=False):
    """Occurrences from `first` to `last` (ms, both included), `count` of them, that did not run. Its key is (schedule, first,
    reason): the same again replaces it, so a stretch that goes on can be written longer."""

    schedule_id: str
    first: int
    last: int
    count: int
    reason: SkipReason
    recorded_at: int
    detail: str | None = None


class Move(Struct, frozen=True, kw_only=True, gc=False):
    """One step of a schedule, decided from the row at `serial` (0: there is none yet).

    `after` is the row to be written, at `serial + 1`; None deletes the schedule with its skips (its jobs stay, and stay listed
    by `JobFilter.schedule_id`). `fires` are its jobs that become QUEUED: each must be SCHEDULED at that version. `changes` are
    other steps of its jobs, under the conditions of `JobStore.change`. `jobs` are new ones; one that exists already (any body)
    is left as it is.
    """

    schedule_id: str
    serial: int
    after: ScheduleRow | None
    fires: tuple[Due, ...] = ()
    changes: tuple[Change, ...] = ()
    jobs: tuple[NewJob, ...] = ()
    skips: tuple[SkipRow, ...] = ()


class Moved(Enum):
    """WON: all of it is written. LOST: the row is at another serial (for a new one: the ID or the name is taken), nothing is
    written. STALE: a job is not as it was read, nothing is written. REFUSED: no store can hold what it brings (a number out of
    range); whoever asked should have known, and asking again does not help."""

    WON = "won"
    LOST = "lost"
    STALE = "stale"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFilter:
    """What a list of schedules must match; None matches all. Names are compared whole."""

    tenant: str
    status: ScheduleStatus | None = None
    name: str | None = None


class ScheduleStore(Protocol):
    """Schedules and their skips."""

    async def move(self, moves: Sequence[Move]) -> list[Moved]:
        """Moves, each for itself, answered in order; two of one schedule in a batch: the later sees the earlier. Durable when
        answered. A new schedule's name must be free in its tenant."""
        ...

    async def get(self, schedule_ids: Sequence[str]) -> list[ScheduleRow | None]:
        """The rows as they are now."""
        ...

    async def named(self, tenant: str, names: Sequence[str]) -> list[ScheduleRow | None]:
        """The rows with these names."""
        ...

    async def of_jobs(self, job_ids: Sequence[str]) -> list[tuple[JobState, ScheduleRow | None] | None]:
        """For each job: it, and the schedule that made it as it is now (None: deleted). None: no such job, or no schedule's."""
        ...

    async def list_schedules(self, wanted: ScheduleFilter, after: str | None, limit: int) -> list[ScheduleRow]:
        """Newest first by ID, below `after`."""
        ...

    async def overdue(self, partitions: Sequence[int], before: int, limit: int) -> list[ScheduleRow]:
        """Rows of these partitions whose `look_at` is before that instant, at most `limit` of each."""
        ...

    async def walk(self, partition: int, after: str, limit: int) -> list[ScheduleRow]:
        """All rows of a partition, each once, for the slow sweep. The order is the adapter's own; `after` is the ID of the last
        row that was read, which may be gone by now ("" begins)."""
        ...

    async def going(self, schedule_ids: Sequence[str]) -> dict[str, list[JobState]]:
        """The jobs of these schedules that are under way (QUEUED, RUNNING, RETRYING, CANCEL_REQUESTED), whatever their origin."""
        ...

    async def waiting(self, schedule_id: str) -> list[JobState]:
        """The jobs of a schedule that are SCHEDULED."""
        ...

    async def skips(self, schedule_id: str, after: tuple[int, str] | None, limit: int) -> list[SkipRow]:
        """A schedule's skips, newest first by (first, reason); `after` continues below that key."""
        ...

    async def add_skips(self, skips: Sequence[SkipRow]) -> None:
        """Write skips by themselves; the same key again replaces. Of a schedule that is gone nothing is kept."""
        ...

    async def counts(self) -> dict[ScheduleStatus, int]:
        """How many schedules there are, by status; a status that none has may be missing."""
        ...

    async def crowd(self, first: int, minutes: int) -> list[int]:
        """How many schedules are to be looked at in each of so many minutes from `first` (ms, a whole minute) on, at most 1,000 are
        counted for each."""
        ...
