"""A decision about a schedule in the making: what it collects, and the steps that all decisions are made of.

`Decision` begins from a schedule as it was read and collects what is to be written: jobs to make, waiting jobs to fire, skip, cancel
or hold, running ones to stop, skips to record, and the schedule's new state. It is written whole or not at all, so each part of it
may count on the others. What is decided when is in `model.recurrence` (the course of a schedule) and `model.catchup` (what waits
for the end of others). Nothing here reads a clock: `now` is an argument, and so is what is going on (`Look`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tocsin.model.ids import occurrence_id
from tocsin.model.schedule import Plan, Spec, State, Stretch, cron_of
from tocsin.model.spread import spread_ms
from tocsin.model.timing import Run
from tocsin.model.zones import LAST_MS, Zones
from tocsin.wire import ScheduleStatus, SkipReason, Status

# An occurrence that is held is looked at again so often, should nobody tell that what it waits for has ended.
RELOOK_MS = 30_000


@dataclass(frozen=True, slots=True)
class Look:
    """What a decision has to know of the world. `going` are the schedule's jobs under way, with their status; with overlap `allow`
    those that a backlog waits for are enough. `over_quota`: the tenant may have no more jobs. `catch_up_at`: a run that makes up for
    missed ones starts not before."""

    now: int
    going: dict[str, Status] = field(default_factory=dict)
    over_quota: bool = False
    catch_up_at: int | None = None


@dataclass(frozen=True, slots=True)
class Make:
    """A job to be made for the occurrence `at`; QUEUED if `queued`, else it fires at `fire_at`."""

    job_id: str
    at: int
    fire_at: int
    queued: bool
    origin: str


@dataclass(frozen=True, slots=True)
class Range:
    """A skip: from `first` to `last`, both included."""

    first: int
    last: int
    count: int
    reason: SkipReason
    detail: str | None = None


@dataclass(slots=True)
class Decision:
    """What is being decided about one schedule."""

    schedule_id: str
    revision: int
    status: ScheduleStatus
    spec: Spec
    state: State
    plan: Plan
    look: Look
    zones: Zones
    makes: list[Make] = field(default_factory=list)
    fires: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    cancelled: dict[str, str] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    skips: list[Range] = field(default_factory=list)
    # How many occurrences `skips` have come to now, by reason; a range that has grown longer counts before, too.
    left_out: dict[SkipReason, int] = field(default_factory=dict)
    # Tells the IDs of this step's jobs from earlier ones for the same instant and revision.
    mark: str = ""

    @property
    def look_at(self) -> int | None:
        """By when somebody should have moved the schedule again."""
        state, wishes = self.state, []
        if state.next_at is not None and state.fire_at is not None:
            wishes.append(state.fire_at)
        if state.held or state.backlogs:
            wishes.append(self.look.now + RELOOK_MS)
        if state.pause_until is not None and self.status == "paused":
            wishes.append(state.pause_until)
        if state.owing:
            wishes.append(self.look.now)
        return min(wishes, default=None)

    @property
    def cursor(self) -> int:
        """The instant up to which everything is decided."""
        return self.look.now if self.state.passed_at is None else self.state.passed_at

    # --- the occurrence ahead

    def ahead(self, run: Run | None) -> None:
        """Make the next occurrence, or come to the schedule's end."""
        state = self.state
        state.owing = False
        if run is None or self.at_the_end():
            state.next_at = state.job_id = state.fire_at = None
            if self.status == "active":
                self.status = "finished"
            return
        if self.status == "finished":
            self.status = "active"
        job_id = self.job_id_of(run.at)
        fire_at = run.at + self.spread_in_ms(job_id, run.at)
        state.next_at, state.job_id, state.fire_at = run.at, job_id, fire_at
        state.offset_s, state.zone_data = run.offset_s, self.zones.version
        # Also where its time has come already: it is judged when it fires.
        self.makes.append(Make(job_id, run.at, fire_at, queued=False, origin="schedule"))

    def following(self, after: int) -> Run | None:
        """The first occurrence after that instant. Where the zone's data has changed since the last one was made, a local time that
        has had its run gets no second one."""
        run, state = self.plan.next(after), self.state
        changed = self.spec.rule.zoned and state.zone_data not in ("", self.zones.version)
        if changed and state.passed_local is not None and not _elapsed(self.spec):
            while run is not None and run.at + run.offset_s * 1000 <= state.passed_local:
                run = self.plan.next(run.at)
        return run

    def give_up_ahead(self, end: dict[str, str], why: str) -> None:
        """There is no occurrence ahead any more; its job ends, or is not even made."""
        state = self.state
        made = next((make for make in self.makes if make.job_id == state.job_id), None)
        if made is not None:
            self.makes.remove(made)
        elif state.job_id is not None:
            end[state.job_id] = why
        state.next_at = state.job_id = state.fire_at = None

    def at_the_end(self) -> bool:
        """Whether the schedule has had all its runs."""
        return self.spec.max_runs is not None and self.state.runs >= self.spec.max_runs

    def spread_in_ms(self, job_id: str, at: int) -> int:
        """How far inside its window an occurrence fires; the window ends where the following occurrence begins, and with the
        calendar."""
        timing = self.spec.job.timing
        window_ms = 0 if timing is None or timing.window_s is None else round(timing.window_s * 1000)
        if not window_ms:
            return 0
        following = self.plan.next(at)
        return spread_ms(job_id, min(window_ms, (LAST_MS if following is None else following.at) - at))

    def job_id_of(self, at: int) -> str:
        """The ID of an occurrence's job."""
        leader = self.spec.leading
        return occurrence_id(self.schedule_id, self.revision, at, "schedule", leader=leader, request=self.mark)

    # --- what is decided

    def passed(self, at: int, offset_s: int | None = None) -> None:
        """Everything up to that occurrence is decided."""
        state = self.state
        if state.passed_at is None or at >= state.passed_at:
            state.passed_local = at + (state.offset_s if offset_s is None else offset_s) * 1000
            state.passed_at = at
        if state.decided:
            # Those behind the cursor, but still to come, matter where the timing is changed.
            state.decided = tuple(one for one in state.decided if one > min(at, self.look.now))

    def ran(self, at: int, job_id: str) -> None:
        """An occurrence has fired, or is sure to."""
        self.state.runs += 1
        self.started(job_id)

    def started(self, job_id: str) -> None:
        """A run has begun: the next skip is a new one."""
        self.state.last_at, self.state.last_job, self.state.stretch = self.look.now, job_id, None

    def leave_out(self, at: int, job_id: str | None, reason: SkipReason, detail: str, *, counted: bool = False) -> None:
        """An occurrence does not run. `counted`: it is among the schedule's runs."""
        if job_id is not None:
            made = [make for make in self.makes if make.job_id == job_id]
            if made:
                self.makes.remove(made[0])
            else:
                self.skipped[job_id] = f"{reason}: {detail}"
            self.held = [one for one in self.held if one != job_id]
            self.state.held = tuple(one for one in self.state.held if one.job_id != job_id)
        self.skip(Range(at, at, 1, reason, detail))
        if counted:
            self.uncount(1)

    def uncount(self, runs: int) -> None:
        """So many occurrences that were sure to run do not; a schedule that has come to its end with them goes on."""
        self.state.runs -= runs
        if runs and self.status == "finished":
            self.ahead(self.following(max(self.look.now, self.cursor)))

    def leave_range(self, plan: Plan, low: int, high: int, reason: SkipReason, detail: str | None) -> None:
        """What a plan has in (low, high] does not run: one skip, or several around what is decided already."""
        for cut in (*sorted(at for at in plan.without if low < at <= high), None):
            end = high if cut is None else cut - 1
            if count := plan.count(low, end):
                first, last = plan.next(low), plan.last(end + 1)
                assert first is not None, "there are some"
                assert last is not None, "there are some"
                self.skip(Range(first.at, last.at, count, reason, detail))
            low = low if cut is None else cut

    def count_left_out(self, reason: SkipReason, count: int) -> None:
        """So many occurrences more are left out."""
        self.left_out[reason] = self.left_out.get(reason, 0) + count

    def skip(self, skip: Range) -> None:
        """Record a skip; one that follows on the last with the same reason makes that one longer."""
        stretch, plan = self.state.stretch, self.plan
        self.count_left_out(skip.reason, skip.count)
        if stretch is not None and stretch.reason == skip.reason and stretch.last < skip.first:
            between = plan.count(stretch.last, skip.first - 1)
            if not between and not any(stretch.last < at < skip.first for at in plan.without):
                skip = Range(stretch.first, skip.last, stretch.count + skip.count, skip.reason, skip.detail)
        self.state.stretch = Stretch(skip.first, skip.last, skip.count, skip.reason)
        self.skips.append(skip)


def _elapsed(spec: Spec) -> bool:
    return spec.rule.cron is None or cron_of(spec.rule.cron).follows_elapsed_time
