"""Claim, row by row: out of the line into the request's hand, QUEUED -> RUNNING, out of the hand."""

import asyncio

import pytest

from tocsin.errors import NearUnavailable, StoreUnavailable
from tocsin.store.port import NotYours
from tocsin.wire import Status


async def test_the_writes_are_in_the_order_of_the_table(world):
    await world.create()
    await world.claim()  # makes the queue known to the near tier
    await world.create()
    world.fault.clear()
    await world.claim_one()
    assert world.fault.writes() == ["near.pop", "jobs", "near.settle", "near.lease"]


@pytest.mark.parametrize("cut", ["before near.pop", "after near.pop", "before jobs put"])
async def test_a_crash_before_the_write_leaves_the_job_waiting(world, cut):
    job_id = await world.create()
    await world.crash_during(world.claim(), cut)
    job = await world.claim_one()
    assert (job.job_id, job.attempt) == (job_id, 1)


@pytest.mark.parametrize("cut", ["after jobs put", "before near.settle", "after near.settle", "after near.lease"])
async def test_a_crash_after_the_write_lets_the_lease_end_and_the_job_is_tried_again(world, cut):
    """F-30: claimed, and nobody was told. The server's own crash is no try of the job."""
    job_id = await world.create()
    await world.crash_during(world.claim(), cut)
    assert (await world.job(job_id)).status is Status.RUNNING
    assert await world.claim() == []
    await world.advance(35)
    job = await world.claim_one()
    assert (job.job_id, job.attempt, job.tries) == (job_id, 2, 1)
    assert await world.attempts(job_id) == [(1, "lost"), (2, None)]


async def test_a_worker_that_dies_right_after_its_claim_is_noticed_within_35_s(any_world):
    """F-01, F-30: for short and for long jobs alike."""
    short = await any_world.create(target={"type": "task", "handler": "do", "timeout_s": 2})
    long = await any_world.create(target={"type": "task", "handler": "do", "timeout_s": 3600})
    assert len(await any_world.claim(2)) == 2
    await any_world.advance(33)
    again = [await any_world.claim_one(worker="w2"), await any_world.claim_one(worker="w3")]
    assert {(job.job_id, job.attempt) for job in again} == {(short, 2), (long, 2)}
    assert all(job.idempotency_key.startswith(job.job_id) for job in again)


async def test_a_repeated_request_gets_the_same_jobs(any_world):
    ids = {await any_world.create() for _ in range(3)}
    first = await any_world.claim(2, request_id="r")
    again = await any_world.claim(2, request_id="r")
    assert [job.lease_token for job in again] == [job.lease_token for job in first]
    rest = await any_world.claim(2, request_id="r2")
    assert {job.job_id for job in first + rest} == ids


async def test_a_repeat_of_a_claim_that_was_written_and_not_settled_gets_the_same_jobs(world):
    """Another process is asked again, because the one that wrote the claim has died."""
    ids = {await world.create() for _ in range(2)}
    world.fault.at("before near.settle", NearUnavailable("the process is gone"))
    first = await world.claim(2, request_id="r")
    assert {job.job_id for job in first} == ids
    other = await world.create()
    for _ in range(2):
        again = await world.claim(2, request_id="r")
        assert [job.lease_token for job in again] == [job.lease_token for job in first]
    assert (await world.claim_one(request_id="r2")).job_id == other


async def test_a_repeat_does_not_get_a_job_that_is_being_worked_on(world):
    """Whoever beats has heard of its claim; such a job came into a line by mistake."""
    await world.create()
    world.fault.at("before near.settle", NearUnavailable("the process is gone"))
    job = await world.claim_one(request_id="r")
    await world.beat(job.lease_token)
    assert await world.claim(1, request_id="r") == []


async def test_a_repeated_request_gets_no_job_that_has_been_completed(any_world):
    await any_world.create()
    (job,) = await any_world.claim(request_id="r")
    await any_world.complete(job.lease_token)
    assert await any_world.claim(request_id="r") == []


async def test_a_repeated_request_is_answered_at_once_when_its_jobs_are_done(any_world):
    """It is never given other jobs: waiting for them, it would look again and again without rest while there are some."""
    await any_world.create()
    (job,) = await any_world.claim(request_id="r")
    await any_world.complete(job.lease_token)
    await any_world.create()
    async with asyncio.timeout(2):
        assert await any_world.claim(request_id="r", wait_s=30) == []


async def test_a_waiting_claim_is_answered_with_nothing_when_the_server_stops(any_world):
    waiting = asyncio.create_task(any_world.claim(wait_s=30))
    await asyncio.sleep(0)
    await any_world.on.near.quiesce()
    async with asyncio.timeout(2):
        assert await waiting == []


async def test_a_request_id_belongs_to_its_worker(any_world):
    await any_world.create()
    await any_world.create()
    one = await any_world.claim(worker="w1", request_id="r")
    two = await any_world.claim(worker="w2", request_id="r")
    assert one[0].job_id != two[0].job_id


