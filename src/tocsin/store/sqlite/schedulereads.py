"""What the readers are asked about schedules. A row that cannot be read (damage) is passed over, logged and counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sqlite3 import Connection

import msgspec
from msgspec import Struct

from tocsin.model.job import JobState
from tocsin.store import codes
from tocsin.store.numbers import number_of, numbers_of
from tocsin.store.schedules import ScheduleFilter, ScheduleRow, SkipRow
from tocsin.store.sqlite.lines import find_tenant
from tocsin.store.sqlite.reads import Readers, states
from tocsin.store.sqlite.rows import DAMAGE, SEPARATOR, split
from tocsin.store.sqlite.statements import block
from tocsin.store.sqlite.work import json_text
from tocsin.wire import ScheduleStatus, SkipReason

CROWD_MOST = 1_000
_MINUTE_MS = 60_000
_LAST = "~"  # above every ID and reason
_INFINITY = 2**63 - 1
_GOING = json_text([codes.QUEUED, codes.RUNNING, codes.RETRYING, codes.CANCEL_REQUESTED])
_WAITING = json_text([codes.SCHEDULED])

_GET = block("schedules", "get")
_NAMED = block("schedules", "named")
_OF_TENANT = block("schedules", "of_tenant")
_OVERDUE = block("schedules", "overdue")
_WALK = block("schedules", "walk")
_COUNTS = block("schedules", "counts")
_CROWD = block("schedules", "crowd")
_SKIPS = block("skips", "page")
_UNFINISHED = block("occurrences", "unfinished")


class _Row(Struct, array_like=True, frozen=True):
    """The record `schedules.row`."""

    schedule_id: str
    tenant_id: int
    name: str
    revision: int
    serial: int
    status: int
    look_at: int | None
    spec: str
    state: str


class _Skip(Struct, array_like=True, frozen=True):
    """The record of `skips.page`."""

    first: int
    last: int
    count: int
    reason: SkipReason
    recorded_at: int
    detail: str | None


_ROW = msgspec.json.Decoder(_Row)
_SKIP = msgspec.json.Decoder(_Skip)
_NUMBERS = msgspec.json.Decoder(list[int])


def get(readers: Readers, schedule_ids: Sequence[str]) -> Callable[[Connection], list[ScheduleRow | None]]:
    """The rows as they are."""

    def read(conn: Connection) -> list[ScheduleRow | None]:
        return _get(readers, conn, schedule_ids)

    return read


def _get(readers: Readers, conn: Connection, schedule_ids: Sequence[str]) -> list[ScheduleRow | None]:
    if not schedule_ids:
        return []
    numbers = json_text([number_of(schedule_id) for schedule_id in schedule_ids])
    records = split(conn.execute(_GET, (SEPARATOR, numbers)).fetchone()[0])
    rows = [_row(readers, conn, record) for record in records]
    return [
        row if row is not None and row.schedule_id == schedule_id else None
        for row, schedule_id in zip(rows, schedule_ids, strict=True)
    ]


def named(readers: Readers, tenant: str, names: Sequence[str]) -> Callable[[Connection], list[ScheduleRow | None]]:
    """The rows with these names."""

    def read(conn: Connection) -> list[ScheduleRow | None]:
        return _named(readers, conn, tenant, names)

    return read


def _named(readers: Readers, conn: Connection, tenant: str, names: Sequence[str]) -> list[ScheduleRow | None]:
    tenant_id = find_tenant(conn, tenant)
    if tenant_id is None or not names:
        return [None] * len(names)
    records = split(conn.execute(_NAMED, (SEPARATOR, json_text(names), tenant_id)).fetchone()[0])
    return [_row(readers, conn, record) for _, record in zip(names, records, strict=True)]


def of_jobs(
    readers: Readers, job_ids: Sequence[str]
) -> Callable[[Connection], list[tuple[JobState, ScheduleRow | None] | None]]:
    """Jobs with the schedules that made them."""

    def read(conn: Connection) -> list[tuple[JobState, ScheduleRow | None] | None]:
        jobs = states(readers, job_ids)(conn)
        makers = list({job.definition.schedule_id for job in jobs if job is not None} - {None})
        wanted = [schedule_id for schedule_id in makers if schedule_id is not None]
        rows = dict(zip(wanted, _get(readers, conn, wanted), strict=True))
        return [
            None if job is None or job.definition.schedule_id is None else (job, rows[job.definition.schedule_id])
            for job in jobs
        ]

    return read


def list_schedules(
    readers: Readers, wanted: ScheduleFilter, after: str | None, limit: int
) -> Callable[[Connection], list[ScheduleRow]]:
    """Newest first by ID."""
    below = _LAST if after is None else after
    statuses = list(codes.SCHEDULE_STATUS) if wanted.status is None else [codes.SCHEDULE_STATUS_CODE[wanted.status]]

    def read(conn: Connection) -> list[ScheduleRow]:
        if wanted.name is not None:
            (row,) = _named(readers, conn, wanted.tenant, [wanted.name])
            matches = row is not None and wanted.status in (None, row.status) and row.schedule_id < below
            return [row] if row is not None and matches else []
        tenant_id = find_tenant(conn, wanted.tenant)
        found: list[ScheduleRow] = []
        for status in statuses:
            found += _rows(readers, conn, _OF_TENANT, tenant_id, status, below, limit)
        found.sort(key=lambda row: row.schedule_id, reverse=True)
        return found[:limit]

    return read


def overdue(
    readers: Readers, partitions: Sequence[int], before: int, limit: int
) -> Callable[[Connection], list[ScheduleRow]]:
    """Rows of these partitions that should have been looked at, the oldest of each first."""

    def read(conn: Connection) -> list[ScheduleRow]:
        return [row for partition in partitions for row in _rows(readers, conn, _OVERDUE, partition, before, limit)]

    return read


def walk(
    readers: Readers, partition: int, partitions: int, after: str, limit: int
) -> Callable[[Connection], list[ScheduleRow]]:
    """All rows of a partition, in the order of their numbers."""
    least, greatest = numbers_of(partition, partitions)
    above = number_of(after) if after else least - 1

    def read(conn: Connection) -> list[ScheduleRow]:
        return _rows(readers, conn, _WALK, above, greatest, limit)

    return read


def _rows(readers: Readers, conn: Connection, sql: str, *values: object) -> list[ScheduleRow]:
    records = split(conn.execute(sql, (SEPARATOR, *values)).fetchone()[0])
    return [row for record in records if (row := _row(readers, conn, record)) is not None]


def _row(readers: Readers, conn: Connection, record: str) -> ScheduleRow | None:
    """The row of one record; None where there is none, or none that can be read."""
    if not record:
        return None
    try:
        row = _ROW.decode(record)
        return ScheduleRow(
            schedule_id=row.schedule_id,
            tenant=readers.names.tenant(conn, row.tenant_id),
            name=row.name,
            revision=row.revision,
            serial=row.serial,
            status=codes.SCHEDULE_STATUS[row.status],
            look_at=row.look_at,
            spec=row.spec,
            state=row.state,
        )
    except DAMAGE as exc:
        readers.unreadable.note(record.partition(",")[0].strip('["'), exc)
        return None


def going(readers: Readers, schedule_ids: Sequence[str]) -> Callable[[Connection], dict[str, list[JobState]]]:
    """The jobs of these schedules that are under way."""

    def read(conn: Connection) -> dict[str, list[JobState]]:
        found: dict[str, list[JobState]] = {schedule_id: [] for schedule_id in schedule_ids}
        for job in _unfinished(readers, conn, schedule_ids, _GOING):
            maker = job.definition.schedule_id
            if maker is not None and maker in found:
                found[maker].append(job)
        return found

    return read


def waiting(readers: Readers, schedule_id: str) -> Callable[[Connection], list[JobState]]:
    """The jobs of a schedule that are SCHEDULED."""

    def read(conn: Connection) -> list[JobState]:
        jobs = _unfinished(readers, conn, [schedule_id], _WAITING)
        return [job for job in jobs if job.definition.schedule_id == schedule_id]

    return read


def _unfinished(readers: Readers, conn: Connection, schedule_ids: Sequence[str], statuses: str) -> list[JobState]:
    numbers = json_text([number_of(schedule_id) for schedule_id in schedule_ids])
    ids = split(conn.execute(_UNFINISHED, (SEPARATOR, numbers, statuses)).fetchone()[0])
    return [job for job in states(readers, ids)(conn) if job is not None]


def skips(
    readers: Readers, schedule_id: str, after: tuple[int, str] | None, limit: int
) -> Callable[[Connection], list[SkipRow]]:
    """A schedule's skips, newest first."""

    def read(conn: Connection) -> list[SkipRow]:
        values = (SEPARATOR, number_of(schedule_id), *(after or (_INFINITY, _LAST)), limit)
        found: list[SkipRow] = []
        for record in split(conn.execute(_SKIPS, values).fetchone()[0]):
            try:
                one = _SKIP.decode(record)
            except DAMAGE as exc:
                readers.unreadable.note(f"a skip of {schedule_id}", exc)
                continue
            found.append(
                SkipRow(
                    schedule_id=schedule_id,
                    first=one.first,
                    last=one.last,
                    count=one.count,
                    reason=one.reason,
                    recorded_at=one.recorded_at,
                    detail=one.detail,
                )
            )
        return found

    return read


def counts(readers: Readers) -> Callable[[Connection], dict[ScheduleStatus, int]]:
    """How many schedules there are, by status."""

    def read(conn: Connection) -> dict[ScheduleStatus, int]:
        found: dict[ScheduleStatus, int] = {}
        for status, count in conn.execute(_COUNTS).fetchall():
            if status in codes.SCHEDULE_STATUS:
                found[codes.SCHEDULE_STATUS[status]] = count
            else:
                readers.unreadable.note(f"{count} schedules", LookupError(f"their status is {status}"))
        return found

    return read


def crowd(partitions: int, first: int, minutes: int) -> Callable[[Connection], list[int]]:
    """How many schedules are to be looked at in each minute."""
    owned, begins = json_text(list(range(partitions))), json_text([first + _MINUTE_MS * n for n in range(minutes)])

    def read(conn: Connection) -> list[int]:
        return _NUMBERS.decode(conn.execute(_CROWD, (owned, begins, CROWD_MOST)).fetchone()[0])

    return read
