"""Handing work over: now, later, many at once, once only."""

from __future__ import annotations

from datetime import timedelta

import pytest

import tocsin
from tests.guide.conftest import NOON


async def test_a_first_job(server, client, worker_of):
    async def greet(payload):
        return f"hello {payload['who']}"

    job = await client.jobs.create(queue="billing", handler="greet", payload={"who": "world"})
    assert job.status == "QUEUED"

    async with server.running(worker_of(greet=greet)):
        await server.advance()

    done = await client.jobs.get(job.job_id)
    assert done.status == "SUCCEEDED"
    assert done.result == "hello world"


async def test_a_delayed_job_starts_when_its_time_has_come_and_not_before(server, client, worker_of):
    started = []

    async def remind(payload):
        started.append(server.now)

    job = await client.jobs.create(queue="billing", handler="remind", delay=3600)
    assert job.status == "SCHEDULED"

    async with server.running(worker_of(remind=remind)):
        await server.advance(minutes=59, seconds=59)
        assert started == []
        await server.advance(seconds=1)
        assert started == [NOON + timedelta(hours=1)]


async def test_a_job_for_an_instant(server, client, worker_of):
    started = []

    async def remind(payload):
        started.append(server.now)

    at = NOON + timedelta(days=200, milliseconds=7)
    await client.jobs.create(queue="billing", handler="remind", run_at=at)
    async with server.running(worker_of(remind=remind)):
        await server.advance(days=201)
    assert started == [at]


async def test_many_jobs_in_one_request(server, client, worker_of):
    sent = []

    async def send(payload):
        sent.append(payload)

    results = await client.jobs.create_batch(
        [{"queue": "billing", "handler": "send", "payload": n} for n in range(500)]
    )
    assert all(result.job_id for result in results)
    async with server.running(worker_of(send=send)):
        await server.advance()
    assert sorted(sent) == list(range(500))


async def test_one_bad_job_of_a_batch_stops_no_other(server, client):
    good = {"queue": "billing", "handler": "send"}
    first, bad, last = await client.jobs.create_batch([good, {**good, "delay": -1}, good])
    assert first.job_id
    assert last.job_id
    assert bad.job_id is None
    assert bad.error.status == 422


async def test_the_same_key_makes_one_job(server, client, worker_of):
    charged = []

    async def charge(payload):
        charged.append(payload)

    order = {"queue": "billing", "handler": "charge", "payload": {"invoice": 8842}, "idempotency_key": "inv-8842"}
    first = await client.jobs.create(**order)
    again = await client.jobs.create(**order)
    assert again.job_id == first.job_id
    assert again.replayed

    async with server.running(worker_of(charge=charge)):
        await server.advance()
    assert charged == [{"invoice": 8842}]


async def test_the_same_key_for_something_else_is_refused(client):
    await client.jobs.create(queue="billing", handler="charge", payload=1, idempotency_key="k")
    with pytest.raises(tocsin.Refused) as refused:
        await client.jobs.create(queue="billing", handler="charge", payload=2, idempotency_key="k")
    assert refused.value.status == 409


async def test_a_flexible_job_starts_somewhere_inside_its_window(server, client, worker_of):
    started = []

    async def tidy(payload):
        started.append(server.now)

    jobs = [await client.jobs.create(queue="billing", handler="tidy", delay=600, window=600) for _ in range(50)]
    assert {job.run_at for job in jobs} == {"2030-03-17T12:10:00Z"}
    async with server.running(worker_of(tidy=tidy)):
        await server.advance(hours=1)
    assert len(started) == 50
    assert min(started) >= NOON + timedelta(minutes=10)
    assert max(started) <= NOON + timedelta(minutes=20)
    assert len(set(started)) > 25, "the starts are spread over the window"


async def test_urgent_jobs_go_first(server, client, worker_of):
    order = []

    async def note(payload):
        order.append(payload)

    for priority in ("low", "normal", "high"):
        await client.jobs.create(queue="billing", handler="note", payload=priority, priority=priority)
    worker = worker_of(note=note)
    worker.concurrency = 1
    async with server.running(worker):
        await server.advance()
    assert order == ["high", "normal", "low"]


async def test_a_handler_may_be_an_ordinary_function(server, client, worker_of):
    def add(payload, ctx):
        return {"sum": sum(payload), "attempt": ctx.attempt}

    job = await client.jobs.create(queue="billing", handler="add", payload=[1, 2, 3])
    async with server.running(worker_of(add=add)):
        await server.advance()
    assert (await client.jobs.get(job.job_id)).result == {"sum": 6, "attempt": 1}


async def test_a_job_nobody_took_in_time_is_skipped_and_says_so(server, client):
    job = await client.jobs.create(queue="billing", handler="remind", expires_after=60)
    await server.advance(minutes=10)
    skipped = await client.jobs.get(job.job_id)
    assert skipped.status == "SKIPPED"
    assert skipped.last_error
