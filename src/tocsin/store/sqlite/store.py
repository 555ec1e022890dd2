"""An open store file: its writer, its readers, its checkpoints, and how they start and end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tocsin.clock import Clock, Entropy
from tocsin.model.partition import check_partitions
from tocsin.store.sqlite.checkpoint import Checkpointer
from tocsin.store.sqlite.connection import check_place, open_writer
from tocsin.store.sqlite.jobs import KINDS, SqliteJobs
from tocsin.store.sqlite.lines import Interner
from tocsin.store.sqlite.migrate import identify, migrate
from tocsin.store.sqlite.reads import Readers
from tocsin.store.sqlite.recent import Recent
from tocsin.store.sqlite.requests import RAISES, Kind
from tocsin.store.sqlite.schedules import MOVE, SKIP, SqliteSchedules
from tocsin.store.sqlite.settings import SqliteSettings
from tocsin.store.sqlite.statements import block
from tocsin.store.sqlite.transfer import refuse_moved
from tocsin.store.sqlite.work import Work
from tocsin.store.sqlite.writer import OnStep, Writer

_PING_SQL = block("identity", "ping")


def _ping(work: Work, pings: Sequence[None]) -> list[None]:
    work.write(_PING_SQL, work.now)
    return list(pings)


PING: Kind[None, None] = Kind("ping", 0, _ping, RAISES, None)


class SqliteStore:
    """`Store` in one SQLite file. Made by `open_store`."""

    def __init__(
        self, writer: Writer, readers: Readers, checkpoints: Checkpointer, clock: Clock, partitions: int
    ) -> None:
        self._writer, self._readers, self._checkpoints = writer, readers, checkpoints
        self._clock = clock
        recent = Recent()
        self.jobs = SqliteJobs(writer, readers, clock, partitions, recent)
        self.schedules = SqliteSchedules(writer, readers, clock, partitions, recent)
        self.settings = SqliteSettings(writer, readers)
        self._closed = False

    async def ping(self) -> None:
        """Write something durable; raises StoreUnavailable."""
        await self._writer.submit(PING, [None])

    async def now_ms(self) -> int:
        return self._clock.now_ms()

    async def oldest_snapshot_s(self) -> float | None:
        return None

    async def close(self) -> None:
        """Write what is queued, copy the WAL into the database, and let go of the file."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._checkpoints.stop)
        await asyncio.to_thread(self._readers.close)
        await self._writer.stop()


async def open_store(
    path: Path | str, clock: Clock, *, partitions: int = 16, entropy: Entropy, on_step: OnStep | None = None
) -> SqliteStore:
    """Open the store at `path`, making or migrating it; ConfigError, StoreCorrupt, StoreTooNew or StoreMoved say what
    to do.

    `on_step` is told of every step of the writer; a test may raise from it to simulate a crash or a failing disk.
    """
    check_partitions(partitions)
    place = Path(path)
    check_place(place)
    conn = open_writer(place)
    try:
        migrate(conn, place, clock.now_ms())
        identify(conn, place, partitions, entropy.bytes(16).hex(), clock.now_ms())
        refuse_moved(conn, place)
    except BaseException:
        conn.close()
        raise
    checkpoints = Checkpointer(place)
    work = Work(conn, Interner(conn), partitions)
    writer = Writer(work, clock, (*KINDS, MOVE, SKIP, PING), on_step, checkpoints.between)
    readers = Readers(place, clock)
    writer.start()
    checkpoints.start()
    return SqliteStore(writer, readers, checkpoints, clock, partitions)
