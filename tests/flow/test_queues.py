"""Queues: settings that are changed while somebody reads them."""

import asyncio

from tests.life.world import World


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
