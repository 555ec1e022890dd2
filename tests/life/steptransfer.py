"""One end of a move on the store without transactions: each record in single rows, in the order that the port states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.life.disk import JobRow, KeyRow, Owing
from tests.life.stepstore import KEY_KEPT_MS, StepStore
from tocsin.model.ids import made_at_ms
from tocsin.model.job import LIVE, PENDING, JobState, decode_definition, encode_definition
from tocsin.model.partition import bucket_of
from tocsin.store.port import FIRE, FIRST_WATCH_MS, WATCH
from tocsin.store.transfer import JobRecord, KeyRecord, Kind, Mark, Marks, Record, SecretRow


class StepTransfer:
    """`Transfer` over a `StepStore`, which stands for its disk and its faults."""

    def __init__(self, store: StepStore, name: str = "steps:1") -> None:
        self.name, self.partitions = name, store.partitions
        self._store, self._disk = store, store.disk

    async def marks(self) -> Marks:
        return Marks(
            installation=self._disk.installation,
            moved_to=self._disk.marks.get("moved_to"),
            arriving_from=self._disk.marks.get("arriving_from"),
        )

    async def page(self, kind: Kind, after: Record | None, limit: int) -> list[Record]:
        # What a crash has left unpaid is paid by whoever reads it.
        await self._store.end_moves(list(self._disk.jobs))
        await self._store.schedules.pay_everything()
        records = sorted((self._place(kind, one), one) for one in self._all(kind))
        key = None if after is None else self._place(kind, after)
        return [one for place, one in records if key is None or place > key][:limit]

    async def put(self, kind: Kind, records: Sequence[Record]) -> None:
        for one in records:
            if isinstance(one, JobRecord):
                await self._put_job(kind, one)
            else:
                await self._store.point(f"before {kind.value} put")
                self._put_row(one)
                await self._store.point(f"after {kind.value} put")

    async def arrive(self, origin: Mark) -> None:
        if "arriving_from" in self._disk.marks:
            return
        for partition in range(self.partitions):
            await self._store.set_floor(partition, bucket_of(await self._store.now_ms()))
        await self._mark("arriving_from", origin)

    async def settle(self) -> None:
        await self._mark("arriving_from", None)

    async def depart(self, to: Mark) -> None:
        await self._mark("moved_to", to)

    async def close(self) -> None:
        pass

    async def _mark(self, name: str, mark: Mark | None) -> None:
        await self._store.point(f"before {name} put")
        self._disk.marks.pop(name, None)
        if mark is not None:
            self._disk.marks[name] = mark
        await self._store.point(f"after {name} put")

    async def _put_job(self, kind: Kind, one: JobRecord) -> None:
        point, disk = self._store.point, self._disk
        row = JobRow(job=_state(one), status_code=one.status_code, response=_bytes(one.response))
        for record in one.attempts:
            await self._store._put_record(one.job_id, record)
        if kind is Kind.FINISHED:
            await point("before finished put")
            disk.finished[one.job_id] = row
            await point("before jobs delete")
            disk.jobs.pop(one.job_id, None)
            return
        if one.status in LIVE:
            waits = one.status in PENDING
            at = one.due_at if waits else await self._store.now_ms() + FIRST_WATCH_MS
            await self._store._add_timer(
                FIRE if waits else WATCH, one.job_id, one.version, at, one.line.lane, one.line.tenant
            )
        await point("before jobs put")
        disk.jobs[one.job_id] = row
        await point("after jobs put")
        disk.finished.pop(one.job_id, None)

    def _put_row(self, one: Any) -> None:
        disk = self._disk
        match type(one).__name__:
            case "TenantRow":
                disk.tenants[one.name] = one
            case "TokenRow":
                disk.tokens[one.token_id] = one
            case "SigningKeyRow":
                disk.signing_keys[one.key_id] = one
            case "QueueRow":
                disk.queues[one.tenant, one.queue] = one
            case "SecretRow":
                disk.secrets[one.name] = one.value
            case "ScheduleRow":
                disk.schedules[one.tenant, one.name] = Owing(row=one, owes=None)
            case "SkipRow":
                disk.skips[one.schedule_id][one.first, one.reason] = one
            case "KeyRecord":
                bound_at = one.expires_at - KEY_KEPT_MS
                disk.keys[one.tenant, one.key_hash] = KeyRow(
                    body_hash=one.body_hash, job_id=one.job_id, bound_at=bound_at, expires_at=one.expires_at
                )

    def _all(self, kind: Kind) -> list[Any]:
        disk = self._disk
        made: dict[Kind, Callable[[], list[Any]]] = {
            Kind.TENANTS: lambda: list(disk.tenants.values()),
            Kind.TOKENS: lambda: list(disk.tokens.values()),
            Kind.SIGNING_KEYS: lambda: list(disk.signing_keys.values()),
            Kind.QUEUES: lambda: list(disk.queues.values()),
            Kind.SECRETS: lambda: [SecretRow(name=name, value=value) for name, value in disk.secrets.items()],
            Kind.SCHEDULES: lambda: [one.row for one in disk.schedules.values() if one.row is not None],
            Kind.SKIPS: lambda: [skip for rows in disk.skips.values() for skip in rows.values()],
            Kind.JOBS: lambda: [self._record(row) for row in disk.jobs.values()],
            Kind.FINISHED: lambda: [self._record(row) for row in disk.finished.values()],
            Kind.KEYS: lambda: [
                KeyRecord(
                    tenant=tenant,
                    key_hash=key_hash,
                    body_hash=row.body_hash,
                    job_id=row.job_id,
                    expires_at=row.expires_at,
                )
                for (tenant, key_hash), row in disk.keys.items()
            ],
        }
        return made[kind]()

    def _record(self, row: JobRow) -> JobRecord:
        job, records = row.job, self._disk.records.get(row.job.job_id, {})
        ended = job.status not in LIVE
        over = ended and row.job.job_id in self._disk.finished
        return JobRecord(
            job_id=job.job_id,
            line=job.line,
            priority=job.priority,
            status=job.status,
            version=job.version,
            attempt=job.attempt,
            tries=job.tries,
            due_at=job.due_at,
            fire_at=job.fire_at,
            timeout_ms=0 if over else job.definition.timeout_ms,
            expires_at=job.expires_at,
            queued_at=job.queued_at,
            started_at=job.started_at,
            claimed_at=job.claimed_at,
            lease_until=None if over else job.lease_until,
            lease_ms=None if over else job.lease_ms,
            beaten_at=None if over else job.beaten_at,
            worker=job.worker,
            losses=job.losses,
            releases=job.releases,
            finished_at=job.finished_at,
            outcome=job.outcome,
            last_error=job.last_error,
            progress=_text(job.progress),
            result=_text(job.result),
            status_code=row.status_code,
            response=_text(row.response),
            definition=encode_definition(job.definition),
            attempts=tuple(record for _, record in sorted(records.items())),
        )

    @staticmethod
    def _place(kind: Kind, one: Any) -> tuple[Any, ...]:
        match kind:
            case Kind.TENANTS | Kind.SECRETS:
                return (one.name,)
            case Kind.TOKENS:
                return (one.token_id,)
            case Kind.SIGNING_KEYS:
                return (one.key_id,)
            case Kind.QUEUES:
                return (one.tenant, one.queue)
            case Kind.SCHEDULES:
                return (one.schedule_id,)
            case Kind.SKIPS:
                return (one.schedule_id, one.first, one.reason)
            case Kind.KEYS:
                return (one.tenant, one.key_hash)
            case Kind.JOBS | Kind.FINISHED:
                return (one.job_id,)


def _state(one: JobRecord) -> JobState:
    definition = decode_definition(one.definition)
    return JobState(
        job_id=one.job_id,
        line=one.line,
        priority=one.priority,
        status=one.status,
        version=one.version,
        attempt=one.attempt,
        tries=one.tries,
        due_at=one.due_at,
        fire_at=one.fire_at,
        created_at=made_at_ms(one.job_id) if definition.made_at is None else definition.made_at,
        queued_at=one.queued_at,
        started_at=one.started_at,
        claimed_at=one.claimed_at,
        lease_until=one.lease_until,
        lease_ms=one.lease_ms,
        beaten_at=one.beaten_at,
        worker=one.worker,
        losses=one.losses,
        releases=one.releases,
        expires_at=one.expires_at,
        finished_at=one.finished_at,
        last_error=one.last_error,
        progress=_bytes(one.progress),
        result=_bytes(one.result),
        outcome=one.outcome,
        definition=definition,
    )


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
