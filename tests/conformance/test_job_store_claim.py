"""Claims, leases and heartbeats."""

import asyncio
from dataclasses import replace

import pytest

from tests.conformance.yard import LEASE_MS, WORKER, Yard, due_of
from tocsin.model.job import decode_definition
from tocsin.store.port import Beat, Beaten, Change, NotYours, Success
from tocsin.wire import Status


async def test_a_claim_hands_out_what_was_asked_for(yard: Yard) -> None:
    new = yard.new(queued=True, priority=-1, tags={"a": "b"}, name="report")
    await yard.jobs.create([new])
    yard.clock.advance(3)
    (job,) = await yard.jobs.claim([new.job_id], WORKER, LEASE_MS)
    assert job is not None
    assert (job.job_id, job.attempt, job.tries, job.line) == (new.job_id, 1, 1, new.line)
    assert (job.due_at, job.fire_at, job.progress) == (new.fire_at, new.fire_at, None)
    assert (job.lease_until, job.lease_ms) == (yard.now + LEASE_MS, LEASE_MS)
    assert job.definition == decode_definition(new.definition)

    state = await yard.state(new.job_id)
    assert (state.status, state.version, state.attempt, state.tries) == (Status.RUNNING, 1, 1, 1)
    assert (state.worker, state.claimed_at, state.started_at) == (WORKER, yard.now, yard.now)
    assert (state.lease_until, state.lease_ms) == (job.lease_until, LEASE_MS)


async def test_only_waiting_jobs_are_claimed(yard: Yard) -> None:
    (queued,) = await yard.queued()
    (scheduled,) = await yard.made(1, 60_000)
    (running,) = await yard.running()
    dead = await yard.dead()
    never = yard.new()
    asked = [scheduled.job_id, running.job_id, queued, dead.job_id, never.job_id]
    got = await yard.jobs.claim(asked, WORKER, LEASE_MS)
    assert [job and job.job_id for job in got] == [None, None, queued, None, None]


async def test_of_many_claims_at_once_one_gets_the_job(yard: Yard) -> None:
    (job_id,) = await yard.queued()
    answers = await asyncio.gather(*(yard.jobs.claim([job_id], f"w-{number}", LEASE_MS) for number in range(30)))
    assert sum(job is not None for (job,) in answers) == 1
    assert (await yard.state(job_id)).tries == 1


async def test_many_workers_at_once_each_get_their_own(yard: Yard) -> None:
    ids = await yard.queued(24)
    answers = await asyncio.gather(
        *(yard.jobs.claim([job_id], f"w-{number}", LEASE_MS + number * 1_000) for number, job_id in enumerate(ids))
    )
    for number, ((job,), job_id) in enumerate(zip(answers, ids, strict=True)):
        assert job is not None
        assert (job.job_id, job.lease_ms) == (job_id, LEASE_MS + number * 1_000)
        assert (await yard.state(job_id)).worker == f"w-{number}"


async def test_the_same_job_twice_in_a_claim_is_got_once(yard: Yard) -> None:
    first, second = await yard.queued(2)
    got = await yard.jobs.claim([first, second, first], WORKER, LEASE_MS)
    assert [job and job.attempt for job in got] == [1, 1, None]


async def test_an_expired_job_is_not_handed_out(yard: Yard) -> None:
    (late,) = await yard.queued(1, expires_in_ms=1_000)
    (fresh,) = await yard.queued(1, expires_in_ms=60_000)
    yard.clock.advance(1)
    got = await yard.jobs.claim([late, fresh], WORKER, LEASE_MS)
    assert [job and job.job_id for job in got] == [None, fresh]
    skipped = await yard.state(late)
    assert (skipped.status, skipped.finished_at, skipped.attempt) == (Status.SKIPPED, yard.now, 0)


async def test_a_second_attempt_has_a_higher_number_and_says_when_it_was_due(yard: Yard) -> None:
    job = await yard.retrying()
    yard.clock.advance(5)
    await yard.jobs.fire([due_of(job)])
    (again,) = await yard.jobs.claim([job.job_id], "w-2", LEASE_MS)
    assert again is not None
    assert (again.attempt, again.tries, again.due_at, again.fire_at) == (2, 2, job.due_at, job.fire_at)
    state = await yard.state(job.job_id)
    assert (state.started_at, state.claimed_at) == (job.started_at, yard.now)


async def test_progress_is_handed_to_the_next_attempt(yard: Yard) -> None:
    (job,) = await yard.running()
    await yard.jobs.heartbeat([Beat(job_id=job.job_id, attempt=1, progress=b'{"page":3}')])
    before = await yard.state(job.job_id)
    assert before.progress == b'{"page":3}'
    after = replace(before, status=Status.RETRYING, version=2, lease_until=None, lease_ms=None)
    await yard.jobs.change([Change(before=before, after=after, timer=True)])
    await yard.jobs.fire([due_of(after)])
    (again,) = await yard.jobs.claim([job.job_id], WORKER, LEASE_MS)
    assert again is not None
    assert again.progress == b'{"page":3}'