async def test_a_claim_that_the_store_refuses_puts_the_jobs_back_at_once(any_world):
    job_id = await any_world.create()
    any_world.fault.always(StoreUnavailable("down"))
    with pytest.raises(StoreUnavailable):
        await any_world.claim()
    any_world.fault.always(None)
    assert (await any_world.claim_one()).job_id == job_id


async def test_jobs_in_hand_come_back_after_ten_seconds(world):
    """The claim popped them and hung; no other process knows."""
    job_id = await world.create()
    await world.claim(queue="other")
    world.fault.at("before jobs put", RuntimeError("a bug"))
    with pytest.raises(RuntimeError):
        await world.claim()
    world.fault.clear()
    assert await world.claim() == []
    world.clock.advance(10)
    assert (await world.claim_one()).job_id == job_id


async def test_an_expired_job_is_skipped_at_claim(any_world):
    job_id = await any_world.create(expires_after_s=5)
    good = await any_world.create()
    any_world.clock.advance(5)
    assert [job.job_id for job in await any_world.claim(10)] == [good]
    assert (await any_world.job(job_id)).status is Status.SKIPPED


async def test_expiry_ends_with_the_first_claim(any_world):
    await any_world.create(expires_after_s=5)
    job = await any_world.claim_one()
    any_world.clock.advance(6)
    assert await any_world.complete(job.lease_token, "released", retry_after_s=0) is Status.RETRYING
    await any_world.settle()
    assert (await any_world.claim_one()).attempt == 2


async def test_attempts_grow_and_the_idempotency_key_stays(any_world):
    await any_world.create(retry={"max_attempts": 5, "initial_backoff_s": 0, "max_backoff_s": 0})
    keys = set()
    for attempt in range(1, 5):
        job = await any_world.claim_one()
        assert job.attempt == attempt
        keys.add(job.idempotency_key)
        await any_world.complete(job.lease_token, "retryable_failure")
        await any_world.settle()
    assert len(keys) == 1


async def test_a_paused_queue_gives_nothing_and_resumes(any_world):
    await any_world.create()
    await any_world.pause()
    assert await any_world.claim() == []
    await any_world.restart()
    assert await any_world.claim() == [], "a pause is forgotten by nobody"
    await any_world.pause(False)
    assert len(await any_world.claim()) == 1


async def test_only_asked_handlers_are_handed_out(any_world):
    other = await any_world.create(target={"type": "task", "handler": "other"})
    mine = await any_world.create(target={"type": "task", "handler": "mine"})
    assert [job.job_id for job in await any_world.claim(10, handlers=["mine"])] == [mine]
    assert [job.job_id for job in await any_world.claim(10)] == [other]


async def test_priorities_are_ahead_and_age(any_world):
    """F-74: a low job waits for at most ten minutes' worth of later high ones."""
    low = await any_world.create(priority="low")
    any_world.clock.advance(599)
    soon = await any_world.create(priority="high")
    any_world.clock.advance(2)
    late = await any_world.create(priority="high")
    assert [job.job_id for job in await any_world.claim(10)] == [soon, low, late]


async def test_a_stale_token_beats_nothing(any_world):
    await any_world.create(retry={"max_attempts": 5})
    old = await any_world.claim_one()
    await any_world.advance(33)
    new = await any_world.claim_one()
    assert await any_world.beat(old.lease_token) is NotYours.SUPERSEDED
    assert await any_world.complete(old.lease_token) is NotYours.SUPERSEDED
    assert await any_world.complete(new.lease_token) is Status.SUCCEEDED


async def test_a_claim_that_was_written_and_went_unheard_is_noticed_when_its_lease_ends(world):
    """The job stood in its line for long, so its next recheck is far; the line gives it out again, and the row says who has it."""
    await world.pause()
    job_id = await world.create()
    await world.advance(1_200)
    await world.pause(False)
    world.fault.at("after jobs put", StoreUnavailable("the answer was lost"))
    with pytest.raises(StoreUnavailable):
        await world.claim()
    assert (await world.job(job_id)).status is Status.RUNNING
    assert await world.claim() == []
    await world.advance(35)
    job = await world.claim_one()
    assert (job.job_id, job.attempt) == (job_id, 2)


async def test_a_lease_may_be_told_late_only_where_the_recheck_is_still_to_come(any_world, monkeypatch):
    """F-01: a process and its worker may die together within that time; what has waited for long is rechecked once an hour."""
    told: dict[str, bool] = {}
    lease = any_world.on.near._near.lease

    async def noted(leases, *, rechecked_soon=False):
        told.update((job_id, rechecked_soon) for job_id, *_ in leases)
        await lease(leases, rechecked_soon=rechecked_soon)

    monkeypatch.setattr(any_world.on.near._near, "lease", noted)
    old = await any_world.create()
    any_world.clock.advance(60)
    new = await any_world.create()
    assert len(await any_world.claim(2)) == 2
    assert told == {old: False, new: True}
