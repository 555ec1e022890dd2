"""Every occurrence of a schedule is accounted for exactly once, whatever happens to it.

Random schedules live through random times: outages, ends of jobs, pauses, edits, skips, early starts. At every moment each
instant of the timing that was in force is one of: a job that has fired, was replaced or waits, one that is still ahead, or in
exactly one skip; never two of these, and what a skip says of its size is what lies in it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.ledger import GOING, HOUR, MINUTE, T0, Ledger, instants, spec
from tocsin.model.recurrence import Step
from tocsin.model.schedule import Plan, plan_of, timing_of
from tocsin.wire import Status

CRONS = ("*/10 * * * *", "0 * * * *", "*/15 * * * *", "5,35 * * * *", "0 */2 * * *")
TIMINGS = st.one_of(
    st.sampled_from(CRONS).map(lambda text: {"cron": text, "every_ms": None, "anchor": 0}),
    st.sampled_from((7, 10, 30)).map(lambda every: {"cron": None, "every_ms": every * MINUTE, "anchor": T0}),
)
SPECS = st.fixed_dictionaries(
    {
        "missed": st.sampled_from(("run_latest", "run_all", "skip")),
        "most": st.sampled_from((1, 2, 5, 100)),
        "overlap": st.sampled_from(("allow", "forbid", "replace")),
        "deadline_s": st.sampled_from((None, None, 60.0, 1800.0)),
        "window_s": st.sampled_from((None, None, 300.0, 86_400.0)),
        "expires_s": st.sampled_from((None, None, 600.0)),
        "max_runs": st.sampled_from((None, None, 3, 10)),
        "end_at": st.sampled_from((None, None, T0 + 5 * HOUR)),
        "start_at": st.sampled_from((None, None, T0 + HOUR)),
    }
)
SPANS = st.sampled_from((0, 1, 1_000, MINUTE, 9 * MINUTE, 10 * MINUTE, 47 * MINUTE, 3 * HOUR, 11 * HOUR))
EVENTS = st.one_of(
    st.tuples(st.just("until"), SPANS),
    st.tuples(st.just("jump"), SPANS),
    st.tuples(st.just("run"), st.integers(0, 5)),
    st.tuples(st.just("retry"), st.integers(0, 5)),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("end unnoticed"), st.integers(0, 5)),
    st.tuples(st.just("pause"), st.one_of(st.none(), SPANS)),
    st.tuples(st.just("resume"), st.none()),
    st.tuples(st.just("skip"), st.none()),
    st.tuples(st.just("run now"), st.none()),
    st.tuples(st.just("retime"), TIMINGS),
    st.tuples(st.just("max_runs"), st.sampled_from((None, 1, 5, 20))),
    st.tuples(st.just("end_at"), st.sampled_from((None, 2, 8))),
    st.tuples(st.just("overlap"), st.sampled_from(("allow", "forbid", "replace"))),
    st.tuples(st.just("quota"), st.booleans()),
    st.tuples(st.just("follow"), st.none()),
)


class Audit:
    """The ledger's events, and what must be accounted for: the instants of each timing while it was in force."""

    def __init__(self, defined: Any) -> None:
        self.kept = Ledger(defined)
        # (plan, after, until): the timings of the past; the last one is in force.
        self.eras: list[tuple[Plan, int, int]] = []
        self.since = T0

    def happen(self, what: str, value: Any) -> None:
        kept = self.kept
        going = kept.going()
        chosen = going[value % len(going)] if going and isinstance(value, int) else None
        match what:
            case "until":
                kept.until(kept.now + value)
            case "jump":
                kept.jump(kept.now + value)
            case "run":
                if chosen and kept.jobs[chosen].status is Status.QUEUED:
                    kept.run(chosen)
            case "retry":
                if chosen and kept.jobs[chosen].status is Status.RUNNING:
                    kept.retry(chosen)
            case "end":
                if chosen and kept.jobs[chosen].status in (Status.RUNNING, Status.CANCEL_REQUESTED):
                    kept.end(chosen)
            case "end unnoticed":
                if chosen and kept.jobs[chosen].status is Status.RUNNING:
                    kept._put(chosen, status=Status.SUCCEEDED)
            case "pause":
                kept.pause(None if value is None else kept.now + value + 1)
            case "resume":
                self._end_era()
                kept.resume()
            case "skip":
                kept.skip_next()
            case "run now":
                kept.settle()
                kept.run_now()
            case "retime":
                self._edit(**value)
            case "max_runs":
                self._edit(max_runs=value)
            case "end_at":
                self._edit(end_at=None if value is None else T0 + value * HOUR)
            case "overlap":
                kept.edit(overlap=value)
            case "quota":
                kept.over_quota = value
            case "follow":
                kept.step(Step.advance)

    def _edit(self, **changes: Any) -> None:
        self._end_era()
        self.kept.edit(**changes)

    def _end_era(self) -> None:
        self.kept.settle()
        self.eras.append((plan_of(self.kept.spec, self.kept.zones), self.since, self._reach()))
        self.since = self.kept.now

    def _reach(self) -> int:
        """Until when the timing that is in force has had occurrences: where it has come to its end, there are none behind it."""
        kept, state = self.kept, self.kept.state
        passed = state.passed_at or 0
        if kept.status == "finished" or (kept.status == "paused" and state.paused_from is None):
            return min(kept.now, passed)
        if kept.status == "paused" and state.pause_until is not None and state.next_at is None:
            return min(kept.now, max(passed, state.pause_until - 1))
        return kept.now

    def hold(self) -> None:
        """Everything is accounted for once."""
        kept, state = self.kept, self.kept.state
        once: Counter[int] = Counter()
        for job_id, job in kept.jobs.items():
            waits = job.status is Status.SCHEDULED and job_id != state.job_id
            if job.origin == "schedule" and (waits or job.started or job.status in (*GOING, Status.SUCCEEDED)):
                once[job.at] += 1
        eras = [*self.eras, (plan_of(kept.spec, kept.zones), self.since, self._reach())]
        for key, skip in kept.skips.items():
            assert len(kept.left_out[key]) == skip.count
            once.update(kept.left_out[key])
        for backlog in state.backlogs:
            left = instants(Plan(timing_of(backlog.rule, kept.zones)), backlog.low, backlog.high - 1)
            found = [at for at in left if at not in backlog.without]
            assert len(found) == backlog.left
            once.update(found)
        if state.next_at is not None:
            once[state.next_at] += 1
        assert [at for at, times in once.items() if times > 1] == [], "decided twice"
        paused = state.paused_from if kept.status == "paused" else None
        for plan, after, until in eras:
            for at in instants(plan, after, until):
                over = any(passed < at <= now for passed, now in kept.gaps)
                if not over and not (paused is not None and at >= paused):
                    assert once[at] == 1, f"{(at - T0) / HOUR} is lost"


@given(TIMINGS, SPECS, st.lists(EVENTS, max_size=25))
def test_every_occurrence_is_accounted_for_once(timing, rest, events):
    audit = Audit(spec(**{**rest, **timing}))
    audit.hold()
    for what, value in events:
        audit.happen(what, value)
        audit.hold()
