"""Timers as the loader and the recheck read them, floors, and parked jobs."""

from dataclasses import replace

import pytest

from tests.conformance.yard import LINE, PARTITIONS, Yard, due, due_of
from tocsin.model.job import Lane, ready_score
from tocsin.model.partition import bucket_of, partition_of
from tocsin.store.port import FAR, FIRE, WATCH, Change, Due, DuePage, NewTimer, StatePage, Success, TimerKey
from tocsin.wire import Status

FLEXIBLE = LINE._replace(lane=Lane.FLEXIBLE)
OTHER = LINE._replace(tenant="other")
LAST = 1 << 40


async def all_dues(yard: Yard, partition: int, limit: int, **only) -> list[Due]:
    found: list[Due] = []
    after: TimerKey | None = None
    for _ in range(1_000):
        page: DuePage = await yard.jobs.read_due(partition, 0, LAST, after, limit, **only)
        found += page.dues
        after = page.next_key
        if after is None:
            return found
    raise AssertionError("the pages do not end")


# read ahead


async def test_what_is_due_is_read_with_all_the_near_tier_needs(yard: Yard) -> None:
    new = yard.new(5_000, line=FLEXIBLE, priority=1)
    await yard.jobs.create([new])
    assert await yard.dues() == [Due(new.fire_at, new.job_id, 1, FLEXIBLE, 1)]


async def test_only_scheduled_and_retrying_jobs_are_due(yard: Yard) -> None:
    (scheduled,) = await yard.made(1, 1_000)
    retrying = await yard.retrying()
    await yard.queued()
    await yard.running()
    await yard.dead()
    await yard.cancelled((await yard.made(1, 1_000))[0].job_id)
    assert sorted(await yard.dues()) == sorted([due(scheduled), due_of(retrying)])


async def test_reading_ahead_keeps_to_its_buckets(yard: Yard) -> None:
    jobs = [(await yard.made(1, minutes * 60_000))[0] for minutes in range(4)]
    first = bucket_of(yard.now)
    found = await yard.dues(first + 1, first + 2)
    assert sorted(one.job_id for one in found) == sorted(job.job_id for job in jobs[1:3])


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
async def test_pages_of_dues_miss_none_and_repeat_none(yard: Yard, limit: int) -> None:
    jobs = [
        (await yard.made(1, number % 5 * 30_000, line=line))[0]
        for number, line in enumerate([LINE, FLEXIBLE, OTHER] * 8)
    ]
    await yard.queued(10)
    for partition in range(PARTITIONS):
        found = await all_dues(yard, partition, limit)
        mine = [due(job) for job in jobs if partition_of(job.job_id, PARTITIONS) == partition]
        assert sorted(found) == sorted(mine)
        order = [(bucket_of(one.due_at), one.line.lane) for one in found]
        assert order == sorted(order)


@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_one_tenants_lane_is_read_alone(yard: Yard, limit: int) -> None:
    lines = [LINE, FLEXIBLE, OTHER, OTHER._replace(lane=Lane.FLEXIBLE)]
    jobs = [(await yard.made(1, number % 4 * 40_000, line=line))[0] for number, line in enumerate(lines * 6)]
    since = yard.now + 60_000
    for partition in range(PARTITIONS):
        mine = [due(job) for job in jobs if partition_of(job.job_id, PARTITIONS) == partition]
        lane = await all_dues(yard, partition, limit, lane=1)
        assert sorted(lane) == sorted(one for one in mine if one.line.lane == 1)
        tenant = await all_dues(yard, partition, limit, tenant="other")
        assert sorted(tenant) == sorted(one for one in mine if one.line.tenant == "other")
        both = await all_dues(yard, partition, limit, lane=0, tenant="acme", from_time=since)
        assert sorted(both) == sorted(one for one in mine if one.line == LINE and one.due_at >= since)
        assert [one.due_at for one in both] == sorted(one.due_at for one in both)
        assert await all_dues(yard, partition, limit, tenant="nobody") == []


