"""Schedules are shown."""

import pytest

from tests.flow.recurring import TENANT, change, define


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_a_page_of_skips_holds_no_more_than_was_asked_for_while_a_pause_goes_on(any_world, limit):
    world = any_world
    made = await define(world, cron="* * * * *")
    for _ in range(2):
        await world.on.direct.skip_next(TENANT, made.schedule_id)
        await world.advance(240)
    await change(world, made, paused=True)
    await world.advance(240)
    found, after = [], None
    for _ in range(10):
        page, after = await world.on.present.skips(TENANT, made.schedule_id, after, limit)
        assert len(page) <= limit
        found += [(one.reason, one.count) for one in page]
        if after is None:
            break
    assert found == [("paused", 4), ("skipped_by_user", 1), ("skipped_by_user", 1)]
