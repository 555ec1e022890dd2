"""Looking at a real database: what is true of it is found, and nothing is changed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from tests.conformance.yard import PARTITIONS
from tests.postgres.waiting import until
from tests.servers.postgres import QUICK, USER, PostgresServer, find_binaries
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.errors import ConfigError, StoreUnavailable
from tocsin.store.postgres import open_store
from tocsin.store.postgres.examine import Examination, examine
from tocsin.store.postgres.findings import Promise, Standby

DAY_S = 86_400


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


async def test_a_store_is_known_by_what_it_says_of_itself(postgres: PostgresServer, clock: ManualClock) -> None:
    async with postgres.blank(2) as dsns:
        store = await open_store(dsns[0], clock, partitions=PARTITIONS, entropy=SeededEntropy(2), shards=dsns[1:])
        await store.close()
        home, other = [(await examine(each, clock)).contents for each in dsns]
    assert home is not None
    assert other is not None
    assert home.version == home.newest > 0
    assert (home.installation, home.partitions) == (SeededEntropy(2).bytes(16).hex(), PARTITIONS)
    assert (other.installation, other.partitions) == (home.installation, home.partitions)
    assert [(shard.first, shard.last) for shard in home.shards] == [(0, 1), (2, 3)]
    assert other.shards == ()
    assert {"jobs", "timers", "finished", "schedules"} <= {table.name for table in home.tables}


async def test_it_is_known_for_how_many_days_there_are_tables(postgres: PostgresServer, clock: ManualClock) -> None:
    async def seen(dsn: str) -> tuple[int | None, str]:
        found = await examine(dsn, clock)
        assert found.contents is not None
        return found.contents.days_ahead, states(found)["days ahead"]

    async with postgres.blank() as (dsn,):
        store = await open_store(dsn, clock, partitions=PARTITIONS, entropy=SeededEntropy(1))
        await store.databases.home.days.ahead(clock.now_ms())
        await store.close()
        assert await seen(dsn) == (7, "ok")
        clock.advance(5 * DAY_S)
        assert await seen(dsn) == (2, "problem")
        clock.advance(3 * DAY_S)
        assert await seen(dsn) == (-1, "problem")


async def test_a_database_that_is_no_store_yet_stays_none(postgres: PostgresServer, clock: ManualClock) -> None:
    async with postgres.blank() as (dsn,):
        found = await examine(dsn, clock)
        assert found.contents is not None
        assert (found.contents.version, states(found)["schema"]) == (0, "note")
        tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        assert (await postgres.execute(tables, database=name_of(dsn)))[0][0] == 0


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


async def test_a_standby_that_commits_wait_for_is_seen_and_missed(clock: ManualClock, tmp_path: Path) -> None:
    program = receive_wal()
    server = PostgresServer(
        QUICK | {"wal_level": "replica", "max_wal_senders": "2", "synchronous_standby_names": "copy"}
    )
    try:
        dsn = server.start().dsn()
        found = await examine(dsn, clock)
        assert found.server is not None
        assert (found.server.synchronous_standby_names, found.server.standbys) == ("copy", ())
        receiver = await asyncio.create_subprocess_exec(
            program, "--synchronous", "--no-loop", "-D", tmp_path, "-d", f"{dsn}?application_name=copy"
        )
        try:
            standbys = await until(lambda: standbys_of(dsn, clock), "the receiver of the log")
        finally:
            receiver.kill()
            await receiver.wait()
    finally:
        server.remove()
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


def name_of(dsn: str) -> str:
    """The database's name in an address."""
    return dsn.rpartition("/")[2]
