"""What becomes of a schedule's occurrences: decided here, purely, and written by `flow.recur`.

A `Step` begins from a schedule as it was read, takes decisions one after another, and collects what they ask for: jobs to make,
waiting jobs to fire, skip, cancel or hold, running ones to stop, skips to record, and the schedule's new state. It is written whole
or not at all, so each decision may count on the others of the same step.

                     due                         judged
    occurrence ahead ───▶ missed? ─── no ──────▶ deadline, quota, overlap ──▶ fires | is skipped | is held
           ▲                │ yes, by policy                                             │
           │                ├─ skip: all of them are one skip                            └─ until the run before it has ended
           │                ├─ run_latest: the newest is judged, the rest are one skip
           │                └─ run_all: a backlog, oldest first, one after another
           └── the next one is made, from the last instant that was decided

Missed means that the successor is due already when an occurrence is looked at; an occurrence that is only late is judged as if it
were not. Nothing here reads a clock: `now` is an argument, and so is what is going on (`Look`).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from msgspec import structs

from tocsin.model.ids import occurrence_id
from tocsin.model.schedule import Backlog, Held, Plan, Spec, State, Stretch, cron_of, timing_of
from tocsin.model.spread import spread_ms
from tocsin.model.timing import Run
from tocsin.model.zones import Zones
from tocsin.wire import ScheduleStatus, SkipReason, Status

# An occurrence that is held is looked at again so often, should nobody tell that what it waits for has ended.
RELOOK_MS = 30_000
RETIMED = "the schedule's timing was changed: this occurrence was taken back and its successor made anew"


@dataclass(frozen=True, slots=True)
class Look:
    """What a decision has to know of the world. `going` are the schedule's jobs under way, with their status; it may be empty where
    nothing depends on it (`needs_look`). `over_quota`: the tenant may have no more jobs."""

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


def needs_look(spec: Spec, state: State) -> bool:
    """Whether a decision about this schedule must know which of its jobs are going on."""
    return spec.overlap != "allow" or bool(state.held) or bool(state.backlogs)


@dataclass(slots=True)
class Step:
    """A step of one schedule, being decided. Made by `begin`."""

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

    # --- the occurrence ahead

    def ahead(self, run: Run | None) -> None:
        """Make the next occurrence, or come to the schedule's end."""
        state, spec = self.state, self.spec
        state.owing = False
        if run is None or (spec.max_runs is not None and state.runs >= spec.max_runs):
            state.next_at = state.job_id = state.fire_at = None
            if self.status != "broken":
                self.status = "finished"
            return
        if self.status == "finished":
            self.status = "active"
        job_id = self._id(run.at, "schedule")
        fire_at = run.at + self.spread_in_ms(job_id, run.at)
        state.next_at, state.job_id, state.fire_at = run.at, job_id, fire_at
        state.offset_s, state.zone_data = run.offset_s, self.zones.version
        self.makes.append(Make(job_id, run.at, fire_at, queued=fire_at <= self.look.now, origin="schedule"))

    def fire_ahead(self) -> None:
        """The occurrence ahead is due: decide about it, and about those that came after it, and make the next."""
        at, job_id = self.state.next_at, self.state.job_id
        assert at is not None, "only an occurrence ahead can fire"
        self.end_pause()
        successor = self.plan.next(at)
        self._pass(at)
        if successor is None or successor.at > self.look.now:
            self.judge(at, job_id)
            self.ahead(successor)
        else:
            self._missed(at, job_id)

    def fire_ahead_owing(self) -> None:
        """As `fire_ahead`, but the next one is left to a node that knows newer zone data."""
        state, at, job_id = self.state, self.state.next_at, self.state.job_id
        assert at is not None, "only an occurrence ahead can fire"
        self.end_pause()
        self._pass(at)
        self.judge(at, job_id)
        state.next_at = state.job_id = state.fire_at = None
        state.owing = True

    def pay(self) -> None:
        """Make the occurrence that an older node has left owing."""
        at = self.state.passed_at
        assert at is not None, "what is owing follows on an occurrence"
        self.state.owing = False
        successor = self.plan.next(at)
        if successor is None or successor.at > self.look.now:
            self.ahead(successor)
            return
        # Its time has come meanwhile: decide about it as if it stood ahead.
        self.state.next_at, self.state.job_id, self.state.fire_at = successor.at, None, successor.at
        self.state.offset_s = successor.offset_s
        self.fire_ahead()

    def run_ahead_now(self) -> None:
        """The occurrence ahead is started before its time; the caller fires its job."""
        state, at = self.state, self.state.next_at
        assert at is not None, "only an occurrence ahead can be started"
        self._pass(at)
        self._ran(at, state.job_id or "")
        self.ahead(self.plan.next(at))

    def skip_ahead(self, detail: str | None, *, drop: bool = True) -> None:
        """The occurrence ahead is left out at its owner's wish. Without `drop` the caller ends its job."""
        at = self.state.next_at
        assert at is not None, "only an occurrence ahead can be skipped"
        if drop:
            self._give_up_ahead(self.skipped, "skipped at its owner's wish")
        self._pass(at)
        self.skip(Range(at, at, 1, "skipped_by_user", detail))
        self.ahead(self.plan.next(at))

    def lost_ahead(self) -> None:
        """The job of the occurrence ahead has left its state without the schedule: go on from that instant."""
        state, at = self.state, self.state.next_at
        assert at is not None, "only an occurrence ahead can be lost"
        self._pass(at)
        self._ran(at, state.job_id or "")
        self.ahead(self.plan.next(max(at, self.look.now)))

    def make_again(self) -> None:
        """The occurrence ahead has no job: make it."""
        run = self.plan.next((self.state.next_at or 0) - 1)
        if run is None or run.at != self.state.next_at:
            run = self.plan.next(self.look.now)
        self.ahead(run)

    def retime(self) -> None:
        """The timing has changed: the occurrence ahead is the first one after now. What was due already stays as it was."""
        state = self.state
        state.owing, state.stretch, state.passed_local = False, None, None
        if self.status == "paused" and state.pause_until is None:
            return
        after = self.look.now if self.status != "paused" else max(self.look.now, (state.pause_until or 0) - 1)
        run = self.plan.next(after)
        if state.next_at is not None and state.next_at <= self.look.now:
            # Due, but inside its window: it fires as it was, beside its successor.
            self._ran(state.next_at, state.job_id or "")
        elif run is not None and run.at == state.next_at and not self._at_the_end():
            state.offset_s, state.zone_data = run.offset_s, self.zones.version
            return
        else:
            self._give_up_ahead(self.cancelled, RETIMED)
        self.ahead(run)

    def rezone(self) -> None:
        """The zone's data has changed. As `retime`, but a local time that has had its run gets no second one."""
        state, after = self.state, self.look.now
        if self.status == "paused":
            after = max(after, (state.pause_until or 0) - 1)
        run = self.plan.next(after)
        if not _elapsed(self.spec) and state.passed_local is not None:
            while run is not None and run.at + run.offset_s * 1000 <= state.passed_local:
                run = self.plan.next(run.at)
        if run is not None and run.at == state.next_at:
            state.offset_s, state.zone_data = run.offset_s, self.zones.version
            return
        self._give_up_ahead(self.cancelled, RETIMED)
        self.ahead(run)

    def _give_up_ahead(self, end: dict[str, str], why: str) -> None:
        """There is no occurrence ahead any more; its job ends, or is not even made."""
        state = self.state
        made = next((make for make in self.makes if make.job_id == state.job_id), None)
        if made is not None:
            self.makes.remove(made)
        elif state.job_id is not None:
            end[state.job_id] = why
        state.next_at = state.job_id = state.fire_at = None

    # --- judging

    def judge(self, at: int, job_id: str | None, *, counted: bool = False) -> None:
        """An occurrence may start, if nothing speaks against it: fire its job (None: it has none yet), hold or skip it. `counted`: it
        is among the schedule's `runs` already."""
        spec, look = self.spec, self.look
        deadline_s, expiry_s = spec.missed.starting_deadline_s, spec.job.expires_after_s
        planned = self.state.fire_at if at == self.state.next_at and self.state.fire_at is not None else at
        others = [one for one in look.going if one != job_id]
        if deadline_s is not None and look.now > planned + round(deadline_s * 1000):
            self._leave_out(at, job_id, "deadline", f"later than its starting deadline of {deadline_s:g} s", counted)
        elif job_id is not None and expiry_s is not None and look.now >= planned + round(expiry_s * 1000):
            self._leave_out(at, job_id, "expired", f"not fired within {expiry_s:g} s", counted)
        elif look.over_quota:
            self._leave_out(at, job_id, "quota", "the tenant's quota waiting_jobs is used up", counted)
        elif spec.overlap == "forbid" and others:
            self._leave_out(at, job_id, "overlap", f"{others[0]} is still going on", counted)
        elif spec.overlap == "replace" and (others or self._busy()):
            self._replace(at, job_id, counted)
        elif self._chain() is not None or (self.state.held and spec.overlap == "allow"):
            self._hold(at, job_id, counted)
            self._cap_held()
        else:
            self._start(at, job_id, counted)

    def _start(self, at: int, job_id: str | None, counted: bool = False) -> None:
        if job_id is None:
            job_id = self._id(at, "schedule")
            later = self.look.catch_up_at if self.spec.overlap == "allow" else None
            fire_at = max(self.look.now, later or 0)
            self.makes.append(Make(job_id, at, fire_at, queued=fire_at <= self.look.now, origin="schedule"))
        else:
            self.fires.append(job_id)
        if not counted:
            self._ran(at, job_id)

    def _hold(self, at: int, job_id: str | None, counted: bool) -> None:
        if job_id is None:
            job_id = self._id(at, "schedule")
            self.makes.append(Make(job_id, at, self.look.now + RELOOK_MS, queued=False, origin="schedule"))
        else:
            self.held.append(job_id)
        if all(one.job_id != job_id for one in self.state.held):
            self.state.held += (Held(at, job_id),)
        if not counted:
            self._ran(at, job_id)

    def _replace(self, at: int, job_id: str | None, counted: bool) -> None:
        """The newest wins: what goes on is stopped, what waits is left out, and this one starts when all that has ended."""
        for one in self.state.held:
            if one.job_id != job_id:
                self._leave_out(one.at, one.job_id, "overlap", "a later occurrence replaced it", counted=True)
        self.state.held = tuple(one for one in self.state.held if one.job_id == job_id)
        self._drop_chain("overlap", "a later occurrence replaced them")
        self.stopped += [one for one in self.look.going if one != job_id]
        if all(status in (Status.QUEUED, Status.RETRYING) for one, status in self.look.going.items() if one != job_id):
            self.state.held = ()
            self._start(at, job_id, counted)
        else:
            self._hold(at, job_id, counted)

    def _leave_out(self, at: int, job_id: str | None, reason: SkipReason, detail: str, counted: bool = False) -> None:
        if job_id is not None:
            self.skipped[job_id] = f"{reason}: {detail}"
        if counted:
            self.state.runs -= 1
        self.state.held = tuple(one for one in self.state.held if one.job_id != job_id)
        self.skip(Range(at, at, 1, reason, detail))

    # --- missed occurrences

    def _missed(self, at: int, job_id: str | None) -> None:
        newest = self.plan.last(self.look.now + 1)
        assert newest is not None, "the successor is one"
        self._pass(newest.at, newest.offset_s)
        match self.spec.missed.policy:
            case "skip":
                self._drop(job_id, at, newest.at, "missed", "missed, and the schedule skips what was missed")
            case "run_latest":
                before = self.plan.last(newest.at)
                assert before is not None, "the occurrence ahead is one"
                self._drop(job_id, at, before.at, "missed", "missed, and a later one runs in its place")
                self.judge(newest.at, None)
            case "run_all":
                self._queue_up(at, newest.at, job_id)
        self.ahead(self.plan.next(newest.at))

    def _drop(self, job_id: str | None, first: int, last: int, reason: SkipReason, detail: str) -> None:
        if job_id is not None:
            self.skipped[job_id] = detail
        count = self.plan.count(first - 1, last)
        if count:
            self.skip(Range(first, last, count, reason, detail))

    def _queue_up(self, first: int, last: int, job_id: str | None) -> None:
        """Missed occurrences become a backlog; what is too old or too many of it, the oldest, is left out."""
        missed, waiting = self.spec.missed, 0
        chain = self._chain()
        if chain is not None:
            waiting = chain.left
        waiting += len(self.state.held)
        low = first - 1
        if missed.starting_deadline_s is not None:
            late = min(self.look.now - round(missed.starting_deadline_s * 1000) - 1, last)
            if late > low and (count := self.plan.count(low, late)):
                self._leave_range(low, late, count, "deadline", f"later than {missed.starting_deadline_s:g} s")
            low = max(low, late)
        keep = self.plan.newest(low, last, max(missed.max_catch_up - waiting, 0))
        if keep > low and (count := self.plan.count(low, keep)):
            self._leave_range(low, keep, count, "catch_up_limit", f"at most {missed.max_catch_up} are caught up")
            low = keep
        left = self.plan.count(low, last)
        if self.spec.max_runs is not None:
            left = min(left, max(self.spec.max_runs - self.state.runs, 0))
        if job_id is not None:
            # Its job is of no use: what is caught up is made one after another.
            self.skipped[job_id] = "missed: its place is taken by the catch-up"
        if not left:
            return
        self.state.runs += left
        self.state.backlogs += (
            Backlog(kind="schedule", name=str(first), rule=self.spec.rule, low=low, high=last + 1, left=left),
        )
        self.advance()

    def _leave_range(self, low: int, high: int, count: int, reason: SkipReason, detail: str) -> None:
        first, last = self.plan.next(low), self.plan.last(high + 1)
        assert first is not None, "there are some"
        assert last is not None, "there are some"
        self.skip(Range(first.at, last.at, count, reason, detail))

    # --- backlogs

    def advance(self) -> None:
        """Start what has waited for the end of others, as far as they have ended."""
        state, strict = self.state, self.spec.overlap != "allow"
        busy = bool(self.look.going) or bool(self.fires) or any(make.queued for make in self.makes)
        backlogs = []
        for backlog in state.backlogs:
            going = tuple(one for one in backlog.going if one in self.look.going)
            most = 1 if strict else backlog.concurrency
            if self.status == "paused" and backlog.kind == "schedule":
                most = 0
            after = structs.replace(backlog, going=going)
            while after.left and len(after.going) < most and not (strict and busy):
                after = self._next_of(after)
                busy = True
            if not after.over:
                backlogs.append(after)
        state.backlogs = tuple(backlogs)
        if state.held and self.status != "paused":
            self._release_held(busy=busy if strict else self._chain() is not None)

    def _next_of(self, backlog: Backlog) -> Backlog:
        timing = timing_of(backlog.rule, self.zones)
        run = timing.last(backlog.high) if backlog.newest_first else timing.next(backlog.low)
        if run is None or not backlog.low < run.at < backlog.high:
            return structs.replace(backlog, left=0)
        origin = "schedule" if backlog.kind == "schedule" else "backfill"
        job_id = occurrence_id(
            self.schedule_id, self.revision, run.at, origin, leader=True, request=f"{backlog.kind} {backlog.name}"
        )
        self.makes.append(Make(job_id, run.at, self.look.now, queued=True, origin=origin))
        if origin == "schedule":
            self.state.last_at, self.state.last_job, self.state.stretch = self.look.now, job_id, None
        low, high = (backlog.low, run.at) if backlog.newest_first else (run.at, backlog.high)
        return structs.replace(backlog, low=low, high=high, left=backlog.left - 1, going=(*backlog.going, job_id))

    def _release_held(self, *, busy: bool) -> None:
        """Start the first of those that are held, and hold the others on."""
        if busy:
            return
        first, *others = self.state.held
        self.state.held = tuple(others)
        self.released.append(first.job_id)
        self.state.last_at, self.state.last_job, self.state.stretch = self.look.now, first.job_id, None
        if self.spec.overlap == "allow":
            # In order, one after another: the next one waits for this one's end.
            self.state.backlogs += (
                Backlog(
                    kind="schedule",
                    name="held",
                    rule=self.spec.rule,
                    low=first.at,
                    high=first.at,
                    left=0,
                    going=(first.job_id,),
                ),
            )

    def _chain(self) -> Backlog | None:
        """The backlog of missed occurrences that is being caught up."""
        return next((one for one in self.state.backlogs if one.kind == "schedule"), None)

    def _busy(self) -> bool:
        return bool(self.state.held) or self._chain() is not None

    def _cap_held(self) -> None:
        """What is held counts as catching up: beyond the limit the oldest goes."""
        chain, most = self._chain(), self.spec.missed.max_catch_up
        waiting = len(self.state.held) + (chain.left if chain is not None else 0)
        if waiting <= most:
            return
        if chain is not None and chain.left:
            first = self.plan.next(chain.low)
            if first is not None:
                self.state.runs -= 1
                self.skip(Range(first.at, first.at, 1, "catch_up_limit", f"at most {most} are caught up"))
                shorter = structs.replace(chain, low=first.at, left=chain.left - 1)
                self.state.backlogs = tuple(
                    one if one is not chain else shorter
                    for one in self.state.backlogs
                    if one is not chain or not shorter.over
                )
            return
        oldest = self.state.held[0]
        self.held = [one for one in self.held if one != oldest.job_id]
        self._leave_out(oldest.at, oldest.job_id, "catch_up_limit", f"at most {most} are caught up", counted=True)

    def _drop_chain(self, reason: SkipReason, detail: str) -> None:
        """What is left of catching up is left out."""
        for backlog in self.state.backlogs:
            if backlog.kind != "schedule" or not backlog.left:
                continue
            first, last = self.plan.next(backlog.low), self.plan.last(backlog.high)
            self.state.runs -= backlog.left
            if first is not None and last is not None and first.at <= last.at:
                self.skip(Range(first.at, last.at, backlog.left, reason, detail))
        self.state.backlogs = tuple(one for one in self.state.backlogs if one.kind != "schedule")

    # --- pause

    def pause(self, until: int | None) -> None:
        """Nothing new starts: what waits becomes a skip, what has started goes on."""
        state = self.state
        ahead = self.plan.next(self.look.now) if state.next_at is None and self.status != "finished" else None
        state.paused_from = state.next_at if state.next_at is not None else None if ahead is None else ahead.at
        self._give_up_ahead(self.skipped, "paused")
        for one in state.held:
            self._leave_out(one.at, one.job_id, "paused", "the schedule was paused", counted=True)
        self._drop_chain("paused", "the schedule was paused")
        state.owing, self.status = False, "paused"
        self.pause_until(until)

    def pause_until(self, until: int | None) -> None:
        """Set when the pause ends by itself; the first occurrence from then on is made at once."""
        state = self.state
        self._give_up_ahead(self.cancelled, RETIMED)
        state.pause_until = until
        if until is not None and self._may_run_on():
            self.ahead(self.plan.next(max(until, self.look.now + 1) - 1))
            self.status = "paused"

    def resume(self) -> None:
        """Go on with the first occurrence after now; what has passed meanwhile is one skip."""
        self._give_up_ahead(self.cancelled, RETIMED)
        self._close_stretch(self.look.now)
        self.status = "active"
        self.ahead(self.plan.next(self.look.now))

    def end_pause(self) -> None:
        """A pause whose end has come is over; its first occurrence has been made already."""
        state = self.state
        if self.status != "paused" or state.pause_until is None or state.pause_until > self.look.now:
            return
        self._close_stretch(state.pause_until - 1)
        self.status = "active" if state.next_at is not None or state.owing else "finished"

    def _close_stretch(self, until: int) -> None:
        state = self.state
        if state.paused_from is not None and (count := self.plan.count(state.paused_from - 1, until)):
            last = self.plan.last(until + 1)
            assert last is not None, "there are some"
            self.skip(Range(state.paused_from, last.at, count, "paused", state.pause_note))
            self._pass(last.at, last.offset_s)
        state.paused_from = state.pause_until = state.pause_note = None

    # --- the rest

    def break_off(self, reason: str) -> None:
        """The schedule cannot be computed any more: it stands still, visibly."""
        self.state.next_at = self.state.job_id = self.state.fire_at = None
        self.state.owing = False
        self.state.broken, self.status = reason, "broken"

    def skip(self, skip: Range) -> None:
        """Record a skip; one that follows on the last with the same reason makes that one longer."""
        stretch = self.state.stretch
        if stretch is not None and stretch.reason == skip.reason and stretch.last < skip.first:
            between = self.plan.count(stretch.last, skip.first - 1)
            if not between:
                skip = Range(stretch.first, skip.last, stretch.count + skip.count, skip.reason, skip.detail)
        self.state.stretch = Stretch(skip.first, skip.last, skip.count, skip.reason)
        self.skips.append(skip)

    def _pass(self, at: int, offset_s: int | None = None) -> None:
        """That instant is decided."""
        self.state.passed_at = at
        self.state.passed_local = at + (self.state.offset_s if offset_s is None else offset_s) * 1000

    def _ran(self, at: int, job_id: str) -> None:
        self.state.runs += 1
        self.state.last_at, self.state.last_job = self.look.now, job_id
        self.state.stretch = None

    def _may_run_on(self) -> bool:
        return not self._at_the_end()

    def _at_the_end(self) -> bool:
        return self.spec.max_runs is not None and self.state.runs >= self.spec.max_runs

    def _id(self, at: int, origin: str) -> str:
        leader = self.spec.overlap == "replace" or self.spec.missed.policy == "run_all"
        return occurrence_id(self.schedule_id, self.revision, at, origin, leader=leader)

    def _window_ms(self) -> int:
        timing = self.spec.job.timing
        return 0 if timing is None or timing.window_s is None else round(timing.window_s * 1000)

    def spread_in_ms(self, job_id: str, at: int) -> int:
        """How far inside its window an occurrence fires; the window ends where the following occurrence begins."""
        window_ms = self._window_ms()
        if not window_ms:
            return 0
        following = self.plan.next(at)
        return spread_ms(job_id, window_ms if following is None else min(window_ms, following.at - at))


def _elapsed(spec: Spec) -> bool:
    return spec.rule.cron is None or cron_of(spec.rule.cron).follows_elapsed_time


def begin(
    schedule_id: str,
    revision: int,
    status: ScheduleStatus,
    spec: Spec,
    state: State,
    plan: Plan,
    look: Look,
    zones: Zones,
) -> Step:
    """A step from a schedule as it was read; `state` is copied."""
    return Step(schedule_id, revision, status, spec, copy.copy(state), plan, look, zones)
