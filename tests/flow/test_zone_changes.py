"""The data of a time zone changes while schedules wait in it."""

from datetime import timedelta, timezone

from tests.flow.recurring import define, jobs_of, row_of
from tests.life.world import World
from tocsin.model.schedule import decode_state
from tocsin.model.zones import Zones
from tocsin.telemetry import REGISTRY
from tocsin.wire import Status


def _zones(version, hours):
    return Zones(version, lambda name: timezone(timedelta(hours=hours)))


def _repairs():
    return REGISTRY.get_sample_value("tocsin_schedule_repairs_total", {"what": "zone data"}) or 0


async def test_after_a_release_of_the_zone_data_what_waits_is_computed_anew_at_the_start():
    world = World(zones=_zones("2026f", 2))
    await world.start()
    made = await define(world, cron="0 2 * * *", time_zone="Asia/Kolkata")
    assert made.next_run_at == "2026-12-06T00:00:00Z"
    before = _repairs()
    world.zones = _zones("2026g", 1)
    await world.restart()
    await world.settle()
    state = decode_state((await row_of(world, made)).state)
    assert (state.zone_data, (await world.on.present.get("acme", made.schedule_id)).next_run_at) == (
        "2026g",
        "2026-12-06T01:00:00Z",
    )
    assert [job.status for job in await jobs_of(world, made)] == [Status.CANCELLED, Status.SCHEDULED]
    assert _repairs() == before + 1
