"""Recover: a start rebuilds the near tier from the store alone; killed in the middle, the next start does it again."""

import pytest

from tests.life.disk import Crashed
from tests.life.invariant import look
from tests.life.world import World
from tocsin.wire import Status


async def everything(world):
    """A job in each state that a start has to find."""
    ids = {}
    ids["running"] = await world.create()
    await world.claim_one()
    ids["asked"] = await world.create()
    await world.claim_one()
    await world.cancel(ids["asked"])
    ids["retrying"] = await world.create()
    job = await world.claim_one()
    await world.complete(job.lease_token, "retryable_failure", retry_after_s=90)
    ids["soon"] = await world.create(delay_s=100)
    ids["later"] = await world.create(delay_s=5_000)
    ids["ready"] = await world.create()
    return ids


async def test_a_start_finds_jobs_in_every_state(any_world):
    ids = await everything(any_world)
    await any_world.restart()
    figures = await any_world.on.near.figures(any_world.on.leases.owned())
    assert (figures.ready, figures.leases) == (1, 2)
    await any_world.advance(110)
    assert {job.job_id for job in await any_world.claim(10)} == {ids["retrying"], ids["soon"], ids["ready"]} | {
        job_id for job_id in [ids["running"]] if (await any_world.job(job_id)).status is Status.RUNNING
    }
    assert (await any_world.job(ids["asked"])).status is Status.CANCELLED
    assert (await any_world.job(ids["later"])).status is Status.SCHEDULED


async def test_a_recovery_reads_and_never_writes(world):
    await everything(world)
    world.fault.clear()
    await world.start()
    assert [name for name in world.fault.writes() if not name.startswith("near.")] == []


async def test_a_recovery_that_is_killed_in_the_middle_ten_times_over_still_ends():
    """F-67."""
    world = World(page=2)
    await world.start()
    ids = await everything(world)
    for kill in range(10):
        await world.boot()
        world.fault.after(kill % 5)
        with pytest.raises(Crashed):
            await world.on.recover.recover(world.on.leases.owned())
        world.fault.clear()
    await world.restart()
    await world.advance(110)
    found = {job.job_id for job in await world.claim(10)}
    assert {ids["retrying"], ids["soon"], ids["ready"]} <= found


async def test_after_an_hour_down_everything_that_fell_due_starts_at_once(any_world):
    ids = {await any_world.create(delay_s=60 * n) for n in range(1, 30)}
    any_world.clock.advance(3_600)
    await any_world.restart()
    await any_world.settle()
    assert {job.job_id for job in await any_world.claim(100)} == ids


async def test_watch_timers_are_part_of_what_a_start_reads(any_world):
    """Jobs that were rechecked long ago have no fire timer any more."""
    await any_world.pause()
    waiting = await any_world.create()
    for _ in range(10):
        await any_world.jump(60)
    assert {timer.kind for timer in (await look(any_world)).timers[waiting]} == {"watch"}
    await any_world.restart()
    await any_world.pause(False)
    assert (await any_world.claim_one()).job_id == waiting


async def test_a_flood_behind_a_cut_hides_no_running_job_at_a_start():
    world = World(due_limit=3, page=2, partitions=1)
    await world.start()
    await world.create("bolt")
    await world.claim_one(tenant="bolt", lease_s=600)
    await world.try_create(count=20, delay_s=1)
    world.clock.advance(2)
    await world.restart()
    assert (await world.on.near.figures(world.on.leases.owned())).leases == 1
    await world.advance(5)
    assert len(await world.claim(100)) == 20


@pytest.mark.parametrize("seconds", [-3_600, -600])
async def test_a_start_after_a_step_back_of_the_clock_finds_what_is_ready(any_world, seconds):
    """Their timers are in buckets that are still to come; the stored floor tells."""
    for _ in range(4):
        await any_world.advance(60)
    ready = await any_world.create()
    any_world.clock.step_wall(seconds)
    await any_world.restart()
    assert (await any_world.claim_one()).job_id == ready
