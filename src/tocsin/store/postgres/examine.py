"""Looking at a database of PostgreSQL without changing it, for `tocsin doctor`: every statement is in a read-only transaction.

One database at a time: each shard is looked at by itself. What cannot be looked at is itself a finding, so that one closed door
hides no other.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeVar

import asyncpg

from tocsin.clock import Clock
from tocsin.store.postgres.connection import Address, Connection, connect, is_outage, translated
from tocsin.store.postgres.databases import BULK, LISTS, READS, URGENT
from tocsin.store.postgres.findings import (
    Contents,
    Finding,
    Offset,
    Server,
    Shard,
    Standby,
    Table,
    of_clock,
    of_contents,
    of_server,
)
from tocsin.store.postgres.migrate import migrations
from tocsin.store.postgres.statements import block

CLOCK_SAMPLES = 5
DAY_MS = 86_400_000
DIVIDED = ("finished", "attempts")

_SERVER = block("examine", "server")
_STANDBYS = block("examine", "standbys")
_CONTENTS = block("examine", "contents")
_TABLES = block("examine", "tables")
_DAYS = block("examine", "days")
_NOW = block("identity", "now")
_HAS = block("identity", "has_migrations")
_SHARDS = block("identity", "shards")
_BOUNDS = re.compile(r"FROM \('?(-?\d+)'?\) TO \('?(-?\d+)'?\)")

Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was found in one database: plain facts (None: they could not be looked at), and what they mean."""

    server: Server | None
    offset: Offset | None
    contents: Contents | None
    findings: tuple[Finding, ...]


async def examine(dsn: str, clock: Clock) -> Examination:
    """Examine the database at `dsn`. Raises ConfigError if that is no address, StoreUnavailable if nobody answers there."""
    address = Address.of(dsn)
    try:
        conn = await connect(address, {"application_name": "tocsin doctor"})
    except (OSError, asyncpg.PostgresError, asyncpg.InternalClientError) as exc:
        raise translated(exc, address.name) from exc
    findings: list[Finding] = []
    try:
        server = await _looked("server", findings, conn, _server)
        if server is not None:
            findings += of_server(server, address.name, URGENT + BULK + READS + LISTS)
        offset = await _looked("store clock", findings, conn, lambda each: _offset(each, clock))
        if offset is not None:
            findings.append(of_clock(offset))
        contents = await _looked("contents", findings, conn, lambda each: _contents(each, clock.now_ms()))
        if contents is not None:
            findings += of_contents(contents)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as exc:
        raise translated(exc, address.name) from exc
    finally:
        conn.terminate()
    return Examination(server=server, offset=offset, contents=contents, findings=tuple(findings))


async def _looked(
    check: str, findings: list[Finding], conn: Connection, look: Callable[[Connection], Awaitable[Fact]]
) -> Fact | None:
    try:
        async with conn.transaction(readonly=True):
            return await look(conn)
    except asyncpg.PostgresError as exc:
        if is_outage(exc):
            raise
        do = "look as the store's own user, or grant pg_monitor to this one"
        findings.append(Finding(check, "problem", f"it cannot be looked at: {exc}", do))
        return None


async def _server(conn: Connection) -> Server:
    standbys = [Standby(name=row["name"], sync_state=row["sync_state"]) for row in await conn.fetch(_STANDBYS)]
    return Server(**await conn.fetchrow(_SERVER), standbys=tuple(standbys))


async def _offset(conn: Connection, clock: Clock) -> Offset:
    """By the sample with the shortest way there and back, which says most."""
    samples: list[tuple[int, int]] = []
    for _ in range(CLOCK_SAMPLES):
        sent_ms, sent_s = clock.now_ms(), clock.elapsed_s()
        server_ms = int(await conn.fetchval(_NOW))
        round_trip_ms = round((clock.elapsed_s() - sent_s) * 1000)
        samples.append((round_trip_ms, server_ms - sent_ms - round_trip_ms // 2))
    round_trip_ms, behind_ms = min(samples, key=itemgetter(0))
    return Offset(behind_ms=behind_ms, round_trip_ms=round_trip_ms)


async def _contents(conn: Connection, now: int) -> Contents:
    newest = migrations()[-1].number
    if not await conn.fetchval(_HAS):
        return Contents(version=0, newest=newest)
    row = await conn.fetchrow(_CONTENTS)
    shards = [Shard(shard=shard, first=first, last=last) for _, shard, first, last, _ in await conn.fetch(_SHARDS)]
    return Contents(
        version=row["version"],
        newest=newest,
        least_code=row["least_code"],
        installation=row["installation"],
        partitions=row["partitions"],
        shards=tuple(shards),
        tables=tuple(Table(**each) for each in await conn.fetch(_TABLES)),
        days_ahead=_days_ahead([(each["name"], each["bounds"]) for each in await conn.fetch(_DAYS)], now),
    )


def _days_ahead(parts: Iterable[tuple[str, str]], now: int) -> int:
    """For how many days after today there is a part of every divided table; -1: not even for today."""
    after: dict[str, dict[int, int]] = {name: {} for name in DIVIDED}
    for name, text in parts:
        if bounds := _BOUNDS.search(text):
            after[name][int(bounds[1])] = int(bounds[2])
    return min(_days_of(follows, now) for follows in after.values())


def _days_of(follows: dict[int, int], now: int) -> int:
    """How far parts that join one another reach, from the one that holds `now`."""
    at = next((first for first, end in follows.items() if first <= now < end), None)
    if at is None:
        return -1
    today_ends = follows[at]
    while at in follows:
        at = follows[at]
    return (at - today_ends) // DAY_MS
