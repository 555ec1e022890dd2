"""Reading timers: ahead, for the near tier, and behind, for the recheck.

Pages are bounded by the timers that are read, not by those that are found, so a page may be short or empty and go on.
"""

from __future__ import annotations

from collections.abc import Callable
from sqlite3 import Connection
from typing import Any

import msgspec

from tocsin.store import codes
from tocsin.store.port import Due, DuePage, StatePage, TimerKey, TimerKind, TimerRow
from tocsin.store.sqlite.lines import find_tenant
from tocsin.store.sqlite.reads import Readers
from tocsin.store.sqlite.rows import DAMAGE, SEPARATOR, job_state, split
from tocsin.store.sqlite.statements import block

_DUE = block("reads", "due")
_DUE_OF_LANE = block("reads", "due_of_lane")
_DUE_OF_TENANT = block("reads", "due_of_tenant")
_NEXT_BUCKET = block("reads", "next_bucket")
_TIMERS = block("reads", "timers")

_Key = tuple[int, int, int, int, str, int]
_KEYS = msgspec.json.Decoder(list[tuple[int, int, int, int, str, int]])
_DUES = msgspec.json.Decoder(list[tuple[int, int, int, int, str, int, int | None, int | None]])
_LEAST = -(2**63)


def read_due(
    readers: Readers, partition: int, first: int, last: int, after: TimerKey | None, limit: int
) -> Callable[[Connection], DuePage]:
    """Fire timers of a partition whose job is SCHEDULED or RETRYING at their version."""

    def read(conn: Connection) -> DuePage:
        key = _from(conn, first, after)
        rows = _DUES.decode(conn.execute(_DUE, (partition, last, *key, limit)).fetchone()[0])
        return _page(readers, conn, rows, limit, _LEAST)

    return read


def read_due_of(
    readers: Readers,
    partition: int,
    first: int,
    last: int,
    after: TimerKey | None,
    limit: int,
    *,
    lane: int | None,
    tenant: str | None,
    from_time: int | None,
) -> Callable[[Connection], DuePage]:
    """The same of one lane, one tenant or both, at or after an instant: bucket by bucket, so that no other's are read."""
    lanes = (lane,) if lane is not None else (0, 1)
    least = _LEAST if from_time is None else from_time

    def read(conn: Connection) -> DuePage:
        tenant_id = find_tenant(conn, tenant) if tenant is not None else None
        if tenant is not None and tenant_id is None:
            return DuePage(dues=[], next_key=None)
        key, rows = _from(conn, first, after), list[Any]()
        bucket = _next_bucket(conn, partition, key[0])
        while bucket is not None and bucket <= last:
            for one in lanes:
                if (bucket, one) < key[:2]:
                    continue
                begun = (bucket, one) == key[:2]
                room = limit - len(rows)
                if tenant_id is None:
                    start = key[2:] if begun else (-1, 0, "", 0)
                    found = conn.execute(_DUE_OF_LANE, (partition, bucket, one, *start, room))
                else:
                    begins = key[3:] if begun and key[2] == tenant_id else (least, "", 0)
                    found = conn.execute(_DUE_OF_TENANT, (partition, bucket, one, tenant_id, *begins, room))
                rows += _DUES.decode(found.fetchone()[0])
                if len(rows) == limit:
                    return _page(readers, conn, rows, limit, least)
            bucket = _next_bucket(conn, partition, bucket + 1)
        return _page(readers, conn, rows, limit, least)

    return read


def _next_bucket(conn: Connection, partition: int, bucket: int) -> int | None:
    found = conn.execute(_NEXT_BUCKET, (partition, 0, bucket)).fetchone()[0]
    return None if found is None else int(found)


def read_timers(
    readers: Readers,
    partition: int,
    kind: TimerKind,
    first: int,
    last: int,
    after: TimerKey | None,
    limit: int,
) -> Callable[[Connection], StatePage]:
    """Timers of a partition, each with its job where that is still at the timer's version."""

    def read(conn: Connection) -> StatePage:
        return _timers(readers, conn, partition, kind, last, _from(conn, first, after), limit)

    return read


def _timers(
    readers: Readers, conn: Connection, partition: int, kind: TimerKind, last: int, key: _Key, limit: int
) -> StatePage:
    code = codes.KIND_CODE[kind]
    heads, joined, docs = conn.execute(_TIMERS, (SEPARATOR, partition, code, last, *key, limit)).fetchone()
    keys, records, bodies = _KEYS.decode(heads), split(joined), split(docs)
    line, found = readers.line(conn), list[TimerRow]()
    if len(records) != len(keys) or len(bodies) != len(keys):
        pages = [
            conn.execute(_TIMERS, (SEPARATOR, partition, code, last, *at, 1)).fetchone() for at in [key, *keys[:-1]]
        ]
        records, bodies = [page[1] or "" for page in pages], [page[2] or "" for page in pages]
    for (bucket, lane, tenant_id, time, job_id, version), record, doc in zip(keys, records, bodies, strict=True):
        job = job_state(record, doc, line, readers.unreadable)
        if job is None and record:
            continue  # it cannot be read: its timer stays, and is seen again by every look below the floor
        try:
            tenant = readers.names.tenant(conn, tenant_id)
        except DAMAGE as exc:
            readers.unreadable.note(job_id, exc)
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
    return StatePage(timers=found, next_key=_key(readers, conn, keys[-1]) if len(keys) == limit else None)


def _page(readers: Readers, conn: Connection, rows: list[Any], limit: int, least: int) -> DuePage:
    line, dues = readers.names.line, list[Due]()
    for _, _, _, time, job_id, version, line_id, priority in rows:
        if line_id is not None and time >= least:
            try:
                dues.append(Due(time, job_id, version, line(conn, line_id), priority))
            except DAMAGE as exc:
                readers.unreadable.note(job_id, exc)
    return DuePage(dues=dues, next_key=_key(readers, conn, rows[-1][:6]) if len(rows) == limit else None)


def _from(conn: Connection, first: int, after: TimerKey | None) -> _Key:
    """The key to go on from, with the tenant as its number: the last one read, or just before the first bucket."""
    if after is None:
        return (first, -1, 0, 0, "", 0)
    bucket, lane, tenant, time, job_id, version = after
    return (bucket, lane, find_tenant(conn, tenant) or 0, time, job_id, version)


def _key(readers: Readers, conn: Connection, key: _Key) -> TimerKey:
    """The key as the port knows it, with the tenant's name."""
    bucket, lane, tenant_id, time, job_id, version = key
    return (bucket, lane, readers.names.tenant(conn, tenant_id), time, job_id, version)
