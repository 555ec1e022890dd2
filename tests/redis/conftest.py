"""Tiers on real servers. `shared` is a tier on the server of all tests, whose keys must all be gone at the end but for the bookkeeping."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest

from tests.conformance.near.world import World
from tests.redis.keys import litter
from tests.servers.redis import RedisServer, new_installation
from tocsin.clock import ManualClock
from tocsin.near.redis import RedisNearTier, open_near

PARTITIONS = 4
Open = Callable[..., Awaitable[World]]


@pytest.fixture
def own_server() -> Iterator[Callable[..., RedisServer]]:
    """Starts servers that belong to one test, with settings."""
    servers: list[RedisServer] = []

    def start(**settings: str) -> RedisServer:
        servers.append(RedisServer(**settings))
        return servers[-1].start()

    yield start
    for server in servers:
        server.close()


@pytest.fixture
async def opens() -> AsyncIterator[Open]:
    """Opens tiers, each as another process would: (server, installation, begin) -> a world with its partitions begun."""
    async with AsyncExitStack() as stack:

        async def open_one(
            server: RedisServer, installation: str = "acme", *, begin: bool = True, clock: ManualClock | None = None
        ) -> World:
            clock = clock or ManualClock(datetime(2026, 3, 1, 9, tzinfo=UTC))
            near: RedisNearTier = await open_near(server.url, clock, installation=installation, partitions=PARTITIONS)
            stack.push_async_callback(near.close)
            if begin:
                await near.begin(range(PARTITIONS))
            return World(near, clock, PARTITIONS, shared=True)

        yield open_one


@pytest.fixture
async def shared(redis_server: RedisServer, opens: Open) -> AsyncIterator[World]:
    """A world on the server of all tests; the test fails if it leaves more than bookkeeping behind."""
    installation = new_installation()
    yield await opens(redis_server, installation)
    assert litter(redis_server, installation) == []
