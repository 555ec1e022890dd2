"""The registry in PostgreSQL beyond its port: races that are forced, what is left behind, and servers that do not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from tests.servers.frozen import FrozenDatabase, frozen_database
from tests.servers.postgres import PostgresServer
from tocsin.clock import SystemClock, SystemEntropy
from tocsin.errors import ConfigError, LeasesUnavailable
from tocsin.lease.port import Assignment, Facts, SessionId, Vitals, new_session_id
from tocsin.lease.postgres import PostgresRegistry, connection, open_registry

ENTROPY = SystemEntropy()
WAITING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
Make = Callable[[], Awaitable[PostgresRegistry]]


@pytest.fixture
async def database(postgres: PostgresServer) -> AsyncIterator[FrozenDatabase]:
    async with frozen_database(postgres) as made:
        yield made


@pytest.fixture
async def make(database: FrozenDatabase) -> AsyncIterator[Make]:
    made: list[PostgresRegistry] = []

    async def one() -> PostgresRegistry:
        made.append(await open_registry(database.dsn))
        return made[-1]

    yield one
    for registry in made:
        await registry.close()


@pytest.fixture
async def beside(database: FrozenDatabase) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the test's own, to stand in the middle of something."""
    opened = await asyncpg.connect(database.dsn)
    yield opened
    await opened.close()


@pytest.fixture
async def empty(postgres: PostgresServer) -> AsyncIterator[str]:
    """A database in which there is no registry yet: those of stores are used again, with what a registry has left in them."""
    async with postgres.blank() as (dsn,):
        yield dsn


async def opened(registry: PostgresRegistry, node: str = "n") -> SessionId:
    session = new_session_id(ENTROPY)
    await registry.open(session, Facts(node=node, roles=("node",), version="1"), Vitals())
    return session


async def waits(database: FrozenDatabase, somebody: bool = True) -> None:
    """Until somebody waits for a lock, or nobody."""
    async with asyncio.timeout(20):
        while bool(await database.run(WAITING)) is not somebody:
            pass


# --- races ------------------------------------------------------------------------------------------------------------


async def test_a_renewal_that_meets_the_removal_of_its_session_is_told_that_it_is_gone(
    database: FrozenDatabase, make: Make, beside: asyncpg.Connection
) -> None:
    registry = await make()
    session = await opened(registry)
    removal = beside.transaction()
    await removal.start()
    await beside.execute("DELETE FROM tocsin_lease.sessions WHERE session = $1", session)
    renewal = asyncio.create_task(registry.renew(session, Vitals()))
    await waits(database)
    await removal.commit()
    assert not await renewal


async def test_a_session_that_was_renewed_in_the_last_moment_is_not_taken_away(
    database: FrozenDatabase, make: Make, beside: asyncpg.Connection
) -> None:
    registry, other = await make(), await make()
    session, rival = await opened(registry), await opened(other)
    assert await registry.campaign(session) == session
    assert await registry.claim(session, [0], 0) == {0}
    renewal = beside.transaction()
    await renewal.start()
    await beside.execute("UPDATE tocsin_lease.sessions SET expires_at = expires_at + 20000")
    await database.advance(11)
    claim = asyncio.create_task(other.claim(rival, [0], 0))
    await waits(database)
    await renewal.commit()
    assert await claim == frozenset()
    assert await other.campaign(rival) == session


async def test_a_claim_that_meets_a_new_map_takes_nothing(
    database: FrozenDatabase, make: Make, beside: asyncpg.Connection
) -> None:
    registry = await make()
    session = await opened(registry)
    writing = beside.transaction()
    await writing.start()
    await beside.execute("UPDATE tocsin_lease.assignment SET version = 1")
    claim = asyncio.create_task(registry.claim(session, [0], 0))
    await waits(database)
    await writing.commit()
    assert await claim == frozenset()


