"""Taking records into a file, for a move from another store (`store/transfer`): a batch is one transaction.

What stands in a record's place goes first, so taking the same in twice changes nothing. A job brings its body, its place in the
lists, its attempts and a timer. A crash leaves whole batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import msgspec
from msgspec import Struct

from tocsin.model.job import LIVE, PENDING
from tocsin.model.partition import partition_of
from tocsin.store import codes
from tocsin.store.numbers import number_of
from tocsin.store.port import FIRST_WATCH_MS, AttemptRecord
from tocsin.store.schedules import ScheduleRow, SkipRow
from tocsin.store.settings import QueueRow, SigningKeyRow, TenantRow, TokenRow
from tocsin.store.sqlite import occurrences
from tocsin.store.sqlite.move import add_skips
from tocsin.store.sqlite.statements import Many, block
from tocsin.store.sqlite.work import Work, json_text
from tocsin.store.transfer import JobRecord, KeyRecord, Kind, Record, SecretRow

_BODIES = Many("jobs", "add_bodies")
_JOBS = Many("jobs", "put")
_FINISHED = Many("finished", "add")
_ATTEMPTS = Many("finished", "add_attempts")
_FIRE = Many("timers", "add_fire_version", shared=1)
_WATCH = Many("timers", "add_watch", shared=1)
_SCHEDULES = Many("schedules", "put")
_SPECS = Many("schedules", "put_specs")
_LAST_SPEC = block("schedules", "last_spec")
_OLD_SCHEDULES = block("transfer", "old_schedules")
_DELETE_SCHEDULES = block("schedules", "delete")
_DELETE_SPECS = block("schedules", "delete_specs")
_OLD_JOBS = block("transfer", "old_jobs")
_DELETE_JOBS = block("jobs", "delete")
_DELETE_FINISHED = block("upkeep", "delete_finished")
_DELETE_ATTEMPTS = block("upkeep", "delete_attempts")
_DELETE_BODIES = block("upkeep", "delete_bodies")


class _Maker(Struct):
    """The only thing that must be known of a definition: which schedule made the job."""

    schedule_id: str | None = None


_MAKER = msgspec.json.Decoder(_Maker)


def put(work: Work, kind: Kind, records: Sequence[Record]) -> None:
    """Take records of a kind in, within the open transaction."""
    match kind:
        case Kind.JOBS | Kind.FINISHED:
            _put_jobs(work, kind, [one for one in records if isinstance(one, JobRecord)])
        case Kind.SCHEDULES:
            _put_schedules(work, [one for one in records if isinstance(one, ScheduleRow)])
        case Kind.SKIPS:
            add_skips(work, [one for one in records if isinstance(one, SkipRow)])
        case _:
            name, row = _ROWS[kind]
            work.conn.executemany(block("transfer", name), [row(work, one) for one in records])


# --- jobs


def _put_jobs(work: Work, kind: Kind, jobs: Sequence[JobRecord]) -> None:
    _forget(work, jobs)
    ids_of, jobs = work.lines.ids, sorted(jobs, key=lambda job: job.job_id)
    _ATTEMPTS.run(work.conn, [_attempt_row(job.job_id, one) for job in jobs for one in job.attempts])
    _BODIES.run(work.conn, [(ids_of(job.line).queue_id, job.job_id, job.definition) for job in jobs])
    makers = {job.job_id: maker for job in jobs if (maker := _maker(job.definition)) is not None}
    occurrences.add(work, [(number_of(maker), job_id) for job_id, maker in makers.items()])
    if kind is Kind.FINISHED:
        _FINISHED.run(work.conn, [_finished_row(work, job) for job in jobs])
        return
    fire, watch = list[Any](), list[Any]()
    for job in jobs:
        if job.status in PENDING:
            fire.append(_timer_row(work, job, job.due_at))
        elif job.status in LIVE:
            watch.append(_timer_row(work, job, work.now + FIRST_WATCH_MS))
    _FIRE.run(work.conn, sorted(fire), work.now)
    _WATCH.run(work.conn, sorted(watch), work.now)
    _JOBS.run(work.conn, [_job_row(work, job, makers.get(job.job_id)) for job in jobs])


def _forget(work: Work, jobs: Sequence[JobRecord]) -> None:
    """Delete what an earlier try has left of these jobs, which may have gone on since; old timers are void or the same."""
    old: list[tuple[int, str]] = work.conn.execute(_OLD_JOBS, (json_text([job.job_id for job in jobs]),)).fetchall()
    if old:
        ids = json_text([job_id for _, job_id in old])
        occurrences.forget(work, old)
        work.write(_DELETE_ATTEMPTS, ids)
        work.write(_DELETE_BODIES, json_text(old))
        work.write(_DELETE_JOBS, ids)
        work.write(_DELETE_FINISHED, ids)


def _maker(definition: str) -> str | None:
    """The schedule of a definition; none where it cannot be read, as for everybody who reads it later."""
    try:
        return _MAKER.decode(definition).schedule_id
    except msgspec.DecodeError:
        return None


def _timer_row(work: Work, job: JobRecord, at: int) -> tuple[Any, ...]:
    ids = work.lines.ids(job.line)
    return partition_of(job.job_id, work.partitions), ids.lane, ids.tenant_id, at, job.job_id, job.version


def _job_row(work: Work, job: JobRecord, maker: str | None) -> tuple[Any, ...]:
    ids = work.lines.ids(job.line)
    return (
        job.job_id,
        ids.queue_id,
        ids.line_id,
        job.priority,
        codes.STATUS_CODE[job.status],
        job.version,
        job.attempt,
        job.tries,
        job.due_at,
        job.fire_at,
        job.timeout_ms,
        job.expires_at,
        job.queued_at,
        job.started_at,
        job.claimed_at,
        job.lease_until,
        job.lease_ms,
        job.beaten_at,
        job.worker,
        job.losses,
        job.releases,
        job.finished_at,
        None if job.outcome is None else codes.OUTCOME_CODE[job.outcome],
        job.last_error,
        job.progress,
        number_of(maker) if maker is not None and job.status in LIVE else None,
    )


def _finished_row(work: Work, job: JobRecord) -> tuple[Any, ...]:
    ids = work.lines.ids(job.line)
    return (
        job.job_id,
        ids.queue_id,
        ids.line_id,
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
        job.progress,
        job.result,
        job.status_code,
        job.response,
    )


def _attempt_row(job_id: str, record: AttemptRecord) -> tuple[Any, ...]:
    return (
        job_id,
        record.attempt,
        record.worker,
        record.claimed_at,
        record.finished_at,
        codes.OUTCOME_CODE[record.outcome],
        record.error,
        record.due_at,
        record.status_code,
        None if record.response is None else record.response.decode(),
    )


# --- schedules


def _put_schedules(work: Work, rows: Sequence[ScheduleRow]) -> None:
    tenant_id = work.lines.tenant_id
    numbers = json_text([number_of(row.schedule_id) for row in rows])
    names = json_text([(tenant_id(row.tenant), row.name) for row in rows])
    old = work.conn.execute(_OLD_SCHEDULES, (numbers, names)).fetchall()
    work.write(_DELETE_SCHEDULES, json_text([number for number, _ in old]))
    work.write(_DELETE_SPECS, json_text([spec_id for _, spec_id in old]))
    first = work.row(_LAST_SPEC)[0] + 1
    numbered = list(enumerate(sorted(rows, key=lambda row: number_of(row.schedule_id)), first))
    _SPECS.run(work.conn, [(spec_id, row.spec) for spec_id, row in numbered])
    _SCHEDULES.run(
        work.conn,
        [
            (
                number_of(row.schedule_id),
                row.schedule_id,
                partition_of(row.schedule_id, work.partitions),
                tenant_id(row.tenant),
                row.name,
                row.revision,
                row.serial,
                codes.SCHEDULE_STATUS_CODE[row.status],
                row.look_at,
                crc32(row.spec.encode()),
                row.state,
                spec_id,
            )
            for spec_id, row in numbered
        ],
    )


# --- rows of one table


def _tenant(_: Work, row: TenantRow) -> tuple[Any, ...]:
    return row.name, row.weight, json_text(row.quotas), row.created_at


def _token(_: Work, row: TokenRow) -> tuple[Any, ...]:
    scopes = json_text(row.scopes)
    return row.token_id, row.tenant, row.name, row.secret_sha256, scopes, row.created_at, row.expires_at


def _signing_key(_: Work, row: SigningKeyRow) -> tuple[Any, ...]:
    return row.key_id, row.tenant, row.secret, row.created_at


def _queue(_: Work, row: QueueRow) -> tuple[Any, ...]:
    return (
        row.tenant,
        row.queue,
        int(row.paused),
        row.pause_note,
        row.pause_until,
        row.lease_ms,
        row.max_attempts,
        row.initial_backoff_s,
        row.max_backoff_s,
        row.created_at,
    )


def _secret(_: Work, row: SecretRow) -> tuple[Any, ...]:
    return row.name, row.value


def _key(work: Work, row: KeyRecord) -> tuple[Any, ...]:
    return work.lines.tenant_id(row.tenant), row.key_hash, row.body_hash, row.job_id, row.expires_at


_ROWS: dict[Kind, tuple[str, Callable[[Work, Any], tuple[Any, ...]]]] = {
    Kind.TENANTS: ("put_tenant", _tenant),
    Kind.TOKENS: ("put_token", _token),
    Kind.SIGNING_KEYS: ("put_signing_key", _signing_key),
    Kind.QUEUES: ("put_queue", _queue),
    Kind.SECRETS: ("put_secret", _secret),
    Kind.KEYS: ("put_key", _key),
}
