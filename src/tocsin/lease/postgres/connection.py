"""One connection to the registry's database, made anew whenever anything is doubtful.

Apart from the store's pools, so that a renewal never waits behind jobs. Every wait is bounded: a server that hangs, a black hole
in the network and a lock that somebody holds all look the same after two seconds, and the next call begins with a new connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import asyncpg

from tocsin.errors import ConfigError, LeasesUnavailable

T = TypeVar("T")
Connection: TypeAlias = Any  # asyncpg's, which has no types
Row: TypeAlias = Any  # a mapping from column to value

CONNECT_S = 2.0
ANSWER_S = 2.0

# What is wrong in the settings stays wrong however often it is tried.
_SETTINGS = (
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.ClientConfigurationError,
)


class Line:
    """A connection on demand; calls come one after the other.

    `pooled`: there is a pooler between us that gives each transaction another connection of its own. Then nothing is prepared
    beforehand, and each statement stands in a transaction, so that its parts arrive at the same one.
    """

    def __init__(self, dsn: str, *, pooled: bool = False) -> None:
        self._dsn, self._pooled = dsn, pooled
        self._turn = asyncio.Lock()
        self._open: Connection | None = None

    async def rows(self, statement: str, *values: object) -> list[Row]:
        """Run one statement; its rows. Raises LeasesUnavailable, ConfigError."""

        async def fetch(connection: Connection) -> list[Row]:
            if self._pooled:
                async with connection.transaction():
                    return list(await connection.fetch(statement, *values))
            return list(await connection.fetch(statement, *values))

        return await self.within(fetch)

    async def within(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do some work on the connection, and drop that if the work does not end well. Raises LeasesUnavailable, ConfigError."""
        async with self._turn:
            try:
                async with asyncio.timeout(CONNECT_S + ANSWER_S):
                    return await work(await self._connected())
            except _SETTINGS as error:
                self._drop()
                raise ConfigError(
                    f"lease: PostgreSQL refuses us: {error}; correct the address or the user's rights"
                ) from error
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
                self._drop()
                what = str(error) or type(error).__name__
                raise LeasesUnavailable(f"PostgreSQL, which keeps the sessions, cannot answer: {what}") from error
            except BaseException:
                # The caller was cancelled: what the server is doing is unknown, and nobody shall wait for it.
                self._drop()
                raise

    async def close(self) -> None:
        """Hang up."""
        async with self._turn:
            if self._open is not None:
                connection, self._open = self._open, None
                try:
                    await connection.close(timeout=ANSWER_S)
                except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    connection.terminate()

    async def _connected(self) -> Connection:
        if self._open is None or self._open.is_closed():
            # A pooler refuses settings that it does not know; there the client's own bound has to do.
            bound = None if self._pooled else {"statement_timeout": str(round(ANSWER_S * 1000))}
            self._open = await asyncpg.connect(
                self._dsn,
                timeout=CONNECT_S,
                command_timeout=ANSWER_S,
                server_settings=bound,
                statement_cache_size=0 if self._pooled else 100,
            )
        return self._open

    def _drop(self) -> None:
        if self._open is not None:
            self._open.terminate()
            self._open = None
