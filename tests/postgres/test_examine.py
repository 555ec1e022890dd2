"""Looking at a real database: what is true of it is found, and nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from tests.conformance.yard import PARTITIONS
from tests.postgres.waiting import until
from tests.servers.postgres import USER, PostgresServer, find_binaries
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.errors import ConfigError, StoreUnavailable
from tocsin.store.postgres import open_store
from tocsin.store.postgres.examine import Examination, examine
from tocsin.store.postgres.findings import Promise, Standby


@pytest.fixture
def clock() -> ManualClock:
    """At the real time, which is the server's."""
    return ManualClock()


def states(found: Examination) -> dict[str, str]:
    """The worst state of each check."""
    order = ["ok", "note", "problem"]
    worst: dict[str, str] = {}
    for finding in found.findings:
        worst[finding.check] = max(worst.get(finding.check, "ok"), finding.state, key=order.index)
    return worst


async def test_a_server_that_is_set_to_lose_everything_is_told_so_loudly(dsn: str, clock: ManualClock) -> None:
    found = await examine(dsn, clock)
    assert found.server is not None
    assert [found.server.fsync, found.server.full_page_writes, found.server.autovacuum] == [False] * 3
    assert found.server.promise is Promise.NOTHING
    wrong = {check for check, state in states(found).items() if state == "problem"}
    assert wrong >= {"fsync", "full_page_writes", "durability", "autovacuum"}
    assert wrong <= {"fsync", "full_page_writes", "durability", "autovacuum", "days ahead"}


async def test_a_store_is_known_by_what_it_says_of_itself(
    postgres: PostgresServer, dsn: str, clock: ManualClock
) -> None:
    contents = (await examine(dsn, clock)).contents
    assert contents is not None
    assert contents.version == contents.newest > 0
    assert (contents.installation, contents.partitions) == (SeededEntropy(PARTITIONS).bytes(16).hex(), PARTITIONS)
    assert [(shard.first, shard.last) for shard in contents.shards] == [(0, PARTITIONS - 1)]
    assert {"jobs", "timers", "finished", "schedules"} <= {table.name for table in contents.tables}
    async with postgres.database(shards=2) as dsns:
        store = await open_store(dsns[0], clock, partitions=PARTITIONS, entropy=SeededEntropy(2), shards=dsns[1:])
        await store.close()
        home, other = [(await examine(each, clock)).contents for each in dsns]
    assert home is not None
    assert other is not None
    assert ([shard.first for shard in home.shards], other.shards) == ([0, 2], ())
    assert home.installation == other.installation


async def test_a_database_that_is_no_store_yet_stays_none(postgres: PostgresServer, clock: ManualClock) -> None:
    async with postgres.database(shards=2) as (dsn, _):
        found = await examine(dsn, clock)
        assert found.contents is not None
        assert (found.contents.version, states(found)["schema"]) == (0, "note")
        rows = await postgres.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", database=name_of(dsn)
        )
        assert rows[0][0] == 0


@pytest.mark.parametrize(("step_s", "state"), [(0.0, "ok"), (-5.0, "problem"), (5.0, "problem")])
async def test_a_clock_that_differs_from_the_servers_is_found(
    dsn: str, clock: ManualClock, step_s: float, state: str
) -> None:
    clock.step_wall(step_s)
    found = await examine(dsn, clock)
    assert found.offset is not None
    assert states(found)["store clock"] == state or step_s == 0.0, "a pause of this process is not the clock's fault"
    assert found.offset.behind_ms >= -step_s * 1_000 - 100


async def test_an_open_transaction_of_this_database_is_seen(dsn: str, clock: ManualClock) -> None:
    conn = await asyncpg.connect(dsn)
    try:
        before = (await examine(dsn, clock)).server
        async with conn.transaction():
            await conn.execute("SELECT 1")
            during = (await examine(dsn, clock)).server
    finally:
        await conn.close()
    assert before is not None
    assert during is not None
    assert before.transaction_age_s is None
    assert during.transaction_age_s is not None
    assert during.in_use >= 1


async def test_what_a_user_may_not_see_is_a_finding_and_hides_nothing_else(
    postgres: PostgresServer, dsn: str, clock: ManualClock
) -> None:
    guest = f"guest_{name_of(dsn)}"
    await postgres.execute(f"CREATE ROLE {guest} LOGIN")
    try:
        found = await examine(dsn.replace(f"{USER}@", f"{guest}@"), clock)
    finally:
        await postgres.execute(f"DROP ROLE {guest}")
    assert found.contents is None
    assert states(found)["contents"] == "problem"
    assert found.server is not None
    assert not found.server.sees_all
    assert "store clock" in states(found)


async def test_an_address_where_nobody_answers_and_one_that_is_none(clock: ManualClock) -> None:
    with pytest.raises(StoreUnavailable):
        await examine("postgresql://nobody@127.0.0.1:1/nowhere", clock)
    with pytest.raises(ConfigError):
        await examine("mysql://nobody@127.0.0.1/nowhere", clock)


async def test_a_standby_that_commits_wait_for_is_seen_and_missed(
    postgres: PostgresServer, dsn: str, clock: ManualClock, tmp_path: Path
) -> None:
    async with waiting_for(postgres, "copy"):
        found = await examine(dsn, clock)
        assert found.server is not None
        assert (found.server.synchronous_standby_names, found.server.standbys) == ("copy", ())
        receiver = await asyncio.create_subprocess_exec(
            receive_wal(),
            *("--synchronous", "--no-loop", "-D", tmp_path, "-d", f"{postgres.dsn()}?application_name=copy"),
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            standbys = await until(lambda: standbys_of(dsn, clock), "the receiver of the log")
        finally:
            receiver.kill()
            await receiver.wait()
    assert standbys == (Standby(name="copy", sync_state="sync"),)


async def standbys_of(dsn: str, clock: ManualClock) -> tuple[Standby, ...]:
    """The standbys that are seen now."""
    server = (await examine(dsn, clock)).server
    assert server is not None
    return server.standbys


def receive_wal() -> Path:
    """The program that is a standby but for its database."""
    program = find_binaries() / "pg_receivewal"
    if not program.exists():
        pytest.skip(f"NO pg_receivewal in {program.parent}")
    return program


@asynccontextmanager
async def waiting_for(postgres: PostgresServer, standby: str) -> AsyncIterator[None]:
    """Let the server wait for a standby; no commit hangs, since these servers' commits wait for nothing at all."""

    async def told() -> bool:
        return bool((await postgres.execute("SHOW synchronous_standby_names"))[0][0] == standby)

    await postgres.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standby}'", "SELECT pg_reload_conf()")
    try:
        await until(told, "the server to read its configuration")
        yield
    finally:
        await postgres.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")


def name_of(dsn: str) -> str:
    """The database's name in an address."""
    return dsn.rpartition("/")[2]