async def test_a_claim_that_waits_for_one_partition_has_taken_no_later_one_so_that_two_cannot_deadlock(
    database: FrozenDatabase, make: Make, beside: asyncpg.Connection
) -> None:
    registry, other = await make(), await make()
    session, rival = await opened(registry), await opened(other)
    claiming = beside.transaction()
    await claiming.start()
    await beside.execute("INSERT INTO tocsin_lease.holdings VALUES (3, $1, 0)", rival)
    claim = asyncio.create_task(registry.claim(session, [9, 8, 7, 6, 5, 4, 3], 0))
    await waits(database)
    assert await other.claim(rival, [4, 5, 6, 7, 8], 0) == {4, 5, 6, 7, 8}
    await claiming.commit()
    assert await claim == {9}


async def test_a_map_of_a_coordinator_that_is_being_revoked_is_not_written(
    database: FrozenDatabase, make: Make, beside: asyncpg.Connection
) -> None:
    registry = await make()
    chief = await opened(registry)
    assert await registry.campaign(chief) == chief
    removal = beside.transaction()
    await removal.start()
    await beside.execute("DELETE FROM tocsin_lease.sessions WHERE session = $1", chief)
    writing = asyncio.create_task(registry.assign(chief, Assignment(version=1, owners={0: chief}), []))
    await waits(database)
    await removal.commit()
    assert not await writing
    assert await registry.assignment() == Assignment()


# --- what is left behind ----------------------------------------------------------------------------------------------


async def test_a_killed_holder_whose_connections_stay_open_blocks_nobody_and_is_visible_until_it_expires(
    database: FrozenDatabase, make: Make
) -> None:
    killed, other = await make(), await make()
    session, heir = await opened(killed, "killed"), await opened(other, "heir")
    assert await killed.campaign(session) == session
    assert await killed.claim(session, [0, 1], 0) == {0, 1}
    locks = (
        "SELECT l.locktype, l.mode FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid) WHERE a.state LIKE 'idle%'"
    )
    assert await database.run(locks) == []
    nodes = {member.session: member.facts.node for member in await other.members()}
    assert {(one.partition, nodes[one.session]) for one in await other.holdings()} == {(0, "killed"), (1, "killed")}
    await database.advance(6)
    assert await other.renew(heir, Vitals())
    assert await other.claim(heir, [0, 1], 0) == frozenset()
    await database.advance(4)
    assert await other.campaign(heir) == heir
    assert await other.claim(heir, [0, 1], 0) == {0, 1}
    assert not await killed.renew(session, Vitals())


async def test_the_server_judges_by_its_own_clock(empty: str, postgres: PostgresServer) -> None:
    registry = await open_registry(empty)
    (row,) = await postgres.execute("SELECT tocsin_lease.now_ms() AS now", database=empty.rpartition("/")[2])
    await registry.close()
    assert abs(row["now"] - SystemClock().now_ms()) < 60_000


# --- the schema -------------------------------------------------------------------------------------------------------


async def test_processes_that_start_together_make_the_tables_once(empty: str, postgres: PostgresServer) -> None:
    async def start() -> PostgresRegistry:
        # A machine that is busy with other tests may not connect within the registry's two seconds: a process is started again.
        for _ in range(10):
            try:
                return await open_registry(empty)
            except LeasesUnavailable:
                continue
        raise AssertionError("the registry could not be opened in ten tries")

    registries = await asyncio.gather(*(start() for _ in range(4)))
    session = await opened(registries[0])
    for registry in registries:
        assert [member.session for member in await registry.members()] == [session]
        await registry.close()
    (row,) = await postgres.execute("SELECT count(*) FROM tocsin_lease.migrations", database=empty.rpartition("/")[2])
    assert row["count"] == 1


async def test_a_user_who_may_not_make_tables_is_told_so_and_may_use_those_that_are_there(
    empty: str, postgres: PostgresServer
) -> None:
    name = empty.rpartition("/")[2]
    await postgres.execute("DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN")
    theirs = empty.replace("tocsin@", "guest@")
    with pytest.raises(ConfigError, match="permission denied"):
        await open_registry(theirs)
    await (await open_registry(empty)).close()
    await postgres.execute(
        "GRANT USAGE ON SCHEMA tocsin_lease TO guest",
        "GRANT ALL ON ALL TABLES IN SCHEMA tocsin_lease TO guest",
        database=name,
    )
    registry = await open_registry(theirs)
    session = await opened(registry)
    assert await registry.campaign(session) == session
    await registry.close()
    await postgres.execute("DROP OWNED BY guest", "DROP ROLE guest", database=name)


