"""Recheck: every timer whose minute has passed is looked at again; watch timers first, then exactly what was read goes."""

from itertools import pairwise

import pytest

from tests.life.disk import Crashed
from tests.life.invariant import look
from tests.life.world import World
from tocsin.model.partition import bucket_of, partition_of
from tocsin.store.port import StatePage
from tocsin.telemetry import REGISTRY
from tocsin.wire import Status


async def test_the_writes_are_in_the_order_of_the_table():
    world = World(partitions=1)
    await world.start()
    await world.create()
    await world.advance(60)
    world.clock.advance(61)
    world.fault.clear()
    while (await world.on.recheck.step()).more:
        pass
    rows = [name for name in world.fault.passed if name.startswith("after ") and "near" not in name]
    assert rows == ["after timers put", "after timers delete", "after floors put"]


async def test_a_recheck_that_dies_anywhere_leaves_every_job_a_timer():
    for points in range(0, 60, 2):
        world = World(page=2)
        await world.start()
        ids = [await world.create() for _ in range(4)]
        await world.advance(60)
        world.clock.advance(65)
        world.fault.after(points)
        try:
            while (await world.on.recheck.step()).more:
                pass
        except Crashed:
            pass
        world.fault.clear()
        found = await look(world)
        assert all(found.timers[job_id] for job_id in ids), points
        await world.restart()
        assert {job.job_id for job in await world.claim(10)} == set(ids)


async def test_a_job_that_was_never_pushed_is_pushed_after_two_minutes(any_world):
    """The push was lost and nobody noticed."""
    job_id = await any_world.create()
    await any_world.on.near.remove([job_id])
    assert await any_world.claim() == []
    await any_world.advance(121)
    assert (await any_world.claim_one()).job_id == job_id


async def test_a_job_that_was_never_offered_fires_after_its_recheck(any_world):
    job_id = await any_world.create(delay_s=30)
    await any_world.on.near.remove([job_id])
    await any_world.advance(60)
    assert (await any_world.job(job_id)).status is Status.SCHEDULED
    await any_world.advance(95)
    assert (await any_world.claim_one()).job_id == job_id


async def test_a_lease_that_the_index_lost_is_watched_again(any_world):
    await any_world.create()
    job = await any_world.claim_one()
    await any_world.on.near.unlease([(job.job_id, job.attempt)])
    await any_world.advance(125)
    again = await any_world.claim_one()
    assert (again.job_id, again.attempt) == (job.job_id, 2)


async def test_watch_timers_double_from_five_minutes_to_an_hour(world):
    await world.pause()
    job_id = await world.create()
    seen: list[int] = []
    for _ in range(60 * 6):
        world.clock.advance(60)
        await world.settle()
        (timer,) = (await look(world)).timers[job_id]
        if timer.kind == "watch" and (not seen or timer.time != seen[-1]):
            seen.append(timer.time)
    waits = [round((b - a) / 60_000) for a, b in pairwise(seen)]
    assert waits[0] <= 12
    assert max(waits) <= 63
    assert waits == sorted(waits)
    assert waits[-1] >= 60


async def test_what_has_ended_leaves_no_timer_behind(any_world):
    for outcome in ("succeeded", "fatal_failure"):
        await any_world.create()
        job = await any_world.claim_one()
        await any_world.complete(job.lease_token, outcome)
    gone = await any_world.create(delay_s=100)
    await any_world.cancel(gone)
    moved = await any_world.create(delay_s=200)
    await any_world.patch(moved, delay_s=86_400)
    for _ in range(6):
        await any_world.jump(60)
    found = await look(any_world)
    assert sum(len(timers) for timers in found.timers.values()) == 1
    assert [timer.version for timer in found.timers[moved]] == [2]


async def test_the_floor_rises_and_is_stored(any_world):
    for _ in range(5):
        await any_world.advance(60)
    floors = await any_world.on.store.jobs.floors()
    assert set(floors) == set(range(any_world.partitions))
    assert set(floors.values()) == {bucket_of(any_world.clock.now_ms()) - 1}


async def test_a_timer_below_the_floor_is_found_at_the_next_start_and_within_an_hour(world):
    """Clocks step: one was written behind the recheck's back."""
    job_id = await world.create(delay_s=3_600)
    state = await world.job(job_id)
    await world.advance(200)
    for keys in world.disk.timers.values():
        keys.clear()
    bucket = bucket_of(world.clock.now_ms()) - 60
    key = (bucket, 0, "acme", state.due_at, job_id, 1)
    world.disk.timers[partition_of(job_id, world.partitions), "fire"].add(key)
    for _ in range(62):
        await world.jump(60)
    (timer,) = (await look(world)).timers[job_id]
    assert timer.kind == "watch"


async def test_what_lies_behind_a_cut_is_passed_over_and_the_floor_waits_for_it():
    world = World(due_limit=4, page=3, partitions=1)
    await world.start()
    await world.pause()
    ids = {await world.create(delay_s=30) for _ in range(20)}
    # Nobody dispatches for some minutes: the set stays full and the buckets pass.
    for _ in range(300):
        world.clock.advance(1)
        await world.on.pulse.step()
        while (await world.on.recheck.step()).more:
            pass
    bucket = bucket_of((await world.job(next(iter(ids)))).due_at)
    assert (await world.on.store.jobs.floors())[0] <= bucket
    found = await look(world)
    assert all(found.timers[job_id] for job_id in ids)
    await world.pause(False)
    await world.advance(300)
    assert {job.job_id for job in await world.claim(100)} == ids
    assert (await world.on.store.jobs.floors())[0] > bucket


