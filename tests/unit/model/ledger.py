"""A ledger: one schedule and its jobs in memory, for tests of the decisions alone.

It writes what a step asks for as the flow does, and holds on the way that each step is sound: no job is asked for two things at
once, none is made that is there already, and an active schedule has exactly one occurrence ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from tocsin import wire
from tocsin.model.ids import new_schedule_id
from tocsin.model.recurrence import Look, Range, Step, begin
from tocsin.model.schedule import Plan, Rule, Spec, State, decode_state, encode, plan_of, timing_of
from tocsin.model.zones import Zones, pinned_zones
from tocsin.wire import JobTemplate, MissedRuns, ScheduleStatus, Status, TaskTarget

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
T0 = 1_772_323_200_000  # 2026-03-01T00:00:00Z, a Sunday
OVER = (Status.SUCCEEDED, Status.CANCELLED, Status.SKIPPED)
GOING = (Status.QUEUED, Status.RUNNING, Status.RETRYING, Status.CANCEL_REQUESTED)


class Bytes:
    """Entropy that is none."""

    def bytes(self, count: int) -> bytes:
        return b"\7" * count

    def uniform(self) -> float:
        return 0.5


def spec(
    *,
    cron: str | None = "0 * * * *",
    zone: str = "UTC",
    every_ms: int | None = None,
    anchor: int = T0,
    missed: str = "run_latest",
    deadline_s: float | None = None,
    most: int = 100,
    window_s: float | None = None,
    expires_s: float | None = None,
    **rest: Any,
) -> Spec:
    """A definition: each hour unless told otherwise."""
    timing = None if window_s is None else wire.Timing(class_="flexible", window_s=window_s)
    return Spec(
        rule=Rule(cron=None if every_ms else cron, time_zone=zone, every_ms=every_ms, anchor=anchor if every_ms else 0),
        job=JobTemplate(queue="q", target=TaskTarget(handler="h"), timing=timing, expires_after_s=expires_s),
        missed=MissedRuns(policy=missed, starting_deadline_s=deadline_s, max_catch_up=most),  # type: ignore[arg-type]
        **rest,
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """A job."""

    at: int
    fire_at: int
    status: Status
    origin: str
    why: str | None = None
    started: bool = False


class Ledger:
    """A schedule, its jobs and its skips."""

    def __init__(self, defined: Spec, now: int = T0, zones: Zones | None = None) -> None:
        self.now, self.zones, self.spec = now, zones or pinned_zones(), defined
        self.schedule_id = new_schedule_id(now, Bytes(), "acme", "s")
        self.state = State(created_at=now, updated_at=now, passed_at=now)
        self.status: ScheduleStatus = "active"
        self.revision, self.over_quota = 1, False
        self.catch_up_at: int | None = None
        self.jobs: dict[str, Kept] = {}
        self.skips: dict[tuple[int, str], Range] = {}
        self.left_out: dict[tuple[int, str], set[int]] = {}
        self.counted: dict[str, int] = {}
        self.fired: list[int] = []
        # Between these instants it had come to its end.
        self.gaps: list[tuple[int, int]] = []
        step = self.begin()
        step.ahead(step.plan.next(now))
        self.write(step)

    # steps

    def begin(self) -> Step:
        """A step from what is there."""
        going = {job_id: job.status for job_id, job in self.jobs.items() if job.status in GOING}
        look = Look(self.now, going, self.over_quota, self.catch_up_at)
        plan = plan_of(self.spec, self.zones)
        return begin(self.schedule_id, self.revision, self.status, self.spec, self.state, plan, look, self.zones)

    def write(self, step: Step) -> None:
        """Write what a step asks for."""
        asked = [*step.fires, *step.released, *step.skipped, *step.cancelled, *step.held]
        assert len(asked) == len(set(asked)), "a job is asked for two things"
        most = step.spec.max_runs if step.spec is self.spec else None  # what was due before an edit runs beside it
        assert most is None or step.state.runs <= max(most, self.state.runs), "more runs than are allowed"
        for make in step.makes:
            assert make.job_id not in self.jobs, "a job is made twice"
            status = Status.QUEUED if make.queued else Status.SCHEDULED
            self.jobs[make.job_id] = Kept(make.at, make.fire_at, status, make.origin)
            if make.queued and make.origin == "schedule":
                self.fired.append(make.at)
        for job_id in (*step.fires, *step.released):
            assert self.jobs[job_id].status is Status.SCHEDULED
            self._put(job_id, status=Status.QUEUED)
            self.fired.append(self.jobs[job_id].at)
        for job_id, why in (*step.skipped.items(), *step.cancelled.items()):
            assert self.jobs[job_id].status is Status.SCHEDULED
            self._put(job_id, status=Status.SKIPPED if job_id in step.skipped else Status.CANCELLED, why=why)
        for job_id in step.held:
            assert self.jobs[job_id].status is Status.SCHEDULED
            self._put(job_id, fire_at=step.relook_at(job_id))
        for job_id in step.stopped:
            self._stop(job_id, step)
        for skip in step.skips:
            self._put_skip(skip, step)
        for reason, count in step.left_out.items():
            self.counted[reason] = self.counted.get(reason, 0) + count
        if _is_over(self.status, self.state) and not _is_over(step.status, step.state):
            self.gaps.append((self.state.passed_at or 0, self.now))
        self.state, self.status, self.spec = decode_state(encode(step.state)), step.status, step.spec
        self.sound()

    def _put_skip(self, skip: Range, step: Step) -> None:
        key = (skip.first, skip.reason)
        before = self.left_out.get(key, set()) if skip.count > 1 else set()
        plans = [plan_of(self.spec, self.zones).but(self.state.decided), step.plan]
        plans += [Plan(timing_of(one.rule, self.zones), without=frozenset(one.without)) for one in self.state.backlogs]
        found = {*before, skip.last} if skip.count == len(before) + 1 else None
        for plan in plans:
            more = set(instants(plan, max(before, default=skip.first - 1), skip.last))
            if found is None and len(more) + len(before) == skip.count and {skip.first, skip.last} <= before | more:
                found = before | more
        assert found is not None, f"{skip} says more or less than there is"
        self.skips[key], self.left_out[key] = skip, found

    def _stop(self, job_id: str, step: Step) -> None:
        job = self.jobs[job_id]
        if job.status in (Status.RUNNING, Status.CANCEL_REQUESTED):
            self._put(job_id, status=Status.CANCEL_REQUESTED)
            return
        self._put(job_id, status=Status.CANCELLED)
        if not job.started and job.origin == "schedule":
            step.skips.append(Range(job.at, job.at, 1, "overlap"))
            step.count_left_out("overlap", 1)

    def _put(self, job_id: str, **changes: Any) -> None:
        self.jobs[job_id] = replace(self.jobs[job_id], **changes)

    def sound(self) -> None:
        """What holds after every step."""
        state = self.state
        if self.status == "active":
            assert state.next_at is not None or state.owing, "an active schedule has an occurrence ahead"
        if state.next_at is not None:
            assert state.job_id is not None
            job = self.jobs[state.job_id]
            assert (job.at, job.status) == (state.next_at, Status.SCHEDULED)
            assert state.passed_at is not None
            assert state.next_at > state.passed_at
        assert all(self.jobs[held.job_id].status is Status.SCHEDULED for held in state.held)
        assert len({held.at for held in state.held}) == len(state.held)
        assert state.runs >= 0
        assert all(job.started or job.status is not Status.RUNNING for job in self.jobs.values())

    # what happens

    def step(self, decide: Callable[[Step], object]) -> None:
        """One decision, written."""
        step = self.begin()
        decide(step)
        self.write(step)

    def due(self) -> list[str]:
        """The jobs whose time has come, the earliest first."""
        found = [job_id for job_id, job in self.jobs.items() if self._is_due(job)]
        return sorted(found, key=lambda job_id: self.jobs[job_id].fire_at)

    def _is_due(self, job: Kept) -> bool:
        return job.status is Status.SCHEDULED and job.fire_at <= self.now

    def fire(self) -> None:
        """Decide about everything that is due, as `flow.recur` does."""
        for _ in range(1_000):
            due = self.due()
            if not due:
                return
            self.fire_one(due[0])
        raise AssertionError("something is due for ever")

    def fire_one(self, job_id: str) -> None:
        """Decide about one due job."""
        step, job = self.begin(), self.jobs[job_id]
        if job_id == self.state.job_id:
            step.fire_ahead()
        elif any(held.job_id == job_id for held in self.state.held):
            step.advance()
            if any(held.job_id == job_id for held in step.state.held):
                step.held.append(job_id)
        else:
            step.judge_straggler(job.at, job_id, job.fire_at)
        self.write(step)

    def until(self, at: int) -> None:
        """Let time pass; everything fires at its instant."""
        while True:
            waiting = [job.fire_at for job in self.jobs.values() if job.status is Status.SCHEDULED]
            upcoming = min((fire_at for fire_at in waiting if fire_at <= at), default=None)
            if upcoming is None:
                break
            self.now = max(self.now, upcoming)
            self.fire()
        self.now = max(self.now, at)

    def jump(self, at: int) -> None:
        """Let time pass in one piece, as in an outage; then everything that is due fires."""
        self.now = max(self.now, at)
        self.fire()

    def run(self, job_id: str) -> None:
        """A worker takes a job."""
        assert self.jobs[job_id].status is Status.QUEUED
        self._put(job_id, status=Status.RUNNING, started=True)

    def retry(self, job_id: str) -> None:
        """A job failed and is to be tried again."""
        self._put(job_id, status=Status.RETRYING, started=True)

    def end(self, job_id: str) -> None:
        """A job ends; what waits for it goes on."""
        stopped = self.jobs[job_id].status is Status.CANCEL_REQUESTED
        self._put(job_id, status=Status.CANCELLED if stopped else Status.SUCCEEDED, started=True)
        if self.state.held or self.state.backlogs:
            self.step(Step.advance)

    def settle(self) -> None:
        """What is due is decided before an edit, as `flow.define` does."""
        while self.state.job_id is not None and self._is_due(self.jobs[self.state.job_id]):
            self.fire_one(self.state.job_id)

    def edit(self, **changes: Any) -> None:
        """Another timing: fields of the spec, or those of its rule."""
        rule = {name: changes.pop(name) for name in ("cron", "time_zone", "every_ms", "anchor") if name in changes}
        after = structs.replace(self.spec, rule=structs.replace(self.spec.rule, **rule), **changes)
        self.settle()
        self.revision += 1
        step = self.begin()
        step.end_pause()
        if (after.rule, after.start_at, after.end_at, after.max_runs) != (
            self.spec.rule,
            self.spec.start_at,
            self.spec.end_at,
            self.spec.max_runs,
        ):
            step.retime(after, plan_of(after, self.zones))
        else:
            step.spec = after
        self._in_place(step)
        self.write(step)

    def _in_place(self, step: Step) -> None:
        """Another timing may end the window of the occurrence ahead elsewhere."""
        state = step.state
        if state.job_id in self.jobs and state.next_at is not None and state.next_at > self.now:
            state.fire_at = state.next_at + step.spread_in_ms(state.job_id, state.next_at)
            self._put(state.job_id, fire_at=state.fire_at)

    def pause(self, until: int | None = None) -> None:
        """Pause, or say anew until when."""
        self.settle()
        self.revision += 1
        step = self.begin()
        step.end_pause()
        (step.pause_until if step.status == "paused" else step.pause)(until)
        self.write(step)

    def resume(self) -> None:
        """Go on."""
        self.settle()
        self.revision += 1
        step = self.begin()
        step.end_pause()
        if step.status == "paused":
            step.resume()
        self.write(step)

    def skip_next(self) -> None:
        """Leave the next one out, if there is one."""
        self.settle()
        if self.state.next_at is not None:
            self.step(lambda step: step.skip_ahead(None))

    def run_now(self) -> None:
        """Start the next one now, if there is one."""
        job_id = self.state.job_id
        if job_id is not None:
            step = self.begin()
            step.run_ahead_now()
            self._put(job_id, status=Status.QUEUED)
            self.fired.append(self.jobs[job_id].at)
            self.write(step)

    # what is to be seen

    def going(self) -> list[str]:
        """The jobs under way."""
        return [job_id for job_id, job in self.jobs.items() if job.status in GOING]

    def shown(self) -> list[tuple[int, int, int, str]]:
        """The skips: first, last, count, reason; hours since T0."""
        found = sorted(self.skips.values(), key=lambda skip: (skip.first, skip.reason))
        return [((skip.first - T0) // HOUR, (skip.last - T0) // HOUR, skip.count, skip.reason) for skip in found]

    def hours(self) -> list[int]:
        """The occurrences that fired, in hours since T0."""
        return [(at - T0) // HOUR for at in self.fired]

    @property
    def next_hour(self) -> int | None:
        """The occurrence ahead, in hours since T0."""
        return None if self.state.next_at is None else (self.state.next_at - T0) // HOUR


def _is_over(status: ScheduleStatus, state: State) -> bool:
    return status == "finished" or (status == "paused" and state.paused_from is None)


def instants(plan: Plan, after: int, until: int) -> list[int]:
    """What a plan has in (after, until]."""
    found, run = [], plan.next(after)
    while run is not None and run.at <= until:
        found.append(run.at)
        run = plan.next(run.at)
    return found