# --- servers that do not answer ---------------------------------------------------------------------------------------


async def test_a_connection_that_was_cut_is_made_anew_by_the_next_call(database: FrozenDatabase, make: Make) -> None:
    registry = await make()
    session = await opened(registry)
    await database.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    try:
        assert await registry.renew(session, Vitals())
    except LeasesUnavailable:
        assert await registry.renew(session, Vitals())
    assert [member.session for member in await registry.members()] == [session]


async def test_a_connection_to_what_has_become_a_standby_is_left_for_a_new_one(make: Make) -> None:
    registry = await make()
    session = await opened(registry)
    await registry._session.within(lambda conn: conn.execute("SET default_transaction_read_only = on"))
    with pytest.raises(LeasesUnavailable, match="read-only"):
        await registry.renew(session, Vitals())
    assert await registry.renew(session, Vitals())


async def test_tables_that_are_gone_are_made_by_the_next_process_that_starts(
    beside: asyncpg.Connection, make: Make
) -> None:
    running = await make()
    await opened(running)
    await beside.execute("DROP SCHEMA tocsin_lease CASCADE")
    for call in (running.members(), running.holdings(), opened(running)):
        with pytest.raises(LeasesUnavailable, match="restart one"):
            await call
    await make()
    session = await opened(running)
    assert [member.session for member in await running.members()] == [session]


async def test_a_statement_that_waits_too_long_is_given_up_and_leaves_nothing_behind(
    database: FrozenDatabase, make: Make, beside: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ANSWER_S", 0.2)
    registry = await make()
    session = await opened(registry)
    async with beside.transaction():
        await beside.execute("LOCK TABLE tocsin_lease.sessions IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(LeasesUnavailable, match="cannot answer now"):
            await registry.renew(session, Vitals())
        await waits(database, somebody=False)
    assert await registry.renew(session, Vitals())


async def test_a_call_that_is_given_up_by_its_caller_leaves_a_working_registry(
    database: FrozenDatabase, make: Make, beside: asyncpg.Connection
) -> None:
    registry = await make()
    session = await opened(registry)
    async with beside.transaction():
        await beside.execute("LOCK TABLE tocsin_lease.sessions IN ACCESS EXCLUSIVE MODE")
        renewal = asyncio.create_task(registry.renew(session, Vitals()))
        await waits(database)
        renewal.cancel()
        with pytest.raises(asyncio.CancelledError):
            await renewal
    assert await registry.renew(session, Vitals())


async def test_a_server_that_is_not_there_or_only_reads_is_unavailable(database: FrozenDatabase, make: Make) -> None:
    with pytest.raises(LeasesUnavailable):
        await open_registry("postgresql://tocsin@127.0.0.1:1/tocsin")
    name = database.dsn.rpartition("/")[2]
    await database.run(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(LeasesUnavailable):
        await open_registry(database.dsn)


async def test_wrong_settings_are_named(postgres: PostgresServer, database: FrozenDatabase) -> None:
    with pytest.raises(ConfigError, match='database "nowhere" does not exist'):
        await open_registry(postgres.dsn("nowhere"))
    with pytest.raises(ConfigError, match="role"):
        await open_registry(database.dsn.replace("tocsin@", "nobody@"))
    with pytest.raises(ConfigError, match="lease:"):
        await open_registry("postgresql://tocsin@[::1/tocsin")
    with pytest.raises(ConfigError, match="lease:"):
        await open_registry("mysql://tocsin@127.0.0.1/tocsin")


async def test_behind_a_pooler_all_calls_work_without_prepared_statements(
    database: FrozenDatabase, make: Make, beside: asyncpg.Connection
) -> None:
    registry = await open_registry(database.dsn + "?tocsin_pooler=1")
    session = await opened(registry)
    assert await registry.campaign(session) == session
    assert await registry.assign(session, Assignment(version=1, owners={0: session}), [])
    assert await registry.claim(session, [0], 1) == {0}
    assert [one.partition for one in await registry.holdings()] == [0]
    await registry.close()
