"""The adapters under test. A new one is added to `STORES`: how to open it in an empty place."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.conformance.yard import PARTITIONS, START, Yard
from tests.life.disk import Disk
from tests.life.stepstore import StepStore
from tocsin.clock import Clock, ManualClock, SeededEntropy
from tocsin.store.port import Store
from tocsin.store.sqlite import open_store


async def _sqlite(folder: Path, clock: Clock) -> Store:
    return await open_store(folder / "store.db", clock, partitions=PARTITIONS, entropy=SeededEntropy(1))


async def _steps(_: Path, clock: Clock) -> Store:
    return StepStore(Disk(), clock, PARTITIONS)


STORES: dict[str, Callable[[Path, Clock], Awaitable[Store]]] = {"sqlite": _sqlite, "single rows": _steps}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    opened = await STORES[request.param](tmp_path, clock)
    yield opened
    await opened.close()


@pytest.fixture
def yard(store: Store, clock: ManualClock) -> Yard:
    return Yard(store, clock)
