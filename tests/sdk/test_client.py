"""The clients against the real server, in this process and on a clock that stands still."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import tocsin
import tocsin.testing
from tests.sdk.over_http import served_here
from tests.sdk.stand_in import wait_until
from tocsin import wire
from tocsin.sdk.calls import path


@pytest.fixture
async def server():
    async with tocsin.testing.server(start=datetime(2026, 12, 5, tzinfo=UTC)) as running:
        yield running


@pytest.fixture
def client(server):
    return server.client


async def test_a_task_job_is_made_with_everything_that_can_be_said_about_it(client):
    job = await client.jobs.create(
        queue="billing",
        handler="billing.generate_invoices",
        payload={"region": "IN", "amounts": [1, 2.5, None]},
        delay=timedelta(minutes=15),
        timeout_s=60,
        window=600,
        priority="high",
        retry=wire.RetryPolicy(max_attempts=3),
        tags={"region": "IN"},
        name="invoices",
        expires_after=3600,
    )
    assert job.status == "SCHEDULED"
    assert job.payload == {"region": "IN", "amounts": [1, 2.5, None]}
    assert job.target == wire.TaskTarget(handler="billing.generate_invoices", timeout_s=60)
    assert (job.run_at, job.timing.class_, job.timing.window_s) == ("2026-12-05T00:15:00Z", "flexible", 600)
    assert (job.priority, job.max_attempts, job.tags, job.name) == ("high", 3, {"region": "IN"}, "invoices")
    assert (job.expires_after_s, job.progress, job.result, job.replayed) == (3600, None, None, False)
    assert await client.jobs.get(job.job_id) == job


async def test_an_http_job_can_be_said_in_short_or_in_full(client):
    short = await client.jobs.create(
        queue="q", url="https://example.com/x", method="PUT", headers={"X": "secret"}, timeout_s=5, delay=60
    )
    full = await client.jobs.create(
        queue="q",
        target=wire.HttpTarget(url="https://example.com/x", method="PUT", headers={"X": "s"}, timeout_s=5),
        delay=60,
    )
    assert short.target == full.target


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ({}, "what is to be done"),
        ({"handler": "h", "url": "https://example.com"}, "contradict"),
        ({"handler": "h", "method": "PUT"}, "method belong"),
        ({"target": wire.TaskTarget(handler="h"), "timeout_s": 5}, "timeout_s belong"),
        ({"handler": "h", "run_at": datetime(2026, 12, 6)}, "time zone"),  # noqa: DTZ001 - the mistake under test
    ],
)
async def test_contradictions_are_told_before_anything_is_sent(client, job, says):
    with pytest.raises(tocsin.TocsinError, match=says):
        await client.jobs.create(queue="q", **job)


async def test_what_the_server_declines_carries_its_reasons(client):
    with pytest.raises(tocsin.Refused) as refused:
        await client.jobs.create(queue="not a name", handler="h", retry=wire.RetryPolicy(max_attempts=101))
    assert refused.value.status == 422
    assert {pointer for pointer, _ in refused.value.errors} >= {"/queue"}


async def test_the_same_key_gives_the_same_job(client):
    first = await client.jobs.create(queue="q", handler="h", delay=60, idempotency_key="order 17")
    again = await client.jobs.create(queue="q", handler="h", delay=60, idempotency_key="order 17")
    assert (again.job_id, first.replayed, again.replayed) == (first.job_id, False, True)
    with pytest.raises(tocsin.Refused) as refused:
        await client.jobs.create(queue="q", handler="another", delay=60, idempotency_key="order 17")
    assert refused.value.status == 409


async def test_a_batch_of_any_size_is_answered_in_order(client):
    jobs = [{"queue": "q", "handler": "h", "payload": n, "delay": 3600} for n in range(5_010)]
    jobs[7] = {"queue": "not a name", "handler": "h"}
    results = await client.jobs.create_batch(jobs, window=60)
    assert len(results) == 5_010
    assert [n for n, result in enumerate(results) if result.error] == [7]
    last = await client.jobs.get(results[-1].job_id)
    assert last.payload == 5_009


async def test_lists_are_read_page_by_page(client):
    made = [await client.jobs.create(queue="q", handler="h", delay=60, tags={"n": str(n)}) for n in range(7)]
    await client.jobs.create(queue="other", handler="h", delay=60)
    listed = [job.job_id async for job in client.jobs.list(queue="q", page=3)]
    assert listed == sorted((job.job_id for job in made), reverse=True)
    tagged = [job.job_id async for job in client.jobs.list(tags={"n": "4"}, status="SCHEDULED")]
    assert tagged == [made[4].job_id]


async def test_a_waiting_job_is_changed_and_cancelled(client):
    job = await client.jobs.create(queue="q", handler="h", delay=60, name="before")
    changed = await client.jobs.patch(job.job_id, payload=[1], delay=120, name=None, if_match=job.version)
    assert (changed.payload, changed.name, changed.version) == ([1], None, job.version + 1)
    assert changed.run_at == "2026-12-05T00:02:00Z"
    with pytest.raises(tocsin.Refused) as refused:
        await client.jobs.patch(job.job_id, payload=2, if_match=job.version)
    assert refused.value.status == 412
    assert (await client.jobs.cancel(job.job_id)).status == "CANCELLED"
    with pytest.raises(tocsin.Refused):
        await client.jobs.run_now(job.job_id)


async def test_a_job_is_claimed_and_reported_by_hand(client):
    job = await client.jobs.create(queue="q", handler="h", payload="x", delay=3600)
    assert (await client.jobs.run_now(job.job_id)).status == "QUEUED"
    (claimed,) = await client.queues.claim("q", worker="w")
    beat = await client.attempts.heartbeat(claimed.lease_token, progress={"page": 3})
    assert (beat.lease_s, beat.cancel_requested) == (30, False)
    (beat,) = await client.attempts.heartbeat_batch([claimed.lease_token])
    assert beat.error is None
    assert await client.attempts.complete(claimed.lease_token, "succeeded", result={"ok": True}) == "SUCCEEDED"
    done = await client.jobs.get(job.job_id)
    assert (done.result, done.progress) == ({"ok": True}, {"page": 3})
    (attempt,) = await client.jobs.attempts(job.job_id)
    assert (attempt.attempt, attempt.worker, attempt.outcome) == (1, "w", "succeeded")
    (late,) = await client.attempts.complete_batch([{"token": claimed.lease_token, "outcome": "succeeded"}])
    assert late.status == "SUCCEEDED"


async def test_dead_letters_are_listed_redriven_and_discarded(client):
    jobs = [await client.jobs.create(queue="q", handler="h", payload=n) for n in range(3)]
    for claimed in await client.queues.claim("q", worker="w", max=3):
        await client.attempts.complete(claimed.lease_token, "fatal_failure", error="no such invoice")
    assert {job.payload async for job in client.dead.list("q")} == {0, 1, 2}
    tried = await client.dead.redrive("q", filter={"error_contains": "invoice"}, dry_run=True)
    assert (tried.matched, tried.redriven) == (3, 0)
    assert (await client.dead.redrive("q", job_ids=[jobs[0].job_id])).redriven == 1
    assert (await client.dead.discard("q", filter=wire.DeadFilter())).discarded == 2
    with pytest.raises(tocsin.TocsinError, match="all of them"):
        await client.dead.redrive("q")


async def test_queues_are_set_and_read(client):
    queue = await client.queues.put("reports", paused=True, pause_note="migration", lease_s=60)
    assert (queue.paused, queue.pause_note, queue.lease_s) == (True, "migration", 60)
    assert (await client.queues.put("reports", paused=None)).paused is False
    assert (await client.queues.get("reports")).lease_s == 60
    assert "reports" in [queue.queue async for queue in client.queues.list()]


async def test_tenants_tokens_and_keys_are_managed(server, client):
    assert (await client.me()).tenant == "dev"
    tenant = await client.tenants.create("acme", quotas=wire.Quotas(waiting_jobs=10))
    assert (tenant.name, tenant.quotas.waiting_jobs) == ("acme", 10)
    assert (await client.tenants.patch("acme", weight=2)).weight == 2
    assert {tenant.name async for tenant in client.tenants.list()} >= {"acme", "dev"}
    token = await client.tokens.create("acme", name="ci", scopes=["read", "write"])
    assert token.token is not None
    acme = tocsin.AsyncClient(transport=server.transport(token.token))
    assert (await acme.me()).tenant == "acme"
    assert [known.name async for known in client.tokens.list("acme")] == ["ci"]
    await client.tokens.delete("acme", token.token_id)
    with pytest.raises(tocsin.Refused) as refused:
        await acme.me()
    assert refused.value.status == 401
    key = await client.signing_keys.rotate("acme")
    assert key.secret is not None
    assert key.key_id in [known.key_id async for known in client.signing_keys.list("acme")]


async def test_a_worker_does_the_job_when_its_time_has_come(server, client):
    worker = tocsin.Worker("billing", transport=server.transport(), clock=server.clock)
    seen = []

    @worker.task("h")
    async def handle(payload, ctx):
        seen.append((payload, ctx.attempt, ctx.last_progress))
        if ctx.attempt == 1:
            ctx.progress("half way")
            raise tocsin.Retry("not yet", after=60)
        return "done"

    job = await client.jobs.create(queue="billing", handler="h", payload={"n": 1}, delay=20)
    async with server.running(worker):
        await server.advance(19)
        assert seen == []
        await server.advance(minutes=2)
    done = await client.jobs.get(job.job_id)
    assert (done.status, done.result, done.last_error) == ("SUCCEEDED", "done", "not yet")
    assert seen == [({"n": 1}, 1, None), ({"n": 1}, 2, "half way")]


def test_names_in_paths_are_quoted():
    assert path("jobs/", "../queues?x=1", "/attempts") == "/v1/jobs/..%2Fqueues%3Fx%3D1/attempts"


async def test_a_worker_that_leaves_over_a_real_connection_takes_nothing_with_it(server, client):
    async with served_here(server.process.app) as url:
        worker = tocsin.Worker("q", url=url, token=server.token, clock=server.clock, concurrency=4)

        @worker.task("h")
        async def handle(payload):
            return payload

        first = await client.jobs.create(queue="q", handler="h", payload="x" * 60_000)
        task = asyncio.create_task(worker.serve())
        await wait_until(lambda: worker.connected and worker.tally.dead == 1 and not worker.holding, "the first job")
        await worker.stop()
        await task
        second = await client.jobs.create(queue="q", handler="h")
        await server.advance(1)
        assert (await client.jobs.get(first.job_id)).status == "DEAD", "its result was larger than 16 KiB"
        assert (await client.jobs.get(second.job_id)).attempt == 0
