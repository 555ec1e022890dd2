"""What the facts about a database mean for who runs it: which promise of durability holds, and what is wrong.

Pure: `examine` has looked, this judges. Each finding says what was found and, unless it is `ok`, what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal

MIB = 1 << 20
OLDEST_SERVER, NEWEST_SERVER = 15, 18
# Writers stop past this offset to the server's clock (§5, Time); below half of it nothing has to be done.
CLOCK_PROBLEM_MS, CLOCK_NOTE_MS = 250, 125
# Vacuum removes nothing that such a transaction might still see, so the timers' table grows by every fire meanwhile.
TRANSACTION_NOTE_S, TRANSACTION_PROBLEM_S = 300, 3_600
# The server refuses all writes 3 million transactions before it would run out of 2^31 of them.
XID_NOTE, XID_PROBLEM = 500_000_000, 1_200_000_000
DAYS_AHEAD = 3
LARGEST = 3
_LOCAL_COMMIT = frozenset({"local", "off"})


class Promise(Enum):
    """What an accepted job survives."""

    NOTHING = "not even a crash of the database server"
    PROCESS = "a crash of any process, but not the loss of the database's machine"
    MACHINE = "a crash of any process and the loss of the database's machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
    """A standby that is connected. `sync_state` is PostgreSQL's word: async, potential, sync or quorum."""

    name: str
    sync_state: str

    @property
    def waited_for(self) -> bool:
        """Whether commits wait for it."""
        return self.sync_state in ("sync", "quorum")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The server, as this user sees it. Not every user sees the standbys and others' transactions: `sees_all`."""

    version: int
    encoding: str
    in_recovery: bool
    read_only: bool
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    synchronous_standby_names: str
    autovacuum: bool
    max_connections: int
    in_use: int
    transaction_age_s: float | None
    prepared_age_s: float | None
    xid_age: int
    size: int
    sees_all: bool
    standbys: tuple[Standby, ...] = ()

    @property
    def promise(self) -> Promise:
        """Which promise of durability holds."""
        if not self.fsync or not self.full_page_writes or self.synchronous_commit == "off":
            return Promise.NOTHING
        waits = self.synchronous_standby_names != "" and self.synchronous_commit not in _LOCAL_COMMIT
        if waits and any(standby.waited_for for standby in self.standbys):
            return Promise.MACHINE
        return Promise.PROCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """How far this process's clock is behind the server's, and how long the answer took."""

    behind_ms: int
    round_trip_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with its indexes. `rows` is the server's estimate; None: nobody has counted yet."""

    name: str
    size: int
    rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A line of the shard map: the partitions of one database. Its address may hold a password and stays where it is."""

    shard: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What stands in the database. `version` is the last migration that was made (0: it is not a store yet), `newest` the last
    that this program knows, `least_code` what it must know at least."""

    version: int
    newest: int
    least_code: int = 1
    installation: str | None = None
    partitions: int | None = None
    shards: tuple[Shard, ...] = ()
    tables: tuple[Table, ...] = ()
    days_ahead: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. `do` is empty where nothing has to be done."""

    check: str
    state: Literal["ok", "note", "problem"]
    found: str
    do: str = ""


def of_server(server: Server, name: str, connections: int) -> Iterator[Finding]:
    """Judge the server; `name` says where it is, `connections` how many one process of ours may open."""
    yield _version(server, name)
    yield from _writable(server)
    yield from _flushes(server)
    yield _durability(server)
    yield from _transactions(server)
    yield _vacuum(server)
    yield _connections(server, connections)
    yield Finding("size", "ok", f"the database takes {server.size / MIB:,.1f} MiB")


def _version(server: Server, name: str) -> Finding:
    major, minor = divmod(server.version, 10_000)
    found = f"PostgreSQL {major}.{minor} at {name}"
    if major < OLDEST_SERVER:
        return Finding("server", "problem", found, f"upgrade it: Tocsin needs PostgreSQL {OLDEST_SERVER} or later")
    if major > NEWEST_SERVER:
        return Finding("server", "note", found, f"Tocsin was tested with {OLDEST_SERVER} to {NEWEST_SERVER} only")
    return Finding("server", "ok", found)


def _writable(server: Server) -> Iterator[Finding]:
    if server.encoding != "UTF8":
        yield Finding(
            "encoding", "problem", f"the database's encoding is {server.encoding}", "make a database with UTF8"
        )
    if server.in_recovery:
        yield Finding(
            "writable",
            "problem",
            "this server is a standby and takes no writes",
            "name the primary, or all servers with target_session_attrs=read-write",
        )
    elif server.read_only:
        yield Finding(
            "writable",
            "problem",
            "transactions are read-only by default",
            "set default_transaction_read_only = off for this database and user",
        )


def _flushes(server: Server) -> Iterator[Finding]:
    if not server.fsync:
        yield Finding(
            "fsync",
            "problem",
            "fsync is OFF: a power failure loses accepted jobs and may destroy the whole database",
            "set fsync = on and reload the server; afterwards trust only a database that was never run without",
        )
    if not server.full_page_writes:
        yield Finding(
            "full_page_writes",
            "problem",
            "full_page_writes is OFF: a crash in the middle of a page's write may destroy the database",
            "set full_page_writes = on, unless the file system never tears a page (ZFS)",
        )


def _durability(server: Server) -> Finding:
    found = f"accepted jobs survive {server.promise.value} (synchronous_commit = {server.synchronous_commit}"
    waited = [standby.name for standby in server.standbys if standby.waited_for]
    found += f", waits for {', '.join(waited)})" if waited else ", no synchronous standby)"
    if server.promise is Promise.NOTHING:
        return Finding("durability", "problem", found, "set synchronous_commit = on, fsync = on, full_page_writes = on")
    if server.promise is Promise.MACHINE:
        if server.synchronous_commit == "remote_write":
            return Finding(
                "durability", "note", found, "lost with both machines at once; synchronous_commit = on is safer"
            )
        return Finding("durability", "ok", found)
    if server.synchronous_standby_names == "":
        return Finding("durability", "ok", found, "to survive the loss of the machine, set up a synchronous standby")
    if server.synchronous_commit in _LOCAL_COMMIT:
        return Finding("durability", "problem", found, "synchronous_standby_names is set: set synchronous_commit = on")
    if not server.sees_all:
        return Finding("durability", "note", found, "to see the standbys, grant pg_monitor to this user")
    return Finding(
        "durability",
        "problem",
        f"{found}: every commit waits for a standby that is not connected "
        f"(synchronous_standby_names = {server.synchronous_standby_names})",
        "start the standby, or take it out of synchronous_standby_names",
    )


def _transactions(server: Server) -> Iterator[Finding]:
    age = server.transaction_age_s
    seen = "" if server.sees_all else " among those that this user may see (grant pg_monitor to see all)"
    if age is not None and age >= TRANSACTION_NOTE_S:
        state: Literal["note", "problem"] = "problem" if age >= TRANSACTION_PROBLEM_S else "note"
        yield Finding(
            "open transactions",
            state,
            f"a transaction has been open for {age:,.0f} s: vacuum cannot clean up behind it",
            "end it (pg_stat_activity, pg_terminate_backend); set idle_in_transaction_session_timeout for other users",
        )
    else:
        yield Finding("open transactions", "ok", f"the oldest{seen} is {age or 0:,.0f} s old")
    if server.prepared_age_s is not None and server.prepared_age_s >= TRANSACTION_NOTE_S:
        yield Finding(
            "open transactions",
            "problem",
            f"a prepared transaction has been waiting for {server.prepared_age_s:,.0f} s",
            "end it with COMMIT PREPARED or ROLLBACK PREPARED (pg_prepared_xacts); Tocsin makes none",
        )


def _vacuum(server: Server) -> Finding:
    if not server.autovacuum:
        return Finding(
            "autovacuum", "problem", "autovacuum is OFF: tables grow with every fire", "set autovacuum = on and reload"
        )
    if server.xid_age >= XID_NOTE:
        state: Literal["note", "problem"] = "problem" if server.xid_age >= XID_PROBLEM else "note"
        found = f"the oldest unfrozen row is {server.xid_age:,} transactions old; the server stops at 2,147 million"
        return Finding("autovacuum", state, found, "see what holds vacuum up: old transactions, replication slots")
    return Finding("autovacuum", "ok", "on")


def _connections(server: Server, connections: int) -> Finding:
    found = (
        f"{server.in_use} of {server.max_connections} connections are in use, a process of Tocsin opens {connections}"
    )
    free = server.max_connections - server.in_use
    if server.max_connections < connections:
        return Finding("connections", "problem", found, "raise max_connections, or put PgBouncer in between")
    if free < connections:
        return Finding("connections", "note", found, "another process would find none free: raise max_connections")
    return Finding("connections", "ok", found)


def of_clock(offset: Offset) -> Finding:
    """Judge how this process's clock agrees with the server's; half the round trip is in doubt."""
    behind = abs(offset.behind_ms)
    sure = max(0, behind - offset.round_trip_ms // 2)
    direction = "behind" if offset.behind_ms > 0 else "ahead of"
    found = f"this clock is {behind} ms {direction} the server's (± {(offset.round_trip_ms + 1) // 2} ms)"
    do = "run a time service (NTP) on both machines"
    if sure > CLOCK_PROBLEM_MS:
        return Finding("store clock", "problem", found, f"{do}; past {CLOCK_PROBLEM_MS} ms processes stop firing")
    return Finding("store clock", "note", found, do) if sure > CLOCK_NOTE_MS else Finding("store clock", "ok", found)


def of_contents(contents: Contents) -> Iterator[Finding]:
    """Judge what stands in the database."""
    if contents.version == 0:
        yield Finding(
            "schema", "note", "the database is not a store yet", "tocsin migrate, or the first start, makes it one"
        )
        return
    found = f"version {contents.version}"
    if contents.version < contents.newest:
        do = "tocsin migrate, or a start, brings it up"
        yield Finding("schema", "note", f"{found}, this program has {contents.newest}", do)
    elif contents.least_code > contents.newest:
        do = "run the newer version of Tocsin that migrated it"
        yield Finding("schema", "problem", f"{found}, this program knows only {contents.newest} and is refused", do)
    elif contents.version > contents.newest:
        do = "go on with the rolling upgrade: newer processes have been here"
        yield Finding("schema", "note", f"{found}, this program knows {contents.newest}", do)
    else:
        yield Finding("schema", "ok", found)
    if contents.installation is None:
        yield Finding(
            "identity", "problem", "the database does not say which installation it is of", "restore it from a copy"
        )
    else:
        shards = f", {len(contents.shards)} shards" if contents.shards else ""
        yield Finding(
            "identity", "ok", f"installation {contents.installation}, {contents.partitions} partitions{shards}"
        )
    largest = ", ".join(f"{table.name} {table.size / MIB:,.1f} MiB" for table in contents.tables[:LARGEST])
    if largest:
        yield Finding("tables", "ok", f"the largest: {largest}")
    yield from _days(contents)


def _days(contents: Contents) -> Iterator[Finding]:
    if contents.days_ahead is None:
        return
    found = f"tables for finished jobs are made {contents.days_ahead} days ahead"
    if contents.days_ahead < 0:
        found = "there is no table for the jobs that finish today"
    if contents.days_ahead < DAYS_AHEAD:
        yield Finding(
            "days ahead",
            "problem",
            found,
            "start a node: it makes them; when they run out, finished jobs have no place to go",
        )
    else:
        yield Finding("days ahead", "ok", found)


__all__ = [
    "Contents",
    "Finding",
    "Offset",
    "Promise",
    "Server",
    "Shard",
    "Standby",
    "Table",
    "of_clock",
    "of_contents",
    "of_server",
]