async def test_what_a_claim_answered_can_be_asked_for_again(yard: Yard) -> None:
    first, second = await yard.running(2)
    await yard.jobs.succeed([Success(job_id=second.job_id, attempt=1)])
    asked = [(first.job_id, 1), (second.job_id, 1), (first.job_id, 2), (yard.new().job_id, 1)]
    assert await yard.jobs.reclaim(asked, WORKER) == [first, None, None, None]
    assert await yard.jobs.reclaim([(first.job_id, 1)], "w-2") == [None]
    assert await yard.jobs.reclaim([], WORKER) == []


# heartbeats


async def test_a_heartbeat_renews_by_the_length_of_the_lease(yard: Yard) -> None:
    (job,) = await yard.running(lease_ms=20_000)
    yard.clock.advance(7)
    (answer,) = await yard.jobs.heartbeat([Beat(job_id=job.job_id, attempt=1)])
    assert answer == Beaten(yard.now + 20_000, 20_000, cancel_requested=False)
    state = await yard.state(job.job_id)
    assert (state.lease_until, state.beaten_at) == (yard.now + 20_000, yard.now)


async def test_a_lease_that_is_over_but_not_rescued_is_renewed(yard: Yard) -> None:
    (job,) = await yard.running()
    yard.clock.advance(300)
    (answer,) = await yard.jobs.heartbeat([Beat(job_id=job.job_id, attempt=1)])
    assert isinstance(answer, Beaten)
    assert answer.lease_until == yard.now + LEASE_MS


async def test_no_lease_goes_ten_seconds_past_the_timeout(yard: Yard) -> None:
    (job,) = await yard.running(timeout_s=60)
    until = yard.now + 60_000 + 10_000
    yard.clock.advance(50)
    (answer,) = await yard.jobs.heartbeat([Beat(job_id=job.job_id, attempt=1)])
    assert answer == Beaten(until, LEASE_MS, cancel_requested=False)
    yard.clock.advance(20)
    assert await yard.jobs.heartbeat([Beat(job_id=job.job_id, attempt=1)]) == [NotYours.TIMED_OUT]
    assert (await yard.state(job.job_id)).lease_until == until


@pytest.mark.parametrize("attempt", [0, 2])
async def test_a_heartbeat_of_another_attempt_is_refused(yard: Yard, attempt: int) -> None:
    (job,) = await yard.running()
    yard.clock.advance(5)
    beats = [Beat(job_id=job.job_id, attempt=attempt, progress=b"1"), Beat(job_id=yard.new().job_id, attempt=1)]
    assert await yard.jobs.heartbeat(beats) == [NotYours.SUPERSEDED, NotYours.UNKNOWN]
    state = await yard.state(job.job_id)
    assert (state.lease_until, state.progress) == (job.lease_until, None)


async def test_a_heartbeat_for_what_nobody_holds_is_refused(yard: Yard) -> None:
    waiting = await yard.retrying()
    (ended,) = await yard.running()
    await yard.jobs.succeed([Success(job_id=ended.job_id, attempt=1)])
    beats = [Beat(job_id=waiting.job_id, attempt=1), Beat(job_id=ended.job_id, attempt=1)]
    assert await yard.jobs.heartbeat(beats) == [NotYours.SUPERSEDED] * 2


async def test_a_heartbeat_tells_of_a_cancel_and_keeps_the_lease(yard: Yard) -> None:
    (job,) = await yard.running()
    before = await yard.state(job.job_id)
    await yard.jobs.change([Change(before=before, after=replace(before, status=Status.CANCEL_REQUESTED))])
    (answer,) = await yard.jobs.heartbeat([Beat(job_id=job.job_id, attempt=1)])
    assert answer == Beaten(yard.now + LEASE_MS, LEASE_MS, cancel_requested=True)


async def test_no_progress_keeps_what_is_there(yard: Yard) -> None:
    one, two = await yard.running(2)
    await yard.jobs.heartbeat([Beat(job_id=job.job_id, attempt=1, progress=b"[1]") for job in (one, two)])
    await yard.jobs.heartbeat([Beat(job_id=one.job_id, attempt=1), Beat(job_id=two.job_id, attempt=1, progress=b"[2]")])
    assert [(await yard.state(job.job_id)).progress for job in (one, two)] == [b"[1]", b"[2]"]


async def test_two_heartbeats_of_one_attempt_in_a_batch_are_both_accepted(yard: Yard) -> None:
    (job,) = await yard.running()
    beats = [Beat(job_id=job.job_id, attempt=1, progress=b"1"), Beat(job_id=job.job_id, attempt=1, progress=b"2")]
    assert all(isinstance(answer, Beaten) for answer in await yard.jobs.heartbeat(beats))
    assert (await yard.state(job.job_id)).progress == b"2"
