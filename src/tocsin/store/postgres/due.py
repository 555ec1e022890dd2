"""Reading timers: ahead, for the near tier, and behind, for the recheck.

Pages are bounded by the timers that are read, not by those that are found, so a page may be short or empty and go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tocsin.store import codes
from tocsin.store.port import FIRE, Due, DuePage, StatePage, TimerKey, TimerKind, TimerRow
from tocsin.store.postgres.databases import Database
from tocsin.store.postgres.rows import DAMAGE, Unreadable, line_of
from tocsin.store.postgres.statements import block

_DUE = block("reads", "due")
_DUE_OF_LANE = block("reads", "due_of_lane")
_DUE_OF_TENANT = block("reads", "due_of_tenant")
_NEXT_BUCKET = block("reads", "next_bucket")
_TIMERS = block("reads", "timers")

_LEAST = -(2**63)
_PENDING = (codes.SCHEDULED, codes.RETRYING)


async def read_due(
    database: Database,
    unreadable: Unreadable,
    partition: int,
    first: int,
    last: int,
    after: TimerKey | None,
    limit: int,
) -> DuePage:
    """Fire timers of a partition whose job is SCHEDULED or RETRYING at their version."""
    rows = await database.reads.fetch(_DUE, partition, last, *_from(first, after), limit)
    return _page(unreadable, rows, limit, _LEAST)


async def read_due_of(
    database: Database,
    unreadable: Unreadable,
    partition: int,
    first: int,
    last: int,
    after: TimerKey | None,
    limit: int,
    *,
    lane: int | None,
    tenant: str | None,
    from_time: int | None,
) -> DuePage:
    """The same of one lane, one tenant or both, at or after an instant: bucket by bucket, so that no other's are read."""
    lanes = (lane,) if lane is not None else (0, 1)
    least = _LEAST if from_time is None else from_time
    key, rows = _from(first, after), list[Any]()
    bucket = await _next_bucket(database, partition, key[0])
    while bucket is not None and bucket <= last:
        for one in lanes:
            if (bucket, one) < key[:2]:
                continue
            begun = (bucket, one) == key[:2]
            room = limit - len(rows)
            if tenant is None:
                start = key[2:] if begun else ("", _LEAST, "", _LEAST)
                rows += await database.reads.fetch(_DUE_OF_LANE, partition, bucket, one, *start, room)
            elif not begun or key[2] <= tenant:
                begins = key[3:] if begun and key[2] == tenant else (least, "", 0)
                rows += await database.reads.fetch(_DUE_OF_TENANT, partition, bucket, one, tenant, *begins, room)
            if len(rows) == limit:
                return _page(unreadable, rows, limit, least)
        bucket = await _next_bucket(database, partition, bucket + 1)
    return _page(unreadable, rows, limit, least)


async def read_timers(
    database: Database,
    unreadable: Unreadable,
    partition: int,
    kind: TimerKind,
    first: int,
    last: int,
    after: TimerKey | None,
    limit: int,
) -> StatePage:
    """Timers of a partition, each with its job where that is still at the timer's version. One whose job cannot be read is left
    out: it stays, and is seen again by every look below the floor."""
    rows = await database.reads.fetch(_TIMERS, partition, codes.KIND_CODE[kind], last, *_from(first, after), limit)
    found: list[TimerRow] = []
    for bucket, lane, tenant, time, job_id, version, *record in rows:
        job = None if record[0] is None else unreadable.state(record)
        if job is None and record[0] is not None:
            continue
        found.append(
            TimerRow(
                kind=kind,
                bucket=bucket,
                time=time,
                tenant=tenant,
                lane=lane,
                job_id=job_id,
                version=version,
                job=job,
            )
        )
    return StatePage(timers=found, next_key=_key(rows[-1]) if len(rows) == limit else None)


async def _next_bucket(database: Database, partition: int, bucket: int) -> int | None:
    found = await database.reads.fetch(_NEXT_BUCKET, partition, codes.KIND_CODE[FIRE], bucket)
    return int(found[0][0]) if found else None


def _page(unreadable: Unreadable, rows: Sequence[Any], limit: int, least: int) -> DuePage:
    dues: list[Due] = []
    for _, _, _, time, job_id, version, status, *line, priority in rows:
        if status in _PENDING and time >= least:
            try:
                dues.append(Due(time, job_id, version, line_of(*line), priority))
            except DAMAGE as exc:
                unreadable.note(job_id, exc)
    return DuePage(dues=dues, next_key=_key(rows[-1]) if len(rows) == limit else None)


def _from(first: int, after: TimerKey | None) -> TimerKey:
    """The key to go on from: the last one read, or just before the first bucket."""
    return (first, -1, "", 0, "", 0) if after is None else after


def _key(row: Sequence[Any]) -> TimerKey:
    bucket, lane, tenant, time, job_id, version = row[:6]
    return (bucket, lane, tenant, time, job_id, version)
