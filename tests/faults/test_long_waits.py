"""Waits that are longer than what a worker, a lease or a 32-bit number can hold (F-03, F-57)."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import pytest

from tests.faults.conftest import NOON, worker_of

YEAR_S = 365 * 86_400


@pytest.mark.parametrize("delay_s", [60, 300, 900, 3_600], ids=str)
async def test_a_delay_of_many_leases_makes_one_run_however_many_workers_wait(server, client, delay_s):
    """Twice and ten times the lease, the look-ahead and more: with five workers that stay attached all the time."""
    started: list[tuple[str, datetime]] = []

    async def note(payload, ctx):
        started.append((ctx.job.job_id, server.now))

    jobs = [await client.jobs.create(queue="q", handler="note", delay=delay_s) for _ in range(5)]
    async with server.running(*(worker_of(server, note=note) for _ in range(5))):
        await server.advance(seconds=delay_s - 0.001)
        assert started == []
        await server.advance(hours=3)
    assert Counter(job_id for job_id, _ in started) == {job.job_id: 1 for job in jobs}
    assert {at for _, at in started} == {NOON + timedelta(seconds=delay_s)}
    assert {(await client.jobs.get(job.job_id)).attempt for job in jobs} == {1}


async def test_far_futures_neither_wrap_nor_fire_early(server, client):
    delays_s = [24.8 * 86_400, 24.9 * 86_400, 49.8 * 86_400, YEAR_S - 1, 366 * 86_400]
    started: dict[float, datetime] = {}

    async def note(payload):
        started[payload] = server.now

    for delay_s in delays_s:
        await client.jobs.create(queue="q", handler="note", payload=delay_s, delay=delay_s)
    async with server.running(worker_of(server, note=note)):
        await server.advance(minutes=10)
        assert started == {}
        assert (await server.process.near.figures(server.process.leases.owned())).due == 0, (
            "what is far away takes no place near by"
        )
        for delay_s in delays_s:
            await server.advance(seconds=(NOON + timedelta(seconds=delay_s) - server.now).total_seconds() - 0.001)
            assert delay_s not in started
            await server.advance(seconds=0.001)
    assert started == {delay_s: NOON + timedelta(seconds=delay_s) for delay_s in delays_s}


async def test_further_than_that_is_refused(client):
    for delay_s in (366 * 86_400 + 1, 2**31 * 1_000, 2**53):
        (result,) = await client.jobs.create_batch([{"queue": "q", "handler": "note", "delay": delay_s}])
        assert result.error is not None
        assert result.error.status == 422
