"""Queues: settings that are changed while somebody reads them."""

import asyncio

from tests.life.world import World
from tocsin.errors import NearUnavailable
from tocsin.flow.queues import TELL_AGAIN_S
from tocsin.near.port import QueueGate


async def test_a_pause_is_not_undone_by_a_claim_that_read_the_settings_before(monkeypatch):
    world = World()
    await world.start()
    await world.pause(False)
    await world.create()
    world.clock.advance(6)  # what was cached is old
    read, go_on = asyncio.Event(), asyncio.Event()
    settings = world.on.store.settings
    look = settings.queue

    async def slow(tenant, queue):
        row = await look(tenant, queue)
        read.set()
        await go_on.wait()
        return row

    monkeypatch.setattr(settings, "queue", slow)
    opening = asyncio.create_task(world.on.queues.open_gate("acme", "q"))
    await read.wait()
    monkeypatch.setattr(settings, "queue", look)
    await world.pause()
    go_on.set()
    await opening
    assert (await world.on.queues.get("acme", "q")).paused
    assert await world.claim() == []


async def test_a_gate_that_the_near_tier_was_not_told_of_is_told_when_somebody_looks(any_world):
    """The near tier was away while a queue was paused: from then on it must not give the queue's jobs out for ever."""
    await any_world.create()
    await any_world.pause(False)
    near, configure = any_world.on.near, any_world.on.near._near.configure

    async def away(*_):
        raise NearUnavailable("away")

    near._near.configure = away
    await any_world.pause()
    near._near.configure = configure
    assert await any_world.claim() == []
    await any_world.pause(False)
    assert len(await any_world.claim()) == 1


async def test_a_gate_that_another_process_changed_last_is_set_right_within_seconds(any_world):
    await any_world.pause(False)
    await any_world.create()
    await any_world.on.near.configure(
        "acme", "q", QueueGate(paused=True)
    )  # told by a process that died before its write
    assert await any_world.claim() == []
    await any_world.advance(TELL_AGAIN_S)
    assert len(await any_world.claim()) == 1
