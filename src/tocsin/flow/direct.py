"""Direct: what an owner does beside a schedule's own course: trigger a run, skip the next, backfill a past range.

A trigger is an ordinary job with a key of the client's, made and answered like one. Skipping and backfilling are moves of the
schedule; who loses one reads again. A backfill is durable on the schedule's row before it is answered, and goes on from there.
"""

from __future__ import annotations

from msgspec import UNSET, Raw, structs

from tocsin import wire
from tocsin.clock import Clock, Entropy, ms_of
from tocsin.errors import Refused
from tocsin.flow.admit import invalid
from tocsin.flow.agenda import UNREADABLE, Agenda, Broken, Entry
from tocsin.flow.define import ROUNDS, Definer, too_busy
from tocsin.flow.look import not_found
from tocsin.flow.occurrences import Decided, Mover, new_job, policy_of
from tocsin.flow.park import Parker
from tocsin.flow.present import Presenter
from tocsin.flow.queues import QueueBook, retrying_of
from tocsin.flow.quotas import Quotas
from tocsin.flow.tally import Tally
from tocsin.flow.telling import told
from tocsin.model.ids import occurrence_id
from tocsin.model.job import JobState, Status
from tocsin.model.recurrence import Make
from tocsin.model.schedule import Backlog
from tocsin.store.port import Due, JobStore, Key, Made
from tocsin.store.schedules import ScheduleRow
from tocsin.telemetry import CREATED, REPLAYED

MOST_BACKLOGS = 100


