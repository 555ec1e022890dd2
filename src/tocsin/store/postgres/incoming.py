"""Taking records into one database, for a move from another store (`store/transfer`): a batch is one transaction.

What stands in a record's place goes first, so taking the same in twice changes nothing. A job brings its place in the lists, its
attempts and a timer. The tables of the days that finished jobs and attempts belong to are made before. A crash leaves whole
batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import msgspec
from msgspec import Struct

from tocsin.model.job import LIVE, PENDING
from tocsin.model.partition import bucket_of, partition_of
from tocsin.store import codes
from tocsin.store.numbers import number_of
from tocsin.store.port import FIRE, FIRST_WATCH_MS, WATCH
from tocsin.store.postgres.connection import Connection
from tocsin.store.postgres.databases import Database
from tocsin.store.postgres.statements import block
from tocsin.store.schedules import ScheduleRow, SkipRow
from tocsin.store.settings import QueueRow, SigningKeyRow, TenantRow, TokenRow
from tocsin.store.transfer import JobRecord, KeyRecord, Kind, Record, SecretRow

_encode = msgspec.json.Encoder().encode


class _Maker(Struct):
    """The only thing that must be known of a definition: which schedule made the job."""

    schedule_id: str | None = None


_MAKER = msgspec.json.Decoder(_Maker)


async def put(database: Database, partitions: int, now: int, kind: Kind, records: Sequence[Record]) -> None:
    """Take records of a kind, all of this database, in."""
    jobs = [one for one in records if isinstance(one, JobRecord)]
    ended = [job.finished_at for job in jobs if kind is Kind.FINISHED and job.finished_at is not None]
    await database.days.need([*ended, *(attempt.finished_at for job in jobs for attempt in job.attempts)])
    async with database.bulk.connection() as conn, database.bulk.transaction(conn):
        if kind in (Kind.JOBS, Kind.FINISHED):
            await _put_jobs(conn, partitions, now, kind, jobs)
        elif kind is Kind.SCHEDULES:
            await _put_schedules(conn, partitions, [one for one in records if isinstance(one, ScheduleRow)])
        else:
            # Sorted, so that what is put lies side by side in the indexes.
            await _write(conn, _STATEMENT[kind], sorted(_row(one) for one in records))


async def _write(conn: Connection, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        await conn.executemany(block("transfer", name), rows)


# --- jobs


async def _put_jobs(conn: Connection, partitions: int, now: int, kind: Kind, unsorted: Sequence[JobRecord]) -> None:
    jobs = sorted(unsorted, key=lambda job: job.job_id)
    await conn.execute(block("transfer", "forget_jobs"), [job.job_id for job in jobs])
    makers = {job.job_id: number_of(maker) for job in jobs if (maker := _maker(job.definition)) is not None}
    await _write(conn, "put_queue_name", sorted({(job.line.tenant, job.line.queue) for job in jobs}))
    await _write(conn, "put_occurrence", sorted((number, job_id) for job_id, number in makers.items()))
    await _write(conn, "put_attempt", [row for job in jobs for row in _attempt_rows(job)])
    if kind is Kind.FINISHED:
        rows = [(*_both(job, makers), _bytes(job.result), job.status_code, _bytes(job.response)) for job in jobs]
        await _write(conn, "put_finished", rows)
        return
    await _write(conn, "put_timer", sorted(_timer_row(job, partitions, now) for job in jobs if job.status in LIVE))
    lease = [(job.timeout_ms, job.lease_until, job.lease_ms, job.beaten_at) for job in jobs]
    await _write(conn, "put_job", [(*_both(job, makers), *more) for job, more in zip(jobs, lease, strict=True)])


def _maker(definition: str) -> str | None:
    """The schedule of a definition; none where it cannot be read, as for everybody who reads it later."""
    try:
        return _MAKER.decode(definition).schedule_id
    except msgspec.DecodeError:
        return None


def _both(job: JobRecord, makers: dict[str, int]) -> tuple[Any, ...]:
    """The columns that unfinished and finished jobs share, in the order of `transfer.put_job`."""
    line = job.line
    return (
        job.job_id,
        line.tenant,
        line.queue,
        int(line.lane),
        line.handler,
        line.hold,
        line.suspect,
        job.priority,
        codes.STATUS_CODE[job.status],
        job.version,
        job.attempt,
        job.tries,
        job.due_at,
        job.fire_at,
        job.expires_at,
        job.queued_at,
        job.started_at,
        job.claimed_at,
        job.worker,
        job.losses,
        job.releases,
        job.finished_at,
        None if job.outcome is None else codes.OUTCOME_CODE[job.outcome],
        job.last_error,
        _bytes(job.progress),
        makers.get(job.job_id),
        job.definition,
    )


def _timer_row(job: JobRecord, partitions: int, now: int) -> tuple[Any, ...]:
    waits = job.status in PENDING
    at = job.due_at if waits else now + FIRST_WATCH_MS
    kind = codes.KIND_CODE[FIRE if waits else WATCH]
    partition, line = partition_of(job.job_id, partitions), job.line
    return partition, kind, bucket_of(max(at, now)), int(line.lane), line.tenant, at, job.job_id, job.version


def _attempt_rows(job: JobRecord) -> list[tuple[Any, ...]]:
    return [
        (
            job.job_id,
            one.attempt,
            one.worker,
            one.claimed_at,
            one.finished_at,
            codes.OUTCOME_CODE[one.outcome],
            one.error,
            one.due_at,
            one.status_code,
            one.response,
        )
        for one in job.attempts
    ]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


# --- schedules


async def _put_schedules(conn: Connection, partitions: int, unsorted: Sequence[ScheduleRow]) -> None:
    rows = sorted(unsorted, key=lambda row: number_of(row.schedule_id))
    numbers = [number_of(row.schedule_id) for row in rows]
    names = [row.tenant for row in rows], [row.name for row in rows]
    await conn.execute(block("transfer", "forget_schedules"), numbers, *names)
    await _write(conn, "put_spec", [(number_of(row.schedule_id), row.spec.encode()) for row in rows])
    await _write(
        conn,
        "put_schedule",
        [
            (
                number_of(row.schedule_id),
                row.schedule_id,
                partition_of(row.schedule_id, partitions),
                row.tenant,
                row.name,
                row.revision,
                row.serial,
                codes.SCHEDULE_STATUS_CODE[row.status],
                row.look_at,
                crc32(row.spec.encode()),
                row.state.encode(),
            )
            for row in rows
        ],
    )


# --- rows of one table

_STATEMENT = {
    Kind.TENANTS: "put_tenant",
    Kind.TOKENS: "put_token",
    Kind.SIGNING_KEYS: "put_signing_key",
    Kind.QUEUES: "put_queue",
    Kind.SECRETS: "put_secret",
    Kind.SKIPS: "put_skip",
    Kind.KEYS: "put_key",
}


def _row(one: Record) -> tuple[Any, ...]:
    match one:
        case TenantRow():
            return one.name, one.weight, _encode(one.quotas).decode(), one.created_at
        case TokenRow():
            scopes = _encode(one.scopes).decode()
            return one.token_id, one.tenant, one.name, one.secret_sha256, scopes, one.created_at, one.expires_at
        case SigningKeyRow():
            return one.key_id, one.tenant, one.secret, one.created_at
        case QueueRow():
            settings = one.lease_ms, one.max_attempts, one.initial_backoff_s, one.max_backoff_s
            return one.tenant, one.queue, one.paused, one.pause_note, one.pause_until, *settings, one.created_at
        case SecretRow():
            return one.name, one.value
        case SkipRow():
            told = one.last, one.count, one.reason, one.recorded_at, one.detail
            return number_of(one.schedule_id), one.first, *told
        case KeyRecord():
            return one.tenant, one.key_hash, one.body_hash, one.job_id, one.expires_at
        case JobRecord() | ScheduleRow():
            raise TypeError("jobs and schedules have more than one row")
