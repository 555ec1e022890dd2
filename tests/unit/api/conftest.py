import pytest

from tests.unit.api.stand_ins import StandInDesk


@pytest.fixture
async def desk():
    return StandInDesk()


@pytest.fixture
async def http(desk):
    return desk.http()
