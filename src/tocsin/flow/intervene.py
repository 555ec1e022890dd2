"""Intervene: a job of a schedule that has not started is cancelled, or started early, by its owner.

Taking an occurrence out of SCHEDULED moves the schedule on in the same write: cancelling the occurrence ahead skips it, running it now
makes its successor. One that had fired and is cancelled before anybody has started it is a skip, too. Refused moves (somebody else
was first) are the caller's to read again.
"""

from __future__ import annotations

from tocsin.flow.agenda import FAULTS, Agenda, Broken
from tocsin.flow.occurrences import Decided, Mover
from tocsin.model.job import JobState, Status
from tocsin.model.recurrence import Range, Step
from tocsin.store.port import Change
from tocsin.store.schedules import Moved, ScheduleStore


class Intervener:
    """Takes single occurrences out of their schedules' hands."""

    def __init__(self, schedules: ScheduleStore, mover: Mover, agenda: Agenda) -> None:
        self._schedules, self._mover, self._agenda = schedules, mover, agenda

    async def take_out(self, job: JobState, after: JobState) -> bool | None:
        """Write a job's step to CANCELLED or QUEUED together with its schedule's. False: somebody else was first. None: it is no
        schedule's occurrence, or no more, so it is to be changed by itself."""
        pair = (await self._schedules.of_jobs([job.job_id]))[0]
        row = None if pair is None else pair[1]
        if row is None or job.definition.origin != "schedule":
            return None
        try:
            entry = self._agenda.remains(row) if row.status == "broken" else self._agenda.entry(row)
        except Broken as broken:
            await self._agenda.break_off(row, str(broken))
            return False
        (look,) = await self._agenda.looks([entry])
        step = self._agenda.begin(entry, look)
        try:
            _take_out(step, job, cancel=after.status is Status.CANCELLED)
        except FAULTS as error:
            await self._agenda.break_off(row, f"its next occurrence cannot be computed ({error}): define it anew")
            return False
        change = Change(before=job, after=after, timer=after.status is Status.QUEUED)
        (won,) = await self._mover.write([Decided(entry, step, row.tenant, row.name, {}, more=(change,))])
        return won is Moved.WON


def _take_out(step: Step, job: JobState, *, cancel: bool) -> None:
    at = job.definition.occurrence_at or 0
    if step.status == "broken":
        step.state.stretch = None  # nobody knows what lies between
    if job.job_id == step.state.job_id:
        if cancel:
            step.skip_ahead("its job was cancelled", drop=False)
        else:
            step.run_ahead_now()
    elif cancel and job.status is Status.QUEUED:
        # It counts as a run: it had fired.
        step.skip(Range(at, at, 1, "skipped_by_user", "its job was cancelled before it was started"))
    elif cancel:
        step.leave_out(at, job.job_id, "skipped_by_user", "its job was cancelled", counted=step.status != "broken")
        del step.skipped[job.job_id]
    else:
        step.state.held = tuple(held for held in step.state.held if held.job_id != job.job_id)
