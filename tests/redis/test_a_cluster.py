"""A cluster: every program uses keys of one slot only, and commands find their server."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.conformance.near.world import World
from tests.servers.redis import RedisServer
from tocsin.clock import ManualClock
from tocsin.near.redis import open_near

PARTITIONS = 4


@pytest.fixture
def cluster(own_server: Callable[..., RedisServer]) -> RedisServer:
    """A cluster of one server, which holds all slots and refuses programs that use several at once."""
    server = own_server(cluster_enabled="yes")
    server.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    until = time.monotonic() + 10
    while b"cluster_state:ok" not in server.ask("CLUSTER", "INFO"):
        assert time.monotonic() < until, "the cluster never became whole"
        time.sleep(0.01)
    return server


async def test_a_tier_on_a_cluster_offers_takes_and_begins_anew_like_any_other(cluster: RedisServer) -> None:
    clock = ManualClock()
    url = cluster.url.replace("redis://", "redis+cluster://").removesuffix("/0")
    near = await open_near(url, clock, installation="acme", partitions=PARTITIONS, due_limit=100)
    world = World(near, clock, PARTITIONS, shared=True)
    try:
        await near.begin(world.all)
        before = await near.generation()
        dues = [world.due(at) for at in range(600)]
        await near.offer(dues)
        await near.lease([(due.job_id, 1, 1_000) for due in dues])
        clock.advance(1)
        taken = await world.take(50)
        assert taken == dues[:50]
        await near.restore(taken[25:])
        await near.drop(taken[:25])
        assert await world.take_and_drop(25) == taken[25:]
        await near.remove([due.job_id for due in dues])
        assert len(await near.leases_over(world.all, 2_000, 1_000)) == 600
        await near.unlease([(due.job_id, 1) for due in dues])
        for cut in await near.cuts(world.all):
            await near.move_cut(cut, None)
        assert (await near.figures(world.all)).due == 0
        assert await near.generation() == before
        cluster.ask("FLUSHALL")
        assert await near.generation() != before
    finally:
        await near.close()
