"""What must be true of schedules and their occurrences after every step, whatever happened before.

Ahead: an active schedule has exactly one occurrence ahead, a SCHEDULED job, and its row says which; a paused one may have one.
Account: of all instants at which a schedule was due, by the timing that it had then, each has one job or lies in one skip, or it
waits in a backlog, and nothing else has either. Order: occurrences are started in the order of their instants.
Overlap: where it is not allowed, at most one of a schedule's own runs goes on.

The timing that a schedule had is taken from its rows as they were seen, one after another. Where clocks have stepped back over
an edit there is no telling which instants belong to which timing: of such a schedule only the first and the last are checked.
"""

from __future__ import annotations

from collections import defaultdict
from copy import deepcopy
from dataclasses import dataclass, field, fields

from tests.life.disk import Disk, Fault
from tests.life.stepstore import StepStore
from tests.life.world import World
from tocsin.model.job import JobState
from tocsin.model.schedule import Spec, State, decode_spec, decode_state, timing_of
from tocsin.model.timing import Timing
from tocsin.store.port import JobFilter, Store
from tocsin.store.schedules import ScheduleFilter, ScheduleRow, SkipRow
from tocsin.wire import Status

TENANTS = ("acme", "bolt")
GOING = (Status.QUEUED, Status.RUNNING, Status.RETRYING, Status.CANCEL_REQUESTED)
OWN = ("schedule", "backfill")
ALL = 5_000


@dataclass(slots=True)
class Segment:
    """A timing, in force for the instants of (after, until]; `until` None: still. Instants up to `decided` had been decided ahead of
    their time when it ended."""

    spec: Spec
    timing: Timing
    after: int
    until: int | None = None
    decided: int = 0

    def count(self, after: int, until: int, *, ahead: bool = False) -> int:
        """How many of its instants lie in (after, until]; `ahead`: also those that were decided ahead of their time."""
        low, high = max(after, self.after), until
        if self.until is not None:
            high = min(high, max(self.until, self.decided) if ahead else self.until)
        if self.spec.start_at is not None:
            low = max(low, self.spec.start_at - 1)
        if self.spec.end_at is not None:
            high = min(high, self.spec.end_at)
        return self.timing.count(low, high) if high > low else 0


@dataclass(slots=True)
class Course:
    """A schedule as it was last seen, and what is remembered of it."""

    row: ScheduleRow
    spec: Spec
    state: State
    segments: list[Segment] = field(default_factory=list)
    skips: dict[tuple[int, str], SkipRow] = field(default_factory=dict)
    # Clocks have stepped back over an edit, or an end by number of runs was taken back: there is no account.
    loose: bool = False

    @property
    def cursor(self) -> int:
        """Up to there everything is decided."""
        assert self.state.passed_at is not None, "a schedule knows from its beginning what it has passed"
        return self.state.passed_at

    @property
    def left(self) -> int:
        """How many missed occurrences are to be caught up with still."""
        return sum(backlog.left for backlog in self.state.backlogs if backlog.kind == "schedule")

    def count(self, after: int, until: int) -> int:
        """At how many instants of (after, until] it was due."""
        return sum(segment.count(after, until) for segment in self.segments)

    def counts(self, after: int, until: int) -> set[int]:
        """The same by each of its timings: what was decided ahead of time was decided by one of them."""
        return {segment.count(after, until, ahead=True) for segment in self.segments}

    def was_due(self, at: int) -> bool:
        """Whether it was due then, or would have been when that was decided."""
        return any(segment.count(at - 1, at, ahead=True) for segment in self.segments)


