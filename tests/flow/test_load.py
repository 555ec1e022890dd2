"""Load: what falls due within five minutes is in the near tier before it is due."""

import pytest

from tests.life.disk import Crashed
from tests.life.world import World
from tocsin.errors import NearUnavailable
from tocsin.flow.horizon import due_of
from tocsin.wire import Status


async def test_a_job_created_far_ahead_is_loaded_before_it_is_due_and_fires_on_time(any_world):
    job_id = await any_world.create(delay_s=1_000)
    await any_world.settle()
    assert await any_world.on.near.next_due(any_world.on.leases.owned()) is None
    await any_world.advance(700)
    due_at = (await any_world.job(job_id)).due_at
    assert await any_world.on.near.next_due(any_world.on.leases.owned()) == due_at
    await any_world.advance(300)
    assert (await any_world.job(job_id)).queued_at == due_at


@pytest.mark.parametrize("delay_s", range(285, 436, 15))
async def test_no_timer_falls_between_what_is_offered_and_what_has_been_read(any_world, delay_s):
    """Around the horizon and its overlap: whoever writes a timer offers it, or the loader has yet to read it."""
    job_id = await any_world.create(delay_s=delay_s)
    await any_world.advance(delay_s)
    assert (await any_world.job(job_id)).queued_at == any_world.clock.now_ms()


async def test_a_crash_while_loading_offers_everything_again():
    for points in range(0, 24, 2):
        world = World(page=2)
        await world.start()
        ids = {await world.create(delay_s=600) for _ in range(7)}
        for _ in range(302):
            world.clock.advance(1)
            await world.on.pulse.step()
        world.fault.after(points)
        try:
            while (await world.on.load.step()).more:
                pass
        except Crashed:
            await world.restart()
        world.fault.clear()
        await world.advance(299)
        assert {job.job_id for job in await world.claim(10)} == ids, points


async def test_a_tenants_flood_is_held_behind_its_cut_and_starts_in_order():
    """More jobs at one time than the near tier keeps of a tenant: the rest is read on when there is room."""
    world = World(due_limit=8, page=3, partitions=2)
    await world.start()
    ids = [await world.create(delay_s=600 + n / 100) for n in range(60)]
    other = await world.create("bolt", delay_s=600)
    await world.advance(599)
    assert (await world.on.near.figures(world.on.leases.owned())).due <= 12
    await world.advance(2)
    assert [job.job_id for job in await world.claim(10, tenant="bolt")] == [other]
    assert {job.job_id for job in await world.claim(100)} == set(ids)
    jobs = [await world.job(job_id) for job_id in ids]
    assert max((job.queued_at or 0) - job.due_at for job in jobs) < 1_500


async def test_jobs_created_into_a_flood_are_not_lost():
    """Refused at the offer, because they lie behind the cut: the loader reads on and finds them."""
    world = World(due_limit=8, page=3, partitions=2)
    await world.start()
    ids = {await world.create(delay_s=60) for _ in range(40)}
    await world.advance(62)
    assert {job.job_id for job in await world.claim(100)} == ids


async def test_a_flood_of_one_tenant_passes_over_nobody_elses_timers():
    """The jump over what lies behind a cut ends with that tenant's timers of that bucket and lane."""
    world = World(due_limit=4, page=3, partitions=1)
    await world.start()
    for tenant in ("acme", "zeta"):
        await world.try_create(tenant, count=12, delay_s=600)
    flexible = await world.create("bolt", delay_s=600, timing={"class": "flexible", "window_s": 5})
    few = [await world.create("bolt", delay_s=600 + n) for n in range(3)]
    await world.advance(596)
    await world.advance(8)
    assert {job.job_id for job in await world.claim(100, tenant="bolt")} == {flexible, *few}
    for job_id in few:
        job = await world.job(job_id)
        assert job.queued_at == job.due_at


@pytest.mark.parametrize("seconds", [-3_600, 3_600, 28_800])
async def test_after_a_step_of_the_clock_new_jobs_are_on_time_again(any_world, seconds):
    """F-43: and after it is set right once more."""
    await any_world.advance(5)
    any_world.clock.step_wall(seconds)
    await any_world.advance(60)
    first = await any_world.create(delay_s=600)
    any_world.clock.step_wall(-seconds)
    await any_world.advance(60)
    second = await any_world.create(delay_s=600)
    await any_world.advance(601)
    job = await any_world.job(second)
    assert job.status is Status.QUEUED
    assert (job.queued_at or 0) - job.due_at < 1_000
    left = (await any_world.job(first)).due_at - any_world.clock.now_ms()
    if left > 0:
        any_world.clock.advance(left / 1_000 - 600 if left > 600_000 else 0)
        await any_world.settle()
        await any_world.advance(min(left / 1_000, 600) + 1)
    assert (await any_world.job(first)).status is Status.QUEUED


async def test_no_stage_wishes_to_rest_beyond_its_next_work_after_a_step_back(any_world):
    """F-43: a wish is a wall-clock instant; `Loop` bounds it. No wish is so far that a minute's recheck is missed."""
    await any_world.advance(5)
    any_world.clock.step_wall(-8 * 3_600)
    await any_world.settle()
    now = any_world.clock.now_ms()
    wishes = [wish for stage in any_world.on.stages if (wish := await stage.next_at()) is not None]
    assert min(wishes) <= now + 1_000
    for stage in (any_world.on.load, any_world.on.recheck):
        wish = await stage.next_at()
        assert wish is not None
        assert wish <= now + 180_000


async def test_pages_of_jobs_that_have_fired_are_read_past_at_once():
    """A minute in the middle of a burst: its first jobs wait, many have fired, and the last ones wait behind them."""
    world = World(due_limit=4, page=2, partitions=1)
    await world.start()
    ids = sorted([await world.create(delay_s=20) for _ in range(20)])
    world.clock.advance(20)
    await world.on.store.jobs.fire([due_of(await world.job(job_id)) for job_id in ids[4:12]])
    await world.restart()
    await world.settle()
    assert {(await world.job(job_id)).status for job_id in ids} == {Status.QUEUED}


async def test_what_was_read_from_a_cut_and_could_not_be_offered_is_read_again():
    """The near tier was away for the one call between the cut's move and the offer."""
    world = World(due_limit=8, page=3, partitions=1)
    await world.start()
    ids = [await world.create(delay_s=20 + n / 100) for n in range(20)]
    await world.advance(19)
    world.clock.advance(1.04)
    while (await world.on.dispatch.step()).more:
        pass
    world.fault.clear()
    moved, offered = "after near.move_cut", "before near.offer"
    world.fault.at(offered, NearUnavailable("away"))
    with pytest.raises(NearUnavailable):
        await world.on.load.step()
    assert world.fault.passed[-1] == moved
    world.clock.advance(1)
    await world.settle()
    assert {(await world.job(job_id)).status for job_id in ids} == {Status.QUEUED}
