"""Heartbeat: lease_until where the attempt matches, never past the timeout's cap."""

import pytest

from tocsin.errors import StoreUnavailable
from tocsin.store.port import Beaten, NotYours
from tocsin.wire import Status


async def test_heartbeats_keep_a_job_for_as_long_as_its_timeout(any_world):
    """F-09: three minutes of work under a lease of thirty seconds."""
    await any_world.create()
    job = await any_world.claim_one()
    for _ in range(24):
        await any_world.advance(7.5)
        answer = await any_world.beat(job.lease_token)
        assert isinstance(answer, Beaten)
        assert answer.lease_until == any_world.clock.now_ms() + 30_000
    assert await any_world.complete(job.lease_token) is Status.SUCCEEDED
    assert await any_world.attempts(job.job_id) == [(1, "succeeded")]


async def test_no_lease_goes_past_the_timeout_and_ten_seconds(any_world):
    await any_world.create(target={"type": "task", "handler": "do", "timeout_s": 60})
    job = await any_world.claim_one()
    claimed_at = any_world.clock.now_ms()
    for _ in range(6):
        await any_world.advance(9)
        answer = await any_world.beat(job.lease_token)
        assert isinstance(answer, Beaten)
        assert answer.lease_until <= claimed_at + 70_000
    await any_world.advance(9)
    await any_world.beat(job.lease_token)
    await any_world.advance(8)
    assert await any_world.beat(job.lease_token) is NotYours.TIMED_OUT


async def test_a_runaway_is_recorded_timed_out_and_a_silent_one_lost(any_world):
    target = {"type": "task", "handler": "do", "timeout_s": 20}
    runaway, silent = [await any_world.create(target=target) for _ in range(2)]
    jobs = {job.job_id: job for job in await any_world.claim(2)}
    for _ in range(5):
        await any_world.advance(5)
        await any_world.beat(jobs[runaway].lease_token)
    await any_world.advance(10)
    assert (await any_world.attempts(runaway))[0] == (1, "timed_out")
    assert (await any_world.attempts(silent))[0] == (1, "lost")


async def test_a_lease_that_is_over_but_not_rescued_is_renewed(any_world):
    await any_world.create()
    job = await any_world.claim_one()
    any_world.clock.advance(31)
    assert isinstance(await any_world.beat(job.lease_token), Beaten)
    await any_world.settle()
    assert (await any_world.job(job.job_id)).status is Status.RUNNING


async def test_a_worker_is_told_of_a_cancel_request(any_world):
    await any_world.create()
    job = await any_world.claim_one()
    answer = await any_world.beat(job.lease_token)
    assert isinstance(answer, Beaten)
    assert not answer.cancel_requested
    await any_world.cancel(job.job_id)
    answer = await any_world.beat(job.lease_token)
    assert isinstance(answer, Beaten)
    assert answer.cancel_requested


async def test_progress_is_kept_and_handed_to_the_next_attempt(any_world):
    await any_world.create()
    job = await any_world.claim_one()
    await any_world.beat(job.lease_token, b'{"page":7}')
    await any_world.beat(job.lease_token)
    await any_world.advance(33)
    again = await any_world.claim_one()
    assert bytes(again.progress) == b'{"page":7}'


@pytest.mark.parametrize("cut", ["before jobs put", "after jobs put", "before near.lease"])
async def test_a_crash_in_a_heartbeat_leaves_the_job_to_its_worker(world, cut):
    await world.create()
    job = await world.claim_one()
    world.clock.advance(20)
    await world.crash_during(world.beat(job.lease_token), cut)
    await world.advance(20)
    assert isinstance(await world.beat(job.lease_token), Beaten)
    assert await world.complete(job.lease_token) is Status.SUCCEEDED


async def test_silence_of_the_store_is_not_silence_of_the_worker(any_world):
    """503 means "alive, your lease stands": an outage of the store ends no attempt by itself."""
    await any_world.create()
    job = await any_world.claim_one()
    any_world.fault.always(StoreUnavailable("down"))
    for _ in range(60):
        any_world.clock.advance(1)
        with pytest.raises(StoreUnavailable):
            await any_world.on.pulse.step()
    any_world.fault.always(None)
    await any_world.settle()
    assert isinstance(await any_world.beat(job.lease_token), Beaten)
    await any_world.settle()
    assert (await any_world.job(job.job_id)).attempt == 1


async def test_a_finished_and_an_unknown_attempt_are_told_apart(any_world):
    await any_world.create()
    job = await any_world.claim_one()
    await any_world.complete(job.lease_token)
    assert await any_world.beat(job.lease_token) is NotYours.SUPERSEDED
