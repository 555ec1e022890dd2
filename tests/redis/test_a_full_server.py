"""A server without memory refuses what adds to it, and still lets everything go out: so it becomes empty again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from tests.conformance.near.world import PARTITIONS, World
from tests.servers.redis import RedisServer, new_installation
from tocsin.clock import ManualClock
from tocsin.errors import NearUnavailable
from tocsin.near.port import QueueGate
from tocsin.near.redis import open_near


@pytest.fixture
async def server() -> AsyncIterator[RedisServer]:
    server = RedisServer(maxmemory_policy="noeviction").start()
    yield server
    server.close()


async def test_jobs_leave_a_full_server_and_none_come(server: RedisServer) -> None:
    clock = ManualClock(datetime(2026, 3, 1, 9, tzinfo=UTC))
    near = await open_near(server.url, clock, installation=new_installation(), partitions=PARTITIONS)
    world = World(near, clock, PARTITIONS)
    try:
        await near.begin(world.all)
        await world.open()
        dues = [world.due(at) for at in range(5)]
        calls = [world.callback(at) for at in range(2)]
        assert await near.push([*dues, *calls]) == []
        server.ask("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(NearUnavailable):
            await near.push([world.due()])
        first, second = world.wish(2), world.wish(1)
        assert (await near.pop(first)).dues == dues[:2]
        assert (await near.pop(second)).dues == dues[2:3]
        call = world.executor_wish()
        assert (await near.pop(call)).dues == calls
        await near.unpop(second.request_id)
        await near.settle(first.request_id, [(due.job_id, 1) for due in dues[:2]])
        await near.settle(call.request_id, [(due.job_id, 1) for due in calls])
        await near.remove([dues[3].job_id])
        await near.configure("acme", "other", QueueGate())
        assert await near.wait_ready(world.wish(), 1.0), "there is a job now"
        assert await world.claim() == [dues[2].job_id, dues[4].job_id]
        figures = await near.figures([])
        assert (figures.ready, figures.in_hand) == (0, 0)
        server.ask("CONFIG", "SET", "maxmemory", "0")
        assert await near.push([due := world.due()]) == []
        assert await world.claim() == [due.job_id]
    finally:
        await near.close()
