"""Requests of many callers share transactions, and one bad item fails for itself alone."""

import asyncio
from dataclasses import replace

import pytest
from msgspec import structs

from tests.conformance.yard import LEASE_MS, WORKER, Yard
from tests.postgres.sessions import session, until_waiting
from tocsin.clock import ManualClock
from tocsin.store.port import AttemptRecord, Beat, Change, DeadFilter, JobFilter, Made, Success
from tocsin.store.postgres import PostgresStore
from tocsin.wire import Outcome, Status


@pytest.fixture
def yard(store: PostgresStore, clock: ManualClock) -> Yard:
    return Yard(store, clock)


async def commits(store: PostgresStore, dsn: str, act: object) -> int:
    """How many transactions wrote something while `act` ran, by the numbers that they took."""
    async with session(dsn) as third:
        first = int(await third.fetchval("SELECT pg_current_xact_id()::text"))
        await act  # type: ignore[misc]
        return int(await third.fetchval("SELECT pg_current_xact_id()::text")) - first - 1


async def test_single_requests_of_many_callers_share_commits(dsn: str, store: PostgresStore, yard: Yard) -> None:
    await yard.made(1)
    jobs = [yard.new(queued=True) for _ in range(200)]
    ids = [job.job_id for job in jobs]
    creates = asyncio.gather(*(yard.jobs.create([job]) for job in jobs))
    assert await commits(store, dsn, creates) <= 6
    claims = asyncio.gather(*(yard.jobs.claim([job_id], WORKER, LEASE_MS) for job_id in ids))
    assert await commits(store, dsn, claims) <= 6
    beats = asyncio.gather(*(yard.jobs.heartbeat([Beat(job_id=job_id, attempt=1)]) for job_id in ids))
    assert await commits(store, dsn, beats) <= 6
    done = asyncio.gather(*(yard.jobs.succeed([Success(job_id=job_id, attempt=1)]) for job_id in ids))
    assert await commits(store, dsn, done) <= 10  # with the tables of the day


@pytest.mark.parametrize(
    "bad", [{"priority": 2**31}, {"fire_at": 2**63}, {"definition": "\ud800"}, {"definition": "\0"}]
)
async def test_what_no_row_can_hold_is_refused_alone(yard: Yard, bad: dict[str, object]) -> None:
    jobs = [yard.new() for _ in range(5)]
    jobs[2] = structs.replace(jobs[2], **bad)
    answers = await yard.jobs.create(jobs)
    assert [answer.made for answer in answers] == [Made.CREATED] * 2 + [Made.REFUSED] + [Made.CREATED] * 2


async def test_an_error_text_that_no_column_can_hold_is_kept_as_far_as_it_can_be(yard: Yard) -> None:
    (job,) = await yard.running()
    before = await yard.state(job.job_id)
    text = "a\0b\ud800c"
    after = replace(before, status=Status.DEAD, finished_at=yard.now, last_error=text, lease_until=None, lease_ms=None)
    record = AttemptRecord(
        attempt=1,
        worker=WORKER,
        claimed_at=yard.now,
        finished_at=yard.now,
        outcome=Outcome.FATAL_FAILURE,
        error=text,
        due_at=yard.now,
    )
    assert await yard.jobs.change([Change(before=before, after=after, record=record)]) == [True]
    assert (await yard.state(job.job_id)).last_error == "a\ufffdb?c"
    assert [one.error for one in await yard.jobs.attempts(job.job_id)] == ["a\ufffdb?c"]
    for sought, found in ((text, 1), ("\0c", 0)):
        wanted = DeadFilter(tenant="acme", queue="mail", error_contains=sought, job_ids=("\0", job.job_id))
        assert len(await yard.jobs.list_dead(wanted, None, 10)) == found
    assert (await yard.jobs.list_jobs(JobFilter(tenant="acme", queue="\0"), None, 10)).jobs == []


async def test_heartbeats_pass_by_creates_that_wait(dsn: str, yard: Yard) -> None:
    (job,) = await yard.running()
    async with session(dsn) as third:
        async with third.transaction():
            await third.execute("LOCK TABLE timers IN EXCLUSIVE MODE")
            creates = [asyncio.ensure_future(yard.jobs.create([yard.new()])) for _ in range(50)]
            await until_waiting(third, 1)
            await yard.jobs.heartbeat([Beat(job_id=job.job_id, attempt=1)])
            assert not any(create.done() for create in creates)
        answers = await asyncio.gather(*creates)
    assert {answer.made for (answer,) in answers} == {Made.CREATED}


async def test_what_is_queued_is_written_before_the_store_is_closed(store: PostgresStore, yard: Yard, dsn: str) -> None:
    jobs = [yard.new() for _ in range(30)]
    creates = [asyncio.ensure_future(yard.jobs.create([job])) for job in jobs]
    await asyncio.sleep(0)
    await store.close()
    assert {answer.made for (answer,) in await asyncio.gather(*creates)} == {Made.CREATED}
    async with session(dsn) as third:
        assert await third.fetchval("SELECT count(*) FROM jobs") == 30
