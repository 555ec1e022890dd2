"""The life of a job with schedules in it: their owners define, change, pause, trigger, backfill and delete them meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from tests.life.courses import GOING, Courses
from tests.life.machine import LUCK, TENANTS, Life, Luck
from tests.life.sqliteworld import LifeOnSqlite
from tests.life.world import START
from tocsin.clock import datetime_of
from tocsin.wire import Status

NAMES = ("one", "two", "three")
# Their instants often coincide, so that an edit meets what was decided before it.
ANCHOR = START.isoformat()
TIMINGS: tuple[dict[str, Any], ...] = (
    {"every_s": 60},
    {"every_s": 90, "anchor": ANCHOR},
    {"every_s": 300, "anchor": ANCHOR},
    {"every_s": 3_600},
    {"cron": "*/5 * * * *"},
    {"cron": "* * * * *"},
    {"cron": "0 */6 * * *", "time_zone": "America/New_York"},
    {"cron": "30 9 * * 1-5", "time_zone": "Asia/Kolkata"},
)
MISSED: tuple[dict[str, Any], ...] = (
    {"policy": "run_latest"},
    {"policy": "run_latest", "starting_deadline_s": 30},
    {"policy": "skip"},
    {"policy": "run_all", "max_catch_up": 4},
    {"policy": "run_all", "max_catch_up": 2},
    {"policy": "run_all", "max_catch_up": 5, "starting_deadline_s": 400},
)
OVERLAPS = ("allow", "allow", "forbid", "replace")
# Until when what has fallen behind has caught up, once everything works.
PATIENCE_S = 7_200
# So often a worker and the stages wait for each other at one instant.
TURNS = 12


class LifeOfSchedules(Life):
    """The machine with schedules. What clients do with jobs of their own is in the other machine."""

    patch = cancel = run_now = heartbeat = claim_callbacks = discard = None  # type: ignore[assignment]

    @initialize(
        seed=st.integers(0, 2**16),
        timing=st.sampled_from(TIMINGS[:3]),
        missed=st.sampled_from(MISSED),
        overlap=st.sampled_from(OVERLAPS),
        flood_s=st.sampled_from((None, None, 20)),
        back=st.sampled_from((False, False, False, True)),
    )
    def begin(
        self, seed: int, timing: dict[str, Any], missed: dict[str, Any], overlap: str, flood_s: float | None, back: bool
    ) -> None:
        """There is a schedule from the beginning. `back`: in this life clocks may step back."""
        self.back = back
        super().begin(seed, flood_s, paused=False)
        self.courses = Courses(self.world)
        self._run(self.world.define("acme", "first", missed_runs=missed, overlap=overlap, **timing))
        self._run(self.courses.check())

    @rule(seconds=st.sampled_from((-3_600, -100, -2, 2, 30, 100, 3_600)))
    def the_clock_steps(self, seconds: float) -> None:
        self.world.clock.step_wall(seconds if self.back else abs(seconds))

    @rule(minutes=st.integers(1, 15), outcome=st.sampled_from(("succeeded", "succeeded", "released", None)), luck=LUCK)
    def all_runs_for_a_while(self, minutes: int, outcome: str | None, luck: Luck) -> None:
        """Time passes, all stages run, and a worker does what there is to do, or dies with all that it gets."""
        self._do(self._go_on(minutes, outcome), (luck[0], luck[1] * minutes * 10))

    async def _go_on(self, minutes: int, outcome: str | None) -> None:
        for _ in range(minutes * 2):
            self.world.clock.advance(30)
            await self.world.settle()
            for tenant in TENANTS:
                for job in await self.world.claim(10, worker="w4", tenant=tenant):
                    if outcome is not None:
                        await self.world.complete(job.lease_token, outcome, error="why")
            await self.world.settle()

    # owners

    @rule(
        tenant=st.sampled_from(TENANTS),
        name=st.sampled_from(NAMES),
        timing=st.sampled_from(TIMINGS),
        missed=st.sampled_from(MISSED),
        overlap=st.sampled_from(OVERLAPS),
        window_s=st.sampled_from((None, None, 3, 40)),
        expires_after_s=st.sampled_from((None, None, 5, 120)),
        max_attempts=st.integers(1, 3),
        max_runs=st.sampled_from((*[None] * 9, 3)),
        ends_in_s=st.sampled_from((*[None] * 7, 1_000)),
        paused=st.sampled_from((*[False] * 9, True)),
        luck=LUCK,
    )
    def define(
        self,
        tenant: str,
        name: str,
        timing: dict[str, Any],
        missed: dict[str, Any],
        overlap: str,
        window_s: float | None,
        expires_after_s: float | None,
        max_attempts: int,
        max_runs: int | None,
        ends_in_s: int | None,
        paused: bool,
        luck: Luck,
    ) -> None:
        template: dict[str, Any] = {"expires_after_s": expires_after_s, "retry": {"max_attempts": max_attempts}}
        if window_s is not None:
            template["timing"] = {"class": "flexible", "window_s": window_s}
        fields: dict[str, Any] = {"missed_runs": missed, "overlap": overlap, "max_runs": max_runs, **timing}
        if paused:
            fields["paused"] = True
        if ends_in_s is not None:
            fields["end_at"] = datetime_of(self.world.clock.now_ms()) + timedelta(seconds=ends_in_s)
        self._wish(self.world.define(tenant, name, template=template, **fields), luck)

    @precondition(lambda self: self._some())
    @rule(data=st.data(), what=st.sampled_from(("timing", "timing", "end", "missed", "overlap", "nothing")), luck=LUCK)
    def edit(self, data: st.DataObject, what: str, luck: Luck) -> None:
        soon = datetime_of(self.world.clock.now_ms()) + timedelta(seconds=500)
        choices: dict[str, Any] = {
            "timing": lambda: data.draw(st.sampled_from(TIMINGS), label="timing"),
            "end": lambda: {"end_at": data.draw(st.sampled_from((None, soon)), label="end")},
            "missed": lambda: {"missed_runs": data.draw(st.sampled_from(MISSED), label="missed")},
            "overlap": lambda: {"overlap": data.draw(st.sampled_from(OVERLAPS), label="overlap")},
            "nothing": lambda: {},
        }
        self._owner(data, "patch_schedule", luck, **choices[what]())

    @precondition(lambda self: self._some())
    @rule(
        data=st.data(), window_s=st.sampled_from((None, 3, 40)), expires_after_s=st.sampled_from((None, 5)), luck=LUCK
    )
    def edit_template(
        self, data: st.DataObject, window_s: float | None, expires_after_s: float | None, luck: Luck
    ) -> None:
        template: dict[str, Any] = {"payload": {"n": 2}, "expires_after_s": expires_after_s}
        if window_s is not None:
            template["timing"] = {"class": "flexible", "window_s": window_s}
        self._owner(data, "patch_schedule", luck, template=template)

    @precondition(lambda self: self._some())
    @rule(
        data=st.data(),
        paused=st.sampled_from((True, False, False)),
        until_s=st.sampled_from((None, 50, 700)),
        luck=LUCK,
    )
    def pause_schedule(self, data: st.DataObject, paused: bool, until_s: int | None, luck: Luck) -> None:
        fields: dict[str, Any] = {"paused": paused}
        if paused and until_s is not None:
            fields["pause_until"] = datetime_of(self.world.clock.now_ms()) + timedelta(seconds=until_s)
        self._owner(data, "patch_schedule", luck, **fields)

    @precondition(lambda self: self._some())
    @rule(data=st.data(), luck=LUCK)
    def skip_next(self, data: st.DataObject, luck: Luck) -> None:
        self._owner(data, "skip_next", luck)

    @precondition(lambda self: self._some())
    @rule(data=st.data(), key=st.sampled_from((None, "t1", "t2")), luck=LUCK)
    def trigger(self, data: st.DataObject, key: str | None, luck: Luck) -> None:
        self._owner(data, "trigger", luck, key=key)

    @precondition(lambda self: self._some())
    @rule(
        data=st.data(),
        ago_s=st.sampled_from((100, 400, 4_000)),
        order=st.sampled_from(("oldest_first", "newest_first")),
        concurrency=st.sampled_from((1, 2)),
        luck=LUCK,
    )
    def backfill(self, data: st.DataObject, ago_s: int, order: str, concurrency: int, luck: Luck) -> None:
        now = datetime_of(self.world.clock.now_ms())
        start = now - timedelta(seconds=ago_s)
        self._owner(data, "backfill", luck, **{"from": start, "to": now, "order": order, "concurrency": concurrency})

    @precondition(lambda self: self._some())
    @rule(data=st.data(), luck=LUCK)
    def delete_schedule(self, data: st.DataObject, luck: Luck) -> None:
        self._owner(data, "delete_schedule", luck)

    @precondition(lambda self: self.courses.waiting(Status.SCHEDULED))
    @rule(data=st.data(), what=st.sampled_from(("cancel", "run_now", "patch")), luck=LUCK)
    def intervene_in_what_waits(self, data: st.DataObject, what: str, luck: Luck) -> None:
        """An owner takes an occurrence that waits into his own hands."""
        job = data.draw(st.sampled_from(self.courses.waiting(Status.SCHEDULED)), label="job")
        if what == "run_now":
            self.courses.beside.add(job.job_id)
            self.courses.unordered.add(job.definition.schedule_id or "")
        fields = {"payload": {"n": 3}, "priority": "high"} if what == "patch" else {}
        self._wish(getattr(self.world, what)(job.job_id, job.line.tenant, **fields), luck)

    @precondition(lambda self: self.courses.waiting(*GOING))
    @rule(data=st.data(), luck=LUCK)
    def cancel_what_goes_on(self, data: st.DataObject, luck: Luck) -> None:
        job = data.draw(st.sampled_from(self.courses.waiting(*GOING)), label="job")
        if luck[0] != "good":
            self.courses.cut.add(job.job_id)
        self._wish(self.world.cancel(job.job_id, job.line.tenant), luck)

    # after every rule, and at the end

    @invariant()
    def schedules_are_well(self) -> None:
        if hasattr(self, "world"):
            self._run(self.courses.check())

    def _come_to_an_end(self) -> None:
        """All schedules catch up, and go on; then they are deleted, and what they have started comes to an end."""
        world, courses = self.world, self.courses
        world.fault.clear()
        for tenant in TENANTS:
            self._run(world.pause(False, tenant))
        until = world.clock.now_ms() + PATIENCE_S * 1000
        while behind := self._behind():
            assert world.clock.now_ms() < until, f"schedules do not go on: {behind}"
            for _ in range(5):
                world.clock.advance(4)
                self._run(self._catch_up())
            self._run(courses.check())
        for schedule_id, course in courses.live.items():
            self._run(world.delete_schedule(schedule_id, course.row.tenant))
        self._run(courses.check())
        super()._come_to_an_end()

    async def _catch_up(self) -> None:
        """The stages and a worker in turn, as far as one has something for the other."""
        for _ in range(TURNS):
            await self.world.settle()
            if not await self._work():
                return

    def _behind(self) -> list[str]:
        """The schedules that have something to do still."""
        now, found = self.world.clock.now_ms(), []
        for schedule_id, course in self.courses.live.items():
            state = course.state
            stands = course.row.status == "paused" and state.pause_until is None
            if state.backlogs or state.held or not (stands or state.next_at is None or (state.fire_at or 0) > now):
                found.append(f"{schedule_id}: {state}")
        return found

    # inside

    def _some(self) -> bool:
        return hasattr(self, "courses") and bool(self.courses.live)

    def _owner(self, data: st.DataObject, what: str, luck: Luck, **fields: Any) -> None:
        schedule_id = data.draw(st.sampled_from(sorted(self.courses.live)), label="schedule")
        tenant = self.courses.live[schedule_id].row.tenant
        work: Awaitable[Any] = getattr(self.world, what)(schedule_id, tenant, **fields)
        self._wish(work, luck)


class LifeOfSchedulesOnSqlite(LifeOnSqlite, LifeOfSchedules):
    """The same over SQLite."""
