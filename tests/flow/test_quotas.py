"""Quotas at the door: how many creates a second, also where that is less than one."""

from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from tests.flow.recurring import TENANT, change, define, put
from tests.life.world import World
from tocsin import wire
from tocsin.clock import ManualClock
from tocsin.errors import Refused
from tocsin.flow.quotas import Limits, Quotas
from tocsin.flow.tally import Tally
from tocsin.store.settings import SettingsStore


@pytest.mark.parametrize(("rate", "allowed"), [(0, 0), (0.1, 6), (0.5, 30), (1, 60), (2.5, 150)])
def test_the_rate_of_creates_holds_over_a_minute(rate, allowed):
    clock = ManualClock()
    quotas, limits = Quotas(cast("SettingsStore", None), Tally(), clock), Limits(creates_per_s=rate)
    quotas.take_creates("acme", limits, 1_000)
    taken = 0
    for _ in range(60 * 4):
        clock.advance(0.25)
        taken += quotas.take_creates("acme", limits, 1_000)
    assert taken == pytest.approx(allowed, abs=1)


@pytest.mark.parametrize(
    ("limits", "quota"), [(Limits(creates_per_s=1), "creates_per_s"), (Limits(waiting_jobs=1), "waiting_jobs")]
)
async def test_what_makes_jobs_by_itself_counts_as_a_create(limits, quota):
    world = World(limits=limits)
    await world.start()
    made = await define(world, "one", cron="* * * * *")
    begin = datetime(2026, 12, 5, 1, tzinfo=UTC)
    backfill = wire.Backfill(from_=begin, to=begin + timedelta(minutes=3))
    for refused in (
        define(world, "two", cron="* * * * *"),
        put(world, "two", cron="* * * * *"),
        world.on.direct.trigger(TENANT, made.schedule_id, wire.Trigger(), None, b""),
        world.on.direct.backfill(TENANT, made.schedule_id, backfill),
    ):
        with pytest.raises(Refused) as over:
            await refused
        assert (over.value.status, over.value.extra["quota"]) == (429, quota)
    with pytest.raises(Refused) as taken:
        await define(world, "one", cron="* * * * *")
    assert taken.value.status == 409
    await put(world, "one", cron="0 * * * *")
    await change(world, made, paused=True)
