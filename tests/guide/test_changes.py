"""Changing one's mind: cancel, run now, patch, pause and resume."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import tocsin
from tests.guide.conftest import NOON


async def test_a_waiting_job_is_cancelled_and_never_starts(server, client, worker_of):
    started = []

    async def remind(payload):
        started.append(payload)

    job = await client.jobs.create(queue="billing", handler="remind", delay=60)
    assert (await client.jobs.cancel(job.job_id)).status == "CANCELLED"
    async with server.running(worker_of(remind=remind)):
        await server.advance(hours=1)
    assert started == []


async def test_a_running_job_is_asked_to_stop(server, client, worker_of):
    running, told = asyncio.Event(), asyncio.Event()

    async def export(payload, ctx):
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.set()

    worker = tocsin.Worker("billing", transport=server.transport(), lease_s=5)
    worker.task("export")(export)
    serving = asyncio.create_task(worker.serve())
    job = await client.jobs.create(queue="billing", handler="export")
    async with asyncio.timeout(20):
        await running.wait()
        asked = await client.jobs.cancel(job.job_id)
        assert asked.status == "CANCEL_REQUESTED"
        # The worker learns of it with its next heartbeat.
        await told.wait()
        await worker.stop()
        await serving
    assert (await client.jobs.get(job.job_id)).status == "CANCELLED"


async def test_what_has_ended_cannot_be_cancelled(server, client, worker_of):
    async def remind(payload):
        pass

    job = await client.jobs.create(queue="billing", handler="remind")
    async with server.running(worker_of(remind=remind)):
        await server.advance()
    with pytest.raises(tocsin.Refused) as refused:
        await client.jobs.cancel(job.job_id)
    assert refused.value.status == 409


async def test_a_waiting_job_is_run_now(server, client, worker_of):
    started = []

    async def remind(payload):
        started.append(server.now)

    job = await client.jobs.create(queue="billing", handler="remind", delay=86_400)
    async with server.running(worker_of(remind=remind)):
        await client.jobs.run_now(job.job_id)
        await server.advance()
        assert started == [NOON]
        await server.advance(days=2)
    assert started == [NOON], "its old time means nothing any more"


async def test_a_waiting_job_is_moved_and_gets_another_payload(server, client, worker_of):
    started = []

    async def remind(payload):
        started.append((server.now, payload))

    job = await client.jobs.create(queue="billing", handler="remind", delay=60, payload="old")
    changed = await client.jobs.patch(job.job_id, delay=7200, payload="new", if_match=job.version)
    assert changed.version == job.version + 1
    assert changed.idempotency_key == job.idempotency_key
    async with server.running(worker_of(remind=remind)):
        await server.advance(hours=3)
    assert started == [(NOON + timedelta(hours=2), "new")]


async def test_a_change_on_top_of_another_is_refused(client):
    job = await client.jobs.create(queue="billing", handler="remind", delay=60)
    await client.jobs.patch(job.job_id, payload=1, if_match=job.version)
    with pytest.raises(tocsin.Refused) as refused:
        await client.jobs.patch(job.job_id, payload=2, if_match=job.version)
    assert refused.value.status == 412


async def test_a_paused_queue_takes_jobs_and_starts_none_until_it_is_resumed(server, client, worker_of):
    started = []

    async def remind(payload):
        started.append(server.now)

    await client.queues.put("billing", paused=True, pause_note="month end")
    job = await client.jobs.create(queue="billing", handler="remind", delay=60)
    async with server.running(worker_of(remind=remind)):
        await server.advance(hours=1)
        assert (await client.jobs.get(job.job_id)).status == "QUEUED"
        assert started == []
        await client.queues.put("billing", paused=False)
        await server.advance()
    assert started == [NOON + timedelta(hours=1)]


async def test_a_pause_can_end_by_itself(server, client, worker_of):
    started = []

    async def remind(payload):
        started.append(server.now)

    await client.queues.put("billing", paused=True, pause_until=NOON + timedelta(hours=2))
    await client.jobs.create(queue="billing", handler="remind")
    async with server.running(worker_of(remind=remind)):
        await server.advance(hours=3)
    assert len(started) == 1
    assert started[0] >= NOON + timedelta(hours=2)
