"""Park: what does not fit into its line waits in the store and comes back in order."""

import pytest

from tests.life.disk import Crashed
from tests.life.invariant import look
from tests.life.world import World
from tocsin.wire import Status


async def pile(partitions=2, **options):
    """A world with a line for four, and twelve jobs that are due one after another."""
    world = World(line_limit=4, partitions=partitions, **options)
    await world.start()
    await world.pause()
    ids = []
    for _ in range(12):
        ids.append(await world.create())
        world.clock.advance(0.01)
    return world, ids


async def drain(world):
    """Claim and complete everything; the jobs in the order of their claims."""
    done = []
    for _ in range(40):
        await world.settle()
        for job in await world.claim(2):
            assert await world.complete(job.lease_token) is Status.SUCCEEDED
            done.append(job.job_id)
        await world.advance(1)
    return done


async def test_a_full_line_parks_the_rest_and_gives_them_back_in_order():
    world, ids = await pile()
    assert (await world.on.near.figures(world.on.leases.owned())).ready == 4
    assert sum(len(versions) for versions in (await look(world)).parked.values()) == 8
    await world.pause(False)
    assert await drain(world) == ids
    assert not any(world.disk.parked.values())


async def test_the_order_holds_where_a_share_of_each_partition_is_read(monkeypatch):
    # One of each of eight partitions at a time, four in a batch: the next job may stand behind a page that was full.
    monkeypatch.setattr("tocsin.flow.park.BATCH", 4)
    world, ids = await pile(partitions=8)
    await world.pause(False)
    assert await drain(world) == ids


async def test_nothing_overtakes_what_is_parked():
    world, ids = await pile()
    await world.pause(False)
    first = await world.claim(4)
    for job in first:
        await world.complete(job.lease_token)
    late = await world.create()
    order = [job.job_id for job in first] + await drain(world)
    assert order == [*ids, late]


async def test_a_restart_keeps_the_order_of_the_parked():
    world, ids = await pile()
    await world.restart()
    await world.pause(False)
    assert await drain(world) == ids


async def test_parked_jobs_stand_for_their_timers_through_rechecks():
    world, ids = await pile()
    for _ in range(8):
        await world.jump(60)
    found = await look(world)
    for job_id in ids:
        assert found.timers[job_id] or found.parked[job_id]
    await world.restart()
    await world.pause(False)
    assert set(await drain(world)) == set(ids)


@pytest.mark.parametrize("cut", ["before parked put", "after parked put", "before near.set_parked"])
async def test_a_crash_while_parking_loses_nothing(cut):
    world = World(line_limit=2, partitions=2)
    await world.start()
    await world.pause()
    ids = {await world.create() for _ in range(2)}
    world.fault.at(cut)
    try:
        await world.create(key="k")
    except Crashed:
        await world.restart()
    ids.add(await world.create(key="k"))
    await world.pause(False)
    await world.advance(130)
    assert set(await drain(world)) == ids


async def test_a_crash_anywhere_in_an_unpark_runs_each_job_once():
    for points in range(0, 40, 3):
        world, ids = await pile(seed=points)
        await world.pause(False)
        for job in await world.claim(4):
            await world.complete(job.lease_token)
        world.fault.after(points)
        try:
            await world.on.unpark.step()
        except Crashed:
            await world.restart()
        world.fault.clear()
        done = await drain(world)
        assert sorted(done) == sorted(ids[4:]), points


async def test_a_cancelled_parked_job_takes_no_place():
    world, ids = await pile()
    await world.cancel(ids[7])
    await world.pause(False)
    assert await drain(world) == [job_id for job_id in ids if job_id != ids[7]]


async def test_another_tenants_line_is_open_beside_a_full_one():
    world, _ = await pile()
    theirs = await world.create("bolt")
    assert [job.job_id for job in await world.claim(tenant="bolt")] == [theirs]


async def test_what_has_expired_in_the_park_is_skipped_when_the_line_drains():
    world = World(line_limit=4, partitions=2)
    await world.start()
    await world.pause()
    first = [await world.create() for _ in range(4)]
    late = [await world.create(expires_after_s=10) for _ in range(3)]
    world.clock.advance(11)
    await world.pause(False)
    for job in await world.claim(4):
        assert job.job_id in first
    await world.settle()
    assert {(await world.job(job_id)).status for job_id in late} == {Status.SKIPPED}
    assert not any(world.disk.parked.values())
    assert (await world.on.near.figures(world.on.leases.owned())).ready == 0
