"""Single occurrences are cancelled or started early by their owner."""

import pytest

from tests.flow.recurring import change, define, jobs_of, skips_of
from tests.life.disk import Crashed
from tests.life.world import World
from tocsin.telemetry import REGISTRY
from tocsin.wire import Status

FIRST, SECOND = "2026-12-05T03:31:00Z", "2026-12-05T03:32:00Z"


def _skipped():
    return REGISTRY.get_sample_value("tocsin_schedule_skips_total", {"reason": "skipped_by_user"}) or 0


async def test_an_occurrence_that_fired_and_is_cancelled_before_its_start_is_a_skip_and_counts_as_a_run(any_world):
    world = any_world
    made = await define(world, cron="* * * * *", max_runs=2)
    await world.advance(60)
    fired, ahead = await jobs_of(world, made)
    before = _skipped()
    assert (await world.cancel(fired.job_id)).status is Status.CANCELLED
    assert await skips_of(world, made) == [(FIRST, FIRST, 1, "skipped_by_user")]
    assert _skipped() == before + 1
    assert await world.claim(10) == []
    await world.advance(600)
    assert [job.job_id for job in await world.claim(10)] == [ahead.job_id]
    assert (await world.on.present.get("acme", made.schedule_id)).status == "finished"


async def test_a_crash_leaves_the_cancelled_job_and_its_skip_or_neither():
    strikes = 0
    while True:
        world = World(seed=3)
        await world.start()
        made = await define(world, cron="* * * * *")
        await world.advance(60)
        fired, _ = await jobs_of(world, made)
        world.fault.after(strikes)
        try:
            await world.cancel(fired.job_id)
        except Crashed:
            await world.restart()
        else:
            break
        skips = await skips_of(world, made)
        cancelled = (await world.job(fired.job_id)).status is Status.CANCELLED
        assert skips == ([(FIRST, FIRST, 1, "skipped_by_user")] if cancelled else [])
        strikes += 1
    assert strikes > 5


async def test_skips_of_one_occurrence_before_its_time_and_of_one_after_it_are_two(any_world):
    world = any_world
    made = await define(world, cron="* * * * *")
    await world.advance(60)
    fired, ahead = await jobs_of(world, made)
    await world.cancel(ahead.job_id)
    await world.cancel(fired.job_id)
    assert await skips_of(world, made) == [
        (FIRST, FIRST, 1, "skipped_by_user"),
        (SECOND, SECOND, 1, "skipped_by_user"),
    ]


@pytest.mark.parametrize("fire", [False, True])
async def test_an_occurrence_of_a_broken_schedule_that_is_cancelled_is_a_skip(any_world, fire):
    world = any_world
    made = await define(world, cron="* * * * *")
    if fire:
        await world.advance(60)
    job = (await jobs_of(world, made))[0]
    (row,) = await world.on.store.schedules.get([made.schedule_id])
    await world.on.agenda.break_off(row, "for this test")
    assert (await world.cancel(job.job_id)).status is Status.CANCELLED
    assert await skips_of(world, made) == [(FIRST, FIRST, 1, "skipped_by_user")]
    assert (await change(world, made, overlap="forbid")).status == "active"


async def test_an_occurrence_of_a_broken_schedule_can_be_started_early(any_world):
    world = any_world
    made = await define(world, cron="0 0 1 1 *")
    (job,) = await jobs_of(world, made)
    (row,) = await world.on.store.schedules.get([made.schedule_id])
    await world.on.agenda.break_off(row, "for this test")
    assert (await world.run_now(job.job_id)).status is Status.QUEUED
    assert (await world.claim_one()).job_id == job.job_id
