"""`ScheduleStore` on an open file: moves and skips go to the writer, the rest to the readers."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from tocsin.clock import Clock
from tocsin.model.job import JobState
from tocsin.store.numbers import number_of
from tocsin.store.schedules import Move, Moved, ScheduleFilter, ScheduleRow, SkipRow
from tocsin.store.sqlite import schedulereads as reads
from tocsin.store.sqlite.move import Answer, add_skips, move
from tocsin.store.sqlite.reads import Readers
from tocsin.store.sqlite.recent import SOON_MS, Recent
from tocsin.store.sqlite.requests import Kind
from tocsin.store.sqlite.writer import Writer
from tocsin.wire import ScheduleStatus

# A move is a fire, a new job and a row, so it is served with the fires.
MOVE: Kind[Move, Answer] = Kind("move", 2, move, (Moved.REFUSED, ()), 200_000, batch=250, weight=4)
SKIP: Kind[SkipRow, None] = Kind("skip", 2, add_skips, None, 100_000)

_PLACE = itemgetter(0)


class SqliteSchedules:
    """Schedules and their skips in one file."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock, partitions: int, recent: Recent) -> None:
        self._writer, self._readers, self._clock, self._recent = writer, readers, clock, recent
        self._partitions = partitions

    async def move(self, moves: Sequence[Move]) -> list[Moved]:
        for one in moves:
            for change in one.changes:
                self._recent.change(change)
        # By number, so that neighbours share pages: in random order a move costs more than twice as much. Of one schedule's the
        # order stays.
        order = sorted(range(len(moves)), key=[number_of(one.schedule_id) for one in moves].__getitem__)
        sorted_answers = await self._writer.submit(MOVE, [moves[at] for at in order])
        answers = [answer for _, answer in sorted(zip(order, sorted_answers, strict=True), key=_PLACE)]
        soon, add = self._clock.now_ms() + SOON_MS, self._recent.add
        for one, (moved, there) in zip(moves, answers, strict=True):
            if moved is Moved.WON:
                for job in one.jobs:
                    if job.fire_at <= soon and job.job_id not in there:
                        add(job.job_id, job.definition)
        return [moved for moved, _ in answers]

    async def get(self, schedule_ids: Sequence[str]) -> list[ScheduleRow | None]:
        return await self._readers.run(reads.get(self._readers, schedule_ids))

    async def named(self, tenant: str, names: Sequence[str]) -> list[ScheduleRow | None]:
        return await self._readers.run(reads.named(self._readers, tenant, names))

    async def of_jobs(self, job_ids: Sequence[str]) -> list[tuple[JobState, ScheduleRow | None] | None]:
        return await self._readers.run(reads.of_jobs(self._readers, job_ids))

    async def list_schedules(self, wanted: ScheduleFilter, after: str | None, limit: int) -> list[ScheduleRow]:
        return await self._readers.run(reads.list_schedules(self._readers, wanted, after, limit))

    async def overdue(self, partitions: Sequence[int], before: int, limit: int) -> list[ScheduleRow]:
        return await self._readers.run(reads.overdue(self._readers, partitions, before, limit))

    async def walk(self, partition: int, after: str, limit: int) -> list[ScheduleRow]:
        return await self._readers.run(reads.walk(self._readers, partition, self._partitions, after, limit))

    async def going(self, schedule_ids: Sequence[str]) -> dict[str, list[JobState]]:
        return await self._readers.run(reads.going(self._readers, schedule_ids))

    async def waiting(self, schedule_id: str) -> list[JobState]:
        return await self._readers.run(reads.waiting(self._readers, schedule_id))

    async def skips(self, schedule_id: str, after: tuple[int, str] | None, limit: int) -> list[SkipRow]:
        return await self._readers.run(reads.skips(self._readers, schedule_id, after, limit))

    async def add_skips(self, skips: Sequence[SkipRow]) -> None:
        await self._writer.submit(SKIP, skips)

    async def counts(self) -> dict[ScheduleStatus, int]:
        return await self._readers.run(reads.counts(self._readers))

    async def crowd(self, first: int, minutes: int) -> list[int]:
        return await self._readers.run(reads.crowd(self._partitions, first, minutes))
