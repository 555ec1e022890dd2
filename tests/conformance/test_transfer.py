"""Carrying an installation out of a store and into one."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from tests.conformance.installation import KINDS, Ground, Place, everything, fill, standing, unwatched
from tests.conformance.yard import PARTITIONS, Yard, key
from tocsin.clock import ManualClock
from tocsin.model.job import TERMINAL
from tocsin.model.partition import bucket_of
from tocsin.store.port import Beat, Beaten, DeadFilter, JobFilter, Made, Store
from tocsin.store.schedules import ScheduleFilter
from tocsin.store.transfer import JobRecord, Kind, Mark, Record, Transfer
from tocsin.wire import Status

ORIGIN = Mark(store="sqlite:old", installation="abc", at=7)
Places = Callable[..., Awaitable[Place]]


@pytest.fixture
async def ground(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Ground]:
    async with standing(request, tmp_path, clock) as made:
        yield made


@pytest.fixture(params=KINDS)
def places(request: pytest.FixtureRequest, ground: Ground) -> Places:
    """Makes an empty place of the adapter under test."""

    def make(name: str = "one", partitions: int = PARTITIONS) -> Awaitable[Place]:
        return ground.place(request.param, name, partitions)

    return make


async def filled(place: Place, clock: ManualClock) -> Place:
    async with place.store() as store:
        await fill(store, clock)
    return place


async def records(transfer: Transfer, kind: Kind, limit: int = 1_000) -> list[Record]:
    """All records of a kind, read in pages of `limit`."""
    found: list[Record] = []
    page = await transfer.page(kind, None, limit)
    while page:
        assert len(page) <= limit
        found += page
        page = await transfer.page(kind, page[-1], limit)
    return found


async def contents(transfer: Transfer) -> dict[Kind, list[Record]]:
    """Everything, in an order of its own."""
    return {kind: sorted(await records(transfer, kind), key=repr) for kind in Kind}


async def copied(source: Place, target: Place) -> None:
    async with source.transfer() as out, target.transfer() as into:
        await into.arrive(ORIGIN)
        for kind in Kind:
            await into.put(kind, await records(out, kind))
        await into.settle()


async def test_pages_of_any_size_hold_every_record_once(places: Places, clock: ManualClock) -> None:
    place = await filled(await places(), clock)
    async with place.transfer() as transfer:
        for kind in Kind:
            whole = await records(transfer, kind)
            assert whole, f"the world has no {kind.value}"
            for limit in (1, 4):
                assert await records(transfer, kind, limit) == whole


async def test_what_was_put_is_what_is_read_also_when_it_was_put_twice(places: Places, clock: ManualClock) -> None:
    source, target = await filled(await places(), clock), await places("two", 16)
    await copied(source, target)
    async with source.transfer() as out, target.transfer() as into:
        once = await contents(into)
        assert once == await contents(out)
    clock.step_wall(90.0)
    await copied(source, target)
    async with target.transfer() as into:
        assert await contents(into) == once
    async with target.store() as store:
        assert await unwatched(store, 16) == []
        jobs = [job.job_id for job in await everything(store)]
        assert len(jobs) == len(set(jobs)) > 15


async def test_a_record_replaces_what_went_on_since_an_earlier_try(places: Places, clock: ManualClock) -> None:
    source, target = await filled(await places(), clock), await places("two")
    await copied(source, target)
    async with target.transfer() as into:
        jobs = [one for one in await records(into, Kind.JOBS) if isinstance(one, JobRecord)]
        finished = [one for one in await records(into, Kind.FINISHED) if isinstance(one, JobRecord)]
        (waiting, *_) = [one for one in jobs if one.status is Status.SCHEDULED]
        ended = structs.replace(
            waiting, status=Status.CANCELLED, timeout_ms=0, finished_at=9, line=waiting.line._replace(queue="other")
        )
        await into.put(Kind.FINISHED, [ended])
        assert waiting.job_id not in {
            one.job_id for one in await records(into, Kind.JOBS) if isinstance(one, JobRecord)
        }
        assert len(await records(into, Kind.FINISHED)) == len(finished) + 1
        await into.put(Kind.JOBS, [waiting])
        assert len(await records(into, Kind.FINISHED)) == len(finished)
        assert waiting in await records(into, Kind.JOBS)
    async with target.store() as store:
        page = await store.jobs.list_jobs(JobFilter(tenant=waiting.line.tenant), None, 5_000)
        assert [job.job_id for job in page.jobs].count(waiting.job_id) == 1


async def test_a_second_arrival_leaves_the_floor(places: Places, clock: ManualClock) -> None:
    place = await places()
    async with place.transfer() as transfer:
        await transfer.arrive(ORIGIN)
    began = bucket_of(clock.now_ms())
    clock.step_wall(600.0)
    async with place.transfer() as transfer:
        await transfer.arrive(structs.replace(ORIGIN, at=9))
        assert (await transfer.marks()).arriving_from == ORIGIN
        await transfer.settle()
    async with place.store() as store:
        assert set((await store.jobs.floors()).values()) == {began}


async def test_marks_are_kept(places: Places) -> None:
    place = await places()
    async with place.transfer() as transfer:
        marks = await transfer.marks()
        assert marks.installation
        assert (marks.moved_to, marks.arriving_from) == (None, None)
        await transfer.arrive(ORIGIN)
        await transfer.depart(ORIGIN)
    async with place.transfer() as transfer:
        assert await transfer.marks() == structs.replace(marks, moved_to=ORIGIN, arriving_from=ORIGIN)
        await transfer.settle()
        assert await transfer.marks() == structs.replace(marks, moved_to=ORIGIN)


async def test_the_store_goes_on_with_what_was_put_and_a_timer_for_each_unfinished_job(
    places: Places, clock: ManualClock
) -> None:
    source, target = await filled(await places(), clock), await places("two", 8)
    async with source.store() as store:
        before = await look(store, clock)
    await copied(source, target)
    async with target.store() as store:
        assert await look(store, clock) == before
        assert await unwatched(store, 8) == []
        assert await store.jobs.floors() == dict.fromkeys(range(8), bucket_of(clock.now_ms()))
        assert [await store.jobs.parked_lines(partition) for partition in range(8)] == [{}] * 8
        yard = Yard(store, clock)
        (again,) = await store.jobs.create([yard.new(key=key("order-7"))])
        assert again.made is Made.REPLAYED
        (other,) = await store.jobs.create([yard.new(key=key("order-7", b"other"))])
        assert other.made is Made.CONFLICT
        held = [job for job in await everything(store) if job.status is Status.RUNNING]
        beats = await store.jobs.heartbeat([Beat(job_id=job.job_id, attempt=job.attempt) for job in held])
        assert held
        assert all(isinstance(beat, Beaten) for beat in beats)


async def look(store: Store, clock: ManualClock) -> object:
    """What readers see of a store."""
    jobs = await everything(store)
    schedules = [
        row
        for t in ("acme", "bolt")
        for row in await store.schedules.list_schedules(ScheduleFilter(tenant=t), None, 99)
    ]
    ids = [row.schedule_id for row in schedules]
    return (
        # Whether a job that is over still shows its last lease is the store's affair.
        [replace(job, lease_ms=None, beaten_at=None) if job.status in TERMINAL else job for job in jobs],
        [await store.jobs.attempts(job.job_id) for job in jobs],
        await store.jobs.live_counts(),
        [await store.jobs.list_dead(DeadFilter(tenant="acme", queue=queue), None, 9) for queue in ("mail", "bulk")],
        schedules,
        [await store.schedules.waiting(schedule_id) for schedule_id in ids],
        await store.schedules.going(ids),
        [await store.schedules.skips(schedule_id, None, 99) for schedule_id in ids],
        [
            [
                job.job_id
                for job in (
                    await store.jobs.list_jobs(JobFilter(tenant=row.tenant, schedule_id=row.schedule_id), None, 99)
                ).jobs
            ]
            for row in schedules
        ],
        await store.settings.tenants(),
        await store.settings.tokens(),
        await store.settings.signing_keys("acme"),
        await store.settings.queues(),
        await store.settings.secret("lease-tokens", b"new"),
    )
