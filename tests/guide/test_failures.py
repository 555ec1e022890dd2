"""What goes wrong and what becomes of it: retries, dead letters, and trying them again."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

import tocsin
from tests.guide.conftest import NOON
from tocsin.wire import RetryPolicy


async def test_a_failed_job_is_tried_again_under_the_same_key(server, client, worker_of):
    seen = []

    async def charge(payload, ctx):
        seen.append((ctx.attempt, ctx.idempotency_key))
        if ctx.attempt < 3:
            raise RuntimeError("the bank is closed")

    job = await client.jobs.create(queue="billing", handler="charge")
    async with server.running(worker_of(charge=charge)):
        await server.advance(hours=1)
    done = await client.jobs.get(job.job_id)
    assert done.status == "SUCCEEDED"
    assert seen == [(1, job.idempotency_key), (2, job.idempotency_key), (3, job.idempotency_key)]
    assert "the bank is closed" in done.last_error
    outcomes = [attempt.outcome for attempt in await client.jobs.attempts(job.job_id)]
    assert outcomes == ["retryable_failure", "retryable_failure", "succeeded"]


async def test_pauses_between_tries_grow_and_are_jittered(server, client, worker_of):
    at: dict[str, list[datetime]] = {}

    async def charge(payload, ctx):
        at.setdefault(ctx.job.job_id, []).append(server.now)
        raise RuntimeError

    policy = RetryPolicy(max_attempts=4, initial_backoff_s=10, max_backoff_s=30)
    for _ in range(20):
        await client.jobs.create(queue="billing", handler="charge", retry=policy)
    async with server.running(worker_of(charge=charge)):
        await server.advance(hours=1)
    pauses = [[(b - a).total_seconds() for a, b in pairwise(times)] for times in at.values()]
    # Before try n+1: somewhere in [0, min(max, initial x 2^(n-1))].
    for first, second, third in pauses:
        assert 0 <= first <= 10
        assert 0 <= second <= 20
        assert 0 <= third <= 30
    assert len({first for first, _, _ in pauses}) > 10


async def test_a_handler_says_when_to_try_again(server, client, worker_of):
    at = []

    async def poll(payload, ctx):
        at.append(server.now)
        if len(at) == 1:
            raise tocsin.Retry("not there yet", after=1800)

    await client.jobs.create(queue="billing", handler="poll", retry=RetryPolicy(initial_backoff_s=0, max_backoff_s=0))
    async with server.running(worker_of(poll=poll)):
        await server.advance(hours=1)
    assert at == [NOON, NOON + timedelta(minutes=30)]


async def test_a_fatal_failure_is_not_tried_again(server, client, worker_of):
    async def charge(payload):
        raise tocsin.Fatal("there is no such account")

    job = await client.jobs.create(queue="billing", handler="charge")
    async with server.running(worker_of(charge=charge)):
        await server.advance(hours=1)
    dead = await client.jobs.get(job.job_id)
    assert (dead.status, dead.attempt) == ("DEAD", 1)
    assert dead.last_error == "there is no such account"


async def test_a_job_that_used_up_its_tries_is_a_dead_letter_and_can_be_redriven(server, client, worker_of):
    fixed = False

    async def charge(payload):
        if not fixed:
            raise RuntimeError("bug 17")

    job = await client.jobs.create(queue="billing", handler="charge", retry=RetryPolicy(max_attempts=2))
    async with server.running(worker_of(charge=charge)):
        await server.advance(hours=1)
        assert [letter.job_id async for letter in client.dead.list("billing")] == [job.job_id]
        assert (await client.jobs.get(job.job_id)).tries == 2

        fixed = True
        rehearsal = await client.dead.redrive("billing", filter={"error_contains": "bug 17"}, dry_run=True)
        assert (rehearsal.matched, rehearsal.redriven) == (1, 0)
        assert (await client.dead.redrive("billing", filter={"error_contains": "bug 17"})).redriven == 1
        await server.advance(minutes=1)

    done = await client.jobs.get(job.job_id)
    assert (done.status, done.attempt, done.tries) == ("SUCCEEDED", 3, 1)
    assert done.idempotency_key == job.idempotency_key


async def test_dead_letters_can_be_given_up(server, client, worker_of):
    async def charge(payload):
        raise tocsin.Fatal("no")

    job = await client.jobs.create(queue="billing", handler="charge")
    async with server.running(worker_of(charge=charge)):
        await server.advance()
    assert (await client.dead.discard("billing", job_ids=[job.job_id])).discarded == 1
    assert [letter async for letter in client.dead.list("billing")] == []
    assert (await client.jobs.get(job.job_id)).status == "DEAD"


async def test_the_next_attempt_goes_on_where_the_last_one_stopped(server, client, worker_of):
    done = []

    async def copy(payload, ctx):
        for page in range(ctx.last_progress or 0, 10):
            if page == 6 and ctx.attempt == 1:
                raise RuntimeError("the connection broke")
            done.append(page)
            ctx.progress(page + 1)

    job = await client.jobs.create(queue="billing", handler="copy")
    async with server.running(worker_of(copy=copy)):
        await server.advance(hours=1)
    assert (await client.jobs.get(job.job_id)).status == "SUCCEEDED"
    assert done == list(range(10)), "nothing is done twice"


async def test_a_job_that_runs_too_long_is_stopped(server, client):
    job = await client.jobs.create(queue="billing", handler="hang", timeout_s=60, retry=RetryPolicy(max_attempts=1))
    (claimed,) = await client.queues.claim("billing", worker="by hand", lease_s=30)
    # Heartbeats do not help a runaway: the server extends no lease past the timeout and ten seconds.
    for _ in range(6):
        await server.advance(seconds=10.5)
        await client.attempts.heartbeat(claimed.lease_token)
    await server.advance(seconds=10)
    over = await client.jobs.get(job.job_id)
    assert over.status == "DEAD"
    assert [attempt.outcome for attempt in await client.jobs.attempts(job.job_id)] == ["timed_out"]
