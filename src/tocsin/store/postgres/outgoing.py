"""Reading all that the databases hold as records, page by page, for a move to another store (`store/transfer`).

Each page goes on behind the last record of the one before, by a primary key or an index. Settings are in the home database;
everything else is read shard by shard.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from tocsin.model.job import Lane, Line
from tocsin.model.partition import partition_of
from tocsin.store import codes
from tocsin.store.numbers import number_of
from tocsin.store.port import AttemptRecord
from tocsin.store.postgres.databases import Database, Databases
from tocsin.store.postgres.statements import block
from tocsin.store.schedules import ScheduleRow, SkipRow
from tocsin.store.settings import QueueRow, SigningKeyRow, TenantRow, TokenRow
from tocsin.store.transfer import JobRecord, KeyRecord, Kind, Record, SecretRow

SETTINGS = (Kind.TENANTS, Kind.TOKENS, Kind.SIGNING_KEYS, Kind.QUEUES, Kind.SECRETS)
_ATTEMPTS = block("transfer", "attempts")
_QUOTAS = msgspec.json.Decoder(dict[str, float])
_SCOPES = msgspec.json.Decoder(tuple[str, ...])
_LEAST = -(2**63)


async def page(databases: Databases, kind: Kind, after: Record | None, limit: int) -> list[Record]:
    """The next records of a kind."""
    if kind in SETTINGS:
        return await _page(databases.home, kind, after, limit)
    shard = 0 if after is None else shard_of(databases, after).shard
    for database in databases.all[shard:]:
        found = await _page(database, kind, after if database.shard == shard else None, limit)
        if found:
            return found
    return []


def shard_of(databases: Databases, record: Record) -> Database:
    """Where a record that is no setting lives."""
    match record:
        case (
            JobRecord(job_id=name) | KeyRecord(job_id=name) | ScheduleRow(schedule_id=name) | SkipRow(schedule_id=name)
        ):
            return databases.of_partition(partition_of(name, databases.partitions))
        case _:
            return databases.home


async def _page(database: Database, kind: Kind, after: Record | None, limit: int) -> list[Record]:
    rows = await database.reads.fetch(block("transfer", kind_block(kind)), *_place(kind, after), limit)
    if kind in (Kind.JOBS, Kind.FINISHED):
        return await _jobs(database, rows)
    make = _MAKE[kind]
    return [make(*row) for row in rows]


def kind_block(kind: Kind) -> str:
    """The name of a kind's statement."""
    return kind.name.lower()


def _place(kind: Kind, after: Record | None) -> tuple[Any, ...]:
    """The key of the record to go on behind."""
    match kind, after:
        case ((Kind.TENANTS | Kind.TOKENS | Kind.SIGNING_KEYS | Kind.SECRETS | Kind.JOBS | Kind.FINISHED), None):
            return ("",)
        case Kind.QUEUES, None:
            return ("", "")
        case Kind.KEYS, None:
            return (_LEAST, "", b"")
        case Kind.SCHEDULES, None:
            return (_LEAST,)
        case Kind.SKIPS, None:
            return (_LEAST, _LEAST, "")
        case _, TenantRow(name=name) | SecretRow(name=name):
            return (name,)
        case _, TokenRow(token_id=name) | SigningKeyRow(key_id=name) | JobRecord(job_id=name):
            return (name,)
        case _, QueueRow(tenant=tenant, queue=queue):
            return (tenant, queue)
        case _, ScheduleRow(schedule_id=schedule_id):
            return (number_of(schedule_id),)
        case _, SkipRow(schedule_id=schedule_id, first=first, reason=reason):
            return (number_of(schedule_id), first, reason)
        case _, KeyRecord(expires_at=expires_at, tenant=tenant, key_hash=key_hash):
            return (expires_at, tenant, key_hash)
        case _:
            raise TypeError(f"{type(after).__name__} is no record of the {kind.value}")


async def _jobs(database: Database, rows: list[Any]) -> list[Record]:
    attempts: dict[str, list[AttemptRecord]] = defaultdict(list)
    for job_id, *fields in await database.reads.fetch(_ATTEMPTS, [row["id"] for row in rows]):
        attempts[job_id].append(_attempt(*fields))
    return [_job(row, tuple(attempts[row["id"]])) for row in rows]


