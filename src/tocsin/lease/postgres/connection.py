"""One connection to the registry's database, made anew whenever anything is doubtful.

Apart from the store's pools, so that a renewal never waits behind jobs. Every wait is bounded: a server that hangs, a black hole
in the network and a lock that somebody holds all look the same after two seconds, and the next call begins with a new connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from tocsin.errors import ConfigError, LeasesUnavailable, TocsinError

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
# What PostgreSQL says when it cannot do now what it could do otherwise (appendix A of its manual): connections, resources, operators,
# its system; then a standby, a lock that was not to be had, a deadlock.
_OUTAGE_CLASSES = ("08", "53", "57", "58")
_OUTAGE_STATES = ("25006", "25P03", "55P03", "40P01", "40001")
# undefined_table, invalid_schema_name, undefined_function: somebody has removed our tables, or restored a backup without them.
_GONE_STATES = ("42P01", "3F000", "42883")
_OUTAGES = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, EOFError, TimeoutError)


class Line:
    """A connection on demand; calls come one after the other. Raises ConfigError if `dsn` is no address.

    `tocsin_pooler=1` in the DSN says that a pooler stands between us, which gives each transaction another connection of its own.
    Then nothing is prepared beforehand, and each statement stands in a transaction, so that its parts arrive at the same one.
    Of several hosts the one is taken that can write, so that a failover is followed.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn, self._pooled = _parts(dsn)
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
            except BaseException as error:
                # Also when the caller is cancelled: what the server is doing is unknown then, and nobody shall wait for it.
                self._drop()
                translated = _translated(error)
                if translated is None:
                    raise
                raise translated from error

    async def close(self) -> None:
        """Hang up."""
        async with self._turn:
            if self._open is not None:
                connection, self._open = self._open, None
                try:
                    await connection.close(timeout=ANSWER_S)
                except (*_OUTAGES, asyncpg.PostgresError):
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


def _translated(error: BaseException) -> TocsinError | None:
    """The error of ours that it is, if it is one."""
    said = str(error) or type(error).__name__
    if isinstance(error, _SETTINGS):
        return ConfigError(f"lease: PostgreSQL refuses us: {said}; correct the address or the user's rights")
    state = (error.sqlstate or "") if isinstance(error, asyncpg.PostgresError) else ""
    if state in _GONE_STATES:
        return LeasesUnavailable(
            f"the tables that keep the sessions are gone from PostgreSQL ({said}); any process that starts makes them: restart one"
        )
    if isinstance(error, _OUTAGES) or state[:2] in _OUTAGE_CLASSES or state in _OUTAGE_STATES:
        return LeasesUnavailable(f"PostgreSQL, which keeps the sessions, cannot answer now ({said}); it is asked again")
    return None


def _parts(dsn: str) -> tuple[str, bool]:
    """The DSN as the driver takes it, and whether a pooler is meant."""
    try:
        parts = urlsplit(dsn)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
    except ValueError as error:
        raise ConfigError(f"lease: the address of the PostgreSQL database cannot be read ({error})") from error
    pooled = query.pop("tocsin_pooler", "0") not in ("", "0", "false")
    query.setdefault("target_session_attrs", "read-write")
    return urlunsplit(parts._replace(query=urlencode(query))), pooled
