"""The two ends of a move: which adapter is behind an address, and that nobody serves what is there.

A file's folder is locked and the file itself held. The databases of a fleet are shared by many, so there its registry is asked who
has a session, before the move and once more before it is sealed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tocsin.clock import Clock, SystemEntropy
from tocsin.errors import ConfigError, LeaseHeld, UsageError
from tocsin.flow.carry import installation_secret
from tocsin.lease.local import LocalLeases
from tocsin.lease.port import Registry
from tocsin.store.sqlite import open_transfer as open_sqlite
from tocsin.store.transfer import Transfer

SCHEMES = "sqlite:PATH or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """A store to move from or to, as it was named. `leases`: where its fleet keeps them, if not in the store."""

    address: str
    leases: str | None = None
    partitions: int | None = None
    shards: tuple[str, ...] = ()

    @property
    def path(self) -> Path | None:
        """The file, of a store in SQLite."""
        scheme, colon, path = self.address.partition(":")
        return Path(path).expanduser().absolute() if scheme == "sqlite" and colon and path else None

    @property
    def is_database(self) -> bool:
        """Whether it is in PostgreSQL."""
        return self.address.startswith(("postgresql://", "postgres://"))

    def check(self, option: str) -> None:
        """Raise UsageError if that is no store's address; `option` named it. What it says may hold a password: it is not shown."""
        if self.path is None and not self.is_database:
            raise UsageError(f"{option} names no store; give {SCHEMES}")


@dataclass(frozen=True, slots=True)
class End:
    """An open end of a move; `quiet` raises LeaseHeld if somebody serves it."""

    transfer: Transfer
    quiet: Callable[[], Awaitable[None]]


async def exists(where: Where) -> bool:
    """Whether there is a store already."""
    if where.path is not None:
        return where.path.exists()
    from tocsin.store.postgres import has_store

    return await has_store(where.address)


@asynccontextmanager
async def opened(where: Where, clock: Clock, *, make: bool) -> AsyncIterator[End]:
    """One end of a move, which is nobody's but ours; with `make` it is made where there is none.

    Raises LeaseHeld naming who has it, ConfigError where there is none or of another number of partitions.
    """
    if not make and not await exists(where):
        name = where.path or "in that database"
        raise ConfigError(
            f"there is no store {name}; name the store of an installation, such as sqlite:.tocsin/tocsin.db"
        )
    async with _file(where.path, where, clock, make) if where.path is not None else _database(where, clock) as end:
        await end.quiet()
        yield end


@asynccontextmanager
async def _file(path: Path, where: Where, clock: Clock, make: bool) -> AsyncIterator[End]:
    leases = LocalLeases(path.parent, 1)
    await leases.acquire()
    try:
        store = await open_sqlite(path, clock, entropy=SystemEntropy(), make=make, partitions=where.partitions)
        try:
            yield End(store, _alone)
        finally:
            await store.close()
    finally:
        await leases.release()


async def _alone() -> None:
    """A file that is open here is open nowhere else."""


@asynccontextmanager
async def _database(where: Where, clock: Clock) -> AsyncIterator[End]:
    from tocsin.store.postgres import open_transfer as open_postgres

    store = await open_postgres(
        where.address, clock, entropy=SystemEntropy(), partitions=where.partitions, shards=where.shards
    )
    try:
        registry = await _registry(where, store, clock)
        if registry is None:
            yield End(store, _alone)
            return
        try:
            yield End(store, lambda: _without_members(store.name, registry))
        finally:
            await registry.close()
    finally:
        await store.close()


async def _registry(where: Where, store: Transfer, clock: Clock) -> Registry | None:
    """Who has a session there; None where nobody ever had one."""
    from tocsin.lease.postgres import open_registry as open_postgres

    if where.leases is None:
        return await open_postgres(where.address)
    from tocsin.lease.etcd import open_registry as open_etcd

    name = await installation_secret(store)
    return None if name is None else await open_etcd(where.leases, clock, installation=name[:6].hex())


async def _without_members(name: str, registry: Registry) -> None:
    members = await registry.members()
    if members:
        nodes = ", ".join(sorted({member.facts.node for member in members}))
        raise LeaseHeld(f"{name} is served by {nodes}; stop every process of it (a killed one counts for 10 s more)")


__all__ = ["SCHEMES", "End", "Where", "exists", "opened"]
