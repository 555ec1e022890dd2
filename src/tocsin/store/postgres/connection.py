"""Connections to one PostgreSQL database: small pools, what they may do, and what their errors mean.

There are four pools for each database, so that what is urgent never waits behind what is not: `urgent` (heartbeats,
completions, fires, claims), `bulk` (creates, timers, upkeep), `reads` (states and timers, for the flow) and `lists` (what people
leaf through, however slowly). A connection is checked against
the database's identity when it is made: behind one address there may be another server since.

A connection whose server went away, was shut down, or has become a standby (read-only, after a failover) is closed at once, and
the next one is made to whatever host of the DSN is writable then (`target_session_attrs`, default read-write). With the first
connection that turns out to be read-only all others of its pools go too: a demoted server still answers reads, of what was. A
write whose connection broke has an unknown outcome: `StoreUnavailable`, and whoever asked repeats.

`tocsin_pooler=1` in the DSN is for PgBouncer in transaction mode: no prepared statements are kept and no setting is sent at the
start; each transaction makes its settings for itself.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from tocsin.errors import ConfigError, Overloaded, StoreCorrupt, StoreUnavailable

# Every statement is bounded, so that no instant inside one is old when it commits (§5).
STATEMENT_MS = 8_000
LOCK_MS = 4_000
IDLE_MS = 10_000
CONNECT_S = 5.0
CLOSE_S = 2.0
PLACE_S = 10.0
MOST_WAITING = 1_000

# The plans that hold on any table, whatever the planner believes of it: by an index always, and then
# - HASHED: rows that are found by `key = ANY($1)` meet those that are given in a hash table: both sides are bounded by the batch;
# - LOOKED_UP: for each row that is given, one look into an index by the whole key.
_ALWAYS = {"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_mergejoin": "off", "work_mem": "32MB"}
HASHED = _ALWAYS | {"enable_nestloop": "off"}
LOOKED_UP = _ALWAYS | {"enable_hashjoin": "off"}
READING = {"enable_seqscan": "off"}
_LIMITS = {
    "statement_timeout": str(STATEMENT_MS),
    "lock_timeout": str(LOCK_MS),
    "idle_in_transaction_session_timeout": str(IDLE_MS),
    "jit": "off",
    # A plan that was kept is of the tables as they were: of a day's that was empty at midnight, for one.
    "plan_cache_mode": "force_custom_plan",
}

# What PostgreSQL says when it cannot do anything at the moment, whatever it is asked (appendix A of its manual).
_OUTAGE_CLASSES = ("08", "53", "57", "58")
READ_ONLY = "25006"  # read_only_sql_transaction: a standby, or a primary that is full
_OUTAGE_STATES = {
    READ_ONLY,
    "25P03",  # idle_in_transaction_session_timeout
    "55P03",  # lock_not_available
    "3D000",  # invalid_catalog_name
    "28000",  # invalid_authorization_specification
    "28P01",  # invalid_password
}
_STAYS = {"57014", "55P03"}  # time-outs of one statement: the connection is as good as before
_AGAIN = {"40P01", "40001"}  # deadlock_detected, serialization_failure: rolled back, to be tried again at once

_ENDPOINT = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^:\[\]]*)(:(?P<port>[0-9]{1,5})?)?")

Connection = Any  # asyncpg.Connection, which has no types


def sqlstate(exc: BaseException) -> str:
    """The SQLSTATE of an error that the server sent; "" of any other."""
    return getattr(exc, "sqlstate", None) or "" if isinstance(exc, asyncpg.PostgresError) else ""


def is_outage(exc: BaseException) -> bool:
    """Whether the store cannot do anything at the moment, whatever it is asked."""
    if isinstance(exc, asyncpg.PostgresError):
        state = sqlstate(exc)
        return state[:2] in _OUTAGE_CLASSES or state in _OUTAGE_STATES
    if isinstance(exc, ValueError):  # a value that no column can hold, found before it was sent
        return False
    return isinstance(exc, OSError | EOFError | TimeoutError | asyncpg.InterfaceError | asyncpg.InternalClientError)


def is_conflict(exc: BaseException) -> bool:
    """Whether a transaction was rolled back for the sake of another and may be tried again at once."""
    return sqlstate(exc) in _AGAIN


def is_damage(exc: BaseException) -> bool:
    """Whether the server found its files broken."""
    return sqlstate(exc) in ("XX001", "XX002")


def translated(exc: BaseException, name: str) -> BaseException:
    """The error of ours that an outage or damage is; any other error is itself."""
    if is_damage(exc):
        return StoreCorrupt(f"the database {name} is damaged ({exc}); restore the last backup")
    if is_outage(exc):
        unavailable = StoreUnavailable(f"the database {name} cannot be used now ({_said(exc)}); ask again")
        unavailable.told = "the store cannot be used at the moment; nothing was done, ask again"
        return unavailable
    return exc


def _said(exc: BaseException) -> str:
    return str(exc) or type(exc).__name__


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is. `pooler`: behind PgBouncer in transaction mode. `name` is fit for messages: without password."""

    dsn: str
    name: str
    pooler: bool

    @classmethod
    def of(cls, dsn: str) -> Address:
        """Take a DSN apart; ConfigError if it is none."""
        try:
            parts = urlsplit(dsn)
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
        except ValueError:
            # Nothing of what it says: it quotes the address, password and all.
            raise ConfigError("the address of a PostgreSQL database cannot be read") from None
        if parts.scheme not in ("postgresql", "postgres"):
            raise ConfigError("the address of a PostgreSQL database begins with postgresql://")
        hosts, database = parts.netloc.rpartition("@")[2], parts.path.lstrip("/")
        if "@" in database:
            raise ConfigError("the password in the address of a PostgreSQL database has a / in it: write %2F instead")
        if not (hosts or "host" in query) or not (database or "dbname" in query or "database" in query):
            raise ConfigError(
                "the address of a PostgreSQL database names a host and a database: postgresql://user@host:5432/database"
            )
        if not all(_is_endpoint(host) for host in hosts.split(",")):
            # Where the driver connects it would be no error of the address any more.
            raise ConfigError(
                "the address of a PostgreSQL database has a host that is not HOST:PORT; several are separated by commas, and user "
                "and password are percent-encoded"
            )
        pooler = query.pop("tocsin_pooler", "0") not in ("", "0", "false")
        query.setdefault("target_session_attrs", "read-write")
        return cls(urlunsplit(parts._replace(query=urlencode(query))), f"{hosts}/{database}", pooler)


