"""Complete, row by row: (retry: new timer) attempt record, new state; terminal: the finished row, out of `jobs`."""

import pytest

from tests.life.disk import Crashed
from tests.life.world import World
from tocsin import wire
from tocsin.errors import Refused, StoreUnavailable
from tocsin.store.port import NotYours
from tocsin.wire import Status


async def held(world, **fields):
    """A job in a worker's hands."""
    await world.create(**fields)
    return await world.claim_one()


@pytest.mark.parametrize(
    ("outcome", "writes"),
    [
        ("succeeded", ["jobs", "finished", "jobs", "near.unlease"]),
        ("retryable_failure", ["timers", "records", "jobs"]),
        ("released", ["timers", "records", "jobs"]),
        ("fatal_failure", ["records", "jobs"]),
    ],
)
async def test_the_writes_are_in_the_order_of_the_table(world, outcome, writes):
    job = await held(world)
    world.fault.clear()
    await world.complete(job.lease_token, outcome)
    assert world.fault.writes()[: len(writes)] == writes


SUCCESS_CUTS = [
    "before jobs put",
    "after jobs put",
    "before finished put",
    "after finished put",
    "before jobs delete",
    "after jobs delete",
    "before near.unlease",
]


@pytest.mark.parametrize("cut", SUCCESS_CUTS)
async def test_a_success_cut_anywhere_is_repeated_with_the_same_answer(world, cut):
    job = await held(world)
    await world.crash_during(world.complete(job.lease_token), cut)
    assert await world.complete(job.lease_token) is Status.SUCCEEDED
    assert await world.complete(job.lease_token) is Status.SUCCEEDED
    assert await world.attempts(job.job_id) == [(1, "succeeded")]
    await world.advance(200)
    assert await world.claim(10) == []


@pytest.mark.parametrize("cut", ["after jobs put", "before finished put", "after finished put", "before jobs delete"])
async def test_the_recheck_ends_a_move_that_was_cut(world, cut):
    job = await held(world)
    await world.crash_during(world.complete(job.lease_token), cut)
    assert (await world.job(job.job_id)).status is Status.SUCCEEDED
    assert job.job_id in world.disk.jobs
    await world.advance(200)
    assert job.job_id not in world.disk.jobs
    assert (await world.job(job.job_id)).status is Status.SUCCEEDED
    assert not any(world.disk.timers.values())


@pytest.mark.parametrize("outcome", ["retryable_failure", "fatal_failure", "released"])
async def test_a_failure_cut_anywhere_is_repeated_with_the_same_answer(outcome):
    for points in range(30):
        world = World()
        await world.start()
        job = await held(world)
        world.fault.after(points)
        try:
            await world.complete(job.lease_token, outcome)
        except Crashed:
            await world.restart()
        world.fault.clear()
        answer = await world.complete(job.lease_token, outcome)
        assert answer is (Status.DEAD if outcome == "fatal_failure" else Status.RETRYING), points
        assert (await world.attempts(job.job_id)) == [(1, outcome)]
        await world.jump(700)
        again = [(one.job_id, one.attempt) for one in await world.claim(10)]
        assert again == ([] if outcome == "fatal_failure" else [(job.job_id, 2)]), points


async def test_a_store_that_fails_at_the_result_takes_it_when_it_is_back(any_world):
    """F-59: one second of outage; the worker repeats while its lease stands."""
    job = await held(any_world)
    any_world.fault.always(StoreUnavailable("down"))
    with pytest.raises(StoreUnavailable):
        await any_world.complete(job.lease_token)
    any_world.fault.always(None)
    assert await any_world.complete(job.lease_token) is Status.SUCCEEDED


@pytest.mark.parametrize("seconds", [30, 300])
async def test_an_outage_beyond_the_lease_costs_no_try_and_keeps_the_key(any_world, seconds):
    """F-59: nobody could write, so nobody is to blame; the late result still counts as long as the attempt stands."""
    job = await held(any_world)
    any_world.fault.always(StoreUnavailable("down"))
    any_world.clock.advance(seconds)
    any_world.fault.always(None)
    await any_world.settle()
    assert (await any_world.job(job.job_id)).attempt == 1, "leases count from the end of the gap"
    await any_world.advance(34)
    again = await any_world.claim_one()
    assert (again.attempt, again.tries, again.idempotency_key) == (2, 1, job.idempotency_key)
    assert await any_world.complete(job.lease_token) is NotYours.SUPERSEDED
    assert await any_world.complete(again.lease_token) is Status.SUCCEEDED


async def test_a_late_result_of_a_paused_worker_is_refused_and_the_newer_attempt_stands(any_world):
    first = await held(any_world)
    await any_world.advance(33)
    second = await any_world.claim_one()
    for outcome in ("succeeded", "retryable_failure", "fatal_failure", "released"):
        assert await any_world.complete(first.lease_token, outcome) is NotYours.SUPERSEDED
    assert await any_world.complete(second.lease_token) is Status.SUCCEEDED
    assert await any_world.attempts(first.job_id) == [(1, "lost"), (2, "succeeded")]


async def test_a_lease_that_is_over_but_not_rescued_still_takes_the_result(any_world):
    job = await held(any_world)
    any_world.clock.advance(300)
    assert await any_world.complete(job.lease_token) is Status.SUCCEEDED


