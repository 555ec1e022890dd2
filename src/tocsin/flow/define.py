"""Define: schedules are made, changed, paused and deleted by their owners.

Every change is one move from the row that was read; who loses it to another (a firing, a second writer) reads again, so an edit
and a firing are always one after the other. What was due before an edit is settled first, by the definition that was: an edit
concerns only instants after it. Only a change of timing moves the occurrence ahead; a change of the template changes its job in
place; a definition that asks for what is there already changes nothing. A crash leaves a move whole or not at all.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import UNSET, structs

from tocsin import wire
from tocsin.clock import Clock, Entropy
from tocsin.errors import Refused
from tocsin.flow.admit import invalid, line_of
from tocsin.flow.agenda import FAULTS, REFUSED, UNREADABLE, Agenda, Broken, Entry
from tocsin.flow.asked import PauseWish, patched, pause_of, same, spec_of
from tocsin.flow.occurrences import PRECISE, Decided, Mover, definition_of, expires_at, policy_of
from tocsin.flow.present import Presenter
from tocsin.flow.queues import QueueBook, retrying_of
from tocsin.flow.quotas import Quotas
from tocsin.model.ids import new_schedule_id
from tocsin.model.job import PRIORITY, JobState, Status
from tocsin.model.recurrence import RETIMED, Look, Step, begin
from tocsin.model.schedule import Spec, State
from tocsin.store.port import Change, JobStore
from tocsin.store.schedules import Moved, ScheduleRow, ScheduleStore
from tocsin.wire import SchedulePatch, SchedulePut

ROUNDS = 64


class Definer:
    """Makes and changes schedules."""

    def __init__(
        self,
        jobs: JobStore,
        schedules: ScheduleStore,
        mover: Mover,
        agenda: Agenda,
        presenter: Presenter,
        queues: QueueBook,
        quotas: Quotas,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._jobs, self._schedules, self._mover, self._agenda = jobs, schedules, mover, agenda
        self._presenter, self._queues, self._quotas = presenter, queues, quotas
        self._clock, self._entropy = clock, entropy

    async def create(self, tenant: str, body: wire.ScheduleCreate) -> wire.Schedule:
        """A new schedule; Refused 409 where the name is taken, 422, 429."""
        made = await self._make(tenant, body.name, body)
        if made is not None:
            return await self._shown(made)
        there = (await self._schedules.named(tenant, [body.name]))[0]
        raise Refused(
            409,
            "schedule-exists",
            "The name is taken",
            f"there is a schedule named {body.name!r} already; change it (PATCH), or PUT the whole definition by its name",
            extra={} if there is None else {"schedule_id": there.schedule_id},
        )

    async def upsert(self, tenant: str, name: str, body: SchedulePut) -> tuple[wire.Schedule, bool]:
        """The schedule of that name as defined here, and whether it was made anew; Refused 422, 429."""
        for _ in range(ROUNDS):
            row = (await self._schedules.named(tenant, [name]))[0]
            if row is None:
                made = await self._make(tenant, name, body)
                if made is not None:
                    return await self._shown(made), True
                continue
            changed = await self._edit(row, body)
            if changed is not None:
                return await self._shown(changed), False
        raise too_busy(name)

    async def patch(self, tenant: str, schedule_id: str, body: SchedulePatch, if_match: int | None) -> wire.Schedule:
        """Change a schedule; Refused 404, 409, 412 or 422."""
        for _ in range(ROUNDS):
            row = await self._presenter.row(tenant, schedule_id)
            if if_match is not None and if_match != row.revision:
                detail = f"the schedule is at revision {row.revision}, not {if_match}"
                raise Refused(412, "version-mismatch", "Version mismatch", detail)
            changed = await self._edit(row, body)
            if changed is not None:
                return await self._shown(changed)
        raise too_busy(schedule_id)

    async def delete(self, tenant: str, schedule_id: str) -> None:
        """Delete a schedule: its waiting jobs are cancelled, started ones go on, its name is free. Refused 404."""
        for _ in range(ROUNDS):
            row = await self._presenter.row(tenant, schedule_id)
            entry, now = self._any_entry(row), self._clock.now_ms()
            waiting = await self._schedules.waiting(schedule_id)
            why = "its schedule was deleted"
            changes = tuple(_cancelled(job, now, why) for job in waiting)
            step = self._agenda.begin(entry, Look(now))
            decided = Decided(entry, step, tenant, row.name, {}, more=changes, gone=True)
            if (await self._mover.write([decided]))[0] is Moved.WON:
                return
        raise too_busy(schedule_id)

    async def _shown(self, row: ScheduleRow) -> wire.Schedule:
        return (await self._presenter.show([row]))[0]

    async def _make(self, tenant: str, name: str, body: SchedulePut) -> ScheduleRow | None:
        """Make a schedule; None where the name is taken."""
        now = self._clock.now_ms()
        spec, wish = spec_of(body, self._agenda.zones, now, None), pause_of(body, now, paused=False)
        if (await self._schedules.named(tenant, [name]))[0] is not None:
            return None
        await self._quotas.take_one(tenant)
        schedule_id = new_schedule_id(now, self._entropy, tenant, name)
        state = State(created_at=now, updated_at=now, passed_at=now)
        plan, zones = self._agenda.plan(spec), self._agenda.zones
        step = begin(schedule_id, 1, "active", spec, state, plan, Look(now), zones)
        step.ahead(plan.next(now))
        _pause(step, wish)
        decided = Decided(None, step, tenant, name, {})
        return decided.row if await self.write(decided) else None

    async def write(self, decided: Decided) -> bool:
        """Write a definition; False: somebody else was first. Refused where no store can hold it."""
        (won,) = await self._mover.write([decided])
        if won is Moved.REFUSED:
            raise invalid("", "a number in this schedule is too large or too small to be stored")
        return won is Moved.WON

    async def _edit(self, row: ScheduleRow, body: SchedulePut | SchedulePatch) -> ScheduleRow | None:
        """Change a schedule; its row as it then is, or None where somebody else was first."""
        try:
            entry = self._agenda.entry(row)
        except Broken as broken:
            if row.status != "broken":
                await self._agenda.break_off(row, str(broken))
                return None
            entry = self._agenda.remains(row)
        if isinstance(body, SchedulePatch):
            if row.status == "broken" and entry.spec is UNREADABLE:
                detail = "its definition cannot be read; PUT the whole definition by its name"
                raise Refused(409, "schedule-broken", "The schedule is broken", detail)
            asked = patched(body, entry.spec)
        else:
            asked = body
        now = self._clock.now_ms()
        spec = spec_of(asked, self._agenda.zones, now, None if entry.spec is UNREADABLE else entry.spec)
        wish = pause_of(body, now, paused=_is_paused(entry, now))
        if same(spec, entry.spec) and not _wanted(entry, wish, now) and row.status != "broken":
            return row
        look = Look(now) if row.status == "broken" else await self.settle(entry)
        if look is None:
            return None
        step = self._agenda.begin(entry, look)
        step.revision += 1
        step.state.updated_at = now
        if row.status == "broken":
            more = await self._mend(step, spec)
            _pause(step, wish)
        else:
            ahead = await self._ahead(entry)
            self._redefine(step, spec)
            _pause(step, wish)
            more = await self._in_place(step, entry.spec, ahead)
        decided = Decided(entry, step, row.tenant, row.name, {}, more=more)
        return decided.row if await self.write(decided) else None

    async def settle(self, entry: Entry) -> Look | None:
        """What to decide about a schedule by; None: something was due already. Then that is decided about now, by the definition that
        it was made by, and the caller reads again."""
        (look,) = await self._agenda.looks([entry])
        ahead, step = await self._ahead(entry), self._agenda.begin(entry, look)
        waits = ahead is not None and (ahead.status is not Status.SCHEDULED or ahead.due_at > look.now)
        if waits or (ahead is None and (not entry.state.owing or step.outdated)):
            return look
        try:
            if ahead is not None:
                step.fire_ahead()
            else:
                step.pay()
        except FAULTS as error:
            await self._agenda.break_off(entry.row, f"its next occurrence cannot be computed ({error}): define it anew")
            return None
        (won,) = await self._mover.write([Decided(entry, step, entry.row.tenant, entry.row.name, {})])
        if won is Moved.REFUSED:
            await self._agenda.break_off(entry.row, REFUSED)
        return None

    async def _ahead(self, entry: Entry) -> JobState | None:
        return None if entry.state.job_id is None else (await self._jobs.states([entry.state.job_id]))[0]

    def _redefine(self, step: Step, spec: Spec) -> None:
        """Put a new definition in the place of the old one."""
        old = step.spec
        step.end_pause()
        if (spec.rule, spec.start_at, spec.end_at, spec.max_runs) != (
            old.rule,
            old.start_at,
            old.end_at,
            old.max_runs,
        ):
            step.retime(spec, self._agenda.plan(spec))
        elif not same(spec, old):
            step.spec = spec

    async def _mend(self, step: Step, spec: Spec) -> tuple[Change, ...]:
        """Put a definition in the place of one that could not be computed. Jobs that still wait were made by nobody knows what; those
        that are due fire as any job does."""
        now = step.look.now
        step.mend(spec, self._agenda.plan(spec))
        waiting = await self._schedules.waiting(step.schedule_id)
        others = [job for job in waiting if job.job_id not in step.skipped]
        return tuple(_cancelled(job, now, RETIMED) for job in others if job.due_at > now)

    async def _in_place(self, step: Step, old: Spec, ahead: JobState | None) -> tuple[Change, ...]:
        """The change of the job of the occurrence ahead, if that stays and is to be made of another template."""
        state, at = step.state, step.state.next_at
        if ahead is None or at is None or state.job_id != ahead.job_id or ahead.status is not Status.SCHEDULED:
            return ()
        fire_at = at + step.spread_in_ms(ahead.job_id, at)
        if at <= step.look.now or (step.spec.job == old.job and fire_at == state.fire_at):
            return ()  # due, but inside its window: it fires as it was
        state.fire_at = fire_at
        template, tenant = step.spec.job, ahead.line.tenant
        retry = policy_of(template, retrying_of(await self._queues.get(tenant, template.queue)))
        definition = definition_of(template, at, fire_at, retry, step.schedule_id, "schedule", ahead.created_at)
        # The run is the same, so its key is, too, wherever in a new window it fires.
        definition = structs.replace(definition, key_at=ahead.definition.key_at)
        after = replace(
            ahead,
            version=ahead.version + 1,
            line=line_of(tenant, template.queue, template.timing or PRECISE, template.target),
            priority=PRIORITY[template.priority or "normal"],
            due_at=fire_at,
            fire_at=fire_at,
            expires_at=expires_at(template, fire_at),
            definition=definition,
        )
        return (Change(before=ahead, after=after, timer=True),)

    def _any_entry(self, row: ScheduleRow) -> Entry:
        """A row made ready; one that cannot be computed any more as far as it goes, so that it can be mended or deleted."""
        try:
            return self._agenda.entry(row)
        except Broken:
            return self._agenda.remains(row)


def _cancelled(job: JobState, now: int, why: str) -> Change:
    return Change(before=job, after=replace(job, status=Status.CANCELLED, finished_at=now, last_error=why))


def _is_paused(entry: Entry, now: int) -> bool:
    until = entry.state.pause_until
    return entry.row.status == "paused" and (until is None or until > now)


def _wanted(entry: Entry, wish: PauseWish, now: int) -> bool:
    """Whether a wish about the pause would change anything."""
    state, paused = entry.state, _is_paused(entry, now)
    will_be = paused if wish.paused is UNSET else wish.paused
    if will_be != paused:
        return True
    if not paused:
        return False
    return (wish.note is not UNSET and wish.note != state.pause_note) or (
        wish.until is not UNSET and wish.until != state.pause_until
    )


def _pause(step: Step, wish: PauseWish) -> None:
    """Pause, go on, or change what a pause says."""
    state, paused = step.state, step.status == "paused"
    if wish.paused is False and paused:
        step.resume()
        return
    if wish.paused is True and not paused:
        step.pause(None if wish.until is UNSET else wish.until)
    elif paused and wish.until is not UNSET and wish.until != state.pause_until:
        step.pause_until(wish.until)
    if step.status == "paused" and wish.note is not UNSET:
        state.pause_note = wish.note


def too_busy(name: str) -> Refused:
    """The problem of a schedule that others keep changing."""
    return Refused(
        409, "busy", "Too many changes at once", f"{name} was changed by others {ROUNDS} times meanwhile; try again"
    )
