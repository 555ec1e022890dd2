"""Connections that break, servers that turn read-only, and pools that run dry."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.conformance.yard import LEASE_MS, WORKER, Yard, due
from tests.postgres.sessions import session, until_waiting
from tests.servers.postgres import PostgresServer
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.errors import Overloaded, StoreUnavailable
from tocsin.store.port import Beat, Beaten, Fired, Made, Success
from tocsin.store.postgres import PostgresStore, open_store
from tocsin.store.postgres.databases import READS

TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'tocsin %'"


@pytest.fixture
def yard(store: PostgresStore, clock: ManualClock) -> Yard:
    return Yard(store, clock)


async def test_a_connection_that_breaks_in_a_write_fails_that_write_and_no_other(dsn: str, yard: Yard) -> None:
    (job_id,) = await yard.queued()
    async with session(dsn) as third, third.transaction():
        await third.fetch("SELECT 1 FROM jobs WHERE id = $1 FOR UPDATE", job_id)
        claim = asyncio.ensure_future(yard.jobs.claim([job_id], WORKER, LEASE_MS))
        await until_waiting(third, 1)
        await third.execute(TERMINATE)
        with pytest.raises(StoreUnavailable, match="ask again"):
            await claim
    (job,) = await yard.jobs.claim([job_id], WORKER, LEASE_MS)
    assert job is not None


async def test_a_server_that_was_restarted_is_found_again(postgres: PostgresServer, yard: Yard) -> None:
    (job,) = await yard.made()
    postgres.kill()
    try:
        with pytest.raises(StoreUnavailable):
            await yard.store.ping()
    finally:
        postgres.start()
    assert await yard.jobs.fire([due(job)]) == [Fired.WON]


async def test_a_connection_to_a_standby_is_not_used_again(postgres: PostgresServer, yard: Yard) -> None:
    await yard.store.ping()
    (job,) = await yard.made()
    assert (await yard.jobs.states([job.job_id]))[0] is not None
    await postgres.execute("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
    try:
        # Until every session has read its configuration again; then no new connection finds a writable host either.
        for _ in range(1_000):
            try:
                await yard.store.ping()
            except StoreUnavailable:
                break
        with pytest.raises(StoreUnavailable):
            await yard.jobs.fire([due(job)])
        with pytest.raises(StoreUnavailable):
            await yard.store.ping()
        # What such a server answers to reads is of the past from now on; nobody asks it any more.
        with pytest.raises(StoreUnavailable):
            await yard.jobs.states([job.job_id])
    finally:
        async with session(postgres.dsn()) as third:
            await third.execute("SET default_transaction_read_only = off")
            await third.execute("ALTER SYSTEM RESET default_transaction_read_only")
            await third.execute("SELECT pg_reload_conf()")
    for _ in range(1_000):
        try:
            answers = await yard.jobs.fire([due(job)])
            break
        except StoreUnavailable:
            continue
    assert answers == [Fired.WON]


async def test_heartbeats_and_completions_go_on_while_all_reads_are_stuck(store: PostgresStore, yard: Yard) -> None:
    one, two = await yard.running(2)
    async with AsyncExitStack() as held:
        for _ in range(READS):
            await held.enter_async_context(store.databases.home.reads.connection())
        read = asyncio.ensure_future(yard.jobs.states([one.job_id]))
        (answer,) = await yard.jobs.heartbeat([Beat(job_id=one.job_id, attempt=1)])
        assert isinstance(answer, Beaten)
        assert await yard.jobs.succeed([Success(job_id=two.job_id, attempt=1)]) == [True]
        assert (await yard.jobs.create([yard.new()]))[0].made is Made.CREATED
        assert not read.done()
    assert (await read)[0] is not None


async def test_creates_are_refused_past_the_bound_and_heartbeats_never(dsn: str, yard: Yard) -> None:
    (job,) = await yard.running()
    async with session(dsn) as third:
        async with third.transaction():
            await third.execute("LOCK TABLE timers IN EXCLUSIVE MODE")
            some = [asyncio.ensure_future(yard.jobs.create([yard.new() for _ in range(9_500)])) for _ in range(3)]
            await until_waiting(third, 2)
            done, _ = await asyncio.wait(some, return_when=asyncio.FIRST_COMPLETED)
            (refused,) = done
            with pytest.raises(Overloaded, match="try create again"):
                refused.result()
            (answer,) = await yard.jobs.heartbeat([Beat(job_id=job.job_id, attempt=1)])
            assert isinstance(answer, Beaten)
            await third.execute(TERMINATE)
        for create in some:
            if create is not refused:
                with pytest.raises(StoreUnavailable):
                    await create


async def test_how_old_the_oldest_snapshot_is_can_be_asked(dsn: str, store: PostgresStore) -> None:
    assert await store.oldest_snapshot_s() == 0
    async with session(dsn) as third, third.transaction(isolation="repeatable_read"):
        await third.fetch("SELECT count(*) FROM jobs")
        assert await store.oldest_snapshot_s() > 0


async def test_behind_a_pooler_nothing_is_left_in_a_session(dsn: str, clock: ManualClock) -> None:
    store = await open_store(f"{dsn}?tocsin_pooler=1", clock, partitions=4, entropy=SeededEntropy(1))
    yard = Yard(store, clock)
    (job,) = await yard.running()
    assert await yard.jobs.succeed([Success(job_id=job.job_id, attempt=1)]) == [True]
    await yard.retrying()
    async with store.databases.home.urgent.connection() as conn:
        assert await conn.fetchval("SHOW enable_nestloop") == "on"
        assert await conn.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''") == 0
    await store.close()
