"""Occurrences: from a decided step to one write, and from the write to the near tier.

`Mover.write` turns steps of schedules into moves of the store (row, jobs, fires, changes and skips, all or nothing), writes them as a
batch, and tells the near tier, the tally and the metrics what has come of those that won. A crash after the write and before that:
the timers are there, the loader or the recheck finds them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec import UNSET

from tocsin import telemetry
from tocsin.clock import Clock
from tocsin.flow.admit import line_of
from tocsin.flow.agenda import Agenda, Entry
from tocsin.flow.horizon import Horizon, due_of
from tocsin.flow.park import Parker
from tocsin.flow.queues import QueueBook, retrying_of
from tocsin.flow.tally import Tally
from tocsin.flow.telling import told
from tocsin.model.job import PRIORITY, TERMINAL, Definition, JobState, Line, Retrying, Status, encode_definition
from tocsin.model.recurrence import Make, Range, Step
from tocsin.model.schedule import Spec, encode
from tocsin.near.port import NearTier
from tocsin.store.port import Change, Due, JobStore, NewJob
from tocsin.store.schedules import Move, Moved, ScheduleRow, ScheduleStore, SkipRow
from tocsin.wire import JobTemplate, Timing

PRECISE = Timing()


@dataclass(slots=True)
class Decided:
    """A step to be written over the entry it was decided from (None: a new schedule). `dues` are those of `step.fires` that came from
    the near tier; `more` are changes of the caller's own. `gone` deletes the schedule. `row` is what it is then."""

    entry: Entry | None
    step: Step
    tenant: str
    name: str
    dues: dict[str, Due]
    more: tuple[Change, ...] = ()
    gone: bool = False
    won: Moved | None = None
    row: ScheduleRow | None = None
    fired: tuple[Due, ...] = ()


