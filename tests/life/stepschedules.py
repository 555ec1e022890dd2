"""Schedules in the store without transactions: a move is one write of one row, and then what that row owes.

A schedule's row is keyed by tenant and name, so that one conditional write also decides about a name. With it are written the
jobs, fires, changes and skips that the move brings; they are paid at once, each by itself and each so that a second payment does
nothing, and the row then owes nothing any more. What a crash left unpaid is paid by whoever meets the row next: before its next
move, and at every read of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from tests.life.disk import JobRow, Owing
from tests.life.steprows import stands
from tocsin.clock import Clock
from tocsin.model.job import JobState
from tocsin.model.partition import partition_of
from tocsin.store.port import Due, NewJob
from tocsin.store.schedules import Move, Moved, ScheduleFilter, ScheduleRow, SkipRow
from tocsin.wire import ScheduleStatus, Status

if TYPE_CHECKING:
    from tests.life.stepstore import StepStore

GOING = (Status.QUEUED, Status.RUNNING, Status.RETRYING, Status.CANCEL_REQUESTED)
CROWD_MOST = 1_000
Name = tuple[str, str]


class StepSchedules:
    """Schedules on a `Disk`, one row at a time."""

    def __init__(self, jobs: StepStore, clock: Clock) -> None:
        self._jobs, self._disk, self._clock = jobs, jobs.disk, clock

    # moves

    async def move(self, moves: Sequence[Move]) -> list[Moved]:
        return [await self._move(one) for one in moves]

    async def _move(self, one: Move) -> Moved:
        name = self._name(one)
        if name is None:
            return Moved.LOST
        await self._pay(name)
        seen = self._disk.schedules.get(name)
        if not self._is_at(seen, one):
            return Moved.LOST
        if not self._jobs_stand(one):
            return Moved.STALE
        after = None if one.after is None else structs.replace(one.after, serial=one.serial + 1)
        await self._jobs.point("before schedules put")
        if self._disk.schedules.get(name) is not seen:
            return Moved.LOST
        self._disk.schedules[name] = Owing(row=after, owes=one)
        await self._jobs.point("after schedules put")
        await self._pay(name)
        return Moved.WON

    def _name(self, one: Move) -> Name | None:
        """The key of the row that is to be moved."""
        found = self._find(one.schedule_id)
        if found is None and not one.serial and one.after is not None:
            return (one.after.tenant, one.after.name)
        return found

    def _is_at(self, seen: Owing | None, one: Move) -> bool:
        if seen is None:
            return one.serial == 0
        return seen.row is not None and seen.row.schedule_id == one.schedule_id and seen.row.serial == one.serial

    def _jobs_stand(self, one: Move) -> bool:
        """Whether the jobs are as they were read. They may change before the row is written; what then no longer fits is void."""
        rows = self._disk.jobs
        return all(due.job_id in rows and _fires(rows[due.job_id], due) for due in one.fires) and all(
            change.before.job_id in rows and stands(rows[change.before.job_id], change.before) for change in one.changes
        )

    async def _pay(self, name: Name) -> None:
        """Pay what a row owes, until it owes nothing: another move may come while the last one is being paid."""
        while (owing := self._disk.schedules.get(name)) is not None and owing.owes is not None:
            await self._pay_one(name, owing, owing.owes)

    async def _pay_one(self, name: Name, owing: Owing, one: Move) -> None:
        for job in one.jobs:
            await self._pay_job(job)
        for due in one.fires:
            await self._pay_fire(due)
        for change in one.changes:
            await self._jobs.change_one(change, _stands_whole)
        if owing.row is None:
            await self._jobs.point("before skips delete")
            self._disk.skips.pop(one.schedule_id, None)
            await self._jobs.point("after skips delete")
        else:
            for skip in one.skips:
                await self._jobs.put_skip(skip, over_longer=False)
        await self._jobs.point("before schedules put")
        if self._disk.schedules.get(name) is owing:
            if owing.row is None:
                del self._disk.schedules[name]
            else:
                self._disk.schedules[name] = replace(owing, owes=None)
        await self._jobs.point("after schedules put")

    async def _pay_job(self, job: NewJob) -> None:
        if job.job_id not in self._disk.jobs and job.job_id not in self._disk.finished:
            await self._jobs.add(job, job.job_id)

    async def _pay_fire(self, due: Due) -> None:
        def step(row: JobRow | None) -> JobRow | None:
            if row is None or not _fires(row, due):
                return None
            return replace(row, job=replace(row.job, status=Status.QUEUED, queued_at=self._clock.now_ms()))

        await self._jobs.write_job(due.job_id, step)

    # reads

    async def get(self, schedule_ids: Sequence[str]) -> list[ScheduleRow | None]:
        await self._pay_all(schedule_ids)
        return [self._row(schedule_id) for schedule_id in schedule_ids]

    async def named(self, tenant: str, names: Sequence[str]) -> list[ScheduleRow | None]:
        for name in names:
            await self._pay((tenant, name))
        found = [self._disk.schedules.get((tenant, name)) for name in names]
        return [None if owing is None else owing.row for owing in found]

    async def of_jobs(self, job_ids: Sequence[str]) -> list[tuple[JobState, ScheduleRow | None] | None]:
        makers = [job.definition.schedule_id for job in await self._jobs.states(job_ids) if job is not None]
        await self._pay_all([maker for maker in makers if maker is not None])
        found: list[tuple[JobState, ScheduleRow | None] | None] = []
        for job in await self._jobs.states(job_ids):
            maker = None if job is None else job.definition.schedule_id
            found.append(None if job is None or maker is None else (job, self._row(maker)))
        return found

    async def list_schedules(self, wanted: ScheduleFilter, after: str | None, limit: int) -> list[ScheduleRow]:
        def matches(row: ScheduleRow) -> bool:
            return (
                row.tenant == wanted.tenant
                and wanted.status in (None, row.status)
                and wanted.name in (None, row.name)
                and (after is None or row.schedule_id < after)
            )

        await self._pay_where(lambda owing_tenant, _: owing_tenant == wanted.tenant)
        found = sorted((row for row in self._rows() if matches(row)), key=lambda row: row.schedule_id, reverse=True)
        return found[:limit]

    async def overdue(self, partitions: Sequence[int], before: int, limit: int) -> list[ScheduleRow]:
        await self._pay_where(lambda _, schedule_id: self._partition(schedule_id) in partitions)
        found: list[ScheduleRow] = []
        for partition in partitions:
            rows = [
                row
                for row in self._rows()
                if row.look_at is not None and row.look_at < before and self._partition(row.schedule_id) == partition
            ]
            found += sorted(rows, key=lambda row: row.look_at or 0)[:limit]
        return found

    async def walk(self, partition: int, after: str, limit: int) -> list[ScheduleRow]:
        await self._pay_where(lambda _, schedule_id: self._partition(schedule_id) == partition)
        rows = [
            row for row in self._rows() if self._partition(row.schedule_id) == partition and row.schedule_id > after
        ]
        return sorted(rows, key=lambda row: row.schedule_id)[:limit]

    async def going(self, schedule_ids: Sequence[str]) -> dict[str, list[JobState]]:
        await self._pay_all(schedule_ids)
        return {schedule_id: self._jobs_of(schedule_id, GOING) for schedule_id in schedule_ids}

    async def waiting(self, schedule_id: str) -> list[JobState]:
        await self._pay_all([schedule_id])
        return self._jobs_of(schedule_id, (Status.SCHEDULED,))

    async def skips(self, schedule_id: str, after: tuple[int, str] | None, limit: int) -> list[SkipRow]:
        await self._pay_all([schedule_id])
        rows = sorted(self._disk.skips.get(schedule_id, {}).items(), reverse=True)
        return [skip for key, skip in rows if after is None or key < after][:limit]

    async def add_skips(self, skips: Sequence[SkipRow]) -> None:
        for skip in skips:
            await self._jobs.put_skip(skip)

    async def counts(self) -> dict[ScheduleStatus, int]:
        return dict(Counter(row.status for row in self._rows()))

    async def crowd(self, first: int, minutes: int) -> list[int]:
        found = Counter((row.look_at - first) // 60_000 for row in self._rows() if row.look_at is not None)
        return [min(found[minute], CROWD_MOST) for minute in range(minutes)]

    async def pay_everything(self) -> None:
        """Pay what any row owes, for who reads all of them."""
        await self._pay_where(lambda _, __: True)

    # inside

    async def _pay_all(self, schedule_ids: Sequence[str]) -> None:
        wanted = set(schedule_ids)
        await self._pay_where(lambda _, schedule_id: schedule_id in wanted)

    async def _pay_where(self, wanted: Callable[[str, str], bool]) -> None:
        """Pay the rows whose tenant and ID are wanted, those on their way out included, until none of them owes anything: so the
        read that follows at once finds none that does."""

        def owing() -> list[Name]:
            found = self._disk.schedules.items()
            return [name for name, one in found if one.owes is not None and wanted(name[0], one.owes.schedule_id)]

        while names := owing():
            for name in names:
                await self._pay(name)

    def _find(self, schedule_id: str) -> Name | None:
        for name, owing in self._disk.schedules.items():
            if owing.row is not None and owing.row.schedule_id == schedule_id:
                return name
            if owing.owes is not None and owing.owes.schedule_id == schedule_id:
                return name
        return None

    def _row(self, schedule_id: str) -> ScheduleRow | None:
        return next((row for row in self._rows() if row.schedule_id == schedule_id), None)

    def _rows(self) -> list[ScheduleRow]:
        return [owing.row for owing in self._disk.schedules.values() if owing.row is not None]

    def _partition(self, schedule_id: str) -> int:
        return partition_of(schedule_id, self._jobs.partitions)

    def _jobs_of(self, schedule_id: str, statuses: Sequence[Status]) -> list[JobState]:
        rows = [row.job for row in self._disk.jobs.values() if not row.gone]
        return [copy(job) for job in rows if job.definition.schedule_id == schedule_id and job.status in statuses]


def _fires(row: JobRow, due: Due) -> bool:
    job = row.job
    return job.status is Status.SCHEDULED and job.version == due.version and job.due_at <= due.due_at


def _stands_whole(row: JobRow, before: JobState) -> bool:
    """As `stands`, and more: a slow payer must not undo what a later move has made of the job under the same version."""
    return stands(row, before) and row.job.definition == before.definition and row.job.line == before.line


def expired_skip(schedule_id: str, at: int, now: int) -> SkipRow:
    """The record of an occurrence whose job has expired."""
    return SkipRow(schedule_id=schedule_id, first=at, last=at, count=1, reason="expired", recorded_at=now)
