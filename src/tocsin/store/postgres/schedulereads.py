"""What is read about schedules in one database. A row that cannot be read (damage) is passed over, logged and counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tocsin.store import codes
from tocsin.store.numbers import number_of, numbers_of
from tocsin.store.postgres.connection import Pool
from tocsin.store.postgres.databases import Database
from tocsin.store.postgres.rows import DAMAGE, Unreadable
from tocsin.store.postgres.statements import block
from tocsin.store.schedules import ScheduleFilter, ScheduleRow, SkipRow
from tocsin.wire import ScheduleStatus, SkipReason

CROWD_MOST = 1_000
_MINUTE_MS = 60_000
_LAST = "~"  # above every ID and reason
_INFINITY = 2**63 - 1
_GOING = (codes.QUEUED, codes.RUNNING, codes.RETRYING, codes.CANCEL_REQUESTED)
_WAITING = (codes.SCHEDULED,)

_GET = block("schedules", "get")
_NAMED = block("schedules", "named")
_OF_TENANT = block("schedules", "of_tenant")
_OVERDUE = block("schedules", "overdue")
_WALK = block("schedules", "walk")
_COUNTS = block("schedules", "counts")
_CROWD = block("schedules", "crowd")
_UNFINISHED = block("schedules", "unfinished")
_SKIPS = block("skips", "page")


class ScheduleReads:
    """Reads of schedules, by a pool of any database."""

    def __init__(self, unreadable: Unreadable, partitions: int) -> None:
        self._unreadable, self._partitions = unreadable, partitions

    async def get(self, pool: Pool, schedule_ids: Sequence[str]) -> list[ScheduleRow | None]:
        """The rows with these IDs, in their order."""
        numbers = sorted({number_of(schedule_id) for schedule_id in schedule_ids})
        found = {row.schedule_id: row for row in self._rows(await pool.fetch(_GET, numbers))}
        return [found.get(schedule_id) for schedule_id in schedule_ids]

    async def named(self, pool: Pool, tenant: str, names: Sequence[str]) -> list[ScheduleRow | None]:
        """The rows with these names, in their order."""
        found = {row.name: row for row in self._rows(await pool.fetch(_NAMED, tenant, sorted(set(names))))}
        return [found.get(name) for name in names]

    async def list_schedules(
        self, database: Database, wanted: ScheduleFilter, after: str | None, limit: int
    ) -> list[ScheduleRow]:
        """The newest of a database by ID."""
        statuses = list(codes.SCHEDULE_STATUS) if wanted.status is None else [codes.SCHEDULE_STATUS_CODE[wanted.status]]
        below = _LAST if after is None else after
        return self._rows(await database.lists.fetch(_OF_TENANT, wanted.tenant, statuses, below, limit))

    async def overdue(self, database: Database, partitions: list[int], before: int, limit: int) -> list[ScheduleRow]:
        """Rows of these partitions that should have been looked at, the oldest of each first."""
        return self._rows(await database.reads.fetch(_OVERDUE, partitions, before, limit))

    async def walk(self, database: Database, partition: int, after: str, limit: int) -> list[ScheduleRow]:
        """The rows of a partition in the order of their numbers."""
        least, greatest = numbers_of(partition, self._partitions)
        above = number_of(after) if after else least - 1
        return self._rows(await database.reads.fetch(_WALK, above, greatest, limit))

    async def unfinished(self, pool: Pool, schedule_ids: Sequence[str], *, going: bool) -> list[str]:
        """The IDs of the jobs of these schedules that are going on, or that are SCHEDULED."""
        numbers = sorted({number_of(schedule_id) for schedule_id in schedule_ids})
        return [job_id for (job_id,) in await pool.fetch(_UNFINISHED, numbers, _GOING if going else _WAITING)]

    async def skips(
        self, database: Database, schedule_id: str, after: tuple[int, str] | None, limit: int
    ) -> list[SkipRow]:
        """A schedule's skips, newest first."""
        found: list[SkipRow] = []
        for row in await database.lists.fetch(_SKIPS, number_of(schedule_id), *(after or (_INFINITY, _LAST)), limit):
            try:
                found.append(_skip(schedule_id, row))
            except DAMAGE as exc:
                self._unreadable.note(f"a skip of {schedule_id}", exc)
        return found

    async def counts(self, database: Database) -> dict[ScheduleStatus, int]:
        """How many schedules a database has, by status."""
        rows = await database.reads.fetch(_COUNTS)
        return {codes.SCHEDULE_STATUS[status]: count for status, count in rows}

    async def crowd(self, database: Database, first: int, minutes: int) -> list[int]:
        """How many schedules of a database are to be looked at in each minute."""
        own = list(range(database.identity.first, database.identity.last + 1))
        begins = [first + _MINUTE_MS * minute for minute in range(minutes)]
        return [count for (count,) in await database.reads.fetch(_CROWD, own, begins, CROWD_MOST)]

    def _rows(self, rows: Sequence[Any]) -> list[ScheduleRow]:
        """What can be read of these rows."""
        found: list[ScheduleRow] = []
        for row in rows:
            try:
                found.append(_row(row))
            except DAMAGE as exc:
                self._unreadable.note(row[0], exc)
        return found


def _row(row: Any) -> ScheduleRow:
    schedule_id, tenant, name, revision, serial, status, look_at, spec, state = row
    if spec is None:
        raise LookupError("what was asked of it is missing")
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


def _skip(schedule_id: str, row: Any) -> SkipRow:
    first, last, count, reason, recorded_at, detail = row
    return SkipRow(
        schedule_id=schedule_id,
        first=first,
        last=last,
        count=count,
        reason=msgspec.convert(reason, SkipReason),
        recorded_at=recorded_at,
        detail=detail,
    )
