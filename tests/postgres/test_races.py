"""Two stores that want the same rows: each race is forced by a third session that holds what both must wait for."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.conformance.yard import LEASE_MS, PARTITIONS, WORKER, Yard, due, key
from tests.postgres.sessions import session, until_waiting
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.store.port import Change, Due, Fired, Made, NewJob, Success
from tocsin.store.postgres import PostgresStore, open_store
from tocsin.wire import Status

Race = Callable[[PostgresStore], Awaitable[Any]]


@pytest.fixture
async def other(dsn: str, store: PostgresStore, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    opened = await open_store(dsn, clock, partitions=PARTITIONS, entropy=SeededEntropy(2))
    yield opened
    await opened.close()


@pytest.fixture
def yard(store: PostgresStore, clock: ManualClock) -> Yard:
    return Yard(store, clock)


async def raced(dsn: str, job_id: str, stores: list[PostgresStore], act: Race) -> list[Any]:
    """What the stores answer that both came upon a row while a third session held it."""
    async with session(dsn) as third:
        async with third.transaction():
            await third.fetch("SELECT 1 FROM jobs WHERE id = $1 FOR UPDATE", job_id)
            acts = [asyncio.ensure_future(act(one)) for one in stores]
            await until_waiting(third, len(stores))
        return await asyncio.gather(*acts)


async def test_of_two_fires_one_wins(dsn: str, store: PostgresStore, other: PostgresStore, yard: Yard) -> None:
    (job,) = await yard.made()
    answers = await raced(dsn, job.job_id, [store, other], lambda one: one.jobs.fire([due(job)]))
    assert sorted(answer.value for (answer,) in answers) == ["already", "won"]


async def test_of_two_claims_one_gets_the_job(dsn: str, store: PostgresStore, other: PostgresStore, yard: Yard) -> None:
    (job_id,) = await yard.queued()
    answers = await raced(dsn, job_id, [store, other], lambda one: one.jobs.claim([job_id], WORKER, LEASE_MS))
    assert sorted(job is not None for (job,) in answers) == [False, True]
    assert (await yard.state(job_id)).tries == 1


async def test_of_two_successes_one_counts(dsn: str, store: PostgresStore, other: PostgresStore, yard: Yard) -> None:
    (job,) = await yard.running()
    report = Success(job_id=job.job_id, attempt=1)
    answers = await raced(dsn, job.job_id, [store, other], lambda one: one.jobs.succeed([report]))
    assert sorted(answers) == [[False], [True]]
    assert await yard.status(job.job_id) is Status.SUCCEEDED


async def test_of_two_changes_from_one_state_one_is_written(
    dsn: str, store: PostgresStore, other: PostgresStore, yard: Yard
) -> None:
    (job,) = await yard.made(1, 60_000)
    before = await yard.state(job.job_id)
    change = Change(before=before, after=replace(before, version=2, due_at=before.due_at + 5), timer=True)
    answers = await raced(dsn, job.job_id, [store, other], lambda one: one.jobs.change([change]))
    assert sorted(answers) == [[False], [True]]
    assert (await yard.state(job.job_id)).version == 2


async def test_a_success_and_a_loss_of_one_attempt_exclude_each_other(
    dsn: str, store: PostgresStore, other: PostgresStore, yard: Yard
) -> None:
    (job,) = await yard.running()
    before = await yard.state(job.job_id)
    lost = Change(before=before, after=replace(before, status=Status.RETRYING, version=2, lease_ms=None), timer=True)

    async def act(one: PostgresStore) -> Any:
        if one is store:
            return await one.jobs.succeed([Success(job_id=job.job_id, attempt=1)])
        return await one.jobs.change([lost])

    assert sorted(await raced(dsn, job.job_id, [store, other], act)) == [[False], [True]]


async def test_an_expiry_met_by_two_is_recorded_once(
    dsn: str, store: PostgresStore, other: PostgresStore, yard: Yard
) -> None:
    (job,) = await yard.made(1, expires_in_ms=1_000)
    yard.clock.advance(2)

    async def act(one: PostgresStore) -> Any:
        if one is store:
            return await one.jobs.fire([due(job)])
        return await one.jobs.claim([job.job_id], WORKER, LEASE_MS)

    # Neither statement writes a row that has expired, so neither waits for it; both then want to move it.
    async with session(dsn) as third:
        async with third.transaction():
            await third.fetch("SELECT 1 FROM jobs WHERE id = $1 FOR UPDATE", job.job_id)
            fired = asyncio.ensure_future(act(store))
            await until_waiting(third, 1)
            assert await act(other) == [None]
        assert await fired == [Fired.EXPIRED]
    assert await yard.status(job.job_id) is Status.SKIPPED


@pytest.mark.parametrize("body", [b"1", b"2"])
async def test_of_parallel_first_uses_of_a_key_one_creates(
    dsn: str, store: PostgresStore, other: PostgresStore, yard: Yard, body: bytes
) -> None:
    jobs = {id(store): yard.new(key=key()), id(other): yard.new(key=key(body=body))}
    name = await _bound_name(store, yard)
    async with session(dsn) as third:
        transaction = third.transaction()
        await transaction.start()
        # A use of the key that is rolled back once the others wait to see whether it is committed.
        await third.execute("INSERT INTO keys VALUES ($1, $2, $3, 'x', 0)", "acme", name, b"." * 16)
        acts = [asyncio.ensure_future(one.jobs.create([jobs[id(one)]])) for one in (store, other)]
        await until_waiting(third, 2)
        await transaction.rollback()
        (first,), (second,) = await asyncio.gather(*acts)
    assert sorted([first.made, second.made], key=lambda made: made.value) == sorted(
        [Made.CREATED, Made.REPLAYED if body == b"1" else Made.CONFLICT], key=lambda made: made.value
    )
    assert first.job_id == second.job_id
    assert len(await yard.timers()) == 1


async def _bound_name(store: PostgresStore, yard: Yard) -> bytes:
    """The hash that the suite's key is kept by: found by binding it and taking it back."""
    job = yard.new(key=key())
    await store.jobs.create([job])
    (row,) = await store.databases.home.bulk.fetch("DELETE FROM keys RETURNING hash")
    await store.databases.home.bulk.fetch("DELETE FROM jobs WHERE id = $1", job.job_id)
    await store.databases.home.bulk.fetch("DELETE FROM timers WHERE job = $1", job.job_id)
    return bytes(row[0])


