"""A store file in a folder of its own."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.conformance.yard import PARTITIONS, START, Yard
from tocsin.clock import Clock, ManualClock, SeededEntropy
from tocsin.store.sqlite import SqliteStore, open_store

Opener = Callable[..., Awaitable[SqliteStore]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def opener(path: Path, clock: ManualClock):
    """Opens the file, again and again if need be; whatever is open at the end is closed."""
    opened: list[SqliteStore] = []

    async def open_it(*, clock: Clock = clock, **options) -> SqliteStore:
        store = await open_store(path, clock, partitions=PARTITIONS, entropy=SeededEntropy(1), **options)
        opened.append(store)
        return store

    yield open_it
    for store in opened:
        await store.close()


@pytest.fixture
async def yard(opener: Opener, clock: ManualClock) -> Yard:
    return Yard(await opener(), clock)