class Mover:
    """Writes steps of schedules."""

    def __init__(
        self,
        jobs: JobStore,
        schedules: ScheduleStore,
        near: NearTier,
        queues: QueueBook,
        parker: Parker,
        agenda: Agenda,
        tally: Tally,
        clock: Clock,
    ) -> None:
        self._jobs, self._schedules, self._near = jobs, schedules, near
        self._queues, self._parker, self._agenda = queues, parker, agenda
        self._horizon, self._tally, self._clock = Horizon(near, clock), tally, clock

    async def write(self, decided: Sequence[Decided]) -> list[Moved]:
        """Write steps of different schedules; each answer is also in its `won`. What was due from the near tier and fired is in
        `fired`, still to be pushed by the caller; everything else is told here."""
        if not decided:
            return []
        states = await self._states(decided)
        retries = await self._retries(decided)
        moves: list[Move] = []
        for one in decided:
            move = self._move(one, states, retries)
            if move is None:
                one.won = Moved.STALE
            else:
                moves.append(move)
                one.won = None
        answers = iter(await self._schedules.move(moves))
        written = iter(moves)
        moved: list[tuple[Decided, Move]] = []
        for one in decided:
            if one.won is None:
                move, one.won = next(written), next(answers)
                if one.won is Moved.WON:
                    moved.append((one, move))
        await told("schedules moved", self._tell(moved))
        return [one.won for one in decided if one.won is not None]

    async def _states(self, decided: Sequence[Decided]) -> dict[str, JobState]:
        """The jobs that must be read to be changed: not those that simply fire."""
        wanted = [
            job_id
            for one in decided
            for job_id in (
                *one.step.skipped,
                *one.step.cancelled,
                *one.step.held,
                *one.step.released,
                *one.step.stopped,
                *(job for job in one.step.fires if job not in one.dues),
            )
        ]
        found = await self._jobs.states(wanted) if wanted else []
        return {job.job_id: job for job in found if job is not None}

    async def _retries(self, decided: Sequence[Decided]) -> dict[tuple[str, str], Retrying]:
        """The retry policies of the queues that jobs are made for."""
        wanted = {(one.tenant, one.step.spec.job.queue) for one in decided if one.step.makes}
        return {(tenant, queue): retrying_of(await self._queues.get(tenant, queue)) for tenant, queue in wanted}

    def _move(self, one: Decided, states: dict[str, JobState], retries: dict[tuple[str, str], Retrying]) -> Move | None:
        step, now = one.step, one.step.look.now
        changes = [*one.more]
        skips = [*step.skips]
        fires: list[Due] = []
        for job_id in step.fires:
            job = states.get(job_id)
            if job_id in one.dues:
                fires.append(one.dues[job_id])
            elif job is None or job.status is not Status.SCHEDULED:
                return None
            else:
                fires.append(due_of(job))
        for job_id, why in (*step.skipped.items(), *step.cancelled.items()):
            job, ended = states.get(job_id), Status.SKIPPED if job_id in step.skipped else Status.CANCELLED
            if job is not None and job.status is Status.SCHEDULED:
                changes.append(Change(before=job, after=replace(job, status=ended, finished_at=now, last_error=why)))
        for job_id in step.held:
            job = states.get(job_id)
            if job is None or job.status is not Status.SCHEDULED:
                return None
            after = replace(job, version=job.version + 1, due_at=step.relook_at(job_id))
            changes.append(Change(before=job, after=after, timer=True))
        for job_id in step.released:
            job = states.get(job_id)
            if job is not None and job.status is Status.SCHEDULED:
                after = replace(job, status=Status.QUEUED, version=job.version + 1, due_at=now, queued_at=now)
                changes.append(Change(before=job, after=after, timer=True))
        for job_id in step.stopped:
            job = states.get(job_id)
            if job is None or job.status is not step.look.going.get(job_id):
                # Not as the decision saw it: ended, and nobody would tell the one that waits; or claimed, and it must be waited for.
                return None
            if (after_stop := _stopped(job, now)) is not None:
                changes.append(Change(before=job, after=after_stop))
                at = job.definition.occurrence_at
                if not job.attempt and at is not None and job.definition.origin == "schedule":
                    skips.append(Range(at, at, 1, "overlap", "a later occurrence replaced it before it was started"))
                    step.count_left_out("overlap", 1)
        one.row = None if one.gone else self._row(one)
        return Move(
            schedule_id=step.schedule_id,
            serial=0 if one.entry is None else one.entry.row.serial,
            after=one.row,
            fires=tuple(fires),
            changes=tuple(changes),
            jobs=tuple([self._new_job(one, make, retries) for make in step.makes]),
            skips=tuple(_skip_row(step.schedule_id, skip, now) for skip in skips),
        )

    def _row(self, one: Decided) -> ScheduleRow:
        step, entry = one.step, one.entry
        same = entry is not None and entry.spec is step.spec
        return ScheduleRow(
            schedule_id=step.schedule_id,
            tenant=one.tenant,
            name=one.name,
            revision=step.revision,
            serial=1 if entry is None else entry.row.serial + 1,
            status=step.status,
            look_at=step.look_at,
            spec=entry.row.spec if same and entry is not None else encode(step.spec),
            state=encode(step.state),
        )

    def _new_job(self, one: Decided, make: Make, retries: dict[tuple[str, str], Retrying]) -> NewJob:
        spec = one.step.spec
        retry = policy_of(spec.job, retries[one.tenant, spec.job.queue])
        return new_job(one.step.schedule_id, one.tenant, spec, make, retry, one.step.look.now)

    async def _tell(self, told: Sequence[tuple[Decided, Move]]) -> None:
        ready: list[Due] = []
        later: list[Due] = []
        gone: list[str] = []
        moved: dict[tuple[Line, Status | None, Status], int] = defaultdict(int)
        for one, move in told:
            if one.entry is not None and one.entry.state.job_id is not None:
                self._agenda.take(one.entry.state.job_id)  # nobody will ask for it any more
            if move.after is not None:
                entry = Entry(move.after, one.step.spec, one.step.state, one.step.plan)
                self._agenda.keep(entry)
            one.fired = tuple(due for due in move.fires if due.job_id in one.dues)
            ready += [due for due in move.fires if due.job_id not in one.dues]
            for due in move.fires:
                moved[due.line, Status.SCHEDULED, Status.QUEUED] += 1
            for new in move.jobs:
                due = Due(new.fire_at, new.job_id, 1, new.line, new.priority)
                (ready if new.queued else later).append(due)
                moved[new.line, None, Status.QUEUED if new.queued else Status.SCHEDULED] += 1
            for change in move.changes:
                if change.before.status is not Status.RUNNING:  # a worker's attempt stays in the index of leases
                    gone.append(change.before.job_id)
                if change.timer:
                    (ready if change.after.status is Status.QUEUED else later).append(due_of(change.after))
            if move.changes:
                self.count(move.changes)
            if move.after is not None:
                for reason, count in one.step.left_out.items():
                    telemetry.SCHEDULE_SKIPS.labels(reason).inc(count)
        for (line, before, after), count in moved.items():
            self._tally.moved(line, before, after, count)
        telemetry.CREATED.inc(sum(len(move.jobs) for _, move in told))
        telemetry.FIRED.inc(sum(len(move.fires) for _, move in told))
        if gone:
            await self._near.remove(gone)
        if later:
            await self._horizon.offer(later)
        if ready:
            await self._parker.push(ready)

    def count(self, changes: Sequence[Change]) -> None:
        """Jobs have been changed: tell the figures."""
        for change in changes:
            before, after = change.before, change.after
            if before.line == after.line:
                self._tally.moved(after.line, before.status, after.status)
            else:
                self._tally.left(before.line, before.status)
                self._tally.moved(after.line, None, after.status)
            if after.status is Status.SKIPPED:
                telemetry.SKIPPED.inc()
            elif after.status is Status.CANCELLED:
                telemetry.CANCELLED.inc()


