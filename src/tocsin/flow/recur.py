"""Recur: what a schedule's occurrence does when it is due.

The dispatcher hands over the due members that are jobs of schedules. The occurrence ahead of a schedule fires, is skipped or is
held in one move with the making of the next one (`model.recurrence` decides, `flow.occurrences` writes): the row first, so a late
node cannot make one twice. A retry, and whatever a schedule has started beside its occurrences, fires as any job does.

A crash before the move: the member is offered again. After it: the job is QUEUED at its version, and the next dispatcher pushes it.
A move that is refused was decided from a row that has moved on; it is read again and decided anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from tocsin import telemetry
from tocsin.clock import Clock
from tocsin.flow.agenda import FAULTS, REFUSED, Agenda, Broken, Entry
from tocsin.flow.occurrences import Decided, Mover
from tocsin.model.job import JobState, Status
from tocsin.model.recurrence import Look
from tocsin.store.port import Change, Due, Fired, JobStore
from tocsin.store.schedules import Moved, ScheduleStore
from tocsin.telemetry import log

ROUNDS = 4


@dataclass(slots=True)
class Recurred:
    """What became of due members: `ready` are to be pushed (`fired` of them by a move), `again` to be looked at again at once; the
    rest is done with. `answers` are those of members that fired as any job does."""

    ready: list[Due] = field(default_factory=list)
    fired: list[Due] = field(default_factory=list)
    again: list[Due] = field(default_factory=list)
    answers: list[tuple[Due, Fired]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Case:
    """A due job of a schedule, with the schedule as it was read. `job` is None where the memory was enough."""

    due: Due
    entry: Entry
    job: JobState | None


class Recurer:
    """Decides about due occurrences."""

    def __init__(self, jobs: JobStore, schedules: ScheduleStore, mover: Mover, agenda: Agenda, clock: Clock) -> None:
        self._jobs, self._schedules = jobs, schedules
        self._mover, self._agenda, self._clock = mover, agenda, clock

    async def fire(self, dues: Sequence[Due]) -> Recurred:
        """Decide about due jobs of schedules. Raises ServerUnavailable, and then nothing is known to have happened."""
        done = Recurred()
        waiting = list(dues)
        for attempt in range(ROUNDS):
            cases, waiting = await self._cases(waiting, done, fresh=attempt > 0)
            if cases:
                waiting += await self._settle(cases, done)
            if not waiting:
                break
        done.again += waiting
        return done

    async def _cases(self, dues: Sequence[Due], done: Recurred, *, fresh: bool) -> tuple[list[_Case], list[Due]]:
        """Sort due members: the cases to decide, one of each schedule, and those that wait for their turn."""
        cases: list[_Case] = []
        unknown: list[Due] = []
        for due in dues:
            entry = self._agenda.take(due.job_id)
            if entry is None or fresh or due.version != 1:
                unknown.append(due)
            else:
                cases.append(_Case(due, entry, None))
        cases += await self._read(unknown, done)
        first: dict[str, _Case] = {}
        for case in cases:
            first.setdefault(case.entry.row.schedule_id, case)
        rest = [case.due for case in cases if first[case.entry.row.schedule_id] is not case]
        return list(first.values()), rest

    async def _read(self, dues: Sequence[Due], done: Recurred) -> list[_Case]:
        """Look at due jobs in the store; those that are no occurrence to be decided fire as any job does."""
        if not dues:
            return []
        cases: list[_Case] = []
        plain: list[Due] = []
        orphans: list[JobState] = []
        found = await self._schedules.of_jobs([due.job_id for due in dues])
        for due, pair in zip(dues, found, strict=True):
            job, row = (None, None) if pair is None else pair
            if job is None or not _decides(job, due):
                plain.append(due)
            elif row is None:
                orphans.append(job)
            elif row.status == "broken":
                plain.append(due)
            else:
                try:
                    cases.append(_Case(due, self._agenda.entry(row), job))
                except Broken as broken:
                    await self._agenda.break_off(row, str(broken))
                    plain.append(due)
        await self._fire_plainly(plain, done)
        await self._cancel(orphans)
        return cases

    async def _fire_plainly(self, dues: Sequence[Due], done: Recurred) -> None:
        """Let due jobs fire as any job does."""
        if not dues:
            return
        answers = await self._jobs.fire(dues)
        done.answers += zip(dues, answers, strict=True)
        done.ready += [due for due, one in zip(dues, answers, strict=True) if one in (Fired.WON, Fired.ALREADY)]

    async def _cancel(self, orphans: Sequence[JobState]) -> None:
        """Occurrences whose schedule was deleted while they were written."""
        now, why = self._clock.now_ms(), "its schedule was deleted"
        ends = [
            Change(before=job, after=replace(job, status=Status.CANCELLED, finished_at=now, last_error=why))
            for job in orphans
        ]
        if ends:
            won = await self._jobs.change(ends)
            self._mover.count([change for change, ok in zip(ends, won, strict=True) if ok])

    async def _settle(self, cases: Sequence[_Case], done: Recurred) -> list[Due]:
        """Decide and write; answers the members whose write was lost to another."""
        looks = await self._agenda.looks([case.entry for case in cases])
        decided = [self._decide(case, look) for case, look in zip(cases, looks, strict=True)]
        answers = await self._mover.write(decided)
        lost: list[Due] = []
        refused: list[Due] = []
        for case, one, won in zip(cases, decided, answers, strict=True):
            match won:
                case Moved.WON:
                    done.ready += one.fired
                    done.fired += one.fired
                    if one.step.mark:
                        telemetry.SCHEDULE_REPAIRS.labels("zone data").inc()
                case Moved.LOST | Moved.STALE:
                    lost.append(case.due)
                case Moved.REFUSED:
                    # No store can hold what it asks for. The schedule stands still; its due job fires as any job does, also where
                    # not even that can be written: asked again and again, it would keep all others waiting.
                    await self._agenda.break_off(case.entry.row, REFUSED)
                    refused.append(case.due)
                case _:
                    assert_never(won)
        await self._fire_plainly(refused, done)
        return lost

    def _decide(self, case: _Case, look: Look) -> Decided:
        entry, job_id = case.entry, case.due.job_id
        # As the decision before this one has left it: those of one batch fire one after another, too.
        catch_up_at = self._agenda.catch_up_at(look.now)
        if catch_up_at != look.catch_up_at:
            look = replace(look, catch_up_at=catch_up_at)
        step = self._agenda.begin(entry, look)
        try:
            if job_id == step.state.job_id:
                step.fire_ahead()
            elif any(held.job_id == job_id for held in step.state.held):
                step.advance()
                if any(held.job_id == job_id for held in step.state.held):
                    step.held.append(job_id)
            else:
                assert case.job is not None, "what is not ahead was read"
                step.judge_straggler(case.job.definition.occurrence_at or 0, job_id, case.job.fire_at)
        except FAULTS as error:
            # One schedule that cannot be computed stops nobody else: its due job fires, and it stands still, visibly.
            step = self._agenda.begin(entry, look)
            step.fires.append(job_id)
            step.break_off(f"its next occurrence cannot be computed ({error}): change its timing")
            log.error("schedule_broken", schedule=step.schedule_id, error=repr(error), next="the other schedules go on")
        if any(make.origin == "schedule" and make.job_id != step.state.job_id for make in step.makes):
            self._agenda.caught_up()
        return Decided(entry, step, entry.row.tenant, entry.row.name, {job_id: case.due})


def _decides(job: JobState, due: Due) -> bool:
    """Whether a due job is an occurrence that has not fired, at this version."""
    return (
        job.status is Status.SCHEDULED
        and job.version == due.version
        and job.due_at <= due.due_at
        and job.definition.origin == "schedule"
    )
