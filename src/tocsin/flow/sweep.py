"""Sweep: every active schedule has exactly one occurrence ahead, whatever has happened. The safety net under `flow.recur`.

Looks every minute at schedules that somebody should have moved by now, and goes slowly through all of them: an occurrence ahead whose
job is gone or has left its state without the schedule is made or passed over; what is owing is made; a pause whose end has come
ends; a backlog that nobody has told about an end goes on; a schedule whose zone's data has changed is computed anew, once. One that
cannot be computed is marked broken. Every repair is counted and logged. A crash continues: nothing is remembered that matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tocsin import telemetry
from tocsin.clock import Clock
from tocsin.flow.agenda import FAULTS, REFUSED, Agenda, Broken, Entry
from tocsin.flow.follow import Follower
from tocsin.flow.occurrences import Decided, Mover
from tocsin.lease.port import Leases
from tocsin.model.job import JobState, Status
from tocsin.model.recurrence import Step
from tocsin.model.schedule import older
from tocsin.service import Alarm
from tocsin.store.port import JobStore
from tocsin.store.schedules import Moved, ScheduleRow, ScheduleStore
from tocsin.telemetry import log
from tocsin.wire import ScheduleStatus

EVERY_MS = 60_000
# What is overdue by less is under way.
GRACE_MS = 60_000
BATCH = 500
# The slow pass begins every hour. A minute's share of it: all of a million schedules are seen in about an hour.
ROUND_MS = 60 * EVERY_MS
PAGES = 30
STATUSES: tuple[ScheduleStatus, ...] = ("active", "paused", "finished", "broken")


@dataclass(frozen=True, slots=True)
class Swept:
    """What one pass looked at and mended."""

    looked: int = 0
    mended: int = 0
    more: bool = False


class Sweeper(Alarm):
    """Keeps schedules going."""

    name = "sweep"
    rhythmic = True

    def __init__(
        self,
        jobs: JobStore,
        schedules: ScheduleStore,
        mover: Mover,
        agenda: Agenda,
        follower: Follower,
        leases: Leases,
        clock: Clock,
    ) -> None:
        super().__init__(clock)
        self._jobs, self._schedules = jobs, schedules
        self._mover, self._agenda, self._follower = mover, agenda, follower
        self._leases, self._clock = leases, clock
        self._next_at = self._round_at = 0
        self._pages = 0
        self._place: tuple[int, str] = (-1, "")
        self._first_round = True
        # Whether there are schedules here that a node with newer zone data has computed, as of the last round and of this one.
        self.outdated = self._newer_seen = False

    async def step(self) -> Swept:
        """Once a minute the overdue ones, and in an hour all of them, a page after the other until the minute's share is done."""
        now = self._clock.now_ms()
        if not now < self._next_at <= now + EVERY_MS:
            self._next_at = now + EVERY_MS
            if self._place[0] < 0 and not now < self._round_at <= now + ROUND_MS:
                self._place, self._round_at = (0, ""), now + ROUND_MS
            self._pages = PAGES if self._place[0] >= 0 else 0
            return await self._overdue(now)
        if self._pages > 0:
            self._pages -= 1
            return await self._walk()
        return Swept()

    async def next_at(self) -> int | None:
        return self._next_at

    async def _overdue(self, now: int) -> Swept:
        rows = await self._schedules.overdue(self._leases.owned(), now - GRACE_MS, BATCH)
        mended = await self._look(rows)
        counts = await self._schedules.counts()
        for status in STATUSES:
            telemetry.SCHEDULES.labels(status).set(counts.get(status, 0))
        return Swept(len(rows), mended, more=True)

    async def _walk(self) -> Swept:
        """One page of one partition. The first time around without a rest: a start must see what has changed meanwhile."""
        owned = sorted(self._leases.owned())
        partition, after = self._place
        if partition not in owned:
            partition, after = next((p for p in owned if p > partition), -1), ""
            if partition < 0:
                self._place, self._pages = (-1, ""), 0
                self._end_round()
                return Swept()
        rows = await self._schedules.walk(partition, after, BATCH)
        mended = await self._look(rows)
        # A short page is no end: what cannot be read was left out of it.
        if rows:
            self._place = (partition, rows[-1].schedule_id)
        else:
            self._place = (next((p for p in owned if p > partition), -1), "")
            if self._place[0] < 0:
                self._pages = 0
                self._end_round()
        self._pages = PAGES if self._first_round else self._pages
        return Swept(len(rows), mended, more=self._pages > 0)

    def _end_round(self) -> None:
        self._first_round = False
        self.outdated, self._newer_seen = self._newer_seen, False

    async def _look(self, rows: Sequence[ScheduleRow]) -> int:
        """See that these schedules are as they should be; how many were mended."""
        entries = await self._moved_on([entry for row in rows if (entry := await self._entry(row)) is not None])
        ahead = [entry.state.job_id or "" for entry in entries]
        jobs = await self._jobs.states(ahead) if any(ahead) else [None] * len(ahead)
        wrong = [
            (entry, job, what)
            for entry, job in zip(entries, jobs, strict=True)
            if (what := self._wrong_with(entry, job)) is not None
        ]
        looks = await self._agenda.looks([entry for entry, _, _ in wrong]) if wrong else []
        decided = []
        for (entry, job, what), look in zip(wrong, looks, strict=True):
            step = self._agenda.begin(entry, look)
            try:
                _mend(step, what, job)
            except FAULTS as error:
                step = self._agenda.begin(entry, look)
                step.break_off(f"its next occurrence cannot be computed ({error}): change its timing")
            decided.append(Decided(entry, step, entry.row.tenant, entry.row.name, {}))
        mended = 0
        for (entry, _, what), one, won in zip(wrong, decided, await self._mover.write(decided), strict=True):
            if won is Moved.REFUSED:
                await self._agenda.break_off(entry.row, REFUSED)
            elif won is Moved.WON and one.step.status == "broken":
                reason = one.step.state.broken
                log.error("schedule_broken", schedule=entry.row.schedule_id, reason=reason, next="the others go on")
            elif won is Moved.WON and (what != "zone data" or one.step.state.next_at != entry.state.next_at):
                mended += 1
                telemetry.SCHEDULE_REPAIRS.labels(what).inc()
                log.warning(
                    "schedule_mended", schedule=entry.row.schedule_id, what=what, next_at=one.step.state.next_at
                )
        return mended

    async def _moved_on(self, entries: Sequence[Entry]) -> list[Entry]:
        """Let go on what waits for an end that nobody has told; the schedules as they then are."""
        waiting = [entry.row for entry in entries if entry.state.held or entry.state.backlogs]
        if not waiting:
            return list(entries)
        await self._follower.go_on(waiting)
        moved = {row.schedule_id for row in waiting}
        rows = await self._schedules.get(list(moved))
        others = [entry for entry in entries if entry.row.schedule_id not in moved]
        return others + [entry for row in rows if row is not None and (entry := await self._entry(row)) is not None]

    async def _entry(self, row: ScheduleRow) -> Entry | None:
        if row.status == "broken":
            return None
        try:
            return self._agenda.entry(row)
        except Broken as broken:
            await self._agenda.break_off(row, str(broken))
            return None

    def _wrong_with(self, entry: Entry, job: JobState | None) -> str | None:
        """What has to be done about a schedule; None: it is as it should be."""
        state, row, now = entry.state, entry.row, self._clock.now_ms()
        if row.status == "finished":
            return None
        zoned, ours = entry.spec.rule.zoned, self._agenda.zones.version
        if zoned and older(ours, state.zone_data):
            self.outdated = self._newer_seen = True  # nothing is computed here that a newer node knows better
            return None
        if row.status == "paused" and (state.pause_until is None or state.pause_until > now):
            if state.next_at is None:
                return None
        elif row.status == "paused":
            return "pause ended"
        if state.owing:
            return "owing"
        if state.next_at is None or state.job_id is None:
            return "none ahead" if row.status == "active" else None
        if job is None:
            return "job missing"
        if job.status is not Status.SCHEDULED:
            return "job moved on"
        if zoned and older(state.zone_data, ours) and state.next_at > now:
            return "zone data"
        return None


def _mend(step: Step, what: str, job: JobState | None) -> None:
    match what:
        case "pause ended":
            step.end_pause()
        case "owing" | "none ahead":
            step.pay()
        case "job missing":
            step.make_again()
        case "job moved on":
            assert job is not None, "one that is missing is made again"
            step.lost_ahead(job.status)
        case "zone data":
            step.rezone()
        case _:
            raise AssertionError(what)
