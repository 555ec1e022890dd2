"""Present: what a schedule is, what it will do and what it did. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, timedelta, timezone
from functools import lru_cache

from msgspec import DecodeError

from tocsin import wire
from tocsin.clock import EPOCH, Clock, ms_of, rfc3339
from tocsin.errors import Refused
from tocsin.flow.agenda import Agenda, Broken, Entry
from tocsin.flow.asked import rule_of
from tocsin.model.explain import explain, explain_interval
from tocsin.model.hints import hints, interval_hints
from tocsin.model.ids import made_at_ms
from tocsin.model.partition import BUCKET_MS
from tocsin.model.schedule import Rule, Spec, State, cron_of, decode_spec, decode_state
from tocsin.model.timing import Run
from tocsin.model.zones import LAST_MS, Zones, offsets
from tocsin.store.port import JobFilter, JobPage, JobStore
from tocsin.store.schedules import ScheduleFilter, ScheduleRow, ScheduleStore

SHOWN_RUNS = 5
MINUTES = 60
DAY_MS = 86_400_000
CROWD_FRESH_MS = 30_000
# Above the key of every skip: a list that goes on from here begins with the newest.
NEWEST = (LAST_MS + 1, "")


class Presenter:
    """Shows schedules to their owners; another tenant's schedule does not exist."""

    def __init__(self, jobs: JobStore, schedules: ScheduleStore, agenda: Agenda, clock: Clock) -> None:
        self._jobs, self._schedules, self._agenda, self._clock = jobs, schedules, agenda, clock
        self._crowd: tuple[int, ...] = (0,) * MINUTES
        self._crowd_at = -CROWD_FRESH_MS

    async def row(self, tenant: str, schedule_id: str) -> ScheduleRow:
        """A schedule's row; Refused 404."""
        row = (await self._schedules.get([schedule_id]))[0]
        if row is None or row.tenant != tenant:
            raise Refused(404, "not-found", "Not found", f"there is no schedule {schedule_id[:64]}")
        return row

    async def get(self, tenant: str, schedule_id: str) -> wire.Schedule:
        """A schedule; Refused 404."""
        return (await self.show([await self.row(tenant, schedule_id)]))[0]

    async def page(
        self, tenant: str, status: wire.ScheduleStatus | None, name: str | None, after: str | None, limit: int
    ) -> tuple[list[wire.Schedule], str | None]:
        """Schedules, newest first, and where to go on."""
        rows = await self._schedules.list_schedules(
            ScheduleFilter(tenant=tenant, status=status, name=name), after, limit
        )
        return await self.show(rows), rows[-1].schedule_id if len(rows) == limit else None

    async def jobs(self, tenant: str, schedule_id: str, after: str | None, limit: int) -> JobPage:
        """A schedule's jobs, newest occurrence first; Refused 404."""
        await self.row(tenant, schedule_id)
        return await self._jobs.list_jobs(JobFilter(tenant=tenant, schedule_id=schedule_id), after, limit)

    async def skips(
        self, tenant: str, schedule_id: str, after: tuple[int, str] | None, limit: int
    ) -> tuple[list[wire.Skip], tuple[int, str] | None]:
        """What did not run and why, newest first; a pause that goes on is shown as far as it has come. Refused 404."""
        row = await self.row(tenant, schedule_id)
        now_on = self._paused_stretch(row) if after is None else None
        shown, room = [] if now_on is None else [now_on], limit if now_on is None else limit - 1
        found = await self._schedules.skips(schedule_id, after, room) if room else []
        shown += [
            wire.Skip(
                from_=rfc3339(skip.first),
                to=rfc3339(skip.last),
                count=skip.count,
                reason=skip.reason,
                recorded_at=rfc3339(skip.recorded_at),
                detail=skip.detail,
            )
            for skip in found
        ]
        if len(found) < room:
            return shown, None
        return shown, (found[-1].first, found[-1].reason) if found else NEWEST

    async def preview(self, body: wire.Preview) -> wire.Previewed:
        """What a timing would do; Refused 422."""
        now = self._clock.now_ms()
        after = now if body.after is None else ms_of(body.after)
        rule = rule_of(body, self._agenda.zones, after)
        plan = self._agenda.plan(Spec(rule=rule, job=_NO_JOB))
        runs: list[Run] = []
        while len(runs) < body.count and (run := plan.next(runs[-1].at if runs else after)) is not None:
            runs.append(run)
            # A hundred runs can be four centuries of a zone that nobody has asked for before: others have their turn in between.
            await asyncio.sleep(0)
        return wire.Previewed(
            runs=[_shown_run(run, rule, self._agenda.zones) for run in runs],
            explanation=_explanation(rule),
            hints=await self._hints(rule, now),
        )

    async def show(self, rows: Sequence[ScheduleRow]) -> list[wire.Schedule]:
        """Rows as answers show them."""
        states = [_state_of(row) for row in rows]
        last = [state.last_job or "" for state in states]
        jobs = await self._jobs.states(last) if any(last) else [None] * len(last)
        return [
            await self._shown(row, state, None if job is None else job.status.value)
            for row, state, job in zip(rows, states, jobs, strict=True)
        ]

    async def _shown(self, row: ScheduleRow, state: State, last_status: str | None) -> wire.Schedule:
        try:
            entry = self._agenda.entry(row)
        except Broken as broken:
            return _unreadable(row, state, str(broken), last_status)
        spec, rule, now = entry.spec, entry.spec.rule, self._clock.now_ms()
        status = row.status
        if status == "paused" and state.pause_until is not None and state.pause_until <= now:
            status = "active" if state.next_at is not None or state.owing else "finished"
        paused = status == "paused"
        return wire.Schedule(
            schedule_id=row.schedule_id,
            name=row.name,
            revision=row.revision,
            status=status,
            broken_reason=state.broken if status == "broken" else None,
            cron=rule.cron,
            time_zone=rule.time_zone,
            every_s=None if rule.every_ms is None else _seconds(rule.every_ms),
            anchor=None if rule.every_ms is None else rfc3339(rule.anchor),
            job_template=spec.job,
            missed_runs=spec.missed,
            overlap=spec.overlap,
            start_at=None if spec.start_at is None else rfc3339(spec.start_at),
            end_at=None if spec.end_at is None else rfc3339(spec.end_at),
            max_runs=spec.max_runs,
            paused=paused,
            pause_note=state.pause_note if paused else None,
            pause_until=rfc3339(state.pause_until) if paused and state.pause_until is not None else None,
            next_run_at=None if state.next_at is None else rfc3339(state.next_at),
            next_runs=_next_runs(entry, self._agenda.zones),
            explanation=_explanation(rule),
            hints=await self._hints(rule, now),
            runs=state.runs,
            last_run_at=None if state.last_at is None else rfc3339(state.last_at),
            last_status=last_status,
            created_at=rfc3339(state.created_at),
            updated_at=rfc3339(state.updated_at),
        )

    async def _hints(self, rule: Rule, now: int) -> list[str]:
        if rule.cron is None:
            return interval_hints(_seconds(rule.every_ms or 0))
        if not self._crowd_at <= now < self._crowd_at + CROWD_FRESH_MS:
            # By the minute of the hour, from the next whole hour on, as far as occurrences are ahead there.
            hour = (now // (MINUTES * BUCKET_MS) + 1) * MINUTES * BUCKET_MS
            self._crowd, self._crowd_at = tuple(await self._schedules.crowd(hour, MINUTES)), now
        return list(_cron_hints(rule, self._agenda.zones, now // DAY_MS * DAY_MS, self._crowd))

    def _paused_stretch(self, row: ScheduleRow) -> wire.Skip | None:
        """The skip that a pause has come to so far; it is written when the pause ends."""
        if row.status != "paused":
            return None
        try:
            entry = self._agenda.entry(row)
        except Broken:
            return None
        state, now = entry.state, self._clock.now_ms()
        until = now if state.pause_until is None else min(now, state.pause_until - 1)
        if state.paused_from is None or state.paused_from > until:
            return None
        last = entry.plan.last(until + 1)
        return wire.Skip(
            from_=rfc3339(state.paused_from),
            to=rfc3339(state.paused_from if last is None else last.at),
            count=entry.plan.count(state.paused_from - 1, until),
            reason="paused",
            recorded_at=rfc3339(now),
            detail=state.pause_note,
        )


_NO_JOB = wire.JobTemplate(queue="preview", target=wire.TaskTarget(handler="preview"))


def _state_of(row: ScheduleRow) -> State:
    try:
        return decode_state(row.state)
    except DecodeError:
        made_at = made_at_ms(row.schedule_id)
        return State(created_at=made_at, updated_at=made_at)


def _unreadable(row: ScheduleRow, state: State, why: str, last_status: str | None) -> wire.Schedule:
    """A schedule that cannot be computed, as far as it can be read."""
    try:
        spec: Spec | None = decode_spec(row.spec)
    except DecodeError:
        spec = None
    rule = Rule() if spec is None else spec.rule
    return wire.Schedule(
        schedule_id=row.schedule_id,
        name=row.name,
        revision=row.revision,
        status="broken",
        broken_reason=state.broken or why,
        cron=rule.cron,
        time_zone=None if spec is None else rule.time_zone,
        every_s=None if rule.every_ms is None else _seconds(rule.every_ms),
        anchor=None if rule.every_ms is None else rfc3339(rule.anchor),
        job_template=None if spec is None else spec.job,
        missed_runs=wire.MissedRuns() if spec is None else spec.missed,
        overlap="allow" if spec is None else spec.overlap,
        start_at=None if spec is None or spec.start_at is None else rfc3339(spec.start_at),
        end_at=None if spec is None or spec.end_at is None else rfc3339(spec.end_at),
        max_runs=None if spec is None else spec.max_runs,
        paused=False,
        pause_note=None,
        pause_until=None,
        next_run_at=None,
        next_runs=[],
        explanation="This schedule cannot be computed; see broken_reason.",
        hints=[],
        runs=state.runs,
        last_run_at=None if state.last_at is None else rfc3339(state.last_at),
        last_status=last_status,
        created_at=rfc3339(state.created_at),
        updated_at=rfc3339(state.updated_at),
    )


def _next_runs(entry: Entry, zones: Zones) -> list[wire.Run]:
    state, spec = entry.state, entry.spec
    if state.next_at is None:
        return []
    most = SHOWN_RUNS if spec.max_runs is None else min(SHOWN_RUNS, max(spec.max_runs - state.runs, 0))
    found: list[wire.Run] = []
    run = entry.plan.next(state.next_at - 1) if most else None
    while run is not None:
        found.append(_shown_run(run, spec.rule, zones))
        run = entry.plan.next(run.at) if len(found) < most else None
    return found


def _shown_run(run: Run, rule: Rule, zones: Zones) -> wire.Run:
    return wire.Run(at=rfc3339(run.at), local=_local(run, rule, zones), note=run.note)


def _local(run: Run, rule: Rule, zones: Zones) -> str:
    """An instant on the clocks of a rule's zone, as RFC 3339 with the zone's offset (whole minutes of it); in UTC where it lies
    outside the years 1 to 9999 on those clocks."""
    at = EPOCH + timedelta(milliseconds=run.at)
    offset = timedelta(seconds=run.offset_s)
    if rule.every_ms is not None and rule.time_zone != "UTC":
        offset = timedelta(milliseconds=offsets(zones.zone(rule.time_zone)).at(run.at).offset)
    zone = UTC if not offset else timezone(timedelta(minutes=round(offset.total_seconds() / 60)))
    try:
        local = (at + offset).replace(tzinfo=zone)
    except OverflowError:
        local = at
    return local.isoformat(timespec=_timespec(run.at))


def _timespec(at: int) -> str:
    return "milliseconds" if at % 1000 else "seconds"


def _seconds(ms: int) -> float:
    return ms // 1000 if ms % 1000 == 0 else ms / 1000


@lru_cache(maxsize=4_096)
def _explanation(rule: Rule) -> str:
    if rule.every_ms is not None:
        return explain_interval(rule.every_ms / 1000, rule.anchor)
    return explain(cron_of(rule.cron or ""), rule.time_zone)


@lru_cache(maxsize=4_096)
def _cron_hints(rule: Rule, zones: Zones, day: int, crowd: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(hints(cron_of(rule.cron or ""), zones.zone(rule.time_zone), day, crowd))
