"""Firing: once per version, never early, never late in vain."""

import asyncio
from dataclasses import replace

import pytest

from tests.conformance.yard import Yard, due, due_of
from tocsin.store.port import Change, Due, Fired, Success
from tocsin.wire import Status


async def test_a_scheduled_job_becomes_queued(yard: Yard) -> None:
    jobs = await yard.made(3)
    yard.clock.advance(1)
    assert await yard.jobs.fire([due(job) for job in jobs]) == [Fired.WON] * 3
    for job in await yard.jobs.states([job.job_id for job in jobs]):
        assert job is not None
        assert (job.status, job.version, job.queued_at) == (Status.QUEUED, 1, yard.now)


async def test_a_second_fire_of_the_same_version_finds_it_done(yard: Yard) -> None:
    jobs = await yard.made(2)
    assert await yard.jobs.fire([due(jobs[0])]) == [Fired.WON]
    assert await yard.jobs.fire([due(job) for job in jobs]) == [Fired.ALREADY, Fired.WON]


async def test_the_same_member_twice_in_a_batch_wins_once(yard: Yard) -> None:
    first, second = await yard.made(2)
    assert await yard.jobs.fire([due(first), due(second), due(first)]) == [Fired.WON, Fired.WON, Fired.ALREADY]


async def test_of_many_fires_at_once_one_wins(yard: Yard) -> None:
    (job,) = await yard.made(1)
    answers = await asyncio.gather(*(yard.jobs.fire([due(job)]) for _ in range(30)))
    assert sorted(answer.value for (answer,) in answers) == ["already"] * 29 + ["won"]


@pytest.mark.parametrize("version", [0, 2, 7])
async def test_a_timer_of_another_version_is_void(yard: Yard, version: int) -> None:
    (job,) = await yard.made(1)
    assert await yard.jobs.fire([due(job, version)]) == [Fired.VOID]
    assert await yard.status(job.job_id) is Status.SCHEDULED


async def test_a_timer_earlier_than_the_job_is_due_is_void(yard: Yard) -> None:
    early, exact, late = await yard.made(3, 5_000)
    members = [due(early, at=early.fire_at - 1), due(exact), due(late, at=late.fire_at + 1)]
    assert await yard.jobs.fire(members) == [Fired.VOID, Fired.WON, Fired.WON]
    assert await yard.status(early.job_id) is Status.SCHEDULED


async def test_jobs_of_many_due_times_and_versions_are_judged_each_by_its_own(yard: Yard) -> None:
    jobs = [(await yard.made(1, 1_000 * number))[0] for number in range(6)]
    retried = await yard.retrying()
    members = [due(jobs[0]), due(jobs[1], at=jobs[1].fire_at - 1), due(jobs[2]), due(jobs[3], 2), due_of(retried)]
    expected = [Fired.WON, Fired.VOID, Fired.WON, Fired.VOID, Fired.WON]
    assert await yard.jobs.fire(members) == expected


async def test_a_retrying_job_fires_at_its_new_version_only(yard: Yard) -> None:
    job = await yard.retrying()
    old = Due(job.fire_at, job.job_id, 1, job.line, job.priority)
    assert await yard.jobs.fire([old, due_of(job)]) == [Fired.VOID, Fired.WON]
    assert await yard.status(job.job_id) is Status.QUEUED


async def test_held_ended_and_unknown_jobs_are_past_firing(yard: Yard) -> None:
    running, ended = await yard.running(2)
    await yard.jobs.succeed([Success(job_id=ended.job_id, attempt=1)])
    dead = await yard.dead()
    never = yard.new()
    members = [
        Due(running.due_at, running.job_id, 1, running.line, 0),
        Due(ended.due_at, ended.job_id, 1, ended.line, 0),
        due_of(dead),
        due(never),
    ]
    assert await yard.jobs.fire(members) == [Fired.VOID] * 4
    assert await yard.status(running.job_id) is Status.RUNNING
    assert await yard.status(ended.job_id) is Status.SUCCEEDED
    assert await yard.status(dead.job_id) is Status.DEAD


async def test_one_void_member_costs_the_others_nothing(yard: Yard) -> None:
    jobs = await yard.made(20)
    members = [due(job, 9 if number == 7 else 1) for number, job in enumerate(jobs)]
    answers = await yard.jobs.fire(members)
    assert [number for number, answer in enumerate(answers) if answer is not Fired.WON] == [7]


async def test_an_expired_job_is_skipped_and_says_why(yard: Yard) -> None:
    (job,) = await yard.made(1, 1_000, expires_in_ms=2_000)
    (fresh,) = await yard.made(1, 1_000, expires_in_ms=60_000)
    yard.clock.advance(2)
    assert await yard.jobs.fire([due(job), due(fresh)]) == [Fired.EXPIRED, Fired.WON]
    skipped = await yard.state(job.job_id)
    assert (skipped.status, skipped.finished_at) == (Status.SKIPPED, yard.now)
    assert skipped.last_error is not None
    assert "expired" in skipped.last_error
    assert await yard.jobs.fire([due(job)]) == [Fired.VOID]


async def test_a_job_that_has_been_attempted_does_not_expire(yard: Yard) -> None:
    job = await yard.retrying(expires_in_ms=10_000)
    yard.clock.advance(60)
    assert await yard.jobs.fire([due_of(job)]) == [Fired.WON]


async def test_a_patched_job_does_not_fire_at_its_old_time(yard: Yard) -> None:
    (made,) = await yard.made(1, 1_000)
    before = await yard.state(made.job_id)
    after = replace(before, version=2, fire_at=before.fire_at + 60_000, due_at=before.due_at + 60_000)
    assert await yard.jobs.change([Change(before=before, after=after, timer=True)]) == [True]
    yard.clock.advance(2)
    assert await yard.jobs.fire([due(made)]) == [Fired.VOID]
    yard.clock.advance(60)
    assert await yard.jobs.fire([due_of(after)]) == [Fired.WON]
