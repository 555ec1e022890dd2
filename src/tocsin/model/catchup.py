"""What waits for the end of others: occurrences that are held, and backlogs that run one after another.

An occurrence is held (its job stays SCHEDULED) while one before it is being caught up with, or, with overlap `replace`, while the
run that it replaces comes to its end. A backlog is a range of occurrences without jobs: those that were missed, under `run_all`, and
backfills. `CatchUp.advance` starts what may start: the schedule's own course in the order of its instants, one after another, and
each backfill as many at a time as was asked for; with overlap `forbid` or `replace` nothing while anything of the schedule is going.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from tocsin.model.decision import RELOOK_MS, Decision, Make, Range
from tocsin.model.ids import occurrence_id
from tocsin.model.schedule import Backlog, Held, Plan, timing_of
from tocsin.wire import SkipReason

REPLACED = "missed: a later run takes its place"
# The first that is held is looked at again every RELOOK_MS, the others behind it less often.
MOST_RELOOKS = 20


@dataclass(slots=True)
class CatchUp(Decision):
    """Decides about what waits."""

    def advance(self) -> None:
        """Start what has waited for the end of others, as far as they have ended."""
        state, strict = self.state, self.spec.overlap != "allow"
        going = self._going()
        backlogs = [
            structs.replace(one, going=tuple(job for job in one.going if job in going)) for one in state.backlogs
        ]
        state.backlogs = tuple(one for one in backlogs if not one.over)
        busy = strict and bool(going)
        if self.status != "paused":
            while not busy and not any(one.going for one in self.chains()) and self._start_next():
                busy = strict and bool(self._going())
        for backfill in [one for one in state.backlogs if one.kind == "backfill"]:
            after, most = backfill, 1 if strict else backfill.concurrency
            while after.left and len(after.going) < most and not busy:
                after = self._next_of(after)
                busy = strict and bool(self._going())
            self._put_backlog(backfill, after)

    def _going(self) -> set[str]:
        """The jobs under way, those of this step included."""
        made = {make.job_id for make in self.makes if make.queued}
        return made.union(self.look.going, self.fires, self.released)

    def chains(self) -> list[Backlog]:
        """The backlogs of missed occurrences that are being caught up with."""
        return [one for one in self.state.backlogs if one.kind == "schedule"]

    def catching_up(self) -> bool:
        """Whether an occurrence that falls due now has others before it."""
        return bool(self.state.held) or bool(self.chains())

    def _start_next(self) -> bool:
        """Start the oldest that waits of the schedule's own course, or leave it out where it has become too late; False: none waits."""
        held, chain = self._oldest()
        late = self._late()
        if held is not None:
            if late is not None and held.at + self.spread_in_ms(held.job_id, held.at) <= late:
                self.leave_out(held.at, held.job_id, "deadline", self._too_late(), counted=True)
            else:
                self._release(held)
        elif chain is not None:
            if late is not None and (many := self._plan_of(chain).count(chain.low, min(late, chain.high - 1))):
                self._shorten(chain, min(late, chain.high - 1), min(many, chain.left), "deadline", self._too_late())
            else:
                self._put_backlog(chain, self._next_of(chain))
        return held is not None or chain is not None

    def _late(self) -> int | None:
        """Occurrences until this instant are too late to be started."""
        deadline_s = self.spec.missed.starting_deadline_s
        return None if deadline_s is None else self.look.now - round(deadline_s * 1000) - 1

    def _too_late(self) -> str:
        return f"later than its starting deadline of {self.spec.missed.starting_deadline_s or 0:g} s"

    def _shorten(self, chain: Backlog, until: int, many: int, reason: SkipReason, detail: str) -> None:
        """The first of a chain, up to an instant, are left out."""
        self.leave_range(self._plan_of(chain), chain.low, until, reason, detail)
        self._put_backlog(chain, structs.replace(chain, low=until, left=chain.left - many))
        self.uncount(many)

    def _oldest(self) -> tuple[Held | None, Backlog | None]:
        """The oldest occurrence that waits: held, or the first of a chain; at most one of the two."""
        held = min(self.state.held, key=lambda one: one.at, default=None)
        chain = min((one for one in self.chains() if one.left), key=lambda one: one.low, default=None)
        if held is not None and chain is not None:
            return (held, None) if held.at <= chain.low else (None, chain)
        return held, chain

    def _put_backlog(self, before: Backlog, after: Backlog) -> None:
        """Put a backlog as it is now in the place of what it was; one that is over goes."""
        backlogs = (after if one is before else one for one in self.state.backlogs)
        self.state.backlogs = tuple(one for one in backlogs if not one.over)

    def _next_of(self, backlog: Backlog) -> Backlog:
        """Start the next of a backlog."""
        plan = self._plan_of(backlog)
        run = plan.last(backlog.high) if backlog.newest_first else plan.next(backlog.low)
        own = backlog.kind == "schedule"
        if run is None or not backlog.low < run.at < backlog.high:
            # The zone's data has changed and there are fewer of them.
            self.uncount(backlog.left if own else 0)
            return structs.replace(backlog, left=0)
        origin = "schedule" if own else "backfill"
        request = f"{backlog.kind} {backlog.name}"
        job_id = occurrence_id(self.schedule_id, self.revision, run.at, origin, leader=True, request=request)
        self.makes.append(Make(job_id, run.at, self.look.now, queued=True, origin=origin))
        if own:
            self.started(job_id)
        low, high = (backlog.low, run.at) if backlog.newest_first else (run.at, backlog.high)
        return structs.replace(backlog, low=low, high=high, left=backlog.left - 1, going=(*backlog.going, job_id))

    def _plan_of(self, backlog: Backlog) -> Plan:
        return Plan(timing_of(backlog.rule, self.zones), without=frozenset(backlog.without))

    # --- held

    def hold(self, at: int, job_id: str | None, *, counted: bool) -> None:
        """Let an occurrence wait."""
        if job_id is None:
            job_id = self.job_id_of(at)
            self.makes.append(Make(job_id, at, self.look.now + RELOOK_MS, queued=False, origin="schedule"))
        else:
            self.held.append(job_id)
        if all(one.job_id != job_id for one in self.state.held):
            self.state.held += (Held(at, job_id),)
        self.state.runs += not counted

    def relook_at(self, job_id: str) -> int:
        """When an occurrence that is held is looked at again."""
        place = next((place for place, one in enumerate(self.state.held) if one.job_id == job_id), 0)
        return self.look.now + RELOOK_MS * min(place + 1, MOST_RELOOKS)

    def _release(self, held: Held) -> None:
        """Start an occurrence that was held."""
        self.state.held = tuple(one for one in self.state.held if one is not held)
        self.released.append(held.job_id)
        self.started(held.job_id)
        if self.spec.overlap == "allow" and self.spec.missed.policy == "run_all":
            # In order, one after another: the next one waits for this one's end. Where that is not asked for any more nobody may
            # wait: of the end of a job that was made since then nobody is told.
            self.state.backlogs += (
                Backlog(
                    kind="schedule",
                    name="held",
                    rule=self.spec.rule,
                    low=held.at,
                    high=held.at,
                    left=0,
                    going=(held.job_id,),
                ),
            )

    # --- missed occurrences become a chain

    def queue_up(self, first: int, last: int, job_id: str | None) -> int:
        """Missed occurrences are caught up with, oldest first; what is too old or too many of them, the oldest, is left out. The
        instant up to which they are decided: before `last` where the schedule comes to its end."""
        missed, state, low = self.spec.missed, self.state, first - 1
        if (late := self._late()) is not None:
            late = min(late, last)
            self.leave_range(self.plan, low, late, "deadline", self._too_late())
            low = max(low, late)
        keep = self.plan.newest(low, last, max(missed.max_catch_up - self._waiting(), 0))
        self.leave_range(self.plan, low, keep, "catch_up_limit", self._limit())
        low = max(low, keep)
        high, left = last, self.plan.count(low, last)
        if self.spec.max_runs is not None and left > (room := max(self.spec.max_runs - state.runs, 0)):
            high, left = self.plan.oldest(low, last, room), room
        if job_id is not None:
            if left and low < first and not self._expired(first):
                # Its own job is the first of them.
                state.held += (Held(first, job_id),)
                state.runs, low, left = state.runs + 1, first, left - 1
            else:
                self.skipped[job_id] = REPLACED
        if left:
            state.runs += left
            without = tuple(at for at in sorted(self.plan.without) if low < at <= high)
            state.backlogs += (
                Backlog(
                    kind="schedule",
                    name=str(first),
                    rule=self.spec.rule,
                    low=low,
                    high=high + 1,
                    left=left,
                    without=without,
                ),
            )
        self.advance()
        if job_id in self.released:
            self.released.remove(job_id)
            self.fires.append(job_id)
        elif job_id is not None and any(one.job_id == job_id for one in state.held):
            self.held.append(job_id)
        return high

    def _expired(self, at: int) -> bool:
        expiry_s, fire_at = self.spec.job.expires_after_s, self.state.fire_at
        return expiry_s is not None and self.look.now >= (at if fire_at is None else fire_at) + round(expiry_s * 1000)

    def _waiting(self) -> int:
        return len(self.state.held) + sum(one.left for one in self.chains())

    def cap(self) -> None:
        """What is held counts as catching up: beyond the limit the oldest goes."""
        if self._waiting() <= self.spec.missed.max_catch_up:
            return
        held, chain = self._oldest()
        if held is not None:
            self.leave_out(held.at, held.job_id, "catch_up_limit", self._limit(), counted=True)
        elif chain is not None:
            first = self._plan_of(chain).next(chain.low)
            until = chain.high - 1 if first is None else min(first.at, chain.high - 1)
            self._shorten(chain, until, 1, "catch_up_limit", self._limit())

    def _limit(self) -> str:
        return f"at most {self.spec.missed.max_catch_up} are caught up"

    def give_up_backlogs(self) -> None:
        """What is left of backlogs cannot be computed any more: one skip for each, as long as what was left of it."""
        detail = "it could not be computed when its turn came"
        self.give_up_chains(detail)
        for backfill in self.state.backlogs:
            self._give_up(backfill, f"{detail}, in the backfill {backfill.name}")
        self.state.backlogs = ()

    def give_up_chains(self, detail: str) -> None:
        """What is left of catching up is given up, without looking when it would have been."""
        for chain in self.chains():
            self._give_up(chain, detail)
            self.state.runs -= chain.left
        self.state.backlogs = tuple(one for one in self.state.backlogs if one.kind != "schedule")

    def _give_up(self, backlog: Backlog, detail: str) -> None:
        if backlog.left:
            self.count_left_out("missed", backlog.left)
            self.skips.append(Range(backlog.low + 1, backlog.high - 1, backlog.left, "missed", detail))
            self.state.stretch = None

    def drop_waiting(self, reason: SkipReason, detail: str, *, but: str | None = None) -> None:
        """What waits of the schedule's own course is left out, but for one job; what has started goes on by itself."""
        waiting: list[Held | Backlog] = [one for one in self.state.held if one.job_id != but]
        waiting += [one for one in self.chains() if one.left]
        self.state.backlogs = tuple(one for one in self.state.backlogs if one.kind != "schedule")
        for one in sorted(waiting, key=lambda one: one.at if isinstance(one, Held) else one.low):
            if isinstance(one, Held):
                self.leave_out(one.at, one.job_id, reason, detail, counted=True)
            else:
                self.leave_range(self._plan_of(one), one.low, one.high - 1, reason, detail)
                self.uncount(one.left)
