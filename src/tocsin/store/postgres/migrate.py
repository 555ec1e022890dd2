"""Migrations and identity: what must be true of a database before anything is read from it or written to it.

Steps are numbered plain SQL, forward only, taken in one transaction under a lock that ends with it (so also behind a pooler): two
processes that start at once do this one after the other, and a crash leaves the schema as it was. Schemas expand first and
contract a release later, so a program may meet steps that it does not know; the step that contracts raises `least_code` in
the identity, and programs that know less are refused from then on, also at each new connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import asyncpg

from tocsin.errors import ConfigError, StoreCorrupt, StoreTooNew, TocsinError
from tocsin.store.migrations import Migration, read_migrations
from tocsin.store.postgres.connection import Address, Connection, connect, translated
from tocsin.store.postgres.statements import block

MIGRATE_MS = 600_000
OLDEST_SERVER = 15

_LOCK = block("identity", "lock")
_HAS = block("identity", "has_migrations")
_TABLE = block("identity", "migrations_table")
_DONE = block("identity", "migrations")
_ADD = block("identity", "add_migration")
_IDENTITY = block("identity", "identity")
_ADD_IDENTITY = block("identity", "add_identity")
_SHARDS = block("identity", "shards")
_ADD_SHARD = block("identity", "add_shard")


@dataclass(frozen=True, slots=True)
class Identity:
    """Which installation a database belongs to, and which of its partitions it holds."""

    installation: str
    partitions: int
    shard: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Shard:
    """A line of the shard map. `address` is empty for the home database."""

    shard: int
    first: int
    last: int
    address: str


def migrations() -> list[Migration]:
    """All steps that this program knows, in order."""
    assert __package__ is not None
    return read_migrations(__package__)


@cache
def _newest() -> int:
    return migrations()[-1].number


def ranges(partitions: int, count: int) -> list[tuple[int, int]]:
    """Contiguous, equal ranges of partitions, first and last of each."""
    if count > partitions:
        raise ConfigError(
            f"there are {count} shards for {partitions} partitions; name no more databases than there are partitions"
        )
    bounds = [shard * partitions // count for shard in range(count + 1)]
    return [(first, after - 1) for first, after in pairwise(bounds)]


async def prepare_home(
    address: Address, *, partitions: int, installation: str, shards: Sequence[str], now_ms: int
) -> tuple[Identity, list[Shard]]:
    """Bring the home database to this program's schema; its identity and the shard map. A new store gets those that are given."""
    addresses = ["", *shards]
    asked = [
        Shard(shard, first, last, where)
        for shard, ((first, last), where) in enumerate(zip(ranges(partitions, len(addresses)), addresses, strict=True))
    ]
    conn = await _open(address)
    try:
        await conn.execute("BEGIN")
        await _migrate(conn, address, now_ms, migrations())
        mine = Identity(installation, partitions, 0, asked[0].first, asked[0].last)
        identity = await _identify(conn, address, mine, now_ms)
        found = [Shard(*row[1:]) for row in await conn.fetch(_SHARDS)]
        if not found:
            for one in asked:
                await conn.execute(_ADD_SHARD, 1, one.shard, one.first, one.last, one.address)
            found = asked
        await conn.execute("COMMIT")
    except Exception as exc:
        raise _refused(exc, address) from exc
    finally:
        conn.terminate()
    return identity, found


async def prepare_shard(address: Address, wanted: Identity, now_ms: int) -> None:
    """Bring another database of the installation to this program's schema, and see that it is the one that is meant."""
    conn = await _open(address)
    try:
        await conn.execute("BEGIN")
        await _migrate(conn, address, now_ms, migrations())
        await _identify(conn, address, wanted, now_ms)
        await conn.execute("COMMIT")
    except Exception as exc:
        raise _refused(exc, address) from exc
    finally:
        conn.terminate()


