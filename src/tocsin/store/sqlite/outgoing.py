"""Reading all that a file holds as records, page by page, for a move to another store (`store/transfer`).

Each page goes on behind the last record of the one before, by a primary key or a unique index. Rows are taken as they are: what
this program cannot read (a definition that is no JSON) is text to whoever carries it. Only a row whose name is missing from
the file cannot be carried at all, and ends the move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from sqlite3 import Connection
from typing import Any

import msgspec

from tocsin.errors import StoreCorrupt
from tocsin.store import codes
from tocsin.store.numbers import number_of
from tocsin.store.port import AttemptRecord
from tocsin.store.schedules import ScheduleRow, SkipRow
from tocsin.store.settings import QueueRow, SigningKeyRow, TenantRow, TokenRow
from tocsin.store.sqlite.lines import LineNames
from tocsin.store.sqlite.statements import block
from tocsin.store.sqlite.work import json_text
from tocsin.store.transfer import JobRecord, KeyRecord, Kind, Record, SecretRow

_ATTEMPTS = block("transfer", "attempts")
_QUOTAS = msgspec.json.Decoder(dict[str, float])
_SCOPES = msgspec.json.Decoder(tuple[str, ...])
_LEAST = -(2**63)
# What a row that does not fit together raises.
_MISFIT = (LookupError, ValueError, TypeError, AttributeError)


def page(conn: Connection, names: LineNames, kind: Kind, after: Record | None, limit: int) -> list[Record]:
    """The next records of a kind."""
    block_name, key = _place(kind, after)
    rows = conn.execute(block("transfer", block_name), (*key, limit)).fetchall()
    try:
        if kind in (Kind.JOBS, Kind.FINISHED):
            return _jobs(conn, names, rows)
        make = _MAKE[kind]
        return [make(row) for row in rows]
    except _MISFIT as exc:
        raise StoreCorrupt(
            f"a row of the {kind.value} does not fit together ({exc}); restore a backup, and examine it with tocsin doctor"
        ) from exc


def _place(kind: Kind, after: Record | None) -> tuple[str, tuple[Any, ...]]:
    """The statement of a kind, and the key of the record to go on behind."""
    match kind, after:
        case ((Kind.TENANTS | Kind.TOKENS | Kind.SIGNING_KEYS | Kind.SECRETS | Kind.JOBS | Kind.FINISHED), None):
            return kind.name.lower(), ("",)
        case ((Kind.QUEUES | Kind.KEYS), None):
            return kind.name.lower(), ("", "")
        case Kind.SCHEDULES, None:
            return "schedules", (_LEAST,)
        case Kind.SKIPS, None:
            return "skips", (_LEAST, _LEAST, "")
        case Kind.TENANTS, TenantRow(name=name):
            return "tenants", (name,)
        case Kind.TOKENS, TokenRow(token_id=token_id):
            return "tokens", (token_id,)
        case Kind.SIGNING_KEYS, SigningKeyRow(key_id=key_id):
            return "signing_keys", (key_id,)
        case Kind.QUEUES, QueueRow(tenant=tenant, queue=queue):
            return "queues", (tenant, queue)
        case Kind.SECRETS, SecretRow(name=name):
            return "secrets", (name,)
        case Kind.SCHEDULES, ScheduleRow(schedule_id=schedule_id):
            return "schedules", (number_of(schedule_id),)
        case Kind.SKIPS, SkipRow(schedule_id=schedule_id, first=first, reason=reason):
            return "skips", (number_of(schedule_id), first, reason)
        case Kind.JOBS, JobRecord(job_id=job_id):
            return "jobs", (job_id,)
        case Kind.FINISHED, JobRecord(job_id=job_id):
            return "finished", (job_id,)
        case Kind.KEYS, KeyRecord(tenant=tenant, key_hash=key_hash):
            return "keys", (tenant, key_hash)
        case _:
            raise TypeError(f"{type(after).__name__} is no record of the {kind.value}")


def _jobs(conn: Connection, names: LineNames, rows: list[Any]) -> list[Record]:
    attempts: dict[str, list[AttemptRecord]] = defaultdict(list)
    for job_id, *fields in conn.execute(_ATTEMPTS, (json_text([row[0] for row in rows]),)).fetchall():
        attempts[job_id].append(_attempt(*fields))
    return [_job(conn, names, *row, attempts=tuple(attempts[row[0]])) for row in rows]


def _job(conn: Connection, names: LineNames, *row: Any, attempts: tuple[AttemptRecord, ...]) -> JobRecord:
    job_id, line_id, priority, status, version, attempt, tries, due_at, fire_at, timeout_ms, expires_at, *rest = row
    queued_at, started_at, claimed_at, lease_until, lease_ms, beaten_at, worker, losses, releases, *last = rest
    finished_at, outcome, last_error, progress, result, status_code, response, definition = last
    return JobRecord(
        job_id=job_id,
        line=names.line(conn, line_id),
        priority=priority,
        status=codes.STATUS[status],
        version=version,
        attempt=attempt,
        tries=tries,
        due_at=due_at,
        fire_at=fire_at,
        timeout_ms=timeout_ms,
        expires_at=expires_at,
        queued_at=queued_at,
        started_at=started_at,
        claimed_at=claimed_at,
        lease_until=lease_until,
        lease_ms=lease_ms,
        beaten_at=beaten_at,
        worker=worker,
        losses=losses,
        releases=releases,
        finished_at=finished_at,
        outcome=None if outcome is None else codes.OUTCOME[outcome],
        last_error=last_error,
        progress=progress,
        result=result,
        status_code=status_code,
        response=response,
        definition=definition,
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
    response: str | None,
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
        response=None if response is None else response.encode(),
    )


def _tenant(row: tuple[Any, ...]) -> TenantRow:
    name, weight, quotas, created_at = row
    return TenantRow(name=name, weight=weight, quotas=_QUOTAS.decode(quotas), created_at=created_at)


def _token(row: tuple[Any, ...]) -> TokenRow:
    token_id, tenant, name, secret, scopes, created_at, expires_at = row
    return TokenRow(
        token_id=token_id,
        tenant=tenant,
        name=name,
        secret_sha256=secret,
        scopes=_SCOPES.decode(scopes),
        created_at=created_at,
        expires_at=expires_at,
    )


def _signing_key(row: tuple[Any, ...]) -> SigningKeyRow:
    key_id, tenant, secret, created_at = row
    return SigningKeyRow(key_id=key_id, tenant=tenant, secret=secret, created_at=created_at)


def _queue(row: tuple[Any, ...]) -> QueueRow:
    tenant, queue, paused, note, until, lease_ms, max_attempts, initial_backoff_s, max_backoff_s, created_at = row
    return QueueRow(
        tenant=tenant,
        queue=queue,
        paused=bool(paused),
        pause_note=note,
        pause_until=until,
        lease_ms=lease_ms,
        max_attempts=max_attempts,
        initial_backoff_s=initial_backoff_s,
        max_backoff_s=max_backoff_s,
        created_at=created_at,
    )


def _secret(row: tuple[Any, ...]) -> SecretRow:
    name, value = row
    return SecretRow(name=name, value=bytes(value))


def _schedule(row: tuple[Any, ...]) -> ScheduleRow:
    schedule_id, tenant, name, revision, serial, status, look_at, spec, state = row
    return ScheduleRow(
        schedule_id=schedule_id,
        tenant=_known(tenant, schedule_id),
        name=name,
        revision=revision,
        serial=serial,
        status=codes.SCHEDULE_STATUS[status],
        look_at=look_at,
        spec=spec,
        state=state,
    )


def _skip(row: tuple[Any, ...]) -> SkipRow:
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


def _key(row: tuple[Any, ...]) -> KeyRecord:
    tenant, key_hash, body_hash, job_id, expires_at = row
    return KeyRecord(
        tenant=_known(tenant, job_id), key_hash=key_hash, body_hash=body_hash, job_id=job_id, expires_at=expires_at
    )


def _known(tenant: str | None, whose: str) -> str:
    if tenant is None:
        raise LookupError(f"the tenant of {whose} is missing from the store")
    return tenant


_MAKE: dict[Kind, Callable[[tuple[Any, ...]], Record]] = {
    Kind.TENANTS: _tenant,
    Kind.TOKENS: _token,
    Kind.SIGNING_KEYS: _signing_key,
    Kind.QUEUES: _queue,
    Kind.SECRETS: _secret,
    Kind.SCHEDULES: _schedule,
    Kind.SKIPS: _skip,
    Kind.KEYS: _key,
}
