"""Days: the partitions of `finished` and `attempts`, one for each day (UTC) of a job's finish and an attempt's end.

They are made seven days ahead, stand-alone and then attached, so that writers are not held up, and whoever meets a day without
one makes it on the spot: a finish never fails for that. What is past its retention is detached concurrently and dropped whole.
A crash between these steps leaves a table that is being detached, or is detached already: the next pass ends that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import asyncpg

from tocsin.clock import datetime_of
from tocsin.store.postgres.connection import Connection, Pool, sqlstate
from tocsin.store.postgres.statements import block

DAY_MS: Final = 86_400_000
AHEAD = 7
TABLES = ("finished", "attempts")
_LAST_DAY = 2_932_896  # 9999-12-31
_NAME = re.compile(r"^(finished|attempts)_(\d{4})(\d{2})(\d{2})$")

_LOCK = block("days", "lock")
_FOUND = block("days", "found")
_EXISTS = block("days", "exists")


@dataclass(frozen=True, slots=True)
class DayTable:
    """The table of a day. `attached`: a part of its parent; `leaving`: a detach of it was cut off."""

    parent: str
    name: str
    day: int
    attached: bool
    leaving: bool

    @property
    def ends_at(self) -> int:
        """The first instant after it."""
        return (self.day + 1) * DAY_MS


def lacks_a_day(exc: asyncpg.PostgresError) -> bool:
    """Whether a row found no partition (a check_violation that names no constraint)."""
    return sqlstate(exc) == "23514" and exc.constraint_name is None


def name_of_day(parent: str, day: int) -> str:
    """What the table of a day is called."""
    return f"{parent}_{datetime_of(day * DAY_MS):%Y%m%d}"


class Days:
    """The day tables of one database."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._known: set[int] = set()

    def forget(self) -> None:
        """Somebody else has dropped some."""
        self._known.clear()

    async def need(self, instants: Iterable[int]) -> None:
        """See that there are tables for these instants; ValueError for one that no calendar has."""
        missing = {instant // DAY_MS for instant in instants} - self._known
        if missing:
            await self._make(missing)

    async def ahead(self, now: int) -> None:
        """See that there are tables for today and the days to come."""
        await self.need(now + day * DAY_MS for day in range(AHEAD + 1))

    async def found(self) -> list[DayTable]:
        """All of them, the oldest first, also those that are not attached."""
        tables = []
        for name, attached, leaving in await self._pool.fetch(_FOUND):
            match = _NAME.match(name)
            if match is not None:
                day = (datetime(int(match[2]), int(match[3]), int(match[4]), tzinfo=UTC) - datetime_of(0)).days
                tables.append(DayTable(match[1], name, day, attached, leaving))
        return sorted(tables, key=lambda table: (table.day, table.parent))

    async def drop(self, table: DayTable) -> None:
        """Detach a table and drop it, unless another process is at it."""
        self._known.discard(table.day)
        try:
            async with self._pool.connection() as conn:
                if table.leaving:
                    await conn.execute(f"ALTER TABLE {table.parent} DETACH PARTITION {table.name} FINALIZE")
                elif table.attached:
                    await conn.execute(f"ALTER TABLE {table.parent} DETACH PARTITION {table.name} CONCURRENTLY")
                await conn.execute(f"DROP TABLE IF EXISTS {table.name}")
        except (asyncpg.UndefinedTableError, asyncpg.ObjectNotInPrerequisiteStateError):
            return

    async def _make(self, days: set[int]) -> None:
        if not all(0 <= day <= _LAST_DAY for day in days):
            raise ValueError("an instant is not between 1970 and 9999")
        async with self._pool.connection() as conn, self._pool.transaction(conn):
            await conn.execute(_LOCK)
            for day in sorted(days):
                for parent in TABLES:
                    await _make_one(conn, parent, day)
        self._known |= days


async def _make_one(conn: Connection, parent: str, day: int) -> None:
    name = name_of_day(parent, day)
    if await conn.fetchval(_EXISTS, name):
        return
    first, after = day * DAY_MS, (day + 1) * DAY_MS
    # The check lets the attaching pass over the rows unread.
    await conn.execute(
        f"CREATE TABLE {name} (LIKE {parent} INCLUDING ALL, "
        f"CONSTRAINT of_this_day CHECK (finished_at >= {first} AND finished_at < {after}))"
    )
    await conn.execute(f"ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({after})")
    await conn.execute(f"ALTER TABLE {name} DROP CONSTRAINT of_this_day")
