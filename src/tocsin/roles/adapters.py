"""The adapters of each shape: what stands behind the ports, opened from the settings and closed again.

Embedded: SQLite, memory, a file's lock. Fleet: PostgreSQL, Redis, and leases in PostgreSQL or etcd. The fleet's drivers are
imported only where they are asked for. What was opened before a failure is closed again.
"""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

from tocsin import __version__
from tocsin.clock import Clock, Entropy, SystemEntropy
from tocsin.config import Settings
from tocsin.errors import ConfigError
from tocsin.lease.local import LocalLeases
from tocsin.lease.port import Facts, Registry
from tocsin.near.memory import MemoryNearTier
from tocsin.near.port import NearTier
from tocsin.store.port import Store
from tocsin.store.sqlite import Examination, examine
from tocsin.store.sqlite import open_store as open_sqlite

T = TypeVar("T")


async def open_store(settings: Settings, clock: Clock) -> Store:
    """The store of these settings, migrated; also for commands that work on it without a server. Raises ConfigError, StoreError."""
    if settings.is_fleet:
        from tocsin.store.postgres import open_store as open_postgres

        return await open_postgres(
            settings.dsn,
            clock,
            partitions=settings.partition_count,
            entropy=SystemEntropy(),
            shards=settings.shards.split(),
        )
    path = Path(settings.dsn.removeprefix("sqlite:"))
    if path.parent == settings.data:
        settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    return await open_sqlite(path, clock, partitions=settings.partition_count, entropy=SystemEntropy())


def examine_store(settings: Settings) -> Examination:
    """Look at the store's file without changing it, also beside a running server; for `tocsin doctor`."""
    return examine(Path(settings.dsn.removeprefix("sqlite:")))


async def open_near(settings: Settings, store: Store, clock: Clock, entropy: Entropy) -> NearTier:
    """The near tier. One that cannot be reached now is no error: its calls say so until it can."""
    if settings.near_url == "memory":
        return MemoryNearTier(clock, partitions=settings.partition_count)
    from tocsin.near.redis import open_near as open_redis

    # Installations may share a server: each has names of its own there.
    installation = (await store.settings.secret("installation", entropy.bytes(6)))[:6].hex()
    return await open_redis(
        settings.near_url, clock, installation=f"tocsin-{installation}", partitions=settings.partition_count
    )


async def open_registry(settings: Settings, store: Store, clock: Clock, entropy: Entropy) -> Registry:
    """What the processes of a fleet know of each other."""
    if settings.lease_url == "postgresql":
        from tocsin.lease.postgres import open_registry as open_postgres

        return await open_postgres(settings.dsn)
    from tocsin.lease.etcd import open_registry as open_etcd

    installation = (await store.settings.secret("installation", entropy.bytes(6)))[:6].hex()
    return await open_etcd(settings.lease_url, clock, installation=installation)


async def lock(settings: Settings) -> LocalLeases:
    """The data folder's lock, taken. Raises LeaseHeld, ConfigError."""
    try:
        settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"data is {settings.data}: {error.strerror}; name a folder that can be written") from error
    leases = LocalLeases(settings.data, settings.partition_count)
    await leases.acquire()
    return leases


def facts_of(settings: Settings, clock: Clock) -> Facts:
    """What this process is, for the lists of nodes."""
    address = f"http://{settings.host}:{settings.port}" if "api" in settings.roles else ""
    return Facts(
        node=settings.node_name or socket.gethostname(),
        roles=tuple(sorted(settings.roles)),
        version=__version__,
        address=address,
        started_at=clock.now_ms(),
    )


async def kept(stack: AsyncExitStack, made: T, close: str = "close") -> T:
    """Something that the stack closes at its end."""
    stack.push_async_callback(getattr(made, close))
    return made
