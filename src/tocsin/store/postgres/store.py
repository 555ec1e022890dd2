"""An open store in PostgreSQL: its databases, its parts, and how they start and end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tocsin.clock import Clock, Entropy
from tocsin.errors import StoreUnavailable
from tocsin.model.partition import check_partitions
from tocsin.store.postgres.connection import Address
from tocsin.store.postgres.databases import Database, Databases, gathered
from tocsin.store.postgres.group import Writers
from tocsin.store.postgres.jobs import BULK, URGENT, PostgresJobs
from tocsin.store.postgres.migrate import Identity, prepare_home, prepare_shard
from tocsin.store.postgres.rows import Unreadable
from tocsin.store.postgres.schedules import MOVE, SKIP, PostgresSchedules
from tocsin.store.postgres.settings import PostgresSettings
from tocsin.store.postgres.statements import block
from tocsin.store.postgres.transfer import PostgresTransfer, found_partitions, refuse_moved

DEFAULT_PARTITIONS = 64
PING_S = 5.0

_PING = block("identity", "ping")
_NOW = block("identity", "now")
_OLDEST = block("identity", "oldest_snapshot")


class PostgresStore:
    """`Store` in one or more PostgreSQL databases. Made by `open_store`."""

    def __init__(self, databases: Databases, clock: Clock) -> None:
        self.databases, self._clock = databases, clock
        self._writers = [
            Writers(one, clock, databases.partitions, (*URGENT, MOVE, SKIP), BULK) for one in databases.all
        ]
        unreadable = Unreadable()
        self.jobs = PostgresJobs(databases, self._writers, clock, unreadable)
        self.schedules = PostgresSchedules(databases, self._writers, self.jobs, unreadable)
        self.settings = PostgresSettings(databases, unreadable)
        self._closed = False

    @property
    def installation(self) -> str:
        """Which installation this is, as all of its databases say."""
        return self.databases.home.identity.installation

    async def ping(self) -> None:
        """Write something durable on every shard; raises StoreUnavailable, PartlyUnavailable."""
        now = self._clock.now_ms()

        async def write(database: Database) -> None:
            try:
                async with asyncio.timeout(PING_S):
                    await database.urgent.fetch(_PING, now)
            except TimeoutError as exc:
                name = database.address.name
                raise StoreUnavailable(f"the database {name} has not written for {PING_S:g} s; ask again") from exc

        await self.databases.each(write)

    async def now_ms(self) -> int:
        """The clock of the home database's server."""
        return int((await self.databases.home.urgent.fetch(_NOW))[0][0])

    async def oldest_snapshot_s(self) -> float:
        """How old the oldest open snapshot of any database is: while it stays open, rows that went are not cleared away."""
        found = await self.databases.each(lambda database: database.reads.fetch(_OLDEST))
        return max(float(rows[0][0]) for rows in found)

    async def close(self) -> None:
        """Let what is under way end, and let go of the databases."""
        if self._closed:
            return
        self._closed = True
        await asyncio.gather(*(one.close() for one in self._writers))
        await self.databases.close()


async def open_store(
    dsn: str, clock: Clock, *, partitions: int = DEFAULT_PARTITIONS, entropy: Entropy, shards: Sequence[str] = ()
) -> PostgresStore:
    """Open the store whose home database is at `dsn`, making or migrating it; ConfigError, StoreCorrupt, StoreTooNew or StoreMoved
    say what to do. `shards` are further databases, taken into the map of a new store; after that the map in the store rules."""
    databases = await open_databases(dsn, clock, partitions=partitions, entropy=entropy, shards=shards)
    try:
        await refuse_moved(databases.home)
    except BaseException:
        await databases.close()
        raise
    return PostgresStore(databases, clock)


async def open_transfer(
    dsn: str, clock: Clock, *, entropy: Entropy, partitions: int | None = None, shards: Sequence[str] = ()
) -> PostgresTransfer:
    """Open the store at `dsn` for a move, making or migrating it; of a new one `partitions` are made, 64 if not given."""
    count = partitions or await found_partitions(Address.of(dsn)) or DEFAULT_PARTITIONS
    databases = await open_databases(dsn, clock, partitions=count, entropy=entropy, shards=shards)
    return PostgresTransfer(databases, clock)


async def open_databases(
    dsn: str, clock: Clock, *, partitions: int, entropy: Entropy, shards: Sequence[str]
) -> Databases:
    """The databases of a store, each migrated and known to be the one that is meant."""
    check_partitions(partitions)
    address = Address.of(dsn)
    home, found = await prepare_home(
        address,
        partitions=partitions,
        installation=entropy.bytes(16).hex(),
        shards=shards,
        now_ms=clock.now_ms(),
    )
    all_: list[tuple[Address, Identity]] = [(address, home)]
    for one in found[1:]:
        identity = Identity(home.installation, partitions, one.shard, one.first, one.last)
        all_.append((Address.of(one.address), identity))
    await gathered([prepare_shard(where, identity, clock.now_ms()) for where, identity in all_[1:]])
    return Databases([Database(*one) for one in all_], partitions)
