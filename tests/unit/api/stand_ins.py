"""A desk without a store: it remembers what it was asked and answers what a test told it to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.asgi import Http
from tocsin import wire
from tocsin.api import Desk, create_app
from tocsin.api.auth import parse
from tocsin.clock import ManualClock, SeededEntropy, datetime_of
from tocsin.errors import Refused
from tocsin.flow.admit import Admitted, Draft, Wanted
from tocsin.flow.look import not_found
from tocsin.flow.tokens import Lease, LeaseTokens
from tocsin.model.ids import new_ids, new_schedule_id
from tocsin.model.job import Definition, JobState, Lane, Line, Retrying, Status
from tocsin.store.port import Beaten, JobPage, NewJob
from tocsin.store.settings import QueueRow, SigningKeyRow, TenantRow, TokenRow

NOW_MS = 1_900_000_000_000
OWNER = "tcs_owner_0123456789"


def made_job(job_id: str, tenant: str = "shop", **changes: Any) -> JobState:
    """A job that waits for its time."""
    target = wire.HttpTarget(url="https://a.example/x", headers={"X-Key": "very secret"})
    return replace(
        JobState(
            job_id=job_id,
            line=Line(tenant, "mail", Lane.PRECISE, "", "https://a.example:443"),
            priority=0,
            status=Status.SCHEDULED,
            version=1,
            attempt=0,
            tries=0,
            due_at=NOW_MS + 60_000,
            fire_at=NOW_MS + 60_000,
            created_at=NOW_MS,
            definition=Definition(target=target, run_at=NOW_MS + 60_000, key_at=NOW_MS + 60_000, retry=Retrying()),
        ),
        **changes,
    )


def made_schedule(schedule_id: str, name: str, **changes: Any) -> wire.Schedule:
    """A schedule that calls a URL each morning."""
    target = wire.HttpTarget(url="https://a.example/x", headers={"X-Key": "very secret"})
    fields: dict[str, Any] = {
        "schedule_id": schedule_id,
        "name": name,
        "revision": 1,
        "status": "active",
        "broken_reason": None,
        "cron": "0 2 * * *",
        "time_zone": "Asia/Kolkata",
        "every_s": None,
        "anchor": None,
        "job_template": wire.JobTemplate(queue="mail", target=target),
        "missed_runs": wire.MissedRuns(),
        "overlap": "allow",
        "start_at": None,
        "end_at": None,
        "max_runs": None,
        "paused": False,
        "pause_note": None,
        "pause_until": None,
        "next_run_at": "2030-03-17T20:30:00Z",
        "next_runs": [wire.Run(at="2030-03-17T20:30:00Z", local="2030-03-18T02:00:00+05:30")],
        "explanation": "every day at 02:00 in Asia/Kolkata",
        "hints": [],
        "runs": 0,
        "last_run_at": None,
        "last_status": None,
        "created_at": "2030-03-17T17:46:40Z",
        "updated_at": "2030-03-17T17:46:40Z",
    }
    return wire.Schedule(**(fields | changes))


class Fleets:
    """Two nodes, four partitions, and workers of two tenants."""

    def __init__(self, desk: StandInDesk) -> None:
        self._desk = desk

    async def nodes(self) -> list[wire.Node]:
        return [
            wire.Node(
                node_id=f"{n:016x}",
                name=f"node-{n}",
                roles=["node"],
                version="1",
                address=None,
                started_at="2030-03-17T17:46:40Z",
                age_s=60.0,
                coordinator=n == 2,
                partitions=2,
                clock_offset_ms=None,
            )
            for n in (1, 2)
        ]

    async def partitions(self) -> list[wire.Partition]:
        return [
            wire.Partition(
                partition=n,
                node_id=f"{n % 2 + 1:016x}",
                node=f"node-{n % 2 + 1}",
                since="2030-03-17T17:46:40Z",
                assigned_to=f"{n % 2 + 1:016x}",
                rechecked_until=None,
                overdue_s=0.0,
            )
            for n in range(4)
        ]

    async def moves(self, limit: int) -> list[wire.PartitionMove]:
        moves = [
            wire.PartitionMove(partition=n, at=f"2030-03-17T17:46:4{n}Z", from_node=None, to_node="node-1", why="first")
            for n in (3, 2, 1)
        ]
        return moves[:limit]

    async def workers(self, tenant: str | None) -> list[wire.Worker]:
        return [
            wire.Worker(tenant=name, queue="mail", worker="w-1", last_seen_at="2030-03-17T17:46:40Z", claimed=3)
            for name in ("other", "shop")
            if tenant in (None, name)
        ]


class StandInDesk:
    """Every stage of the flow in one object."""

    def __init__(self) -> None:
        self.clock, self.entropy = ManualClock(datetime_of(NOW_MS)), SeededEntropy(1)
        self.lease_tokens = LeaseTokens(b"k" * 32)
        self.wanted: list[Wanted] = []
        self.jobs: dict[str, JobState] = {}
        self.asked: list[Any] = []
        self.fail: BaseException | None = None
        self.answers: list[Any] = []
        self.unready: list[str] = []
        self.health_asked = 0
        self.nothing_to_claim = asyncio.Event()
        self.claim_ended = ""
        self.tenant_rows = {name: TenantRow(name=name) for name in ("shop", "other")}
        self.token_rows: dict[str, TokenRow] = {}
        self.key_rows: list[SigningKeyRow] = []
        self.queue_rows: dict[tuple[str, str], QueueRow] = {}
        self.schedules: dict[str, tuple[str, wire.Schedule]] = {}
        self.skipped: list[wire.Skip] = []
        self.triggered: dict[tuple[str, str], tuple[bytes, str]] = {}
        self.looked_up = 0
        self.give(OWNER, "admin", "work:*")

    def desk(self, **changes: Any) -> Desk:
        return replace(
            Desk(
                admit=self,
                claim=self,
                tokens=self.lease_tokens,
                heart=self,
                complete=Completes(self),
                change=self,
                redrive=self,
                look=self,
                queues=Queues(self),
                quotas=self,
                health=self,
                fleet=Fleets(self),
                settings=self,
                clock=self.clock,
                entropy=self.entropy,
                cursor_secret=b"c" * 32,
                define=Schedules(self),
                direct=Schedules(self),
                schedules=Schedules(self),
                zone_data="2026a",
            ),
            **changes,
        )

    def http(self, token: str | None = OWNER, **changes: Any) -> Http:
        return Http(create_app(self.desk(**changes)), token)

    def give(self, text: str, *scopes: str, tenant: str = "shop", expires_at: int | None = None) -> str:
        parsed = parse(text)
        assert parsed is not None
        token_id, digest = parsed
        self.token_rows[token_id] = TokenRow(
            token_id=token_id,
            tenant=tenant,
            name="a token",
            secret_sha256=digest,
            scopes=scopes,
            created_at=NOW_MS,
            expires_at=expires_at,
        )
        return text

    def lease(self, tenant: str = "shop", queue: str = "mail", attempt: int = 1) -> str:
        (job_id,) = new_ids(1, NOW_MS, self.entropy)
        return self.lease_tokens.make(job_id, attempt, tenant, queue)

    def add_job(self, tenant: str = "shop", **changes: Any) -> str:
        (job_id,) = new_ids(1, NOW_MS, self.entropy)
        self.jobs[job_id] = made_job(job_id, tenant, **changes)
        return job_id

    def add_schedule(self, name: str = "report", tenant: str = "shop", **changes: Any) -> str:
        schedule_id = new_schedule_id(NOW_MS, self.entropy, tenant, name)
        self.schedules[schedule_id] = tenant, made_schedule(schedule_id, name, **changes)
        return schedule_id

    def _note(self, *asked: Any) -> None:
        self.asked.append(asked)
        if self.fail is not None:
            raise self.fail

    # admit
    async def create(self, tenant: str, wanted: Sequence[Wanted]) -> list[Admitted | Refused]:
        self._note("create", tenant, len(wanted))
        self.wanted += wanted
        answers: list[Admitted | Refused] = []
        for one in wanted:
            job = self.jobs[self.add_job(tenant)]
            definition = replace_struct(job.definition, target=one.job.target, payload=one.job.payload)
            job = replace(job, definition=definition, line=job.line._replace(queue=one.job.queue))
            new = NewJob(
                job_id=job.job_id,
                line=job.line,
                priority=job.priority,
                fire_at=job.fire_at,
                timeout_ms=definition.timeout_ms,
                queued=False,
                definition="",
            )
            draft = Draft(new, definition, job.created_at)
            answers.append(Admitted(job_id=job.job_id, status=job.status, replayed=False, draft=draft))
        return answers if not self.answers else [self.answers.pop(0) for _ in wanted]

    # claim
    async def claim(self, tenant: str, queue: str, request: wire.ClaimRequest) -> list[wire.ClaimedJob]:
        self._note("claim", tenant, queue, request)
        if request.wait_s > 0:
            try:
                await self.nothing_to_claim.wait()
            except asyncio.CancelledError:
                self.claim_ended = "cancelled"
                raise
        return []

    async def claim_callbacks(self, request: wire.ClaimRequest) -> list[wire.ExecutorJob]:
        self._note("claim_callbacks", request)
        return []

    # heartbeat
    async def beat(self, beats: Sequence[tuple[Lease, bytes | None]]) -> list[Any]:
        self._note("beat", *beats)
        return [self.answers.pop(0) if self.answers else Beaten(NOW_MS + 30_000, 30_000, False) for _ in beats]

    # change
    async def patch(self, tenant: str, job_id: str, patch: wire.JobPatch, if_match: int | None) -> JobState:
        self._note("patch", tenant, job_id, patch, if_match)
        return await self.get(tenant, job_id)

    async def cancel(self, tenant: str, job_id: str) -> JobState:
        self._note("cancel", tenant, job_id)
        return await self.get(tenant, job_id)

    async def run_now(self, tenant: str, job_id: str) -> JobState:
        self._note("run_now", tenant, job_id)
        return await self.get(tenant, job_id)

    # look
    async def get(self, tenant: str, job_id: str) -> JobState:
        job = self.jobs.get(job_id)
        if job is None or job.line.tenant != tenant:
            raise not_found(job_id)
        return job

    async def attempts(self, tenant: str, job_id: str) -> list[wire.Attempt]:
        await self.get(tenant, job_id)
        return []

    async def page(self, wanted: Any, after: str | None, limit: int) -> JobPage:
        self._note("page", wanted, after, limit)
        rows = sorted((job for job in self.jobs if after is None or job < after), reverse=True)
        return JobPage(
            jobs=[self.jobs[one] for one in rows[:limit]], after=rows[limit - 1] if len(rows) > limit else None
        )

    async def dead(self, tenant: str, queue: str, after: Any, limit: int) -> tuple[list[JobState], Any]:
        self._note("dead", tenant, queue, after, limit)
        return list(self.jobs.values())[:limit], (NOW_MS, "job_x")

    # redrive
    async def redrive(self, tenant: str, queue: str, body: wire.Redrive) -> wire.Redriven:
        self._note("redrive", tenant, queue, body)
        return wire.Redriven(matched=1, redriven=1)

    async def discard(self, tenant: str, queue: str, body: wire.DeadSelection) -> wire.Discarded:
        self._note("discard", tenant, queue, body)
        return wire.Discarded(matched=1, discarded=1)

    # quotas, health
    def usage(self, tenant: str) -> dict[str, float]:
        return {"waiting_jobs": 3}

    async def limits(self, tenant: str) -> wire.Quotas:
        return wire.Quotas(waiting_jobs=10)

    async def reasons(self) -> list[str]:
        self.health_asked += 1
        return self.unready

    # settings
    async def tenants(self) -> list[TenantRow]:
        return list(self.tenant_rows.values())

    async def put_tenant(self, row: TenantRow, *, create: bool) -> bool:
        if (row.name in self.tenant_rows) is create:
            return False
        self.tenant_rows[row.name] = row
        return True

    async def tokens(self, tenant: str | None = None) -> list[TokenRow]:
        return [row for row in self.token_rows.values() if tenant in (None, row.tenant)]

    async def token(self, token_id: str) -> TokenRow | None:
        self.looked_up += 1
        return self.token_rows.get(token_id)

    async def add_token(self, row: TokenRow) -> None:
        self.token_rows[row.token_id] = row

    async def delete_token(self, tenant: str, token_id: str) -> bool:
        row = self.token_rows.get(token_id)
        if row is None or row.tenant != tenant:
            return False
        del self.token_rows[token_id]
        return True

    async def signing_keys(self, tenant: str) -> list[SigningKeyRow]:
        return [row for row in reversed(self.key_rows) if row.tenant == tenant]

    async def add_signing_key(self, row: SigningKeyRow) -> None:
        self.key_rows.append(row)

    async def queues(self, tenant: str | None = None) -> list[QueueRow]:
        return [row for row in self.queue_rows.values() if tenant in (None, row.tenant)]

    async def queue(self, tenant: str, queue: str) -> QueueRow | None:
        return self.queue_rows.get((tenant, queue))

    async def put_queue(self, row: QueueRow) -> None:
        self.queue_rows[row.tenant, row.queue] = row

    async def secret(self, name: str, fresh: bytes) -> bytes:
        return fresh


class Completes:
    def __init__(self, desk: StandInDesk) -> None:
        self._desk = desk

    async def complete(self, items: Sequence[tuple[Lease, wire.Completion]]) -> list[Any]:
        self._desk._note("complete", *items)
        return [self._desk.answers.pop(0) if self._desk.answers else Status.SUCCEEDED for _ in items]


class Queues:
    def __init__(self, desk: StandInDesk) -> None:
        self._rows = desk.queue_rows

    async def get(self, tenant: str, queue: str) -> QueueRow:
        return self._rows.get((tenant, queue)) or QueueRow(tenant=tenant, queue=queue)

    async def known(self, tenant: str, queue: str) -> bool:
        return (tenant, queue) in self._rows

    async def all(self, tenant: str) -> list[QueueRow]:
        return [row for row in self._rows.values() if row.tenant == tenant]

    async def put(self, row: QueueRow) -> None:
        self._rows[row.tenant, row.queue] = row

    async def stats(self, tenant: str, queue: str) -> wire.QueueStats:
        return wire.QueueStats(ready=2)


class Schedules:
    """Keeps what it is given, by name, and understands nothing of it."""

    def __init__(self, desk: StandInDesk) -> None:
        self._desk = desk

    async def create(self, tenant: str, body: wire.ScheduleCreate) -> wire.Schedule:
        self._desk._note("create", tenant, body)
        if (found := self._named(tenant, body.name)) is not None:
            there = {"schedule_id": found.schedule_id}
            raise Refused(
                409, "schedule-exists", "Schedule exists", "a schedule of this name exists", extra=dict(there)
            )
        return self._desk.schedules[self._desk.add_schedule(body.name, tenant, job_template=body.job_template)][1]

    async def upsert(self, tenant: str, name: str, body: wire.SchedulePut) -> tuple[wire.Schedule, bool]:
        self._desk._note("upsert", tenant, name, body)
        if (found := self._named(tenant, name)) is not None:
            return found, False
        return self._desk.schedules[self._desk.add_schedule(name, tenant, job_template=body.job_template)][1], True

    def _named(self, tenant: str, name: str) -> wire.Schedule | None:
        rows = (one for owner, one in self._desk.schedules.values() if (owner, one.name) == (tenant, name))
        return next(rows, None)

    async def patch(
        self, tenant: str, schedule_id: str, body: wire.SchedulePatch, if_match: int | None
    ) -> wire.Schedule:
        self._desk._note("patch", tenant, schedule_id, body, if_match)
        return await self.get(tenant, schedule_id)

    async def delete(self, tenant: str, schedule_id: str) -> None:
        await self.get(tenant, schedule_id)
        del self._desk.schedules[schedule_id]

    async def get(self, tenant: str, schedule_id: str) -> wire.Schedule:
        owner, found = self._desk.schedules.get(schedule_id, ("", None))
        if found is None or owner != tenant:
            raise Refused(404, "not-found", "Not found", "there is no such schedule")
        return found

    async def jobs(self, tenant: str, schedule_id: str, after: str | None, limit: int) -> JobPage:
        await self.get(tenant, schedule_id)
        return await self._desk.page(schedule_id, after, limit)

    async def skips(
        self, tenant: str, schedule_id: str, after: tuple[int, str] | None, limit: int
    ) -> tuple[list[wire.Skip], tuple[int, str] | None]:
        self._desk._note("skips", tenant, schedule_id, after, limit)
        await self.get(tenant, schedule_id)
        return self._desk.skipped, (-5, "paused")

    async def trigger(
        self, tenant: str, schedule_id: str, body: wire.Trigger, key: str | None, body_hash: bytes
    ) -> tuple[JobState, bool]:
        self._desk._note("trigger", tenant, schedule_id, body, key, body_hash)
        await self.get(tenant, schedule_id)
        if key is None:
            return self._desk.jobs[self._desk.add_job(tenant)], False
        fresh = body_hash, self._desk.add_job(tenant)
        bound, job_id = self._desk.triggered.setdefault((tenant, key), fresh)
        if bound != body_hash:
            raise Refused(409, "idempotency-conflict", "Key in use", "the key is bound to another body")
        return self._desk.jobs[job_id], job_id != fresh[1]

    async def skip_next(self, tenant: str, schedule_id: str) -> wire.Schedule:
        self._desk._note("skip_next", tenant, schedule_id)
        return await self.get(tenant, schedule_id)

    async def backfill(self, tenant: str, schedule_id: str, body: wire.Backfill) -> wire.Backfilled:
        self._desk._note("backfill", tenant, schedule_id, body)
        await self.get(tenant, schedule_id)
        return wire.Backfilled(backfill_id="bf_1", count=7)

    async def preview(self, body: wire.Preview) -> wire.Previewed:
        self._desk._note("preview", body)
        return wire.Previewed(runs=[], explanation="never", hints=[])

    async def page(
        self, tenant: str, status: str | None, name: str | None, after: str | None, limit: int
    ) -> tuple[Sequence[wire.Schedule], str | None]:
        self._desk._note("list", tenant, status, name, after, limit)
        rows = [one for owner, one in self._desk.schedules.values() if owner == tenant and name in (None, one.name)]
        rows = [one for one in rows if after is None or one.schedule_id < after]
        rows.sort(key=lambda one: one.schedule_id, reverse=True)
        return rows[:limit], rows[limit - 1].schedule_id if len(rows) > limit else None


def replace_struct(struct: Definition, **changes: Any) -> Definition:
    from msgspec.structs import replace as struct_replace

    return struct_replace(struct, **changes)