def _job(row: Any, attempts: tuple[AttemptRecord, ...]) -> JobRecord:
    return JobRecord(
        job_id=row["id"],
        line=Line(row["tenant"], row["queue"], Lane(row["lane"]), row["handler"], row["hold"], row["suspect"]),
        priority=row["priority"],
        status=codes.STATUS[row["status"]],
        version=row["version"],
        attempt=row["attempt"],
        tries=row["tries"],
        due_at=row["due_at"],
        fire_at=row["fire_at"],
        timeout_ms=row["timeout_ms"],
        expires_at=row["expires_at"],
        queued_at=row["queued_at"],
        started_at=row["started_at"],
        claimed_at=row["claimed_at"],
        lease_until=row["lease_until"],
        lease_ms=row["lease_ms"],
        beaten_at=row["beaten_at"],
        worker=row["worker"],
        losses=row["losses"],
        releases=row["releases"],
        finished_at=row["finished_at"],
        outcome=None if row["outcome"] is None else codes.OUTCOME[row["outcome"]],
        last_error=row["last_error"],
        progress=_text(row["progress"]),
        result=_text(row["result"]),
        status_code=row["status_code"],
        response=_text(row["response"]),
        definition=row["doc"],
        attempts=attempts,
    )


def _attempt(
    attempt: int,
    worker: str | None,
    claimed_at: int,
    finished_at: int,
    outcome: int,
    error: str | None,
    due_at: int,
    status_code: int | None,
    response: bytes | None,
) -> AttemptRecord:
    return AttemptRecord(
        attempt=attempt,
        worker=worker,
        claimed_at=claimed_at,
        finished_at=finished_at,
        outcome=codes.OUTCOME[outcome],
        error=error,
        due_at=due_at,
        status_code=status_code,
        response=response,
    )


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()


def _tenant(name: str, weight: float, quotas: str, created_at: int) -> TenantRow:
    return TenantRow(name=name, weight=weight, quotas=_QUOTAS.decode(quotas), created_at=created_at)


def _token(
    token_id: str, tenant: str, name: str, secret: bytes, scopes: str, created_at: int, expires_at: int | None
) -> TokenRow:
    return TokenRow(
        token_id=token_id,
        tenant=tenant,
        name=name,
        secret_sha256=secret,
        scopes=_SCOPES.decode(scopes),
        created_at=created_at,
        expires_at=expires_at,
    )


def _signing_key(key_id: str, tenant: str, secret: str, created_at: int) -> SigningKeyRow:
    return SigningKeyRow(key_id=key_id, tenant=tenant, secret=secret, created_at=created_at)


def _queue(*row: Any) -> QueueRow:
    tenant, queue, paused, note, until, lease_ms, max_attempts, initial_backoff_s, max_backoff_s, created_at = row
    return QueueRow(
        tenant=tenant,
        queue=queue,
        paused=paused,
        pause_note=note,
        pause_until=until,
        lease_ms=lease_ms,
        max_attempts=max_attempts,
        initial_backoff_s=initial_backoff_s,
        max_backoff_s=max_backoff_s,
        created_at=created_at,
    )


def _secret(name: str, value: bytes) -> SecretRow:
    return SecretRow(name=name, value=value)


def _schedule(*row: Any) -> ScheduleRow:
    schedule_id, tenant, name, revision, serial, status, look_at, spec, state = row
    return ScheduleRow(
        schedule_id=schedule_id,
        tenant=tenant,
        name=name,
        revision=revision,
        serial=serial,
        status=codes.SCHEDULE_STATUS[status],
        look_at=look_at,
        spec=spec.decode(),
        state=state.decode(),
    )


def _skip(*row: Any) -> SkipRow:
    schedule_id, first, last, count, reason, recorded_at, detail = row
    return SkipRow(
        schedule_id=schedule_id,
        first=first,
        last=last,
        count=count,
        reason=reason,
        recorded_at=recorded_at,
        detail=detail,
    )


def _key(tenant: str, key_hash: bytes, body_hash: bytes, job_id: str, expires_at: int) -> KeyRecord:
    return KeyRecord(tenant=tenant, key_hash=key_hash, body_hash=body_hash, job_id=job_id, expires_at=expires_at)


_MAKE: dict[Kind, Callable[..., Record]] = {
    Kind.TENANTS: _tenant,
    Kind.TOKENS: _token,
    Kind.SIGNING_KEYS: _signing_key,
    Kind.QUEUES: _queue,
    Kind.SECRETS: _secret,
    Kind.SCHEDULES: _schedule,
    Kind.SKIPS: _skip,
    Kind.KEYS: _key,
}
