"""Dispatch, row by row: job -> QUEUED at that version, then its line, then out of the due set."""

import asyncio

import pytest

from tests.life.world import Process, World
from tocsin.errors import StoreUnavailable
from tocsin.store.port import Due, Fired
from tocsin.wire import Status


async def test_the_writes_are_in_the_order_of_the_table(world):
    await world.create(delay_s=5)
    world.clock.advance(5)
    world.fault.clear()
    await world.on.dispatch.step()
    assert world.fault.writes() == ["near.take", "jobs", "near.push", "near.drop"]


@pytest.mark.parametrize(
    "cut",
    [
        "before near.take",
        "after near.take",
        "before jobs put",
        "after jobs put",
        "before near.push",
        "after near.push",
        "before near.drop",
        "after near.drop",
    ],
)
async def test_a_crash_anywhere_in_a_fire_still_starts_the_job_once(world, cut):
    job_id = await world.create(delay_s=5)
    world.clock.advance(5)
    await world.crash_during(world.on.dispatch.step(), cut)
    await world.settle()
    assert (await world.job(job_id)).version == 1
    assert [job.job_id for job in await world.claim(10)] == [job_id]
    assert await world.claim(10) == []


async def test_a_fire_that_the_store_refuses_is_put_back_and_tried_again(any_world):
    job_id = await any_world.create(delay_s=5)
    any_world.clock.advance(5)
    any_world.fault.always(StoreUnavailable("down"))
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await any_world.on.dispatch.step()
    any_world.fault.always(None)
    assert (await any_world.on.dispatch.step()).pushed == 1
    assert (await any_world.job(job_id)).status is Status.QUEUED


@pytest.mark.parametrize("point", range(8))
async def test_a_store_that_fails_in_the_middle_of_a_batch_leaves_no_job_half_fired(world, point):
    ids = {await world.create(delay_s=5) for _ in range(3)}
    world.clock.advance(5)
    world.fault.after(point, StoreUnavailable("cut"))
    try:
        await world.on.dispatch.step()
    except StoreUnavailable:
        await world.settle()
    await world.settle()
    await world.advance(200)
    assert {job.job_id for job in await world.claim(10)} == ids


async def test_members_that_fired_and_could_not_be_pushed_are_pushed_by_the_next_pass(world):
    job_id = await world.create(delay_s=5)
    world.clock.advance(5)
    world.fault.at("before near.push", StoreUnavailable("the line is full and the park is away"))
    with pytest.raises(StoreUnavailable):
        await world.on.dispatch.step()
    assert (await world.on.dispatch.step()).pushed == 1
    assert [job.job_id for job in await world.claim()] == [job_id]


async def test_two_dispatchers_with_the_same_members_fire_once_and_the_line_holds_one(world):
    """Two owners overlap: both took the member before either wrote."""
    one = world.on
    job_id = await world.create(delay_s=5)
    world.clock.advance(5)
    dues = await one.near.take(one.leases.owned(), world.clock.now_ms(), 10)
    first, second = await one.store.jobs.fire(dues), await one.store.jobs.fire(dues)
    assert (first, second) == ([Fired.WON], [Fired.ALREADY])
    assert await one.parker.push(dues) == []
    assert await one.parker.push(dues) == []
    assert [job.job_id for job in await world.claim(10)] == [job_id]
    assert await world.claim(10) == []


async def test_two_nodes_that_dispatch_at_once_start_each_job_once():
    world = World(yielding=True)
    await world.start()
    for _ in range(20):
        await world.create(delay_s=5)
    first: Process = world.on
    second = await world.start()  # another node on the same store, with a near tier of its own
    world.clock.advance(5)
    await asyncio.gather(first.dispatch.step(), second.dispatch.step())
    taken = [job.job_id for job in await world.claim(100)]
    assert len(taken) == len(set(taken)) == 20
    world._process = first
    assert await world.claim(100) == []


async def test_a_job_fires_at_its_time_and_not_before(any_world):
    job_id = await any_world.create(delay_s=5)
    await any_world.advance(4.999)
    assert (await any_world.job(job_id)).status is Status.SCHEDULED
    await any_world.advance(0.001)
    assert (await any_world.job(job_id)).status is Status.QUEUED


async def test_a_timer_earlier_than_the_job_is_void(any_world):
    """Left by a change that died between its timer and its job, and came true by a later change of the same version."""
    job_id = await any_world.create(delay_s=100)
    job = await any_world.job(job_id)
    early = Due(job.due_at - 50_000, job_id, job.version, job.line, job.priority)
    assert await any_world.on.store.jobs.fire([early]) == [Fired.VOID]
    assert await any_world.on.store.jobs.fire([early._replace(version=2, due_at=job.due_at)]) == [Fired.VOID]


async def test_an_expired_job_is_skipped_at_fire_and_says_why(any_world):
    job_id = await any_world.create(delay_s=5, expires_after_s=10)
    any_world.clock.advance(16)
    await any_world.settle()
    job = await any_world.job(job_id)
    assert job.status is Status.SKIPPED
    assert "expired" in (job.last_error or "")
    assert await any_world.claim(10) == []


async def test_a_delay_of_many_leases_runs_once_with_five_workers(any_world):
    """F-03: the wait is in the store, not in a worker's hands."""
    job_id = await any_world.create(delay_s=300)
    got = []
    for _ in range(75):
        await any_world.advance(5)
        for worker in range(5):
            got += await any_world.claim(1, worker=f"w{worker}")
            for job in got[-1:]:
                await any_world.beat(job.lease_token)
    assert [job.job_id for job in got] == [job_id]


@pytest.mark.parametrize("delay_s", [24.8 * 86_400, 24.9 * 86_400, 49.8 * 86_400, 365 * 86_400 - 1])
async def test_a_far_future_is_no_early_fire_and_no_busy_loop(any_world, delay_s):
    """F-57: no 32-bit number of milliseconds anywhere."""
    job_id = await any_world.create(delay_s=delay_s)
    await any_world.advance(60)
    assert (await any_world.job(job_id)).status is Status.SCHEDULED
    assert await any_world.on.near.next_due(any_world.on.leases.owned()) is None
    job = await any_world.job(job_id)
    any_world.clock.advance_to(job.due_at - 600_000)
    await any_world.settle()
    await any_world.advance(599.9)
    assert (await any_world.job(job_id)).status is Status.SCHEDULED
    await any_world.advance(0.1)
    assert (await any_world.job(job_id)).status is Status.QUEUED


async def test_one_bad_member_never_ends_a_batch(any_world):
    good = await any_world.create(delay_s=5)
    bad = await any_world.create(delay_s=5)
    await any_world.cancel(bad)
    job = await any_world.job(good)
    ghost = Due(job.due_at, good[:-1] + ("0" if good[-1] != "0" else "1"), 1, job.line, 0)
    any_world.clock.advance(5)
    await any_world.on.near.offer([ghost])
    done = await any_world.on.dispatch.step()
    assert (done.taken, done.pushed, done.void) == (2, 1, 1)
    assert (await any_world.on.near.figures(any_world.on.leases.owned())).due == 0
