"""Agenda: schedules ready to be decided about, and what has to be known for that.

Remembers a schedule by the job of its occurrence ahead, so that a due one costs no read. Only a memory: every move names the row's
serial, so one that was decided from an entry that is out of date is refused and decided again from the store. Bounded; losing it
costs a read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec
from msgspec import structs

from tocsin.clock import Clock
from tocsin.errors import TocsinError
from tocsin.flow.quotas import Quotas
from tocsin.flow.tally import Tally
from tocsin.model.cron import CronError
from tocsin.model.ids import made_at_ms
from tocsin.model.job import GOING, Status
from tocsin.model.recurrence import Look, Step, begin
from tocsin.model.schedule import Plan, Rule, Spec, State, decode_spec, decode_state, encode, plan_of
from tocsin.model.timing import IntervalTiming
from tocsin.model.zones import FIRST_MS, LAST_MS, UnknownZone, Zones
from tocsin.store.schedules import Move, Moved, ScheduleRow, ScheduleStore
from tocsin.telemetry import log
from tocsin.wire import MAX_BACKFILL, MAX_CATCH_UP, JobTemplate, TaskTarget

# What is said of a schedule whose next step is asked for in vain: repeating it would not help.
REFUSED = "the store cannot hold its next step: define it anew"
MOST = 100_000
# Of the rows' texts; what was read from them is about as large again.
MOST_BYTES = 256 * 1024 * 1024
# As much as a schedule can have to catch up with, or a backfill.
MOST_LEFT = max(MAX_CATCH_UP, MAX_BACKFILL)
# So many catch-up runs a second: after an outage they must not stand in the way of what is due now.
CATCH_UP_PER_S = 1_000
# What goes wrong when one schedule's numbers are absurd.
FAULTS = (ArithmeticError, LookupError, ValueError, AssertionError)
UNREADABLE = Spec(
    rule=Rule(every_ms=1000),
    job=JobTemplate(queue="unreadable", target=TaskTarget(handler="unreadable")),
)
NEVER = Plan(IntervalTiming(1000, 0), start_at=1, end_at=0)


class Broken(TocsinError):
    """A schedule cannot be computed; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A schedule, decoded and ready."""

    row: ScheduleRow
    spec: Spec
    state: State
    plan: Plan


class Agenda:
    """Entries of schedules."""

    def __init__(
        self,
        store: ScheduleStore,
        quotas: Quotas,
        tally: Tally,
        zones: Zones,
        clock: Clock,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._store, self._quotas, self._tally, self._clock = store, quotas, tally, clock
        self.zones, self._most, self._most_bytes = zones, most, most_bytes
        self._ahead: dict[str, Entry] = {}
        self._bytes = 0
        # In elapsed time: a step of the clock must not put the runs off.
        self._catch_up_s = 0.0

    def entry(self, row: ScheduleRow) -> Entry:
        """A row made ready; Broken if it cannot be."""
        try:
            spec, state = decode_spec(row.spec), decode_state(row.state)
        except msgspec.DecodeError as error:
            raise Broken(f"its row is damaged ({error}): define the schedule anew") from error
        if (absurd := _absurd(state)) is not None:
            raise Broken(f"its row is damaged ({absurd}): define the schedule anew")
        try:
            return Entry(row, spec, state, self.plan(spec).but(state.decided))
        except FAULTS as error:
            raise Broken(f"its row is damaged ({error!r}): define the schedule anew") from error

    def remains(self, row: ScheduleRow) -> Entry:
        """What is left of a row that cannot be computed, to be mended or deleted; UNREADABLE stands for a spec that cannot be read."""
        spec = UNREADABLE
        try:
            state = decode_state(row.state)
        except msgspec.DecodeError:
            made_at = made_at_ms(row.schedule_id)
            state = State(created_at=made_at, updated_at=made_at)
        if _absurd(state) is not None:
            state = structs.replace(state, next_at=None, fire_at=None, passed_at=None, backlogs=())
        with suppress(msgspec.DecodeError):
            spec = decode_spec(row.spec)
        return Entry(row, spec, state, NEVER)

    def plan(self, spec: Spec) -> Plan:
        """When a schedule's occurrences fall; Broken if that cannot be computed."""
        try:
            return plan_of(spec, self.zones)
        except CronError as error:
            raise Broken(f"its cron expression is not valid ({error}): change it") from error
        except UnknownZone as error:
            raise Broken(f"its time zone is not known ({error}): change it") from error

    def keep(self, entry: Entry) -> None:
        """Remember a schedule for when its occurrence ahead is due."""
        job_id = entry.state.job_id
        if job_id is None:
            return
        if job_id in self._ahead:
            self.take(job_id)
        self._ahead[job_id] = entry
        self._bytes += _size(entry)
        while len(self._ahead) > self._most or self._bytes > self._most_bytes:
            self.take(next(iter(self._ahead)))

    def take(self, job_id: str) -> Entry | None:
        """The schedule whose occurrence ahead this job is, as far as is remembered; it is forgotten."""
        entry = self._ahead.pop(job_id, None)
        if entry is not None:
            self._bytes -= _size(entry)
        return entry

    def begin(self, entry: Entry, look: Look) -> Step:
        """Begin a step from an entry."""
        row = entry.row
        return begin(row.schedule_id, row.revision, row.status, entry.spec, entry.state, entry.plan, look, self.zones)

    def catch_up_at(self, now: int) -> int:
        """From when on the next catch-up run may fire, so that an outage's remains do not stand in the way of what is due."""
        return now + max(round((self._catch_up_s - self._clock.elapsed_s()) * 1000), 0)

    def caught_up(self) -> None:
        """A catch-up run has got its time."""
        self._catch_up_s = max(self._catch_up_s, self._clock.elapsed_s()) + 1 / CATCH_UP_PER_S

    async def looks(self, entries: Sequence[Entry]) -> list[Look]:
        """What is going on, as far as decisions about these schedules depend on it. The rows were read before this, so what they
        know of is either going on or has ended."""
        going = await self._going(entries)
        limits = {tenant: await self._quotas.limits_of(tenant) for tenant in {entry.row.tenant for entry in entries}}
        over = {tenant: self._tally.waiting(tenant) > limit.waiting_jobs for tenant, limit in limits.items()}
        now = self._clock.now_ms()
        catch_up_at = self.catch_up_at(now)
        # Most have nothing going on that matters: those of one tenant share their look.
        idle = {tenant: Look(now, {}, too_many, catch_up_at) for tenant, too_many in over.items()}
        return [
            Look(now, found, over[entry.row.tenant], catch_up_at)
            if (found := going.get(entry.row.schedule_id))
            else idle[entry.row.tenant]
            for entry in entries
        ]

    async def _going(self, entries: Sequence[Entry]) -> dict[str, dict[str, Status]]:
        """The jobs of each schedule that are under way. With overlap `allow` only those that a backlog waits for: there may be any
        number of others, and nothing depends on them."""
        found: dict[str, dict[str, Status]] = {}
        wanted = [entry.row.schedule_id for entry in entries if entry.spec.overlap != "allow"]
        for schedule_id, jobs in (await self._store.going(wanted) if wanted else {}).items():
            found[schedule_id] = {job.job_id: job.status for job in jobs}
        backlogs = [one for entry in entries if entry.spec.overlap == "allow" for one in entry.state.backlogs]
        awaited = [job_id for backlog in backlogs for job_id in backlog.going]
        for pair in await self._store.of_jobs(awaited) if awaited else []:
            if pair is not None and pair[1] is not None and pair[0].status in GOING:
                found.setdefault(pair[1].schedule_id, {})[pair[0].job_id] = pair[0].status
        return found

    async def break_off(self, row: ScheduleRow, reason: str) -> None:
        """Mark a schedule broken that may not even be readable. Its jobs go on, and so do all other schedules."""
        step = self.begin(self.remains(row), Look(self._clock.now_ms()))
        step.break_off(reason)
        state = encode(step.state)
        after = structs.replace(row, serial=row.serial + 1, status="broken", look_at=None, state=state)
        (won,) = await self._store.move([Move(schedule_id=row.schedule_id, serial=row.serial, after=after)])
        if won is Moved.WON:
            log.error("schedule_broken", schedule=row.schedule_id, reason=reason, next="the other schedules go on")


def _size(entry: Entry) -> int:
    return len(entry.row.spec) + len(entry.row.state)


def _absurd(state: State) -> str | None:
    """What no step can have written: with it the schedule would stand still unseen, or run for ages."""
    instants = (state.next_at, state.fire_at, state.passed_at, state.paused_from, state.pause_until)
    if any(at is not None and not FIRST_MS <= at <= LAST_MS for at in instants):
        return "an instant beyond the calendar"
    if any(backlog.left > MOST_LEFT for backlog in state.backlogs):
        return "a backlog longer than any can be"
    return None