async def test_a_reader_can_step_over_the_rest_of_a_tenant(yard: Yard) -> None:
    jobs = await yard.made(8, line=LINE) + await yard.made(8, line=OTHER)
    for partition in range(PARTITIONS):
        page = await yard.jobs.read_due(partition, 0, LAST, None, 100)
        if len({one.line.tenant for one in page.dues}) < 2:
            continue
        first = page.dues[0].line.tenant
        key = (bucket_of(yard.now), 0, first, FAR, "", 0)
        rest = await yard.jobs.read_due(partition, 0, LAST, key, 100)
        assert rest.dues == [one for one in page.dues if one.line.tenant != first]
        return
    raise AssertionError(f"no partition has jobs of both tenants among {len(jobs)}")


# the recheck's reading


async def test_a_timer_is_read_with_its_job_only_at_its_version(yard: Yard) -> None:
    job = await yard.retrying()
    timers = {timer.version: timer for timer in await yard.timers(FIRE)}
    assert timers[1].job is None
    assert timers[2].job == job
    assert (timers[2].kind, timers[2].time, timers[2].tenant, timers[2].lane) == (FIRE, job.due_at, "acme", 0)


async def test_a_timer_of_a_finished_job_stands_alone(yard: Yard) -> None:
    (job,) = await yard.running()
    assert [timer.job and timer.job.status for timer in await yard.timers(FIRE)] == [Status.RUNNING]
    await yard.jobs.succeed([Success(job_id=job.job_id, attempt=1)])
    assert [timer.job for timer in await yard.timers(FIRE)] == [None]


@pytest.mark.parametrize("limit", [1, 4, 100])
async def test_pages_of_timers_miss_none_and_repeat_none(yard: Yard, limit: int) -> None:
    jobs = await yard.made(12) + await yard.made(12, 130_000, line=FLEXIBLE)
    last = bucket_of(yard.now) + 1
    found: list[str] = []
    for partition in range(PARTITIONS):
        after: TimerKey | None = None
        while True:
            page: StatePage = await yard.jobs.read_timers(partition, FIRE, last, after, limit)
            found += [timer.job_id for timer in page.timers]
            after = page.next_key
            if after is None:
                break
    assert sorted(found) == sorted(job.job_id for job in jobs[:12])


async def test_timers_are_read_from_a_first_bucket_on(yard: Yard) -> None:
    early, late = (await yard.made(1))[0], (await yard.made(1, 180_000))[0]
    for job, others in ((early, late), (late, early)):
        partition, bucket = partition_of(job.job_id, PARTITIONS), bucket_of(job.fire_at)
        page = await yard.jobs.read_timers(partition, FIRE, bucket, None, 10, first_bucket=bucket)
        assert [timer.job_id for timer in page.timers] == [job.job_id]
        assert others.job_id != job.job_id


async def test_exactly_the_timers_that_were_read_are_deleted(yard: Yard) -> None:
    jobs = await yard.made(6)
    timers = await yard.timers(FIRE)
    await yard.jobs.delete_timers(timers[:4])
    await yard.jobs.delete_timers(timers[:4])
    assert await yard.timers(FIRE) == timers[4:]
    assert len(jobs) == 6


async def test_a_watch_timer_is_no_fire_timer(yard: Yard) -> None:
    job = yard.new()
    await yard.jobs.create([job])
    new = NewTimer(job_id=job.job_id, version=1, time=yard.now + 300_000, line=job.line)
    await yard.jobs.watch([new])
    await yard.jobs.watch([new, new])
    (timer,) = await yard.timers(WATCH)
    assert (timer.kind, timer.time, timer.bucket) == (WATCH, new.time, bucket_of(new.time))
    assert timer.job is not None
    assert len(await yard.dues()) == 1
    await yard.jobs.delete_timers([timer])
    assert len(await yard.timers(FIRE)) == 1


async def test_a_watch_timer_is_never_written_into_a_past_bucket(yard: Yard) -> None:
    job = yard.new()
    await yard.jobs.watch([NewTimer(job_id=job.job_id, version=1, time=yard.now - 600_000, line=job.line)])
    (timer,) = await yard.timers(WATCH)
    assert (timer.time, timer.bucket) == (yard.now - 600_000, bucket_of(yard.now))