class Director:
    """Acts on schedules at their owners' wish."""

    def __init__(
        self,
        jobs: JobStore,
        mover: Mover,
        agenda: Agenda,
        presenter: Presenter,
        definer: Definer,
        queues: QueueBook,
        quotas: Quotas,
        parker: Parker,
        tally: Tally,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._jobs, self._mover, self._agenda = jobs, mover, agenda
        self._presenter, self._definer, self._queues, self._quotas = presenter, definer, queues, quotas
        self._parker, self._tally, self._clock, self._entropy = parker, tally, clock, entropy

    async def trigger(
        self, tenant: str, schedule_id: str, body: wire.Trigger, key: str | None, body_hash: bytes
    ) -> tuple[JobState, bool]:
        """A run now, beside the schedule; the job, and whether it is a replay. Refused 404, 409 or 429."""
        row = await self._presenter.row(tenant, schedule_id)
        entry = self._agenda.remains(row)
        if row.status == "finished" or entry.spec is UNREADABLE:
            detail = f"the schedule is {row.status} and starts nothing any more; change its end_at or max_runs, or define it anew"
            raise Refused(409, "wrong-state", "Wrong state", detail, extra={"schedule_status": row.status})
        await self._quotas.take_one(tenant)
        now, spec = self._clock.now_ms(), entry.spec
        if body.payload is not UNSET:
            spec = structs.replace(spec, job=structs.replace(spec.job, payload=Raw(bytes(body.payload))))
        request = self._entropy.bytes(12).hex()
        job_id = occurrence_id(schedule_id, row.revision, now, "manual", leader=spec.leading, request=request)
        retry = policy_of(spec.job, retrying_of(await self._queues.get(tenant, spec.job.queue)))
        new = new_job(schedule_id, tenant, spec, Make(job_id, now, now, queued=True, origin="manual"), retry, now)
        if key is not None:
            new = structs.replace(new, key=Key(tenant=tenant, text=key, body_hash=body_hash))
        (created,) = await self._jobs.create([new])
        if created.made is Made.CONFLICT:
            detail = f"this Idempotency-Key was used for another body and stands for {created.job_id}; use a new key"
            kind, title = "idempotency-key-conflict", "Idempotency-Key is bound to another request"
            raise Refused(409, kind, title, detail)
        if created.made is Made.REFUSED:
            raise invalid("", "a number in this job is too large or too small to be stored")
        if created.made is Made.CREATED:
            CREATED.inc()
            self._tally.moved(new.line, None, Status.QUEUED)
            await told("triggered", self._parker.push([Due(new.fire_at, created.job_id, 1, new.line, new.priority)]))
        else:
            REPLAYED.inc()
        (job,) = await self._jobs.states([created.job_id])
        if job is None:
            raise not_found(created.job_id)  # a replay of one that is archived by now
        return job, created.made is Made.REPLAYED

    async def skip_next(self, tenant: str, schedule_id: str) -> wire.Schedule:
        """Leave the next occurrence out; Refused 404 or 409."""
        for _ in range(ROUNDS):
            row = await self._presenter.row(tenant, schedule_id)
            entry = self._ready(row)
            look = await self._definer.settle(entry)
            if look is None:
                continue
            if entry.state.next_at is None:
                detail = f"the schedule is {row.status} and has no next occurrence to skip; one that is paused is to be resumed first"
                raise Refused(409, "wrong-state", "Wrong state", detail, extra={"schedule_status": row.status})
            step = self._agenda.begin(entry, look)
            step.skip_ahead(None)
            decided = Decided(entry, step, tenant, row.name, {})
            if await self._definer.write(decided) and decided.row is not None:
                return (await self._presenter.show([decided.row]))[0]
        raise too_busy(schedule_id)

    async def backfill(self, tenant: str, schedule_id: str, body: wire.Backfill) -> wire.Backfilled:
        """Run every occurrence of a past range; Refused 404, 409, 422 or 429."""
        first, end, now = ms_of(body.from_), ms_of(body.to), self._clock.now_ms()
        if end > now:
            raise invalid("/to", "in the future; a backfill runs what is past, so choose now or earlier")
        if first >= end:
            raise invalid("/from", "not before `to`; the range is [from, to)")
        name, charged = f"bf_{self._entropy.bytes(10).hex()}", False
        for _ in range(ROUNDS):
            row = await self._presenter.row(tenant, schedule_id)
            entry = self._ready(row)
            # Also those that were decided before their time: a backfill runs what it is asked for.
            count = self._agenda.plan(entry.spec).count(first - 1, end - 1)
            if count > body.max:
                detail = f"{count} occurrences lie in this range, more than max {body.max}; choose a shorter range or a larger max"
                raise invalid("/max", detail)
            if not count:
                return wire.Backfilled(backfill_id=name, count=0)
            if len(entry.state.backlogs) >= MOST_BACKLOGS:
                detail = f"{MOST_BACKLOGS} backfills of this schedule are going on; wait until one has ended"
                raise Refused(409, "too-many-backfills", "Too many backfills", detail)
            if not charged:
                await self._quotas.take_one(tenant)
                charged = True
            (look,) = await self._agenda.looks([entry])
            step = self._agenda.begin(entry, look)
            spec = entry.spec
            step.state.backlogs += (
                Backlog(
                    kind="backfill",
                    name=name,
                    rule=spec.rule,
                    low=max(first, spec.start_at if spec.start_at is not None else first) - 1,
                    high=min(end, spec.end_at + 1 if spec.end_at is not None else end),
                    left=count,
                    newest_first=body.order == "newest_first",
                    concurrency=body.concurrency,
                ),
            )
            step.advance()
            if await self._definer.write(Decided(entry, step, tenant, row.name, {})):
                return wire.Backfilled(backfill_id=name, count=count)
        raise too_busy(schedule_id)

    def _ready(self, row: ScheduleRow) -> Entry:
        try:
            entry = self._agenda.entry(row)
        except Broken as broken:
            raise _broken(str(broken)) from broken
        if row.status == "broken":
            raise _broken(entry.state.broken or "it cannot be computed")
        return entry


def _broken(why: str) -> Refused:
    return Refused(409, "schedule-broken", "The schedule is broken", f"{why}; then try again")
