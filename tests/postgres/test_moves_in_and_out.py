"""What only PostgreSQL's end of a move has: who serves it is asked of its registry, and a text may not hold every character."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs

from tests.conformance.installation import fill
from tests.servers.postgres import PostgresServer
from tocsin.cli import main
from tocsin.clock import ManualClock, SeededEntropy, SystemClock
from tocsin.errors import ConfigError, LeaseHeld, StoreError, StoreMoved
from tocsin.lease.port import Facts, Vitals, new_session_id
from tocsin.lease.postgres import open_registry
from tocsin.roles.moving import Where, exists, opened
from tocsin.store.postgres import PostgresStore, open_store, open_transfer
from tocsin.store.sqlite import open_store as open_sqlite
from tocsin.store.transfer import JobRecord, Kind, Mark


@pytest.fixture
async def blank(postgres: PostgresServer) -> AsyncIterator[str]:
    """A database without any table, which may be left with more than a store's."""
    async with postgres.blank() as (address,):
        yield address


async def test_a_store_that_somebody_serves_is_refused_until_the_session_ends(blank: str) -> None:
    where, clock, dsn = Where(address=blank, partitions=4), SystemClock(), blank
    assert not await exists(where)
    with pytest.raises(ConfigError, match="there is no store in that database"):
        async with opened(where, clock, make=False):
            pass
    async with opened(where, clock, make=True) as made:
        assert made.transfer.partitions == 4
    assert await exists(where)
    registry, session = await open_registry(dsn), new_session_id(SeededEntropy(3))
    try:
        await registry.open(session, Facts(node="n1", roles=("node",), version="1"), Vitals())
        with pytest.raises(LeaseHeld, match="is served by n1; stop every process of it"):
            async with opened(where, clock, make=False):
                pass
        await registry.end(session)
        async with opened(where, clock, make=False) as end:
            await registry.open(
                session2 := new_session_id(SeededEntropy(4)), Facts(node="n2", roles=("api",), version="1"), Vitals()
            )
            with pytest.raises(LeaseHeld, match="n2"):
                await end.quiet()
            await registry.end(session2)
            await end.quiet()
    finally:
        await registry.close()


async def test_a_store_that_was_moved_away_or_is_not_whole_is_not_opened(dsn: str, clock: ManualClock) -> None:
    transfer = await open_transfer(dsn, clock, entropy=SeededEntropy(1))
    assert transfer.partitions == 4
    mark = Mark(store="sqlite:/new", installation="x", at=1)
    try:
        await transfer.depart(mark)
        with pytest.raises(StoreMoved, match=r"postgresql://127\.0\.0\.1:\d+/\w+ has been moved to sqlite:/new"):
            await open_store(dsn, clock, partitions=4, entropy=SeededEntropy(1))
        await transfer.arrive(mark)
        with pytest.raises(StoreMoved, match=r"the move from sqlite:/new to .* has not ended; repeat it"):
            await open_store(dsn, clock, partitions=4, entropy=SeededEntropy(1))
    finally:
        await transfer.close()


async def test_a_text_that_no_database_can_hold_ends_the_move_and_nothing_of_its_batch_stays(
    dsn: str, store: PostgresStore, clock: ManualClock
) -> None:
    await fill(store, clock)
    transfer = await open_transfer(dsn, clock, entropy=SeededEntropy(1))
    try:
        before = await transfer.page(Kind.JOBS, None, 100)
        good, bad = (one for one in before[:2] if isinstance(one, JobRecord))
        changed = [structs.replace(good, worker="another"), structs.replace(bad, last_error="a\0b")]
        with pytest.raises(StoreError, match=r"cannot hold one of the jobs .*the source is as it was"):
            await transfer.put(Kind.JOBS, changed)
        assert await transfer.page(Kind.JOBS, None, 100) == before
    finally:
        await transfer.close()


async def test_the_command_takes_a_file_into_databases_and_back(
    postgres: PostgresServer, tmp_path: Path, clock: ManualClock, capfd: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    store = await open_sqlite(old, clock, partitions=4, entropy=SeededEntropy(1))
    await fill(store, clock)
    await store.close()
    async with postgres.blank(2) as (home, shard):
        into = ("move", "--from", f"sqlite:{old}", "--to", home, "--shard", shard, "--partitions", "8", "--json")
        back = ("move", "--from", home, "--to", f"sqlite:{new}", "--json")
        answers = []
        for arguments in (into, back):
            assert await asyncio.to_thread(main, arguments) == 0
            answers.append(json.loads(capfd.readouterr().out))
        again = await asyncio.to_thread(main, back)
        ended = json.loads(capfd.readouterr().out)
        assert (again, ended["had_ended_before"], ended["items"]) == (0, True, [])
    assert answers[0]["items"] == answers[1]["items"]
    assert all(item["count"] for item in answers[0]["items"])
    assert [answer["partitions"] for answer in answers] == [8, 16]