async def test_a_job_that_was_offered_and_then_trimmed_is_found_by_the_loader():
    """A tenant's set is full of one partition's jobs, which have been rechecked, when another one's earlier ones come."""
    world = World(due_limit=4, page=3, partitions=2)
    await world.start()
    ids = set()
    for _ in range(20):
        for delay_s, partition in ((30, 1), (31, 0)):
            job_id = await world.create(delay_s=delay_s)
            if partition_of(job_id, 2) == partition:
                ids.add(job_id)
            else:
                await world.cancel(job_id)
    world.clock.advance(200)
    process = await world.boot()
    await process.recover.recover((0,))
    while (await process.recheck.step()).more:
        pass
    await process.recover.recover((1,))
    await world.settle()
    assert {(await world.job(job_id)).status for job_id in ids} == {Status.QUEUED}


async def test_what_waits_to_be_fired_is_not_taken_for_what_a_stepped_clock_left(world):
    def below() -> float:
        return REGISTRY.get_sample_value("tocsin_recheck_total", {"found": "below_floor"}) or 0

    before = below()
    job_id = await world.create(delay_s=30)
    for _ in range(300):  # nobody dispatches
        world.clock.advance(1)
        await world.on.pulse.step()
        while (await world.on.recheck.step()).more:
            pass
    assert [timer.kind for timer in (await look(world)).timers[job_id]] == ["fire"]
    assert below() == before


async def test_watch_timers_of_running_jobs_are_seen_beside_a_flood():
    """A cut says nothing about the order of watch timers."""
    world = World(due_limit=2, page=2, partitions=1)
    await world.start()
    await world.create()
    held = await world.claim_one(lease_s=600)
    await world.try_create(count=12, delay_s=180)
    await world.advance(150)
    await world.restart()
    assert (await world.on.near.figures(world.on.leases.owned())).leases == 1
    assert held.attempt == 1


async def test_an_expired_job_that_never_fired_is_skipped_by_way_of_the_recheck(any_world):
    job_id = await any_world.create(delay_s=10, expires_after_s=5)
    await any_world.on.near.remove([job_id])
    await any_world.advance(160)
    assert (await any_world.job(job_id)).status is Status.SKIPPED


@pytest.mark.parametrize("seconds", [-7_200, -90])
async def test_the_recheck_goes_on_after_a_step_back_of_the_clock(any_world, seconds):
    """F-43: a floor ahead of the clock does not stop it until the clock has caught up."""
    for _ in range(4):
        await any_world.advance(60)
    any_world.clock.step_wall(seconds)
    await any_world.settle()
    job_id = await any_world.create()
    await any_world.on.near.remove([job_id])
    await any_world.advance(125)
    assert (await any_world.claim_one()).job_id == job_id


async def test_a_paused_queues_pile_is_written_at_most_hourly_per_job(world):
    """Nothing per waiting job but an hourly look."""
    await world.pause()
    await world.try_create(count=20)
    for _ in range(100):
        await world.jump(60)
    world.fault.clear()
    for _ in range(60):
        await world.jump(60)
    assert world.fault.passed.count("after timers put") <= 20
    assert world.fault.passed.count("after jobs put") == 0


async def test_a_queued_job_that_nobody_claims_is_skipped_when_it_has_expired(any_world):
    """A line without workers must not keep it for ever: not first claimed by then means SKIPPED, with a record."""
    job_id = await any_world.create(expires_after_s=30)
    await any_world.advance(125)
    job = await any_world.job(job_id)
    assert job.status is Status.SKIPPED
    assert "expired" in (job.last_error or "")
    figures = await any_world.on.queues.stats("acme", "q")
    assert (figures.ready, figures.scheduled) == (0, 0)
    assert (await any_world.on.near.figures(any_world.on.leases.owned())).ready == 0


async def test_an_expired_job_that_was_claimed_before_is_pushed_on(any_world):
    job_id = await any_world.create(expires_after_s=30)
    job = await any_world.claim_one()
    await any_world.complete(job.lease_token, "released", retry_after_s=0)
    await any_world.settle()
    await any_world.advance(400)
    assert (await any_world.claim_one()).job_id == job_id


async def test_a_page_of_which_nothing_can_be_read_does_not_end_the_bucket():
    """A page may be empty and go on: what lies behind damaged rows is rechecked all the same."""
    world = World(partitions=1)
    await world.start()
    job_id = await world.create()
    await world.on.near.remove([job_id])
    jobs, first = world.on.store.jobs, (bucket_of(world.clock.now_ms()), 0, "", 0, "", 0)
    read = jobs.read_timers

    async def damaged(partition, kind, last, after, limit, **more):
        return (
            StatePage(timers=[], next_key=first)
            if after is None
            else await read(partition, kind, last, after, limit, **more)
        )

    jobs.read_timers = damaged  # type: ignore[assignment, method-assign]
    await world.advance(121)
    assert (await world.claim_one()).job_id == job_id


async def test_a_partition_that_another_process_owns_now_is_not_said_to_be_behind_here(any_world, monkeypatch):
    await any_world.advance(300)
    monkeypatch.setattr(any_world.on.leases, "_owned", ())
    any_world.clock.advance(1200)
    await any_world.on.recheck.step()
    assert REGISTRY.get_sample_value("tocsin_floor_age_seconds") == 0
