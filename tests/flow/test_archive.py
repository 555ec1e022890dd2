"""Archive: history ends after its retention, in bounded passes that a crash continues."""

import pytest

from tests.life.disk import Crashed
from tests.life.world import World
from tocsin.wire import Status

DAY_S = 86_400


async def finish(world, outcome="succeeded", **fields):
    """A job that has ended."""
    await world.create(**fields)
    job = await world.claim_one()
    await world.complete(job.lease_token, outcome)
    return job.job_id


async def test_finished_and_dead_jobs_go_after_their_retention(any_world):
    done, dead = await finish(any_world), await finish(any_world, "fatal_failure")
    await any_world.jump(29 * DAY_S)
    assert (await any_world.job(done)).status is Status.SUCCEEDED
    await any_world.jump(2 * DAY_S)
    assert await any_world.on.store.jobs.states([done, dead]) == [None, None]
    assert await any_world.on.store.jobs.attempts(dead) == []


async def test_what_is_not_finished_stays_however_old(any_world):
    job_id = await any_world.create(delay_s=300 * DAY_S)
    for _ in range(10):
        await any_world.jump(20 * DAY_S)
    assert (await any_world.job(job_id)).status is Status.SCHEDULED


async def test_an_expired_key_goes_and_a_living_jobs_key_stays(any_world):
    await finish(any_world, key="old")
    living = await any_world.create(key="living", delay_s=20 * DAY_S)
    await any_world.jump(8 * DAY_S)
    assert await any_world.create(key="living", delay_s=20 * DAY_S) == living


@pytest.mark.parametrize("points", range(0, 16, 2))
async def test_a_crash_in_a_pass_is_continued(points):
    world = World()
    await world.start()
    ids = [await finish(world, "fatal_failure") for _ in range(3)]
    world.clock.advance(31 * DAY_S)
    world.fault.after(points)
    try:
        await world.on.archive.step()
    except Crashed:
        await world.restart()
    world.fault.clear()
    await world.jump(61)
    assert await world.on.store.jobs.states(ids) == [None, None, None]
    assert not world.disk.records


async def test_it_works_once_a_minute_also_after_a_step_back_of_the_clock(world):
    await world.settle()
    job_id = await finish(world)
    world.clock.advance(31 * DAY_S)
    await world.on.archive.step()
    assert await world.on.store.jobs.states([job_id]) == [None]
    other = await finish(world)
    world.clock.step_wall(-3_600)
    await world.on.archive.step()
    world.clock.advance(31 * DAY_S)
    await world.on.archive.step()
    assert await world.on.store.jobs.states([other]) == [None]
