"""The adapters under test. A new one is added to `STORES`: how to open it in an empty place, and what to clear away afterwards."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.conformance.yard import PARTITIONS, START, Yard
from tests.life.disk import Disk
from tests.life.stepstore import StepStore
from tests.servers.postgres import PostgresServer
from tocsin.clock import Clock, ManualClock, SeededEntropy
from tocsin.store import postgres, sqlite
from tocsin.store.port import Store

Opened = AbstractAsyncContextManager[Store]


@asynccontextmanager
async def _sqlite(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Store]:
    folder: Path = request.getfixturevalue("tmp_path")
    yield await sqlite.open_store(folder / "store.db", clock, partitions=PARTITIONS, entropy=SeededEntropy(1))


@asynccontextmanager
async def _steps(_: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Store]:
    yield StepStore(Disk(), clock, PARTITIONS)


@asynccontextmanager
async def _postgres(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Store]:
    server: PostgresServer = request.getfixturevalue("postgres")
    async with server.database(PARTITIONS) as (dsn,):
        yield await postgres.open_store(dsn, clock, partitions=PARTITIONS, entropy=SeededEntropy(1))


STORES: dict[str, Callable[[pytest.FixtureRequest, Clock], Opened]] = {
    "sqlite": _sqlite,
    "single rows": _steps,
    "postgresql": _postgres,
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[Store]:
    async with STORES[request.param](request, clock) as opened:
        yield opened
        await opened.close()


@pytest.fixture
def yard(store: Store, clock: ManualClock) -> Yard:
    return Yard(store, clock)
