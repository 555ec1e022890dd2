"""Stores that fail at the worst moment, and a recovery that depends on nobody (F-46, F-59, F-67, F-68)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from collections import Counter
from collections.abc import Iterator

import pytest

import tocsin
import tocsin.testing
from tests.faults.conftest import NOON, worker_of
from tocsin.testing import Server
from tocsin.wire import RetryPolicy

FULL = sqlite3.SQLITE_FULL


@contextlib.contextmanager
def failing(server: Server, chance: random.Random, share: float) -> Iterator[Counter[str]]:
    """While this lasts, that share of the writer's steps fails as a full disk would; counts at which steps."""
    failed: Counter[str] = Counter()

    def on_step(name: str) -> None:
        # After the commit nothing of the disk is needed any more.
        if name != "after commit" and chance.random() < share:
            failed[name] += 1
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = FULL
            raise error

    writer = server.process.store._writer  # type: ignore[attr-defined]
    writer._on_step = on_step
    try:
        yield failed
    finally:
        writer._on_step = None


@pytest.mark.parametrize("seed", range(4))
async def test_a_store_that_fails_inside_fires_leaves_nothing_half_way(server, client, seed):
    started: Counter[str] = Counter()

    async def note(payload, ctx):
        started[ctx.job.job_id] += 1

    made = [await client.jobs.create(queue="q", handler="note", delay=1 + n % 20) for n in range(60)]
    with failing(server, random.Random(seed), 0.4) as failed:
        for _ in range(30):
            # A pass that failed is repeated by its loop; here by the next advance.
            with contextlib.suppress(tocsin.ServerUnavailable):
                await server.advance(seconds=1)
    assert failed["before commit"] + failed["after fire"] > 5
    async with server.running(worker_of(server, note=note)):
        await server.advance(minutes=5)
    assert started == Counter({job.job_id: 1 for job in made})
    for job in made:
        done = await client.jobs.get(job.job_id)
        assert (done.status, done.attempt, done.version) == ("SUCCEEDED", 1, 1)
    assert (await server.process.near.figures(server.process.leases.owned())).ready == 0


@pytest.mark.parametrize("outage_s", [1, 30, 300])
async def test_an_outage_when_the_result_is_written(server, client, outage_s):
    """The report is repeated while the lease stands; beyond that the next attempt runs under the same key."""
    job = await client.jobs.create(queue="q", handler="h", retry=RetryPolicy(max_attempts=2))
    (claimed,) = await client.queues.claim("q", worker="w", lease_s=10)
    with failing(server, random.Random(1), 1.0):
        with pytest.raises(tocsin.ServerUnavailable):
            await client.attempts.complete(claimed.lease_token, "succeeded", result=1)
        with contextlib.suppress(tocsin.ServerUnavailable):
            await server.advance(seconds=outage_s)
    if outage_s < 10:
        assert await client.attempts.complete(claimed.lease_token, "succeeded", result=1) == "SUCCEEDED"
        return
    # A virtual outage moves no clock by itself: the rescue could not write, and now it can.
    await server.advance(seconds=30)
    (second,) = await client.queues.claim("q", worker="w2", lease_s=10)
    assert (second.attempt, second.idempotency_key) == (2, claimed.idempotency_key)
    with pytest.raises(tocsin.Refused) as refused:
        await client.attempts.complete(claimed.lease_token, "succeeded", result=1)
    assert refused.value.kind == "attempt-superseded"
    assert await client.attempts.complete(second.lease_token, "succeeded", result=2) == "SUCCEEDED"
    assert (await client.jobs.get(job.job_id)).result == 2


async def test_nothing_is_accepted_that_is_not_written(server, client):
    accepted: list[str] = []
    refused: list[tocsin.ServerUnavailable] = []
    with failing(server, random.Random(7), 0.5):
        for number in range(60):
            # Without a key of the client's, which would repeat the request by itself.
            try:
                (result,) = await client.jobs.create_batch([{"queue": "q", "handler": "h", "payload": number}])
                accepted.append(result.job_id or "")
            except tocsin.ServerUnavailable as error:
                refused.append(error)
    assert refused
    assert all("503" in str(error) for error in refused)
    assert accepted
    assert sorted([job.job_id async for job in client.jobs.list(page=200)]) == sorted(accepted)


async def test_recovery_needs_no_worker_slot_and_no_finished_sweep(tmp_path):
    """All slots are filled by long jobs, and the process that recovers dies in its sweep, ten times."""
    running = asyncio.Event()

    async def lengthy(payload):
        running.set()
        await asyncio.Event().wait()

    async with tocsin.testing.server(start=NOON, data=tmp_path) as server:
        await server.client.jobs.create_batch([{"queue": "q", "handler": "h"} for _ in range(200)])
        held = await server.client.queues.claim("q", worker="dead", max=200, lease_s=5)
        assert len(held) == 200
        worker = worker_of(server, queue="other", lengthy=lengthy)
        worker.concurrency, worker.grace_s = 1, 0
        serving = asyncio.create_task(worker.serve())
        await server.client.jobs.create(queue="other", handler="lengthy")
        async with asyncio.timeout(20):
            await running.wait()
        chance = random.Random(67)
        with failing(server, chance, 0.5):
            for _ in range(10):
                with contextlib.suppress(tocsin.ServerUnavailable):
                    await server.advance(seconds=1)
        # What a pass had written when the store failed it is found by the recheck, two minutes later at most.
        await server.advance(minutes=4)
        again = await server.client.queues.claim("q", worker="w2", max=1)
        # After a loss each is handed out alone, so that one poison job costs the others nothing.
        assert [job.attempt for job in again] == [2]
        statuses = Counter([job.status async for job in server.client.jobs.list(queue="q", page=200)])
        assert statuses == {"QUEUED": 199, "RUNNING": 1}
        await worker.stop(now=True)
        await serving


async def test_a_dead_attempt_is_handled_once_however_many_sweeps_see_it(server, client):
    job = await client.jobs.create(
        queue="q", handler="h", retry=RetryPolicy(max_attempts=5, initial_backoff_s=0, max_backoff_s=0)
    )
    await client.queues.claim("q", worker="dead", lease_s=5)
    await server.advance(seconds=6.5)
    rescuer = next(stage for stage in server.process.stages if stage.name == "rescue")
    server.clock.advance(1)
    await asyncio.gather(*(rescuer.step() for _ in range(20)))
    for _ in range(60):
        await server.advance(seconds=1)
        await asyncio.gather(rescuer.step(), rescuer.step())
    now = await client.jobs.get(job.job_id)
    assert (now.status, now.attempt, now.tries, now.version) == ("QUEUED", 1, 1, 2)
    assert [attempt.outcome for attempt in await client.jobs.attempts(job.job_id)] == ["lost"]
    (again,) = await client.queues.claim("q", worker="w2")
    assert (again.attempt, again.tries) == (2, 2)
