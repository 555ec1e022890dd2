"""Two databases as one store: each job lives in that of its partition, and lists and counts are of both."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.conformance.yard import LEASE_MS, PARTITIONS, WORKER, Yard, due, key
from tests.servers.postgres import PostgresServer
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.model.partition import partition_of
from tocsin.store.port import Change, DeadFilter, Fired, JobFilter, Made, Success
from tocsin.store.postgres import PostgresStore, open_store
from tocsin.wire import Status


@pytest.fixture
async def shards(postgres: PostgresServer, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    async with postgres.database(PARTITIONS, shards=2) as dsns:
        store = await open_store(dsns[0], clock, partitions=PARTITIONS, entropy=SeededEntropy(1), shards=dsns[1:])
        yield store
        await store.close()


@pytest.fixture
def yard(shards: PostgresStore, clock: ManualClock) -> Yard:
    return Yard(shards, clock)


async def test_a_life_in_both_is_answered_in_the_order_of_the_request(shards: PostgresStore, yard: Yard) -> None:
    jobs = [yard.new(key=key(f"k{number}") if number % 2 else None) for number in range(24)]
    assert {answer.made for answer in await yard.jobs.create(jobs)} == {Made.CREATED}
    for database in shards.databases.all:
        held = {partition_of(row[0], PARTITIONS) for row in await database.reads.fetch("SELECT id FROM jobs")}
        assert held == set(range(database.identity.first, database.identity.last + 1))
    again = await yard.jobs.create([yard.new(key=key("k1")), yard.new(key=key("k3", b"2"))])
    assert [(one.made, one.job_id) for one in again] == [
        (Made.REPLAYED, jobs[1].job_id),
        (Made.CONFLICT, jobs[3].job_id),
    ]
    assert await yard.jobs.fire([due(job) for job in jobs]) == [Fired.WON] * 24
    ids = [job.job_id for job in jobs]
    got = await yard.jobs.claim([*ids, "job_nonsense"], WORKER, LEASE_MS)
    assert [job and job.job_id for job in got] == [*ids, None]
    done = [Success(job_id=job_id, attempt=1) for job_id in ids[::-1]]
    assert await yard.jobs.succeed(done) == [True] * 24
    assert [job and (job.job_id, job.status) for job in await yard.jobs.states(["sch_x", *ids])] == [
        None,
        *((job_id, Status.SUCCEEDED) for job_id in ids),
    ]


@pytest.mark.parametrize("limit", [1, 4, 100])
async def test_lists_are_merged_by_age(yard: Yard, limit: int) -> None:
    made = []
    for _ in range(10):
        made.append((await yard.made(1))[0].job_id)
        yard.clock.advance(1)
    dead = []
    for _ in range(4):
        dead.append((await yard.dead()).job_id)
        yard.clock.advance(1)
    found: list[str] = []
    after = None
    while True:
        page = await yard.jobs.list_jobs(JobFilter(tenant="acme"), after, limit)
        found += [job.job_id for job in page.jobs]
        after = page.after
        if after is None:
            break
    assert found == [*dead[::-1], *made[::-1]]
    wanted = DeadFilter(tenant="acme", queue="mail")
    first = await yard.jobs.list_dead(wanted, None, 2)
    rest = await yard.jobs.list_dead(wanted, (first[-1].finished_at or 0, first[-1].job_id), limit)
    assert [job.job_id for job in first + rest] == dead[::-1][: 2 + limit]
    assert await yard.jobs.count_dead(wanted) == 4
    assert (await yard.jobs.live_counts())[("acme", "mail", Status.SCHEDULED)] == 10


async def test_upkeep_keeps_to_its_limit_over_both(yard: Yard) -> None:
    jobs = [yard.new(key=key(f"k{number}"), queued=True) for number in range(8)]
    await yard.jobs.create(jobs)
    for job in jobs:
        before = await yard.state(job.job_id)
        after = replace(before, status=Status.CANCELLED, finished_at=yard.now)
        assert await yard.jobs.change([Change(before=before, after=after)]) == [True]
    yard.clock.advance(8 * 86_400)
    assert [await yard.jobs.sweep_keys(3) for _ in range(4)] == [3, 3, 2, 0]
    floors = [5, 6, 7, 8]
    for partition, bucket in enumerate(floors):
        await yard.jobs.set_floor(partition, bucket)
    assert await yard.jobs.floors() == dict(enumerate(floors))
