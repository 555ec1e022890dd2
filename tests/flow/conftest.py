"""What the tests of the stages stand on: a process in virtual time, over the store without transactions and over SQLite."""

import logging

import pytest
import structlog

from tests.life.sqliteworld import SqliteWorld
from tests.life.world import World


@pytest.fixture(autouse=True)
def _quiet(caplog):
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    caplog.set_level(logging.CRITICAL, "tocsin")
    yield
    structlog.configure(**before)


@pytest.fixture
async def world():
    """A running process over the store without transactions: it can die between any two row writes."""
    made = World()
    await made.start()
    return made


@pytest.fixture(params=["step", "sqlite"])
async def any_world(request, tmp_path):
    """A running process over each store."""
    made = World() if request.param == "step" else SqliteWorld(tmp_path)
    await made.start()
    yield made
    await made.on.store.close()