async def test_another_outcome_than_the_recorded_one_is_refused(any_world):
    job = await held(any_world)
    assert await any_world.complete(job.lease_token, "retryable_failure") is Status.RETRYING
    assert await any_world.complete(job.lease_token, "succeeded") is NotYours.SUPERSEDED
    assert await any_world.complete(job.lease_token, "retryable_failure") is Status.RETRYING


async def test_the_recorded_outcome_repeated_is_answered_long_after(any_world):
    job = await held(any_world, retry={"initial_backoff_s": 0})
    await any_world.complete(job.lease_token, "retryable_failure")
    await any_world.settle()
    again = await any_world.claim_one()
    await any_world.complete(again.lease_token)
    assert await any_world.complete(job.lease_token, "retryable_failure") is Status.SUCCEEDED
    assert await any_world.complete(again.lease_token) is Status.SUCCEEDED


async def test_tries_end_in_a_dead_letter_that_says_why(any_world):
    await any_world.create(retry={"max_attempts": 2, "initial_backoff_s": 0})
    for _ in range(2):
        job = await any_world.claim_one()
        await any_world.complete(job.lease_token, "retryable_failure", error="no luck")
        await any_world.settle()
    dead = await any_world.job(job.job_id)
    assert (dead.status, dead.last_error, dead.attempt, dead.tries) == (Status.DEAD, "no luck", 2, 2)
    await any_world.jump(700)
    assert await any_world.claim() == []


async def test_a_release_gives_the_try_back_and_backs_off_doubling_to_a_minute(any_world):
    await any_world.create(retry={"max_attempts": 1})
    waits = []
    for _ in range(8):
        job = await any_world.claim_one()
        assert job.tries == 1
        assert await any_world.complete(job.lease_token, "released") is Status.RETRYING
        now = any_world.clock.now_ms()
        waits.append(((await any_world.job(job.job_id)).due_at - now) / 1000)
        await any_world.advance(waits[-1])
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_a_failure_ends_the_row_of_releases(any_world):
    await any_world.create(retry={"initial_backoff_s": 0})
    for outcome in ("released", "released", "retryable_failure", "released"):
        job = await any_world.claim_one()
        await any_world.complete(job.lease_token, outcome)
        left = (await any_world.job(job.job_id)).due_at - any_world.clock.now_ms()
        await any_world.advance(left / 1000)
    assert left == 1_000


async def test_retry_after_is_never_undercut_and_at_most_a_day(any_world):
    """F-75."""
    for asked, least, most in ((300, 300_000, 300_000), (0, 0, 10_000), (1e12, 86_400_000, 86_400_000)):
        job = await held(any_world)
        await any_world.complete(job.lease_token, "retryable_failure", retry_after_s=asked)
        wait = (await any_world.job(job.job_id)).due_at - any_world.clock.now_ms()
        assert least <= wait <= most
        await any_world.cancel(job.job_id)


async def test_cancelled_needs_a_request(any_world):
    job = await held(any_world)
    answer = await any_world.complete(job.lease_token, "cancelled")
    assert isinstance(answer, Refused)
    assert answer.status == 422
    await any_world.cancel(job.job_id)
    assert await any_world.complete(job.lease_token, "cancelled") is Status.CANCELLED
    assert await any_world.complete(job.lease_token, "cancelled") is Status.CANCELLED


@pytest.mark.parametrize("outcome", ["retryable_failure", "fatal_failure", "released"])
async def test_under_a_cancel_request_everything_but_success_is_cancelled(any_world, outcome):
    job = await held(any_world)
    await any_world.cancel(job.job_id)
    assert await any_world.complete(job.lease_token, outcome) is Status.CANCELLED
    assert (await any_world.job(job.job_id)).status is Status.CANCELLED


async def test_a_success_under_a_cancel_request_is_a_success(any_world):
    job = await held(any_world)
    await any_world.cancel(job.job_id)
    assert await any_world.complete(job.lease_token) is Status.SUCCEEDED


async def test_a_result_that_is_too_large_leaves_the_attempt_open(any_world):
    job = await held(any_world)
    answer = await any_world.complete(job.lease_token, result="x" * 16_384)
    assert isinstance(answer, Refused)
    assert answer.status == 413
    assert await any_world.complete(job.lease_token, result="small") is Status.SUCCEEDED
    assert (await any_world.job(job.job_id)).result == b'"small"'


async def test_jobs_that_failed_together_come_back_spread(world):
    """F-23: no second of the retries has more than a small multiple of the mean."""
    await world.try_create(count=2_000, retry={"initial_backoff_s": 60, "max_backoff_s": 60})
    due = []
    for _ in range(2):
        for job in await world.claim(1_000):
            await world.complete(job.lease_token, "retryable_failure")
            due.append((await world.job(job.job_id)).due_at // 1_000)
    assert len(due) == 2_000
    mean = len(due) / 60
    assert max(due.count(second) for second in set(due)) < 2 * mean
    assert len(set(due)) >= 55


@pytest.mark.parametrize("outcome", ["succeeded", "retryable_failure", "fatal_failure", "released"])
async def test_a_repeated_batch_costs_no_query_per_report(any_world, outcome, monkeypatch):
    await any_world.try_create(count=3)
    items = [
        (any_world.on.tokens.read(job.lease_token), wire.Completion(outcome=outcome))
        for job in await any_world.claim(3)
    ]
    first = await any_world.on.complete.complete(items)

    async def attempts(job_id):
        raise AssertionError("asked for the attempts of one job")

    monkeypatch.setattr(any_world.on.store.jobs, "attempts", attempts)
    assert await any_world.on.complete.complete(items) == first
