"""A cluster: every program uses keys of one slot only, and commands find their server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from tests.conformance.near.world import World, ids
from tests.servers.redis import RedisServer, new_installation
from tocsin.clock import ManualClock
from tocsin.near.redis import open_near
from tocsin.wire import Status

PARTITIONS = 4
QUEUES = [("acme", "mail"), ("globex", "fax")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisServer]:
    """A cluster of one server, which holds all slots and refuses programs that use several at once; it is whole in two seconds."""
    server = RedisServer(cluster_enabled="yes").start()
    server.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    until = time.monotonic() + 10
    while b"cluster_state:ok" not in server.ask("CLUSTER", "INFO"):
        assert time.monotonic() < until, "the cluster never became whole"
        time.sleep(0.01)
    yield server
    server.close()


async def test_a_tier_on_a_cluster_offers_takes_and_begins_anew_like_any_other(cluster: RedisServer) -> None:
    clock = ManualClock()
    url = cluster.url.replace("redis://", "redis+cluster://").removesuffix("/0")
    near = await open_near(url, clock, installation=new_installation(), partitions=PARTITIONS, due_limit=100)
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


async def test_ready_lines_on_a_cluster_are_like_any_other(cluster: RedisServer) -> None:
    clock = ManualClock()
    url = cluster.url.replace("redis://", "redis+cluster://").removesuffix("/0")
    near = await open_near(url, clock, installation=new_installation(), partitions=PARTITIONS)
    world = World(near, clock, PARTITIONS)
    try:
        await near.begin(world.all)
        await world.open(("acme", "mail"), ("globex", "fax"))
        tasks, executors = [
            asyncio.ensure_future(near.wait_ready(wish, 1)) for wish in (world.wish(), world.executor_wish())
        ]
        await world.turns()
        assert not tasks.done()
        assert not executors.done()
        jobs = [world.due(at) for at in range(20)]
        calls = [world.callback(at, tenant=tenant, queue=queue) for at, (tenant, queue) in enumerate(2 * QUEUES)]
        assert await near.push([*jobs, *calls]) == []
        await world.turns()
        assert tasks.done()
        assert executors.done()
        await near.remove([jobs[0].job_id])
        assert await world.claim(world.wish(10)) == ids(jobs[1:11])
        await near.pop(lost := world.executor_wish(1))
        await near.unpop(lost.request_id)
        assert sorted(await world.claim(world.executor_wish())) == sorted(ids(calls))
        await near.set_parked(jobs[0].line, 2, True)
        assert await near.lines_with_room(world.all) == [jobs[0].line]
        assert await near.ready_count("acme", "mail") == (9, jobs[11].due_at)
        await near.add_counts({("acme", "mail", Status.QUEUED): 9})
        assert await near.counts() == {("acme", "mail", Status.QUEUED): 9}
        assert (await near.figures(world.all)).ready == 9
    finally:
        await near.close()
