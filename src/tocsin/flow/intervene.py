"""Intervene: a waiting job of a schedule is cancelled or started early by its owner.

That takes an occurrence out of SCHEDULED, so the schedule moves on in the same write: cancelling the occurrence ahead skips it, running
it now makes its successor. Refused moves (somebody else was first) are the caller's to read again.
"""

from __future__ import annotations

from tocsin import telemetry
from tocsin.clock import Clock
from tocsin.flow.agenda import FAULTS, Agenda, Broken
from tocsin.flow.occurrences import Decided, Mover
from tocsin.model.job import JobState, Status
from tocsin.model.recurrence import Step
from tocsin.store.port import Change
from tocsin.store.schedules import Moved, ScheduleStore, SkipRow


class Intervener:
    """Takes single occurrences out of their schedules' hands."""

    def __init__(self, schedules: ScheduleStore, mover: Mover, agenda: Agenda, clock: Clock) -> None:
        self._schedules, self._mover, self._agenda, self._clock = schedules, mover, agenda, clock

    async def take_out(self, job: JobState, after: JobState) -> bool | None:
        """Write a waiting job's step to CANCELLED or QUEUED together with its schedule's. False: somebody else was first. None: it
        has no schedule that could be moved, so it is to be changed by itself."""
        pair = (await self._schedules.of_jobs([job.job_id]))[0]
        row = None if pair is None else pair[1]
        if row is None or row.status == "broken":
            return None
        try:
            entry = self._agenda.entry(row)
        except Broken as broken:
            await self._agenda.break_off(row, str(broken))
            return None
        (look,) = await self._agenda.looks([entry])
        step = self._agenda.begin(entry, look)
        if job.definition.origin == "schedule":
            try:
                _take_out(step, job, cancel=after.status is Status.CANCELLED)
            except FAULTS as error:
                await self._agenda.break_off(row, f"its next occurrence cannot be computed ({error}): define it anew")
                return None
        change = Change(before=job, after=after, timer=after.status is Status.QUEUED)
        (won,) = await self._mover.write([Decided(entry, step, row.tenant, row.name, {}, more=(change,))])
        return won is Moved.WON

    async def note_cancelled(self, job: JobState) -> None:
        """An occurrence that had fired and was cancelled before anybody started it: that is a skip, too."""
        made = job.definition
        if made.schedule_id is None or made.occurrence_at is None or made.origin != "schedule" or job.attempt:
            return
        skip = SkipRow(
            schedule_id=made.schedule_id,
            first=made.occurrence_at,
            last=made.occurrence_at,
            count=1,
            reason="skipped_by_user",
            recorded_at=self._clock.now_ms(),
            detail="its job was cancelled before it was started",
        )
        await self._schedules.add_skips([skip])
        telemetry.SCHEDULE_SKIPS.labels(skip.reason).inc()


def _take_out(step: Step, job: JobState, *, cancel: bool) -> None:
    at = job.definition.occurrence_at or 0
    if job.job_id == step.state.job_id:
        if cancel:
            step.skip_ahead("its job was cancelled", drop=False)
        else:
            step.run_ahead_now()
        return
    if cancel:
        step.leave_out(at, job.job_id, "skipped_by_user", "its job was cancelled", counted=True)
        del step.skipped[job.job_id]
        return
    step.state.held = tuple(held for held in step.state.held if held.job_id != job.job_id)