def _is_endpoint(text: str) -> bool:
    match = _ENDPOINT.fullmatch(text)
    return match is not None and int(match["port"] or 1) in range(1, 65_536)


async def connect(address: Address, settings: dict[str, str]) -> Connection:
    """A connection; raises what asyncpg raises."""
    more: dict[str, Any] = {"statement_cache_size": 0} if address.pooler else {"server_settings": settings}
    return await asyncpg.connect(
        address.dsn, timeout=CONNECT_S, command_timeout=STATEMENT_MS / 1000 + CONNECT_S, **more
    )


class Pool:
    """Up to `size` connections, made when they are wanted. `check` looks at each new one."""

    def __init__(
        self,
        address: Address,
        kind: str,
        size: int,
        plans: dict[str, str],
        check: Callable[[Connection], Awaitable[None]],
    ) -> None:
        self._address, self._check = address, check
        self._settings = _LIMITS | plans | {"application_name": f"tocsin {kind}"}
        self.size = size
        self._places = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._waiting = 0
        self._era = 0
        self._closed = False
        self.on_demotion: Callable[[], None] = self.renew

    def renew(self) -> None:
        """Use no connection any more that was made until now."""
        self._era += 1
        idle, self._idle = self._idle, []
        for conn in idle:
            conn.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection outside a transaction: each statement is one for itself."""
        await self._place()
        try:
            era = self._era
            conn = await self._take()
            good = False
            try:
                yield conn
                good = True
            except Exception as exc:
                good = not is_outage(exc) or sqlstate(exc) in _STAYS
                if sqlstate(exc) == READ_ONLY:
                    self.on_demotion()
                other = translated(exc, self._address.name)
                if other is exc:
                    raise
                raise other from exc
            finally:
                self._give(conn, good and era == self._era)
        finally:
            self._places.release()

    @asynccontextmanager
    async def transaction(self, conn: Connection) -> AsyncIterator[None]:
        """A transaction on a connection of this pool: committed at the end, rolled back on any error."""
        await conn.execute(self._begin())
        try:
            yield
        except Exception as exc:
            if not is_outage(exc):  # after one the connection is closed, which rolls back too
                await conn.execute("ROLLBACK")
            raise
        await conn.execute("COMMIT")

    async def ask(self, conn: Connection, sql: str, *values: Any) -> list[Any]:
        """The rows of one statement on a connection of this pool, as a transaction for itself."""
        if not self._address.pooler:
            return list(await conn.fetch(sql, *values))
        async with self.transaction(conn):
            return list(await conn.fetch(sql, *values))

    async def fetch(self, sql: str, *values: Any) -> list[Any]:
        """The rows of one statement, on any connection."""
        async with self.connection() as conn:
            return await self.ask(conn, sql, *values)

    async def close(self) -> None:
        """Close what is idle; what is out is closed when it comes back."""
        self._closed = True
        idle, self._idle = self._idle, []
        await asyncio.gather(*(conn.close(timeout=CLOSE_S) for conn in idle), return_exceptions=True)

    def _begin(self) -> str:
        if not self._address.pooler:
            return "BEGIN"
        return "BEGIN" + "".join(f"; SET LOCAL {name} = '{value}'" for name, value in self._settings.items())

    async def _place(self) -> None:
        if self._waiting >= MOST_WAITING:
            raise Overloaded(f"{self._waiting} requests wait for a connection already; try again in a second")
        self._waiting += 1
        try:
            async with asyncio.timeout(PLACE_S):
                await self._places.acquire()
        except TimeoutError:
            raise Overloaded(f"all connections were in use for {PLACE_S:g} s; try again in a second") from None
        finally:
            self._waiting -= 1

    async def _take(self) -> Connection:
        if self._closed:
            raise StoreUnavailable("the store is closed; ask again when the server is back")
        while self._idle:
            conn = self._idle.pop()
            if not conn.is_closed():
                return conn
        try:
            conn = await connect(self._address, self._settings)
        except Exception as exc:
            raise self._unusable(exc) from exc
        try:
            await self._check(conn)
        except BaseException as exc:
            conn.terminate()
            raise self._unusable(exc) from exc
        return conn

    def _unusable(self, exc: BaseException) -> BaseException:
        """What an error means that came before anything was asked: never that what will be asked is wrong."""
        other = translated(exc, self._address.name)
        if isinstance(other, asyncpg.PostgresError | ValueError):
            return StoreUnavailable(f"the database {self._address.name} does not take us ({_said(exc)}); ask again")
        return other

    def _give(self, conn: Connection, good: bool) -> None:
        if good and _is_demoted(conn):
            good = False
            self.on_demotion()
        if good and not self._closed and not conn.is_closed() and not conn.is_in_transaction():
            self._idle.append(conn)
        else:
            conn.terminate()


def _is_demoted(conn: Connection) -> bool:
    """Whether the server has told by itself that it takes no writes any more: it does, behind the answer to the first statement
    after the change (PostgreSQL 14 and later; a pooler need not pass it on)."""
    if conn.is_closed():
        return False
    told = conn.get_settings()
    return "on" in (getattr(told, "in_hot_standby", "off"), getattr(told, "default_transaction_read_only", "off"))