async def test_a_sweep_deletes_the_void_and_nothing_else(yard: Yard) -> None:
    keep = await yard.made(5)
    later = await yard.made(2, 300_000)
    retrying = await yard.retrying()
    for job in await yard.running(6):
        await yard.jobs.succeed([Success(job_id=job.job_id, attempt=1)])
    for waiting in later:
        await yard.cancelled(waiting.job_id)
    last = bucket_of(yard.now)
    swept = [await yard.jobs.sweep_void(partition, FIRE, last, 100) for partition in range(PARTITIONS)]
    assert sum(swept) == 7
    left = {(timer.job_id, timer.version) for timer in await yard.timers(FIRE)}
    assert left == {(new.job_id, 1) for new in keep + later} | {(retrying.job_id, 2)}


async def test_a_sweep_keeps_to_its_limit_and_goes_on(yard: Yard) -> None:
    for job in await yard.running(30):
        await yard.jobs.succeed([Success(job_id=job.job_id, attempt=1)])
    await yard.made(30)
    total = 0
    for partition in range(PARTITIONS):
        while swept := await yard.jobs.sweep_void(partition, FIRE, LAST, 3):
            assert swept <= 3
            total += swept
    assert total == 30
    assert len(await yard.timers(FIRE)) == 30


# floors


async def test_a_floor_only_rises(yard: Yard) -> None:
    assert set((await yard.jobs.floors()).values()) <= {0}
    await yard.jobs.set_floor(1, 70)
    await yard.jobs.set_floor(1, 60)
    await yard.jobs.set_floor(2, 5)
    floors = await yard.jobs.floors()
    assert [floors.get(partition, 0) for partition in range(PARTITIONS)] == [0, 70, 5, 0]


# parked jobs


async def test_parked_jobs_wait_by_score_in_their_line(yard: Yard) -> None:
    jobs = [yard.new(due_in_ms, priority=priority) for due_in_ms, priority in [(9, 0), (3, 0), (50, 1), (6, -1)]]
    others = [yard.new(1, line=OTHER) for _ in range(4)]
    dues = [due(job) for job in jobs + others]
    await yard.jobs.park(dues)
    await yard.jobs.park(dues[:2])
    for partition in range(PARTITIONS):
        mine = [one for one in dues if partition_of(one.job_id, PARTITIONS) == partition]
        for line in (LINE, OTHER, None):
            wanted = [one for one in mine if line in (one.line, None)]
            found = await yard.jobs.parked(partition, line, 100)
            assert [one.score for one in found] == sorted(ready_score(one.due_at, one.priority) for one in wanted)
            assert sorted(one.due for one in found) == sorted(wanted)
            assert await yard.jobs.parked(partition, line, 1) == found[:1]
        counts = {line: sum(one.line == line for one in mine) for line in (LINE, OTHER)}
        assert await yard.jobs.parked_lines(partition) == {line: count for line, count in counts.items() if count}
        assert await yard.jobs.parked(partition, FLEXIBLE, 10) == []


async def test_an_unparked_job_has_a_watch_timer(yard: Yard) -> None:
    jobs = await yard.made(2, queued=True)
    await yard.jobs.park([due(job) for job in jobs])
    await yard.jobs.unpark([due(jobs[0])])
    await yard.jobs.unpark([due(jobs[0])])
    (timer,) = await yard.timers(WATCH)
    assert (timer.job_id, timer.version) == (jobs[0].job_id, 1)
    assert yard.now < timer.time <= yard.now + 3_600_000
    left = [one for partition in range(PARTITIONS) for one in await yard.jobs.parked(partition, None, 10)]
    assert [one.due for one in left] == [due(jobs[1])]


async def test_another_version_is_another_parked_job(yard: Yard) -> None:
    job = yard.new()
    await yard.jobs.park([due(job), due(job, 2)])
    await yard.jobs.unpark([due(job)])
    found = await yard.jobs.parked(partition_of(job.job_id, PARTITIONS), LINE, 10)
    assert [one.due.version for one in found] == [2]


async def test_a_change_voids_the_old_timer(yard: Yard) -> None:
    (made,) = await yard.made(1, 1_000)
    before = await yard.state(made.job_id)
    after = replace(before, version=2, due_at=before.due_at + 400_000)
    await yard.jobs.change([Change(before=before, after=after, timer=True)])
    assert await yard.dues() == [due_of(after)]
