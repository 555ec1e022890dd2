"""Every test of this suite runs on every adapter of the near tier."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from tests.conformance.near.world import ADAPTERS, PARTITIONS, SHARED, Make, World
from tocsin.clock import ManualClock
from tocsin.near.port import DUE_PER_TENANT_LANE, LINE_LIMIT, TENANT_LIMIT


@pytest.fixture(params=sorted(ADAPTERS))
async def make(request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    """Makes tiers with other limits than the real ones."""
    made: list[World] = []

    async def make_one(
        *,
        partitions: int = PARTITIONS,
        due_limit: int = DUE_PER_TENANT_LANE,
        line_limit: int = LINE_LIMIT,
        tenant_limit: int = TENANT_LIMIT,
    ) -> World:
        clock = ManualClock(datetime(2026, 3, 1, 9, tzinfo=UTC))
        near = await ADAPTERS[request.param](request, clock, partitions, due_limit, line_limit, tenant_limit)
        made.append(World(near, clock, partitions, shared=request.param in SHARED))
        return made[-1]

    yield make_one
    for world in made:
        await world.near.close()


@pytest.fixture
async def world(make: Make) -> World:
    """A tier with the real limits."""
    return await make()
