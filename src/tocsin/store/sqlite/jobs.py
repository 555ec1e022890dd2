"""`JobStore` on an open file: what is written goes to the writer as items of a kind, what is read to the readers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tocsin.clock import Clock
from tocsin.model.job import JobState, Line, decode_definition
from tocsin.store import port
from tocsin.store.port import Beaten, Claimed, Created, Due, Fired, Made, NotYours
from tocsin.store.sqlite import due, lists, reads, timers, upkeep
from tocsin.store.sqlite.beat import heartbeat
from tocsin.store.sqlite.claim import Taken, Wanted, claim
from tocsin.store.sqlite.create import create
from tocsin.store.sqlite.finish import change, succeed
from tocsin.store.sqlite.fire import fire
from tocsin.store.sqlite.parking import park, unpark
from tocsin.store.sqlite.reads import Readers
from tocsin.store.sqlite.recent import SOON_MS, Recent
from tocsin.store.sqlite.requests import Kind
from tocsin.store.sqlite.settings import SETTING
from tocsin.store.sqlite.work import Work
from tocsin.store.sqlite.writer import Writer
from tocsin.wire import Status

# Ranks are the order of service; bounds fall from the end of a job's life to its beginning, so that under overload what was
# begun is ended before more is taken in.
BEAT: Kind[port.Beat, Beaten | NotYours] = Kind("heartbeat", 0, heartbeat, NotYours.UNKNOWN, None)
SUCCEED: Kind[port.Success, bool] = Kind("succeed", 1, succeed, False, 200_000)
CHANGE: Kind[port.Change, bool] = Kind("change", 1, change, False, 200_000, batch=100, weight=4)
FIRE: Kind[Due, Fired] = Kind("fire", 2, fire, Fired.VOID, 100_000)
PARK: Kind[Due, None] = Kind("park", 2, park, None, 100_000)
UNPARK: Kind[Due, None] = Kind("unpark", 2, unpark, None, 100_000)
CLAIM: Kind[Wanted, Taken | None] = Kind("claim", 3, claim, None, 50_000)
CREATE: Kind[port.NewJob, Created] = Kind("create", 4, create, Created(Made.REFUSED, ""), 20_000)
WATCH: Kind[port.NewTimer, None] = Kind("watch", 5, timers.watch, None, 100_000)
UNWATCH: Kind[port.TimerRow, None] = Kind("delete timers", 5, timers.delete_timers, None, 100_000)
KINDS = (BEAT, SUCCEED, CHANGE, SETTING, FIRE, PARK, UNPARK, CLAIM, CREATE, WATCH, UNWATCH, upkeep.SLICE)


class SqliteJobs:
    """Jobs, timers, attempts, finished jobs and idempotency records of one file."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock, partitions: int, recent: Recent) -> None:
        self._writer, self._readers, self._clock, self._recent = writer, readers, clock, recent
        self._upkeep = upkeep.Upkeep(writer)
        self.partitions = partitions

    @property
    def unreadable(self) -> int:
        """How many records could not be read and were passed over."""
        return self._readers.unreadable.count

    @property
    def refused(self) -> int:
        """How many items could not be written and were refused."""
        return self._writer.refused_items

    async def create(self, jobs: Sequence[port.NewJob]) -> list[Created]:
        answers = await self._writer.submit(CREATE, jobs)
        soon, add = self._clock.now_ms() + SOON_MS, self._recent.add
        for job, answer in zip(jobs, answers, strict=True):
            if answer.made is Made.CREATED and answer.job_id == job.job_id and job.fire_at <= soon:
                add(job.job_id, job.definition)
        return answers

    async def fire(self, dues: Sequence[Due]) -> list[Fired]:
        return await self._writer.submit(FIRE, dues)

    async def claim(self, job_ids: Sequence[str], worker: str, lease_ms: int) -> list[Claimed | None]:
        recent = self._recent.take
        wanted = [Wanted(job_id, worker, lease_ms, recent(job_id)) for job_id in job_ids]
        taken = await self._writer.submit(CLAIM, wanted)
        return [None if one is None else self._claimed(job_id, one) for job_id, one in zip(job_ids, taken, strict=True)]

    def _claimed(self, job_id: str, taken: Taken) -> Claimed | None:
        head, doc, lines = taken
        try:
            definition = decode_definition(doc or "")
        except msgspec.DecodeError as exc:
            self._readers.unreadable.note(job_id, exc)
            return None
        return Claimed(
            job_id=job_id,
            attempt=head.attempt,
            tries=head.tries,
            due_at=head.due_at,
            lease_until=head.lease_until,
            lease_ms=head.lease_ms,
            fire_at=head.fire_at,
            line=lines[head.line_id],
            definition=definition,
            progress=None if head.progress is None else head.progress.encode(),
        )

    async def reclaim(self, jobs: Sequence[tuple[str, int]], worker: str) -> list[Claimed | None]:
        held = await self._readers.run(reads.reclaim(self._readers, jobs, worker))
        return [None if job is None else _as_claimed(job) for job in held]

    async def heartbeat(self, beats: Sequence[port.Beat]) -> list[Beaten | NotYours]:
        return await self._writer.submit(BEAT, beats)

    async def succeed(self, reports: Sequence[port.Success]) -> list[bool]:
        return await self._writer.submit(SUCCEED, reports)

    async def change(self, changes: Sequence[port.Change]) -> list[bool]:
        for one in changes:
            self._recent.change(one)
        return await self._writer.submit(CHANGE, changes)

    async def end_moves(self, job_ids: Sequence[str]) -> None:
        """Nothing: a job moves to `finished` in one transaction."""

    async def states(self, job_ids: Sequence[str]) -> list[JobState | None]:
        return await self._readers.run(reads.states(self._readers, job_ids))

    async def attempts(self, job_id: str) -> list[port.AttemptRecord]:
        return await self._readers.run(reads.attempts(self._readers, job_id))

    async def list_jobs(self, wanted: port.JobFilter, after: str | None, limit: int) -> port.JobPage:
        return await self._readers.run(lists.list_jobs(self._readers, wanted, after, limit))

    async def list_dead(self, wanted: port.DeadFilter, after: tuple[int, str] | None, limit: int) -> list[JobState]:
        return await self._readers.run(lists.list_dead(self._readers, wanted, after, limit))

    async def count_dead(self, wanted: port.DeadFilter) -> int:
        return await self._readers.run(lists.count_dead(wanted))

    async def read_due(
        self,
        partition: int,
        first_bucket: int,
        last_bucket: int,
        after: port.TimerKey | None,
        limit: int,
        *,
        lane: int | None = None,
        tenant: str | None = None,
        from_time: int | None = None,
    ) -> port.DuePage:
        if lane is None and tenant is None and from_time is None:
            read = due.read_due(self._readers, partition, first_bucket, last_bucket, after, limit)
        else:
            read = due.read_due_of(
                self._readers,
                partition,
                first_bucket,
                last_bucket,
                after,
                limit,
                lane=lane,
                tenant=tenant,
                from_time=from_time,
            )
        return await self._readers.run(read)

    async def read_timers(
        self,
        partition: int,
        kind: port.TimerKind,
        last_bucket: int,
        after: port.TimerKey | None,
        limit: int,
        *,
        first_bucket: int = 0,
    ) -> port.StatePage:
        await self._writer.submit(upkeep.SLICE, [_pass])
        return await self._readers.run(
            due.read_timers(self._readers, partition, kind, first_bucket, last_bucket, after, limit)
        )

    async def sweep_void(self, partition: int, kind: port.TimerKind, last_bucket: int, limit: int) -> int:
        return await self._upkeep.sweep_void(partition, kind, last_bucket, limit)

    async def watch(self, timers: Sequence[port.NewTimer]) -> None:
        await self._writer.submit(WATCH, timers)

    async def delete_timers(self, timers: Sequence[port.TimerRow]) -> None:
        await self._writer.submit(UNWATCH, timers)

    async def floors(self) -> dict[int, int]:
        return dict.fromkeys(range(self.partitions), 0) | await self._readers.run(reads.floors)

    async def set_floor(self, partition: int, bucket: int) -> None:
        await self._writer.submit(upkeep.SLICE, [lambda work: timers.set_floor(work, partition, bucket)])

    async def park(self, dues: Sequence[Due]) -> None:
        await self._writer.submit(PARK, dues)

    async def parked(self, partition: int, line: Line | None, limit: int) -> list[port.Parked]:
        return await self._readers.run(reads.parked(self._readers, partition, line, limit))

    async def parked_lines(self, partition: int) -> dict[Line, int]:
        return await self._readers.run(reads.parked_lines(self._readers, partition))

    async def unpark(self, dues: Sequence[Due]) -> None:
        await self._writer.submit(UNPARK, dues)

    async def live_counts(self) -> dict[tuple[str, str, Status], int]:
        counts: dict[tuple[str, str, Status], int] = {}
        after: str | None = ""
        while after is not None:
            found, after = await self._readers.run(reads.count_slice(self._readers, after))
            for key, count in found.items():
                counts[key] = counts.get(key, 0) + count
        return counts

    async def archive(self, finished_before: int, limit: int) -> int:
        return await self._upkeep.archive(finished_before, limit)

    async def sweep_keys(self, limit: int) -> int:
        return await self._upkeep.sweep_keys(limit)


def _pass(_: Work) -> None:
    """Written when the writer has passed everything that was asked for before."""


def _as_claimed(job: JobState) -> Claimed:
    assert job.lease_until is not None  # CHECK held_under_a_lease
    assert job.lease_ms is not None
    return Claimed(
        job_id=job.job_id,
        attempt=job.attempt,
        tries=job.tries,
        due_at=job.due_at,
        lease_until=job.lease_until,
        lease_ms=job.lease_ms,
        fire_at=job.fire_at,
        line=job.line,
        definition=job.definition,
        progress=job.progress,
    )
