"""Creating jobs, and the idempotency keys that may come with them."""

import asyncio

import pytest

from tests.conformance.yard import LINE, Yard, due, key
from tocsin.model.ids import made_at_ms
from tocsin.model.job import Lane, Line, decode_definition
from tocsin.model.partition import bucket_of
from tocsin.store.port import FIRE, KEY_KEPT_MS, WATCH, Created, Fired, Made, Success
from tocsin.wire import Status

DAY_S = 86_400


async def test_a_job_is_there_as_it_was_asked_for(yard: Yard) -> None:
    line = Line("acme", "mail", Lane.FLEXIBLE, "send", "https://a.example:443")
    new = yard.new(5_000, line=line, priority=1, expires_in_ms=60_000, name="reminder", tags={"team": "x"})
    assert await yard.jobs.create([new]) == [Created(Made.CREATED, new.job_id)]

    job = await yard.state(new.job_id)
    assert job.definition == decode_definition(new.definition)
    assert (job.line, job.priority, job.status) == (line, 1, Status.SCHEDULED)
    assert (job.version, job.attempt, job.tries, job.losses, job.releases) == (1, 0, 0, 0, 0)
    assert (job.fire_at, job.due_at, job.expires_at) == (new.fire_at, new.fire_at, new.expires_at)
    assert job.created_at == made_at_ms(new.job_id)
    unset = (job.queued_at, job.started_at, job.claimed_at, job.lease_until, job.lease_ms, job.beaten_at, job.worker)
    assert unset == (None,) * 7
    assert (job.finished_at, job.last_error, job.progress, job.result, job.outcome) == (None,) * 5


async def test_a_job_that_is_due_already_is_queued_at_once(yard: Yard) -> None:
    (job_id,) = await yard.queued()
    job = await yard.state(job_id)
    assert job.status is Status.QUEUED
    assert job.queued_at == yard.now


async def test_every_new_job_has_a_fire_timer_at_its_version(yard: Yard) -> None:
    made = await yard.made(3, 90_000) + await yard.made(2, queued=True)
    timers = await yard.timers(FIRE)
    assert sorted((timer.job_id, timer.version, timer.time) for timer in timers) == sorted(
        (job.job_id, 1, job.fire_at) for job in made
    )
    assert all(timer.job is not None and timer.tenant == "acme" and timer.lane == 0 for timer in timers)
    assert await yard.timers(WATCH) == []


@pytest.mark.parametrize("due_in_ms", [-3_600_000, -1, 0, 1, 59_999, 24 * 3_600_000 * 366])
async def test_a_timer_lies_in_the_minute_of_its_time_but_never_in_a_past_one(yard: Yard, due_in_ms: int) -> None:
    (job,) = await yard.made(1, due_in_ms)
    (timer,) = await yard.timers()
    assert timer.bucket == max(bucket_of(job.fire_at), bucket_of(yard.now))


async def test_the_same_job_created_again_is_created_once(yard: Yard) -> None:
    jobs = await yard.made(3)
    assert await yard.jobs.create(jobs) == [Created(Made.CREATED, job.job_id) for job in jobs]
    assert await yard.jobs.create([jobs[0], jobs[0]]) == [Created(Made.CREATED, jobs[0].job_id)] * 2
    assert len(await yard.timers()) == 3


async def test_a_create_repeated_late_revives_nothing(yard: Yard) -> None:
    job = yard.new()
    await yard.jobs.create([job])
    await yard.jobs.fire([due(job)])
    await yard.jobs.claim([job.job_id], "w", 30_000)
    await yard.jobs.succeed([Success(job_id=job.job_id, attempt=1)])
    assert await yard.jobs.create([job]) == [Created(Made.CREATED, job.job_id)]
    assert await yard.status(job.job_id) is Status.SUCCEEDED
    assert await yard.jobs.fire([due(job)]) == [Fired.VOID]
    assert await yard.status(job.job_id) is Status.SUCCEEDED


async def test_no_jobs_are_no_trouble(yard: Yard) -> None:
    assert await yard.jobs.create([]) == []


# keys


async def test_a_key_with_the_same_body_gets_the_first_job(yard: Yard) -> None:
    first, second = yard.new(key=key()), yard.new(60_000, key=key())
    assert await yard.jobs.create([first]) == [Created(Made.CREATED, first.job_id)]
    assert await yard.jobs.create([second]) == [Created(Made.REPLAYED, first.job_id)]
    assert await yard.jobs.states([second.job_id]) == [None]
    assert len(await yard.timers()) == 1


async def test_a_key_with_another_body_conflicts_and_changes_nothing(yard: Yard) -> None:
    first, other = yard.new(key=key()), yard.new(key=key(body=b"2"))
    await yard.jobs.create([first])
    assert await yard.jobs.create([other]) == [Created(Made.CONFLICT, first.job_id)]
    assert await yard.jobs.states([other.job_id]) == [None]
    assert (await yard.jobs.create([yard.new(key=key())]))[0].made is Made.REPLAYED


