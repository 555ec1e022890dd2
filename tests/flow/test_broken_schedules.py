"""What becomes of the occurrences of a schedule that cannot be computed for a while."""

from datetime import UTC, datetime

from msgspec import structs

from tests.flow.recurring import TENANT, change, define, jobs_of, put, row_of, skips_of
from tests.life.world import World
from tocsin import wire
from tocsin.model.schedule import decode_state, encode
from tocsin.model.zones import Zones, pinned_zones
from tocsin.store.schedules import Move
from tocsin.wire import Status

ELSEWHERE = "Asia/Kolkata"


def _without(version="2099a"):
    def load(name):
        if name == ELSEWHERE:
            raise KeyError(name)
        return pinned_zones().zone(name)

    return Zones(version, load)


async def _lose_the_zone(world):
    """A release of the zone data without that zone; the sweep finds out."""
    world.zones = _without()
    await world.restart()
    await world.settle()


async def test_what_a_broken_schedule_has_missed_is_a_skip_when_it_is_mended():
    world = World()
    await world.start()
    made = await define(world, cron="30 2 * * *", time_zone=ELSEWHERE)  # 21:00 UTC
    await _lose_the_zone(world)
    assert (await row_of(world, made)).status == "broken"
    await world.jump(3 * 86_400)
    mended = await change(world, made, time_zone="UTC")
    assert (mended.status, mended.next_run_at) == ("active", "2026-12-09T02:30:00Z")
    fired, ahead = await jobs_of(world, made)
    # Its job was there already and went on by itself.
    assert (fired.status, fired.definition.occurrence_at) == (Status.QUEUED, 1_796_504_400_000)
    assert ahead.status is Status.SCHEDULED
    assert await skips_of(world, made) == [("2026-12-06T02:30:00Z", "2026-12-08T02:30:00Z", 3, "missed")]


async def test_what_a_pause_had_taken_out_of_a_schedule_that_broke_is_a_skip_when_it_is_mended():
    world = World()
    await world.start()
    made = await define(world, cron="30 2 * * *", time_zone=ELSEWHERE)
    await change(world, made, paused=True, pause_note="month end")
    await _lose_the_zone(world)
    await world.jump(2 * 86_400)
    await put(world, cron="0 21 * * *")
    assert await skips_of(world, made) == [("2026-12-05T21:00:00Z", "2026-12-06T21:00:00Z", 2, "paused")]


async def test_what_waited_to_be_caught_up_with_when_a_schedule_broke_is_a_skip_when_it_is_mended():
    world = World()
    await world.start()
    made = await define(world, cron="0 * * * *", time_zone=ELSEWHERE, missed_runs={"policy": "run_all"})  # at :30 UTC
    await world.jump(4 * 3_600 + 60)
    (first,) = await world.claim(10)
    await world.jump(3_600)
    waiting = [job.status for job in await jobs_of(world, made)]
    assert waiting.count(Status.SCHEDULED) == 2, "one that is held and one ahead"
    await _lose_the_zone(world)
    assert (await row_of(world, made)).status == "broken"
    await change(world, made, time_zone="UTC")
    skips = await skips_of(world, made)
    assert sum(count for _, _, count, _ in skips) == 4, "three of the backlog, one that was held"
    assert {reason for _, _, _, reason in skips} == {"missed"}
    left = [job.status for job in await jobs_of(world, made) if job.job_id != first.job_id]
    assert sorted(left) == sorted([Status.SKIPPED, Status.CANCELLED, Status.SCHEDULED])
    state = decode_state((await row_of(world, made)).state)
    assert (state.runs, state.held, state.backlogs) == (1, (), ())


async def test_a_backfill_that_cannot_be_computed_any_more_is_a_skip():
    world = World()
    await world.start()
    made = await define(world, cron="0 * * * *", time_zone=ELSEWHERE)
    begin = datetime(2026, 12, 5, tzinfo=UTC)
    backfill = wire.Backfill(from_=begin, to=begin.replace(hour=3))
    assert (await world.on.direct.backfill(TENANT, made.schedule_id, backfill)).count == 3
    await _lose_the_zone(world)
    await change(world, made, time_zone="UTC")
    (started,) = await world.claim(10)
    await world.complete(started.lease_token)
    await world.settle()
    assert await skips_of(world, made) == [("2026-12-05T00:30:00.001Z", "2026-12-05T02:59:59.999Z", 2, "missed")]
    assert decode_state((await row_of(world, made)).state).backlogs == ()


async def test_an_absurd_cursor_is_not_believed(any_world):
    world = any_world
    made = await define(world, cron="* * * * *")
    row = await row_of(world, made)
    state = encode(structs.replace(decode_state(row.state), passed_at=-(10**16)))
    await world.on.store.schedules.move(
        [Move(schedule_id=row.schedule_id, serial=row.serial, after=structs.replace(row, serial=2, state=state))]
    )
    await put(world, cron="0 * * * *")
    assert await skips_of(world, made) == []
