"""One end of a move in PostgreSQL: the databases of an installation, used by one process to take everything out or in.

That no process serves them meanwhile is seen to by whoever opens this (`roles/moving`): the marks in the home database keep a
server from starting on what is not whole or has gone. A value that PostgreSQL cannot hold (a NUL in a text) ends the move.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
import msgspec

from tocsin.clock import Clock
from tocsin.errors import StoreError, StoreMoved
from tocsin.model.partition import bucket_of
from tocsin.store.postgres import incoming, outgoing
from tocsin.store.postgres.connection import Address, connect
from tocsin.store.postgres.databases import Database, Databases
from tocsin.store.postgres.migrate import _refused as refused
from tocsin.store.postgres.statements import block
from tocsin.store.transfer import Kind, Mark, Marks, Record, why_not_served

_HAS_IDENTITY = block("transfer", "has_identity")
_IDENTITY = block("identity", "identity")
_MARKS = block("transfer", "marks")
_MOVED_TO = block("transfer", "set_moved_to")
_ARRIVING_FROM = block("transfer", "set_arriving_from")
_RAISE_FLOORS = block("transfer", "raise_floors")
_MARK = msgspec.json.Decoder(Mark)


class PostgresTransfer:
    """`Transfer` of one or more databases. Made by `open_transfer`."""

    def __init__(self, databases: Databases, clock: Clock) -> None:
        self.name, self.partitions = f"postgresql://{databases.home.address.name}", databases.partitions
        self._databases, self._clock = databases, clock

    async def marks(self) -> Marks:
        return await read_marks(self._databases.home)

    async def page(self, kind: Kind, after: Record | None, limit: int) -> list[Record]:
        return await outgoing.page(self._databases, kind, after, limit)

    async def put(self, kind: Kind, records: Sequence[Record]) -> None:
        places: dict[int, list[Record]] = {}
        for one in records:
            database = self._databases.home if kind in outgoing.SETTINGS else outgoing.shard_of(self._databases, one)
            places.setdefault(database.shard, []).append(one)
        now = self._clock.now_ms()
        for shard, mine in places.items():
            try:
                await incoming.put(self._databases.all[shard], self.partitions, now, kind, mine)
            except (asyncpg.PostgresError, ValueError) as exc:
                raise StoreError(
                    f"{self.name} cannot hold one of the {kind.value} ({exc}); the source is as it was and can be served"
                ) from exc

    async def arrive(self, origin: Mark) -> None:
        if (await self.marks()).arriving_from is not None:
            return
        bucket = bucket_of(self._clock.now_ms())
        for database in self._databases.all:
            await database.bulk.fetch(_RAISE_FLOORS, database.identity.first, database.identity.last, bucket)
        await self._mark(_ARRIVING_FROM, origin)

    async def settle(self) -> None:
        await self._mark(_ARRIVING_FROM, None)

    async def depart(self, to: Mark) -> None:
        await self._mark(_MOVED_TO, to)

    async def close(self) -> None:
        await self._databases.close()

    async def _mark(self, sql: str, mark: Mark | None) -> None:
        text = None if mark is None else msgspec.json.encode(mark).decode()
        await self._databases.home.bulk.fetch(sql, text)


async def has_store(dsn: str) -> bool:
    """Whether the database at `dsn` has a store in it."""
    return await found_partitions(Address.of(dsn)) is not None


async def found_partitions(address: Address) -> int | None:
    """How many partitions the store in a database has; None where there is no store."""
    try:
        conn = await connect(address, {})
        try:
            row = await conn.fetchrow(_IDENTITY) if await conn.fetchval(_HAS_IDENTITY) else None
        finally:
            conn.terminate()
    except Exception as exc:
        raise refused(exc, address) from exc
    return None if row is None else int(row["partitions"])


async def read_marks(home: Database) -> Marks:
    """What the home database says about a move."""
    ((installation, moved_to, arriving_from),) = await home.bulk.fetch(_MARKS)
    return Marks(installation=installation, moved_to=_mark(moved_to), arriving_from=_mark(arriving_from))


async def refuse_moved(home: Database) -> None:
    """Raise StoreMoved if this store must not be worked on: it was moved away, or has not wholly arrived."""
    why = why_not_served(f"postgresql://{home.address.name}", await read_marks(home))
    if why is not None:
        raise StoreMoved(why)


def _mark(text: str | None) -> Mark | None:
    return None if text is None else _MARK.decode(text)
