"""Numbers at the ends of what can be stored or counted (F-61); what can be sent is in tests/api/test_extremes.py."""

from __future__ import annotations

import sqlite3
from collections import Counter

import pytest

import tocsin.testing
from tests.faults.conftest import NOON, worker_of
from tocsin.sdk.jobs import NewJob
from tocsin.wire import RetryPolicy

MOST = 2**63 - 1
ABSURD = [
    ("priority", 99),
    ("priority", -MOST - 1),
    ("due_at", -MOST - 1),
    ("due_at", MOST),
    ("fire_at", MOST),
    ("fire_at", -MOST - 1),
    ("timeout_ms", MOST),
    ("timeout_ms", -1),
    ("expires_at", MOST),
    ("attempt", MOST - 1),
    ("version", MOST),
    ("releases", MOST),
    ("losses", -MOST - 1),
    ("line_id", 999),
    ("progress", "no json"),
]


@pytest.mark.parametrize("when", ["before they fire", "while they are held", "before a restart"])
async def test_a_row_of_extreme_values_stands_alone_in_its_fault(tmp_path, when):
    """Written straight into the store's file: every stage passes it by, whatever it makes of it, and the others run."""
    done: Counter[str] = Counter()

    async def note(payload, ctx):
        done[ctx.job.job_id] += 1

    async with tocsin.testing.server(start=NOON, data=tmp_path) as server:
        body = [NewJob(queue="q", handler="note", delay=60) for _ in ABSURD]
        good = await server.client.jobs.create_batch(body)
        odd = await server.client.jobs.create_batch(body)
        if when == "while they are held":
            await server.advance(minutes=1)
            await server.client.queues.claim("q", worker="dies", max=1_000, lease_s=5)
        with sqlite3.connect(tmp_path / "tocsin.db", isolation_level=None) as file:
            for result, (column, value) in zip(odd, ABSURD, strict=True):
                file.execute(f"UPDATE jobs SET {column} = ? WHERE id = ?", (value, result.job_id))
        file.close()
        if when != "before a restart":
            async with server.running(worker_of(server, note=note)):
                await server.advance(hours=3)
    if when == "before a restart":
        async with (
            tocsin.testing.server(start=NOON, data=tmp_path) as server,
            server.running(worker_of(server, note=note)),
        ):
            await server.advance(hours=3)
    async with tocsin.testing.server(start=NOON, data=tmp_path) as server:
        for result in good:
            assert (await server.client.jobs.get(result.job_id or "")).status == "SUCCEEDED"
    assert {result.job_id: done[result.job_id or ""] for result in good} == {result.job_id: 1 for result in good}


async def test_a_late_attempt_of_the_longest_policy_still_backs_off(server, client):
    attempts: list[int] = []

    async def fail(payload, ctx):
        attempts.append(ctx.attempt)
        raise RuntimeError("again")

    policy = RetryPolicy(max_attempts=100, initial_backoff_s=0.001, max_backoff_s=20)
    job = await client.jobs.create(queue="q", handler="fail", retry=policy)
    async with server.running(worker_of(server, fail=fail)):
        await server.advance(hours=2)
        assert (await client.jobs.get(job.job_id)).status == "DEAD"
        # 2^99 times the first pause is far beyond every clock, and a redrive starts all over.
        await client.dead.redrive("q", filter={})
        await server.advance(hours=2)
    assert attempts == list(range(1, 201))
    over = await client.jobs.get(job.job_id)
    assert (over.status, over.attempt, over.tries) == ("DEAD", 200, 100)