async def test_one_job_created_by_two_is_one(dsn: str, store: PostgresStore, other: PostgresStore, yard: Yard) -> None:
    jobs = [yard.new() for _ in range(20)]
    answers = await asyncio.gather(store.jobs.create(jobs), other.jobs.create(jobs[::-1]))
    assert {answer.made for some in answers for answer in some} == {Made.CREATED}
    assert len(await yard.timers()) == 20


async def test_opposite_orders_do_not_lock_each_other_out(
    store: PostgresStore, other: PostgresStore, yard: Yard
) -> None:
    jobs = await yard.made(60)

    async def rounds(one: PostgresStore, mine: list[NewJob]) -> list[list[Fired]]:
        return [await one.jobs.fire([due(job) for job in mine]) for _ in range(5)]

    answers = await asyncio.gather(rounds(store, jobs), rounds(other, jobs[::-1]))
    won = [answer for some in answers for part in some for answer in part if answer is Fired.WON]
    assert len(won) == 60


async def test_a_deadlock_with_another_session_is_tried_again(dsn: str, store: PostgresStore, yard: Yard) -> None:
    first, second = sorted(await yard.queued(2))
    async with session(dsn) as third:
        await third.execute("SET deadlock_timeout = '60s'")  # so that it is the store that finds it, and gives way
        async with third.transaction():
            await third.fetch("SELECT 1 FROM jobs WHERE id = $1 FOR UPDATE", second)
            claim = asyncio.ensure_future(store.jobs.claim([second, first], WORKER, LEASE_MS))
            await until_waiting(third, 1)
            await third.fetch("SELECT 1 FROM jobs WHERE id = $1 FOR UPDATE", first)
        got = await claim
    assert [job is not None and job.attempt for job in got] == [1, 1]


async def test_a_heartbeat_between_the_look_and_the_change_forbids_it(
    dsn: str, store: PostgresStore, other: PostgresStore, yard: Yard
) -> None:
    (job,) = await yard.running()
    before = await yard.state(job.job_id)
    yard.clock.advance(5)
    async with session(dsn) as third:
        async with third.transaction():
            await third.execute("UPDATE jobs SET beaten_at = $1 WHERE id = $2", yard.now, job.job_id)
            lost = replace(before, status=Status.RETRYING, version=2)
            change = asyncio.ensure_future(store.jobs.change([Change(before=before, after=lost, timer=True)]))
            await until_waiting(third, 1)
        assert await change == [False]


async def test_a_timer_that_fires_while_its_job_moves_on_is_void(dsn: str, store: PostgresStore, yard: Yard) -> None:
    (job,) = await yard.made()
    async with session(dsn) as third:
        async with third.transaction():
            await third.execute("UPDATE jobs SET version = 2 WHERE id = $1", job.job_id)
            fire = asyncio.ensure_future(
                store.jobs.fire([due(job), Due(job.fire_at, yard.new().job_id, 1, job.line, 0)])
            )
            await until_waiting(third, 1)
        assert await fire == [Fired.VOID, Fired.VOID]