async def check_identity(conn: Connection, address: Address, wanted: Identity) -> None:
    """Raise unless the database at the other end is still the one that is meant, and of an age that this program understands."""
    row = await conn.fetchrow(_IDENTITY)
    if row is None:
        raise StoreCorrupt(f"the database {address.name} has no identity; restore the last backup")
    found, least_code = Identity(*row[:5]), row[5]
    newest = _newest()
    if least_code > newest:
        raise StoreTooNew(
            f"the database {address.name} asks for a program that knows schema {least_code}, this one knows {newest}; start a "
            "newer version of Tocsin"
        )
    if found.partitions != wanted.partitions:
        raise ConfigError(
            f"the database {address.name} was made with {found.partitions} partitions and this program is configured for "
            f"{wanted.partitions}; set partitions to {found.partitions} (the number is chosen once; changing it means moving to "
            "another installation)"
        )
    if found != wanted:
        raise ConfigError(
            f"the database {address.name} is shard {found.shard} of installation {found.installation} with partitions "
            f"{found.first} to {found.last}, and not shard {wanted.shard} of {wanted.installation} with {wanted.first} to "
            f"{wanted.last}; correct its address"
        )


async def _open(address: Address) -> Connection:
    try:
        conn = await connect(address, {"statement_timeout": str(MIGRATE_MS), "lock_timeout": str(MIGRATE_MS)})
    except Exception as exc:
        raise _refused(exc, address) from exc
    version = conn.get_server_version()
    if version.major < OLDEST_SERVER:
        conn.terminate()
        raise ConfigError(
            f"the database {address.name} is PostgreSQL {version.major}, the store needs {OLDEST_SERVER} or newer; upgrade it"
        )
    return conn


async def _migrate(conn: Connection, address: Address, now_ms: int, steps: list[Migration]) -> None:
    await conn.execute(_LOCK)
    if not await conn.fetchval(_HAS):
        await conn.execute(_TABLE)
    done = {row[0]: row[1] for row in await conn.fetch(_DONE)}
    for step in steps:
        if step.number not in done:
            await conn.execute(step.text)
            await conn.execute(_ADD, step.number, step.name, step.checksum, now_ms)
        elif done[step.number] != step.checksum:
            raise StoreCorrupt(
                f"the database {address.name} was made with another text of migration {step.name}; start the version of "
                "Tocsin that made it, or restore a backup"
            )


async def _identify(conn: Connection, address: Address, wanted: Identity, now_ms: int) -> Identity:
    """Write the identity of a new database; refuse one of another number of partitions or, for a shard, another at all. The home
    database tells whose installation it is and how far its own partitions go."""
    await conn.execute(
        _ADD_IDENTITY,
        wanted.installation,
        wanted.partitions,
        wanted.shard,
        wanted.first,
        wanted.last,
        now_ms,
    )
    found = Identity(*(await conn.fetchrow(_IDENTITY))[:5])
    same = found if wanted.shard == 0 == found.shard and found.partitions == wanted.partitions else wanted
    await check_identity(conn, address, same)
    return found


def _refused(exc: BaseException, address: Address) -> BaseException:
    """What an error means that came while a database was being opened."""
    if isinstance(exc, TocsinError):
        return exc
    if isinstance(exc, asyncpg.InvalidAuthorizationSpecificationError | asyncpg.InvalidCatalogNameError):
        return ConfigError(f"the database {address.name} refuses us ({exc}); correct its address, or create it")
    if isinstance(exc, asyncpg.ClientConfigurationError):
        return ConfigError(f"the address of the database {address.name} cannot be used ({exc})")
    if isinstance(exc, asyncpg.InsufficientPrivilegeError):
        return ConfigError(f"the database {address.name} lets us make no tables ({exc}); give this user the right")
    if isinstance(exc, asyncpg.DuplicateTableError | asyncpg.UndefinedColumnError):
        return ConfigError(f"the database {address.name} has another program's tables ({exc}); name an empty one")
    known = translated(exc, address.name)
    if known is exc and isinstance(exc, asyncpg.PostgresError | asyncpg.InterfaceError | ValueError):
        return ConfigError(f"the database {address.name} cannot be opened ({exc}); correct its address and its rights")
    return known
