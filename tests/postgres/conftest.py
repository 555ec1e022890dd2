"""Stores in a real PostgreSQL, each test's own."""

from collections.abc import AsyncIterator

import pytest

from tests.conformance.yard import PARTITIONS, START
from tests.servers.postgres import PostgresServer
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.store.postgres import PostgresStore, open_store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
async def dsn(postgres: PostgresServer) -> AsyncIterator[str]:
    """An empty store's database."""
    async with postgres.database(PARTITIONS) as (address,):
        yield address


@pytest.fixture
async def store(dsn: str, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    opened = await open_store(dsn, clock, partitions=PARTITIONS, entropy=SeededEntropy(1))
    yield opened
    await opened.close()