class Courses:
    """What was seen of all schedules, to compare with what is seen now."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.live: dict[str, Course] = {}
        self.jobs: dict[str, JobState] = {}
        # Jobs that may run beside others: their owners have started them, or overlap was allowed when they began.
        self.beside: set[str] = set()
        # Jobs whose cancelling was cut: without transactions its skip may stand, and the job have been claimed before it was reached.
        self.cut: set[str] = set()
        # Schedules whose occurrences their owners have started out of order.
        self.unordered: set[str] = set()
        self._newest: dict[str, int] = {}
        self._latest = world.clock.now_ms()
        world.disk.watchers.append(self.wrote)

    def waiting(self, *statuses: Status) -> list[JobState]:
        """The jobs of schedules in these states."""
        return sorted((job for job in self.jobs.values() if job.status in statuses), key=lambda job: job.job_id)

    def wrote(self, before: JobState | None, after: JobState) -> None:
        """One row of a job was written (stores that can tell)."""
        made = after.definition
        first = before is None or before.status is Status.SCHEDULED
        if after.status is not Status.QUEUED or not first or made.origin != "schedule":
            return
        assert made.schedule_id is not None, after
        assert made.occurrence_at is not None, after
        newest = self._newest.setdefault(made.schedule_id, made.occurrence_at)
        if made.schedule_id not in self.unordered:
            assert made.occurrence_at >= newest, f"{made.occurrence_at} of {made.schedule_id} fired after {newest}"
        self._newest[made.schedule_id] = max(newest, made.occurrence_at)

    async def check(self) -> None:
        """Look at everything."""
        self._latest = max(self._latest, self._world.clock.now_ms())
        store = await self._paid()
        rows = [
            row
            for tenant in TENANTS
            for row in await store.schedules.list_schedules(ScheduleFilter(tenant=tenant), None, ALL)
        ]
        await self._look_at_jobs(store)
        self.live = {row.schedule_id: self._seen(row) for row in rows}
        by_schedule: dict[str, list[JobState]] = defaultdict(list)
        for job in self.jobs.values():
            by_schedule[job.definition.schedule_id or ""].append(job)
        for schedule_id, jobs in by_schedule.items():
            _once(jobs)
            if schedule_id not in self.live:
                waiting = [job.job_id for job in jobs if job.status is Status.SCHEDULED]
                assert not waiting, f"{schedule_id} is deleted and {waiting} wait on"
        for schedule_id, course in self.live.items():
            for skip in await store.schedules.skips(schedule_id, None, ALL):
                course.skips[skip.first, skip.reason] = skip
            _ahead(course, by_schedule[schedule_id], self._latest)
            _runs(course, by_schedule[schedule_id])
            if not course.loose:
                _account(course, by_schedule[schedule_id], self.cut)
            self._overlap(course, by_schedule[schedule_id])

    async def _paid(self) -> Store:
        """The store as it will be read. One without transactions may owe what its next reader pays; that is not to be ourselves."""
        store, disk = self._world.on.store, self._world.disk
        if not any(owing.owes is not None for owing in disk.schedules.values()):
            return store
        tables = {one.name: deepcopy(getattr(disk, one.name)) for one in fields(Disk) if one.name != "watchers"}
        return StepStore(Disk(**tables), self._world.clock, self._world.partitions, Fault())

    async def _look_at_jobs(self, store: Store) -> None:
        for tenant in TENANTS:
            for job in (await store.jobs.list_jobs(JobFilter(tenant=tenant), None, ALL)).jobs:
                if job.definition.schedule_id is not None:
                    self.jobs[job.job_id] = job
                    if job.definition.origin not in OWN or job.status is Status.DEAD:
                        self.beside.add(job.job_id)

    def _seen(self, row: ScheduleRow) -> Course:
        spec, state = decode_spec(row.spec), decode_state(row.state)
        course = self.live.get(row.schedule_id)
        if course is None:
            course = Course(row, spec, state)
            course.segments.append(self._segment(spec, state.created_at))
            course.loose = spec.max_runs is not None
        elif _timing(spec) != _timing(course.spec):
            edited_at, last = state.updated_at, course.segments[-1]
            # An edit of the start or the end alone leaves decided what is decided: where clocks have stepped back, also what lies
            # between the edit and the beginning of the schedule, at which it never was due.
            after = edited_at if spec.rule != course.spec.rule else max(edited_at, last.after)
            course.loose |= spec.max_runs is not None or after < last.after
            last.until, last.decided = edited_at, max(course.cursor, *course.state.decided, 0)
            course.segments.append(self._segment(spec, after))
            if course.spec.job.timing is not None:
                self.unordered.add(row.schedule_id)  # one that was due inside its window fires beside its successor
        if course.spec.overlap == "allow":
            mine = [job for job in self.jobs.values() if job.definition.schedule_id == row.schedule_id]
            self.beside |= {job.job_id for job in mine}
        course.row, course.spec, course.state = row, spec, state
        return course

    def _segment(self, spec: Spec, after: int) -> Segment:
        return Segment(spec, timing_of(spec.rule, self._world.zones), after)

    def _overlap(self, course: Course, jobs: list[JobState]) -> None:
        if course.spec.overlap == "allow":
            return
        going = [job for job in jobs if job.status in GOING and job.job_id not in self.beside]
        assert len(going) <= 1, f"{course.row.schedule_id} ({course.spec.overlap}) runs {going}"


def _timing(spec: Spec) -> tuple[object, ...]:
    return spec.rule, spec.start_at, spec.end_at, spec.max_runs


def _once(jobs: list[JobState]) -> None:
    """No occurrence has two jobs that ran."""
    ran: dict[int, str] = {}
    for job in jobs:
        at = job.definition.occurrence_at
        if job.definition.origin == "schedule" and at is not None and _kept(job):
            first = ran.setdefault(at, job.job_id)
            assert first == job.job_id, f"{at} of {job.definition.schedule_id} ran twice: {first}, {job.job_id}"


def _kept(job: JobState) -> bool:
    """Whether a job stands for its occurrence: it has run, or is sure to."""
    return job.attempt > 0 or job.status in GOING


def _ahead(course: Course, jobs: list[JobState], latest: int) -> None:
    row, state = course.row, course.state
    waiting = {
        job.job_id: job for job in jobs if job.status is Status.SCHEDULED and job.definition.origin == "schedule"
    }
    if row.status == "active":
        assert state.job_id is not None, f"{row.schedule_id} is active and has no occurrence ahead: {state}"
        assert row.look_at is not None, f"{row.schedule_id} is active and nobody will look at it: {row}"
    if row.status == "finished":
        assert state.job_id is None, f"{row.schedule_id} is finished and goes on: {state}"
    if state.job_id is not None:
        assert state.next_at is not None, state
        job = waiting.pop(state.job_id, None)
        assert job is not None, f"{state.next_at} of {row.schedule_id} is ahead and has no job that waits: {state}"
        assert job.definition.occurrence_at == state.next_at, f"{job} is not for {state.next_at}"
        assert state.next_at > course.cursor, f"{state.next_at} is ahead of {row.schedule_id} and decided: {state}"
    for job in waiting.values():
        assert (job.definition.occurrence_at or 0) <= latest, (
            f"{row.schedule_id} has two occurrences ahead: {job}, {state}"
        )
    for held in state.held:
        assert held.job_id in waiting, f"{row.schedule_id} holds {held}, which does not wait"


def _runs(course: Course, jobs: list[JobState]) -> None:
    """The number of runs is that of the occurrences that were started, wait to be, or are to come in a backlog."""
    own = [job for job in jobs if job.definition.origin == "schedule" and job.job_id != course.state.job_id]
    runs = sum(job.queued_at is not None or job.status is Status.SCHEDULED for job in own) + course.left
    assert course.state.runs == runs, f"{course.row.schedule_id} has had {runs} runs: {course.state}, {own}"


def _account(course: Course, jobs: list[JobState], cut: set[str]) -> None:
    """Each instant up to the cursor is a job, in a skip, or still to come in a backlog, and only one of these."""
    row, state, cursor = course.row, course.state, course.cursor
    skips = sorted(course.skips.values(), key=lambda skip: skip.first)
    name = f"{row.schedule_id} at {cursor}"
    decided = 0
    for before, skip in zip([None, *skips], skips, strict=False):
        assert before is None or before.last < skip.first, f"{name} skipped something twice: {before}, {skip}"
        counts = course.counts(skip.first - 1, skip.last)
        assert skip.count in counts, f"{name} was due {counts} times in {skip}"
        decided += course.count(skip.first - 1, min(skip.last, cursor))
    kept: set[int] = set()
    for job in jobs:
        at = job.definition.occurrence_at
        if at is None or job.definition.origin != "schedule" or job.job_id == state.job_id:
            continue
        covered = any(skip.first <= at <= skip.last for skip in skips)
        if covered and job.job_id in cut:
            continue
        # Without transactions an expired job's skip is written after it.
        ended = not covered and job.queued_at is not None and job.status is Status.SKIPPED
        if _kept(job) or job.status is Status.SCHEDULED or ended:
            assert at not in kept, f"{name} has two jobs for {at}"
            assert not covered, f"{name} has skipped {at}, which has a job: {job}"
            assert course.was_due(at), f"{name} was not due at {at}: {job}"
            kept.add(at)
    decided += sum(course.count(at - 1, min(at, cursor)) for at in kept)
    left, due = course.left, course.count(0, cursor)
    assert decided + left == due, (
        f"{name} was due {due} times: {decided} decided, {left} to come; jobs {sorted(kept)}, {skips}, {state}"
    )


__all__ = ["GOING", "Courses"]