async def test_a_key_belongs_to_its_tenant(yard: Yard) -> None:
    mine = yard.new(key=key())
    theirs = yard.new(line=Line("other", "mail", Lane.PRECISE, "send", ""), key=key(tenant="other", body=b"2"))
    answers = await yard.jobs.create([mine, theirs])
    assert answers == [Created(Made.CREATED, mine.job_id), Created(Made.CREATED, theirs.job_id)]


async def test_within_a_batch_the_later_sees_the_earlier(yard: Yard) -> None:
    jobs = [yard.new(key=key()), yard.new(key=key()), yard.new(key=key(body=b"2")), yard.new(), yard.new(key=key("k2"))]
    made = [answer.made for answer in await yard.jobs.create(jobs)]
    assert made == [Made.CREATED, Made.REPLAYED, Made.CONFLICT, Made.CREATED, Made.CREATED]
    assert len(await yard.timers()) == 3


async def test_a_repeated_create_of_unknown_outcome_is_no_replay(yard: Yard) -> None:
    job = yard.new(key=key())
    await yard.jobs.create([job])
    assert await yard.jobs.create([job]) == [Created(Made.CREATED, job.job_id)]


async def test_of_fifty_first_uses_at_once_one_creates(yard: Yard) -> None:
    jobs = [yard.new(key=key()) for _ in range(50)]
    answers = [answer for (answer,) in await asyncio.gather(*(yard.jobs.create([job]) for job in jobs))]
    assert sorted(answer.made.value for answer in answers) == ["created"] + ["replayed"] * 49
    assert len({answer.job_id for answer in answers}) == 1
    assert len(await yard.timers()) == 1


async def test_a_key_binds_for_seven_days_also_when_its_job_has_ended(yard: Yard) -> None:
    first = yard.new(queued=True, key=key())
    await yard.jobs.create([first])
    await yard.jobs.claim([first.job_id], "w", 30_000)
    await yard.jobs.succeed([Success(job_id=first.job_id, attempt=1)])
    yard.clock.advance(KEY_KEPT_MS / 1000 - 1)
    assert await yard.jobs.create([yard.new(key=key())]) == [Created(Made.REPLAYED, first.job_id)]
    yard.clock.advance(2)
    again = yard.new(key=key(body=b"2"))
    assert await yard.jobs.create([again]) == [Created(Made.CREATED, again.job_id)]
    assert (await yard.state(again.job_id)).attempt == 0
    assert await yard.jobs.create([yard.new(key=key(body=b"2"))]) == [Created(Made.REPLAYED, again.job_id)]


async def test_a_key_binds_as_long_as_its_job_lives(yard: Yard) -> None:
    first = yard.new(30 * DAY_S * 1000, key=key())
    await yard.jobs.create([first])
    yard.clock.advance(8 * DAY_S)
    assert await yard.jobs.create([yard.new(key=key())]) == [Created(Made.REPLAYED, first.job_id)]
    await yard.cancelled(first.job_id)
    again = yard.new(key=key())
    assert await yard.jobs.create([again]) == [Created(Made.CREATED, again.job_id)]


async def test_a_dead_letter_does_not_hold_its_key(yard: Yard) -> None:
    first = await yard.dead(key=key())
    yard.clock.advance(8 * DAY_S)
    again = yard.new(key=key())
    assert await yard.jobs.create([again]) == [Created(Made.CREATED, again.job_id)]
    assert again.job_id != first.job_id


async def test_expired_keys_are_swept_when_their_job_has_ended(yard: Yard) -> None:
    ended, living = yard.new(key=key("ended")), yard.new(30 * DAY_S * 1000, key=key("living"))
    await yard.jobs.create([ended, living])
    await yard.cancelled(ended.job_id)
    assert await yard.jobs.sweep_keys(10) == 0
    yard.clock.advance(8 * DAY_S)
    assert await yard.jobs.sweep_keys(10) == 1
    assert await yard.jobs.sweep_keys(10) == 0
    assert (await yard.jobs.create([yard.new(key=key("living"))]))[0].made is Made.REPLAYED


async def test_a_sweep_of_keys_keeps_to_its_limit(yard: Yard) -> None:
    jobs = [yard.new(key=key(f"k{number}")) for number in range(5)]
    await yard.jobs.create(jobs)
    for job in jobs:
        await yard.cancelled(job.job_id)
    yard.clock.advance(8 * DAY_S)
    assert [await yard.jobs.sweep_keys(2) for _ in range(4)] == [2, 2, 1, 0]


async def test_jobs_of_many_lines_keep_their_lines(yard: Yard) -> None:
    lines = [LINE._replace(tenant=t, queue=q, suspect=s) for t in "ab" for q in ("x", "y", "é") for s in (False, True)]
    jobs = [yard.new(line=line) for line in lines]
    await yard.jobs.create(jobs)
    assert [job and job.line for job in await yard.jobs.states([job.job_id for job in jobs])] == lines
