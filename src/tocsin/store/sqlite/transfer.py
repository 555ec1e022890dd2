"""One end of a move in a SQLite file: opened by itself, without the writer, the readers and the checkpoints of a served store.

The file is held exclusively as long as it is open (sqlite.org/pragma.html#pragma_locking_mode): one that any other process
has open, a server or a shell, is refused, and nobody can open it meanwhile. A crash lets go of it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import TypeVar

import msgspec

from tocsin.clock import Clock, Entropy
from tocsin.errors import ConfigError, LeaseHeld, StoreCorrupt, StoreMoved, StoreUnavailable
from tocsin.model.partition import bucket_of, check_partitions
from tocsin.store.sqlite import incoming, outgoing
from tocsin.store.sqlite.connection import check_place, is_damage, open_alone, opening_failed
from tocsin.store.sqlite.lines import Interner, LineNames
from tocsin.store.sqlite.migrate import identify, migrate
from tocsin.store.sqlite.statements import block
from tocsin.store.sqlite.work import Work
from tocsin.store.transfer import Kind, Mark, Marks, Record, why_not_served

_MARKS = block("transfer", "marks")
_MOVED_TO = block("transfer", "set_moved_to")
_ARRIVING_FROM = block("transfer", "set_arriving_from")
_RAISE_FLOOR = block("timers", "raise_floor")
_PARTITIONS = block("identity", "identity")
_MARK = msgspec.json.Decoder(Mark)
_DEFAULT_PARTITIONS = 16

Result = TypeVar("Result")


class SqliteTransfer:
    """`Transfer` of one file. Made by `open_transfer`."""

    def __init__(self, path: Path, conn: Connection, clock: Clock, partitions: int) -> None:
        self.name, self.partitions = f"sqlite:{path}", partitions
        self._conn, self._clock = conn, clock
        self._work = Work(conn, Interner(conn), partitions)
        self._names = LineNames()

    async def marks(self) -> Marks:
        return await self._run(read_marks)

    async def page(self, kind: Kind, after: Record | None, limit: int) -> list[Record]:
        return await self._run(lambda conn: outgoing.page(conn, self._names, kind, after, limit))

    async def put(self, kind: Kind, records: Sequence[Record]) -> None:
        await self._write(lambda work: incoming.put(work, kind, records))

    async def arrive(self, origin: Mark) -> None:
        def write(work: Work) -> None:
            if read_marks(work.conn).arriving_from is None:
                for partition in range(self.partitions):
                    work.write(_RAISE_FLOOR, partition, bucket_of(work.now))
                work.write(_ARRIVING_FROM, _text(origin))

        await self._write(write)

    async def settle(self) -> None:
        await self._write(lambda work: work.write(_ARRIVING_FROM, None))

    async def depart(self, to: Mark) -> None:
        await self._write(lambda work: work.write(_MOVED_TO, _text(to)))

    async def close(self) -> None:
        await asyncio.to_thread(self._conn.close)

    async def _write(self, write: Callable[[Work], object]) -> None:
        """Do `write` in one transaction."""

        def transaction(conn: Connection) -> None:
            self._work.begin()
            self._work.now = self._clock.now_ms()
            try:
                write(self._work)
                conn.execute("COMMIT")
            except BaseException:
                if conn.in_transaction:
                    conn.rollback()
                self._work.lines.undo()
                raise
            self._work.lines.keep()

        await self._run(transaction)

    async def _run(self, act: Callable[[Connection], Result]) -> Result:
        try:
            return await asyncio.to_thread(act, self._conn)
        except sqlite3.Error as exc:
            if is_damage(exc):
                raise StoreCorrupt(f"{self.name} is damaged ({exc}); restore the last backup") from exc
            raise StoreUnavailable(f"{self.name} cannot go on ({exc}); see to that and repeat the move") from exc


async def open_transfer(
    path: Path, clock: Clock, *, entropy: Entropy, make: bool = False, partitions: int | None = None
) -> SqliteTransfer:
    """Open the store at `path` for a move, migrated; with `make` one is made where there is none, with so many partitions.

    Raises LeaseHeld if another process has it open, ConfigError where there is none or of another number of partitions.
    """
    return await asyncio.to_thread(_open, path, clock, entropy, partitions, make)


def _open(path: Path, clock: Clock, entropy: Entropy, partitions: int | None, make: bool) -> SqliteTransfer:
    if partitions is not None:
        check_partitions(partitions)
    if not make and not path.exists():
        raise ConfigError(
            f"there is no store {path}; name the file of an installation, such as sqlite:.tocsin/tocsin.db"
        )
    check_place(path)
    try:
        conn = open_alone(path)
    except sqlite3.Error as exc:
        if getattr(exc, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            raise LeaseHeld(f"{path} is open in another process; stop its server, then move it") from exc
        raise opening_failed(path, exc) from exc
    try:
        migrate(conn, path, clock.now_ms())
        row = conn.execute(_PARTITIONS).fetchone()
        count = partitions or (_DEFAULT_PARTITIONS if row is None else int(row[0]))
        identify(conn, path, count, entropy.bytes(16).hex(), clock.now_ms())
    except BaseException:
        conn.close()
        raise
    return SqliteTransfer(path, conn, clock, count)


def read_marks(conn: Connection) -> Marks:
    """What the file says about a move."""
    installation, moved_to, arriving_from = conn.execute(_MARKS).fetchone()
    return Marks(installation=installation, moved_to=_mark(moved_to), arriving_from=_mark(arriving_from))


def refuse_moved(conn: Connection, path: Path) -> None:
    """Raise StoreMoved if this file must not be worked on: it was moved away, or has not wholly arrived."""
    why = why_not_served(f"sqlite:{path}", read_marks(conn))
    if why is not None:
        raise StoreMoved(why)


def _mark(text: str | None) -> Mark | None:
    return None if text is None else _MARK.decode(text)


def _text(mark: Mark) -> str:
    return msgspec.json.encode(mark).decode()