def new_job(schedule_id: str, tenant: str, spec: Spec, make: Make, retry: Retrying, now: int) -> NewJob:
    """The job of an occurrence, from its schedule's template."""
    template = spec.job
    line = line_of(tenant, template.queue, template.timing or PRECISE, template.target)
    definition = definition_of(template, make.at, make.fire_at, retry, schedule_id, make.origin, now)
    return NewJob(
        job_id=make.job_id,
        line=line,
        priority=PRIORITY[template.priority or "normal"],
        fire_at=make.fire_at,
        timeout_ms=definition.timeout_ms,
        queued=make.queued,
        definition=encode_definition(definition),
        expires_at=expires_at(template, make.fire_at),
        schedule_id=schedule_id,
    )


def policy_of(template: JobTemplate, default: Retrying) -> Retrying:
    """A job's retry policy: what its template asks for, then its queue's. A queue's that has come to contradict the template's, which
    was checked without it, gives way: an occurrence must not be lost for that."""
    asked = template.retry
    if asked is None:
        return default
    first_s = default.initial_backoff_s if asked.initial_backoff_s is UNSET else asked.initial_backoff_s
    longest_s = default.max_backoff_s if asked.max_backoff_s is UNSET else asked.max_backoff_s
    if first_s > longest_s:
        first_s, longest_s = (longest_s, longest_s) if asked.initial_backoff_s is UNSET else (first_s, first_s)
    return Retrying(
        max_attempts=default.max_attempts if asked.max_attempts is UNSET else asked.max_attempts,
        initial_backoff_s=first_s,
        max_backoff_s=longest_s,
    )


def definition_of(
    template: JobTemplate, at: int, fire_at: int, retry: Retrying, schedule_id: str, origin: str, made_at: int
) -> Definition:
    """What the job of an occurrence is made of."""
    return Definition(
        target=template.target,
        run_at=at,
        key_at=fire_at,
        payload=template.payload,
        name=template.name,
        timing=template.timing or PRECISE,
        retry=retry,
        expires_after_s=template.expires_after_s,
        tags=template.tags or {},
        schedule_id=schedule_id,
        occurrence_at=None if origin == "manual" else at,
        origin=origin,
        made_at=made_at,
    )


def expires_at(template: JobTemplate, fire_at: int) -> int | None:
    """When a job of this template that fires then is too old to start."""
    return None if template.expires_after_s is None else fire_at + round(template.expires_after_s * 1000)


def _stopped(job: JobState, now: int) -> JobState | None:
    """A job under way that a later occurrence replaces; None where nothing is to be done."""
    if job.status in TERMINAL or job.status is Status.CANCEL_REQUESTED:
        return None
    if job.status is Status.RUNNING:
        return replace(job, status=Status.CANCEL_REQUESTED)
    why = "replaced by a later occurrence of its schedule"
    return replace(job, status=Status.CANCELLED, finished_at=now, lease_until=None, last_error=why)


def _skip_row(schedule_id: str, skip: Range, now: int) -> SkipRow:
    return SkipRow(
        schedule_id=schedule_id,
        first=skip.first,
        last=skip.last,
        count=skip.count,
        reason=skip.reason,
        recorded_at=now,
        detail=skip.detail,
    )
