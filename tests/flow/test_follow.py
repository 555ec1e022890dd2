"""What waited for the end of a run starts when it ends."""

from datetime import UTC, datetime

import pytest

from tests.flow.recurring import TENANT, define
from tocsin import wire


@pytest.mark.parametrize("overlap", ["forbid", "replace"])
@pytest.mark.parametrize("origin", ["schedule", "manual"])
async def test_a_backfill_that_waits_for_a_run_starts_at_its_end(any_world, overlap, origin):
    world = any_world
    made = await define(world, cron="0 * * * *", overlap=overlap)
    if origin == "manual":
        await world.on.direct.trigger(TENANT, made.schedule_id, wire.Trigger(), None, b"")
    else:
        await world.jump(30 * 60)
    (running,) = await world.claim(10)
    begin = datetime(2026, 12, 5, tzinfo=UTC)
    await world.on.direct.backfill(TENANT, made.schedule_id, wire.Backfill(from_=begin, to=begin.replace(hour=2)))
    await world.settle()
    assert await world.claim(10) == []
    await world.complete(running.lease_token)
    await world.settle()
    (first,) = await world.claim(10)
    await world.complete(first.lease_token)
    await world.settle()
    assert len(await world.claim(10)) == 1
