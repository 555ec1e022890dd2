"""What becomes of a schedule's occurrences: decided here, purely, and written by `flow.occurrences`.

                     due                         judged
    occurrence ahead ───▶ missed? ─── no ──────▶ deadline, quota, overlap ──▶ fires | is skipped | is held
           ▲                │ yes, by policy                                             │
           │                ├─ skip: all of them are one skip                            └─ until the run before it has ended
           │                ├─ run_latest: the newest is judged, the rest are one skip
           │                └─ run_all: a backlog, oldest first, one after another
           └── the next one is made, from the last instant that was decided

Missed means that the successor is due already when an occurrence is looked at; an occurrence that is only late is judged as if it
were not. A pause takes out what would be next, and becomes a skip when it ends. An edit concerns instants after it: what the old
timing had decided ahead of time, by a skip or an early start, stays decided also where the new one has the same instant.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from tocsin.model.catchup import CatchUp
from tocsin.model.decision import RELOOK_MS, Look, Make, Range
from tocsin.model.schedule import Plan, Spec, State, older
from tocsin.model.zones import Zones
from tocsin.wire import ScheduleStatus, Status

RETIMED = "the schedule's timing was changed: this occurrence was taken back and its successor made anew"
PAUSE_CHANGED = "the schedule's pause was changed: this occurrence was taken back and its successor made anew"
REZONED = "the data of the schedule's time zone has changed: this occurrence was taken back and its successor made anew"
PAUSED = "the schedule was paused"
BROKEN = "the schedule was broken"
# So many occurrences that were decided ahead of time are known after the timing was changed.
MOST_DECIDED = 1_000


@dataclass(slots=True)
class Step(CatchUp):
    """A step of one schedule, being decided. Made by `begin`."""

    # --- the occurrence ahead

    def fire_ahead(self) -> None:
        """The occurrence ahead is due: decide about it, and about those that came after it, and make the next."""
        at, job_id = self.state.next_at, self.state.job_id
        assert at is not None, "only an occurrence ahead can fire"
        self.end_pause()
        if self._is_off(at):
            self.rezone()
            return
        self.passed(at)
        if self.outdated:
            self.judge(at, job_id)
            self._go_on(at)
            return
        successor = self.following(at)
        if successor is None or successor.at > self.look.now:
            self.judge(at, job_id)
            self.ahead(successor)
        else:
            self._missed(at, job_id)

    @property
    def outdated(self) -> bool:
        """Whether a node with newer zone data has made the occurrence ahead."""
        ours, theirs = self.zones.version, self.state.zone_data
        return ours != theirs and self.spec.rule.zoned and older(ours, theirs)

    def _is_off(self, at: int) -> bool:
        """Whether the occurrence ahead was computed with older zone data and falls at another instant by ours. Where nobody has seen
        that before it was due, its day would have no run, or two."""
        if not self.spec.rule.zoned or not older(self.state.zone_data, self.zones.version):
            return False
        run = self.following(self._after())
        return run is None or run.at != at

    def pay(self) -> None:
        """Make the occurrence ahead where there is none; one whose time has come meanwhile is decided about at once."""
        state = self.state
        run = self.following(self._after())
        if run is None or run.at > self.look.now or self.status == "paused" or self.at_the_end():
            self.ahead(run)
            return
        state.owing = False
        state.next_at, state.job_id, state.fire_at = run.at, None, run.at
        state.offset_s, state.zone_data = run.offset_s, self.zones.version
        self.fire_ahead()

    def run_ahead_now(self) -> None:
        """The occurrence ahead is started before its time; the caller fires its job."""
        at, job_id = self.state.next_at, self.state.job_id
        assert at is not None, "only an occurrence ahead can be started"
        self._decide_ahead(at)
        self.ran(at, job_id or "")
        self._go_on(at)

    def skip_ahead(self, detail: str | None, *, drop: bool = True) -> None:
        """The occurrence ahead is left out at its owner's wish. Without `drop` the caller ends its job."""
        at = self.state.next_at
        assert at is not None, "only an occurrence ahead can be skipped"
        if drop:
            self.give_up_ahead(self.skipped, "skipped at its owner's wish")
        self._decide_ahead(at)
        self.skip(Range(at, at, 1, "skipped_by_user", detail))
        self._go_on(at)

    def _go_on(self, at: int) -> None:
        """Make the next one after the occurrence ahead. Where a node with newer zone data has made that, what is known here may be
        wrong about the next: it is left to such a node."""
        if self.outdated and not self.at_the_end():
            self.state.next_at = self.state.job_id = self.state.fire_at = None
            self.state.owing = True
        else:
            self.ahead(self.following(at))

    def _decide_ahead(self, at: int) -> None:
        """The occurrence ahead is decided before its time. During a pause those before it are not."""
        self.end_pause()
        if self.status == "paused":
            self.state.decided = (*self.state.decided, at)[-MOST_DECIDED:]
            self.plan = self.plan.but(self.state.decided)
        else:
            self.passed(at)

    def lost_ahead(self, status: Status) -> None:
        """The job of the occurrence ahead has left its state without the schedule: go on from that instant."""
        at, job_id = self.state.next_at, self.state.job_id
        assert at is not None, "only an occurrence ahead can be lost"
        self._decide_ahead(at)
        match status:
            case Status.CANCELLED:
                self.skip(Range(at, at, 1, "skipped_by_user", "its job was cancelled"))
            case Status.SKIPPED:
                self.skip(Range(at, at, 1, "expired", "its job has expired"))
            case _:
                self.ran(at, job_id or "")
        self.pay()

    def make_again(self) -> None:
        """The occurrence ahead has no job: make it."""
        state, at = self.state, self.state.next_at
        assert at is not None, "only an occurrence ahead can be without its job"
        run = self.plan.next(at - 1)
        if state.job_id == self.job_id_of(at):
            # Under another ID: what is left of the lost one would keep it from being made.
            self.mark = f"again at {self.look.now}"
        if run is not None and run.at == at:
            self.ahead(run)
        else:
            self.pay()

    def _after(self) -> int:
        """The instant that the occurrence ahead comes after."""
        until = self.state.pause_until if self.status == "paused" else None
        return self.cursor if until is None else max(until - 1, self.cursor)

    # --- judging

    def judge(self, at: int, job_id: str | None, *, counted: bool = False, planned: int | None = None) -> None:
        """An occurrence may start, if nothing speaks against it: fire its job (None: it has none yet), hold or skip it. `counted`: it
        is among the schedule's `runs` already. `planned`: when it was to fire."""
        spec, look = self.spec, self.look
        deadline_s, expiry_s = spec.missed.starting_deadline_s, spec.job.expires_after_s
        if planned is None:
            planned = self.state.fire_at if at == self.state.next_at and self.state.fire_at is not None else at
        others = [one for one in look.going if one != job_id]
        if deadline_s is not None and look.now > planned + round(deadline_s * 1000):
            late = f"later than its starting deadline of {deadline_s:g} s"
            self.leave_out(at, job_id, "deadline", late, counted=counted)
        elif job_id is not None and expiry_s is not None and look.now >= planned + round(expiry_s * 1000):
            self.leave_out(at, job_id, "expired", f"not fired within {expiry_s:g} s", counted=counted)
        elif look.over_quota:
            self.leave_out(at, job_id, "quota", "the tenant's quota waiting_jobs is used up", counted=counted)
        elif spec.overlap == "forbid" and (others or self.catching_up()):
            what = f"{others[0]} is still going on" if others else "earlier ones are being caught up with"
            self.leave_out(at, job_id, "overlap", what, counted=counted)
        elif spec.overlap == "replace" and (others or self.catching_up()):
            self._replace(at, job_id, counted)
        elif self.catching_up():
            self.hold(at, job_id, counted=counted)
            self.cap()
        else:
            self._start(at, job_id, counted)

    def judge_straggler(self, at: int, job_id: str, fire_at: int) -> None:
        """An occurrence whose successor was made before it fired: it was due, but inside its window, when the timing was changed, or
        it makes up for missed ones and its turn has come."""
        self.end_pause()
        if self.status == "paused":
            self.leave_out(at, job_id, "paused", PAUSED, counted=True)
        else:
            self.judge(at, job_id, counted=True, planned=fire_at)

    def _start(self, at: int, job_id: str | None, counted: bool) -> None:
        if job_id is None:
            job_id = self.job_id_of(at)
            later = self.look.catch_up_at if self.spec.overlap == "allow" else None
            fire_at = max(self.look.now, later or 0)
            self.makes.append(Make(job_id, at, fire_at, queued=fire_at <= self.look.now, origin="schedule"))
        else:
            self.fires.append(job_id)
        if not counted:
            self.ran(at, job_id)

    def _replace(self, at: int, job_id: str | None, counted: bool) -> None:
        """The newest wins: what goes on is stopped, what waits is left out, and this one starts when all that has ended."""
        self.drop_waiting("overlap", "a later occurrence replaced it", but=job_id)
        going = {one: status for one, status in self.look.going.items() if one != job_id}
        self.stopped += going
        if all(status in (Status.QUEUED, Status.RETRYING) for status in going.values()):
            self.state.held = ()
            self._start(at, job_id, counted)
        else:
            self.hold(at, job_id, counted=counted)

    # --- missed occurrences

    def _missed(self, at: int, job_id: str | None) -> None:
        newest = self.plan.last(self.look.now + 1)
        assert newest is not None, "the successor is one"
        if self.spec.missed.policy != "run_all":
            self.passed(newest.at, newest.offset_s)
        match self.spec.missed.policy:
            case "skip":
                self._drop(job_id, at - 1, newest.at, "missed, and the schedule skips what was missed")
            case "run_latest":
                self._drop(job_id, at - 1, newest.at - 1, "missed, and a later one runs in its place")
                self.judge(newest.at, None)
            case "run_all":
                # Behind the last run that is allowed there are no occurrences any more.
                last = self.plan.last(self.queue_up(at, newest.at, job_id) + 1) or newest
                self.passed(last.at, last.offset_s)
        self.ahead(self.following(newest.at))

    def _drop(self, job_id: str | None, low: int, high: int, detail: str) -> None:
        if job_id is not None:
            self.skipped[job_id] = detail
        self.leave_range(self.plan, low, high, "missed", detail)

    # --- pause

    def pause(self, until: int | None) -> None:
        """Nothing new starts: what waits becomes a skip, what has started goes on."""
        state = self.state
        self.drop_waiting("paused", PAUSED)
        state.paused_from = state.next_at
        if state.next_at is None and self.status != "finished":
            run = self.following(self.cursor if state.owing else max(self.look.now, self.cursor))
            state.paused_from = None if run is None else run.at
        self.give_up_ahead(self.skipped, f"paused: {PAUSED}")
        state.owing, self.status = False, "paused"
        self.pause_until(until)

    def pause_until(self, until: int | None) -> None:
        """Set when the pause ends by itself; the first occurrence from then on is made at once."""
        self.give_up_ahead(self.cancelled, PAUSE_CHANGED)
        self.state.pause_until = until
        if until is not None:
            self.ahead(self.following(max(until - 1, self.look.now, self.cursor)))

    def resume(self) -> None:
        """Go on with the first occurrence after now; what has passed meanwhile is one skip."""
        self.give_up_ahead(self.cancelled, PAUSE_CHANGED)
        self._close_stretch(self.look.now)
        self._forget_pause()
        self.state.passed_at = max(self.look.now, self.cursor)
        self.status = "active"
        self.ahead(self.following(self.cursor))

    def end_pause(self) -> None:
        """A pause whose end has come is over; its first occurrence has been made already."""
        state = self.state
        if self.status != "paused" or state.pause_until is None or state.pause_until > self.look.now:
            return
        self._close_stretch(state.pause_until - 1)
        self._forget_pause()
        self.status = "active" if state.next_at is not None or state.owing else "finished"

    def _close_stretch(self, until: int) -> None:
        """What a pause has taken out up to that instant is a skip."""
        state = self.state
        if state.paused_from is None or state.paused_from > until:
            return
        self.leave_range(self.plan, state.paused_from - 1, until, "paused", state.pause_note)
        last = self.plan.last(until + 1)
        if last is not None and last.at >= state.paused_from:
            self.passed(last.at, last.offset_s)

    def _forget_pause(self) -> None:
        self.state.paused_from = self.state.pause_until = self.state.pause_note = None

    # --- edits

    def retime(self, spec: Spec, plan: Plan) -> None:
        """Another timing: the occurrence ahead is the first one after now. What was due already stays as it was."""
        state, now = self.state, self.look.now
        if self.status == "paused":
            self._close_stretch(now)
        elif state.owing:
            self.leave_range(self.plan, self.cursor, now, "missed", "missed, and the timing was changed")
        if spec.rule != self.spec.rule:
            state.decided, state.passed_local = self._decided_after(now), None
            state.passed_at = now
        else:
            state.passed_at = max(now, self.cursor)
        state.owing, state.stretch = False, None
        self.spec, self.plan = spec, plan.but(state.decided)
        if self.status == "paused":
            first = self.plan.next(self.cursor)
            state.paused_from = None if first is None else first.at
            if state.pause_until is None:
                return
        run = self.following(self._after())
        if state.next_at is not None and state.next_at <= now:
            # Due, but inside its window: it fires as it was, beside its successor.
            self.ran(state.next_at, state.job_id or "")
        elif run is not None and run.at == state.next_at and not self.at_the_end():
            state.offset_s, state.zone_data = run.offset_s, self.zones.version
            return
        else:
            self.give_up_ahead(self.cancelled, RETIMED)
        self.ahead(run)

    def _decided_after(self, now: int) -> tuple[int, ...]:
        """The occurrences after now that are decided."""
        found = [at for at in self.state.decided if at > now]
        run = self.plan.next(now)
        while run is not None and run.at <= self.cursor and len(found) < MOST_DECIDED:
            found.append(run.at)
            run = self.plan.next(run.at)
        return tuple(sorted(found))

    def rezone(self) -> None:
        """The zone's data has changed: what is ahead is computed anew, from the last instant that was decided. A local time that has
        had its run gets no second one; one that by the new data has passed already is due now."""
        state = self.state
        run = self.following(self._after())
        if run is not None and run.at == state.next_at:
            state.offset_s, state.zone_data = run.offset_s, self.zones.version
            return
        self.mark = f"zone data {self.zones.version}"
        self.give_up_ahead(self.cancelled, REZONED)
        self.pay()

    # --- broken

    def break_off(self, reason: str) -> None:
        """The schedule cannot be computed any more: it stands still, visibly. The job of the occurrence ahead goes on by itself."""
        state = self.state
        if state.next_at is not None and self.status != "paused":
            state.passed_at = max(state.next_at, self.cursor)
        state.next_at = state.job_id = state.fire_at = None
        state.owing = False
        state.broken, self.status = reason, "broken"

    def mend(self, spec: Spec, plan: Plan) -> None:
        """A broken schedule is defined anew and begins now; the caller ends the other jobs that wait. What should have been meanwhile
        is told by the new timing: the old one cannot be computed, or should not be trusted."""
        state, now = self.state, self.look.now
        self.spec, self.plan, state.stretch = spec, plan, None
        for held in state.held:
            self.leave_out(held.at, held.job_id, "missed", BROKEN, counted=True)
        self.give_up_chains(BROKEN)
        if state.paused_from is not None:
            until = now if state.pause_until is None else min(now, state.pause_until - 1)
            self.leave_range(plan, state.paused_from - 1, until, "paused", state.pause_note)
        else:
            self.leave_range(plan, self.cursor, now, "missed", BROKEN)
        self.state = State(
            created_at=state.created_at,
            updated_at=now,
            passed_at=now,
            runs=state.runs,
            last_at=state.last_at,
            last_job=state.last_job,
            backlogs=state.backlogs,
        )
        self.status = "active"
        self.ahead(plan.next(now))


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
    plan = plan.but(state.decided) if state.decided else plan
    return Step(schedule_id, revision, status, spec, copy.copy(state), plan, look, zones)


__all__ = ["RELOOK_MS", "Look", "Make", "Range", "Step", "begin"]
