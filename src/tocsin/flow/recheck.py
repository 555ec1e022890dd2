"""Recheck: looks again at every timer whose minute has passed, a minute later. The safety net under all other stages.

For each timer whose job is still at its version: waiting for its time -> offered again (it fires in its lane, never from here);
QUEUED -> pushed again, or skipped if it has expired; held -> its lease is watched again; ended, but its move to `finished` was
cut -> moved. What has fired and is not finished gets a watch timer further on, five minutes doubling to an hour; then exactly the
timers that were read are deleted. A crash before the delete: read again.

What has not fired keeps its timer, in the due set or behind its cut; the floor (the oldest bucket not rechecked) waits for it, and
each minute's pass offers it again. Clocks step: at the first pass and every hour the recheck also looks below the floor and counts
what it finds there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tocsin import telemetry
from tocsin.clock import Clock
from tocsin.flow.horizon import due_of
from tocsin.flow.park import Parker
from tocsin.lease.port import Leases
from tocsin.model.job import FINISHED, HELD, PENDING, TERMINAL, JobState, Status, expired
from tocsin.model.partition import BUCKET_MS, bucket_of
from tocsin.near.port import NearTier
from tocsin.service import Alarm
from tocsin.store.port import FAR, FIRE, FIRST_WATCH_MS, WATCH, Due, JobStore, NewTimer, TimerKey, TimerKind, TimerRow

PAGE = 500
SWEEP = 2_000
DELAY_MS = 60_000
LAST_WATCH_MS = 3_600_000
BELOW_EVERY_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Rechecked:
    """What one pass did."""

    void: int = 0
    looked: int = 0
    more: bool = False


@dataclass(slots=True)
class _Partition:
    """Where the recheck of one partition stands. From `left_from` on there may be timers that were left where they are."""

    floor: int
    left_from: int
    target: int = -1
    kind: TimerKind = FIRE
    swept: bool = False
    key: TimerKey | None = None
    passed_over: int | None = None
    below_at: int = 0
    looking_below: bool = True


@dataclass(slots=True)
class _Found:
    """The timers of one page, sorted by what they need."""

    offer: list[Due] = field(default_factory=list)
    push: list[Due] = field(default_factory=list)
    expired: list[Due] = field(default_factory=list)
    leases: list[tuple[str, int, int]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    jobs: dict[str, JobState] = field(default_factory=dict)


class Rechecker(Alarm):
    """Rechecks the buckets of owned partitions."""

    name = "recheck"
    rhythmic = True

    def __init__(
        self,
        store: JobStore,
        near: NearTier,
        leases: Leases,
        parker: Parker,
        clock: Clock,
        delay_ms: int = DELAY_MS,
    ) -> None:
        super().__init__(clock)
        self._store, self._near, self._leases, self._parker = store, near, leases, parker
        self._clock, self._delay_ms = clock, delay_ms
        self._partitions: dict[int, _Partition] = {}

    def begin(self, partition: int, floor: int) -> None:
        """Take a partition over at its stored floor."""
        self._partitions[partition] = _Partition(floor, floor)

    async def step(self) -> Rechecked:
        """One bounded piece of one partition that is behind."""
        last = self._last_due()
        self._measure(last)
        for partition, state in self._furthest_behind():
            if state.target < 0 and state.floor > last + 1:
                # The clock has stepped back since that floor: timers are written below it, so go on from where it is now.
                state.floor, state.below_at = last + 1, min(state.below_at, self._clock.now_ms() + BELOW_EVERY_MS)
            if state.target >= 0 or state.floor <= last:
                return await self._piece(partition, state, last)
        return Rechecked()

    async def next_at(self) -> int | None:
        floors = [state.floor for p, state in self._partitions.items() if p in self._leases.owned()]
        if not floors:
            return None
        return max((min(floors) + 1) * BUCKET_MS + self._delay_ms, (self._last_due() + 2) * BUCKET_MS + self._delay_ms)

    def _last_due(self) -> int:
        """The newest bucket whose recheck may begin: its minute ended `delay` ago."""
        return bucket_of(self._clock.now_ms() - self._delay_ms) - 1

    def _furthest_behind(self) -> list[tuple[int, _Partition]]:
        """The owned partitions, the one with the lowest floor first: when there is more to do than time, all fall behind alike."""
        owned = [(p, state) for p in self._leases.owned() if (state := self._partitions.get(p)) is not None]
        return sorted(owned, key=lambda one: (one[1].target < 0, one[1].floor))

    async def _piece(self, partition: int, state: _Partition, last: int) -> Rechecked:
        if state.target < 0:
            self._open(state, last)
        first = 0 if state.looking_below else state.floor
        if not state.swept:
            void = await self._store.sweep_void(partition, state.kind, state.target, SWEEP)
            state.swept = void < SWEEP
            return Rechecked(void=void, more=True)
        page = await self._store.read_timers(partition, state.kind, state.target, state.key, PAGE, first_bucket=first)
        if page.timers or page.next_key is not None:
            state.key = await self._look(state, page.timers) or page.next_key
            if state.key is not None:
                return Rechecked(looked=len(page.timers), more=True)
        if state.kind == FIRE:
            state.kind, state.swept, state.key = WATCH, False, None
            return Rechecked(looked=len(page.timers), more=True)
        await self._close(partition, state)
        return Rechecked(looked=len(page.timers), more=True)

    def _open(self, state: _Partition, last: int) -> None:
        now = self._clock.now_ms()
        state.target, state.kind, state.swept, state.key, state.passed_over = last, FIRE, False, None, None
        if now >= state.below_at:
            state.looking_below, state.below_at = True, now + BELOW_EVERY_MS

    async def _close(self, partition: int, state: _Partition) -> None:
        floor = state.target + 1 if state.passed_over is None else min(state.passed_over, state.target + 1)
        if floor > state.floor:
            await self._store.set_floor(partition, floor)
        state.left_from = floor
        # In memory the floor moves on even where something was passed over: the next minute's pass reads from there again.
        state.floor = max(floor, state.floor) if state.passed_over is None else state.target + 1
        state.below_at = 0 if state.passed_over is not None else state.below_at
        state.target, state.looking_below = -1, False

    async def _look(self, state: _Partition, timers: Sequence[TimerRow]) -> TimerKey | None:
        """Treat one page; a key to jump to when the rest of a tenant's lane lies behind its cut."""
        found = by_need(timers, self._clock.now_ms())
        refused = await self._near.offer(found.offer) if found.offer else []
        parked = await self._parker.push(found.push + await self._parker.end_expired(found.expired))
        if found.leases:
            await self._near.lease(found.leases)
        behind = {due.job_id for due in refused}
        # What waits to fire keeps its fire timer, also where it was taken: the set may be trimmed before its turn comes, and it is by
        # fire timers that the loader reads on.
        waiting = behind if state.kind == WATCH else {due.job_id for due in found.offer}
        standing = waiting | {due.job_id for due in parked}
        now = self._clock.now_ms()
        await self._store.watch(
            [
                NewTimer(job_id=job.job_id, version=job.version, time=now + watch_in_ms(job, now), line=job.line)
                for job in found.jobs.values()
                if job.job_id not in standing
            ]
        )
        if found.ended:
            await self._store.end_moves(found.ended)
        await self._store.delete_timers([timer for timer in timers if timer.job_id not in waiting])
        self._count(state, timers, found)
        if not waiting:
            return None
        at = min(timer.bucket for timer in timers if timer.job_id in waiting)
        state.passed_over = at if state.passed_over is None else min(at, state.passed_over)
        last = timers[-1]
        if last.job_id not in behind or state.kind == WATCH:
            # Watch timers are not in order of their jobs' due times: what follows may be a running job's.
            return None
        return (last.bucket, last.lane, last.tenant, FAR, "", 0)

    def _count(self, state: _Partition, timers: Sequence[TimerRow], found: _Found) -> None:
        telemetry.RECHECK.labels("offered").inc(len(found.offer))
        telemetry.RECHECK.labels("pushed").inc(len(found.push))
        telemetry.RECHECK.labels("held").inc(len(found.leases))
        if state.looking_below and state.kind == FIRE:
            below = sum(timer.bucket < min(state.floor, state.left_from) for timer in timers)
            telemetry.RECHECK.labels("below_floor").inc(below)

    def _measure(self, last: int) -> None:
        # The floor of what was ours before is moved on by another process.
        oldest = min((state.floor for _, state in self._furthest_behind()), default=last + 1)
        telemetry.FLOOR_AGE.set(max(last + 1 - oldest, 0) * BUCKET_MS / 1000)


def by_need(timers: Iterable[TimerRow], now_ms: int) -> _Found:
    """Timers of a page sorted by what their jobs need; also what a recovery goes by."""
    found = _Found()
    for timer in timers:
        job = timer.job
        if job is None or job.status in TERMINAL:
            if job is not None and job.status in FINISHED:
                found.ended.append(job.job_id)
            continue
        found.jobs[job.job_id] = job
        if job.status in PENDING:
            found.offer.append(due_of(job))
        elif job.status is Status.QUEUED:
            over = expired(job.status, job.attempt, job.expires_at, now_ms)
            (found.expired if over else found.push).append(due_of(job))
        elif job.status in HELD:
            # A lease that ends later than one given now was given before the clock stepped back.
            found.leases.append((job.job_id, job.attempt, min(job.lease_until or 0, now_ms + (job.lease_ms or 0))))
    return found


def watch_in_ms(job: JobState, now_ms: int) -> int:
    """How far on an unfinished job is looked at again: five minutes, doubling with its age to an hour."""
    return min(max(now_ms - job.due_at, FIRST_WATCH_MS), LAST_WATCH_MS)
