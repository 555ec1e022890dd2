"""Endpoints that hang, drip, flood or ask for absurd pauses, beside good ones (F-08, F-23, F-75)."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from datetime import datetime, timedelta

import pytest

from tests.executor.conftest import Endpoint, plain
from tests.faults.conftest import NOON
from tocsin.wire import RetryPolicy

ONCE = RetryPolicy(max_attempts=1)
EACH = 10


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    await asyncio.Event().wait()


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000000\r\n\r\n")
    while True:
        writer.write(b"y" * 65_536)
        await writer.drain()


async def many_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for start in range(0, 100_000, 1_000):
        writer.write(b"".join(b"X-%d: y\r\n" % number for number in range(start, start + 1_000)))
        await writer.drain()
    writer.write(b"\r\n")


async def test_bad_endpoints_harm_neither_the_good_ones_nor_the_memory(server, client, endpoints):
    good = await endpoints.url(plain(200, body=b"fine"))
    bad: dict[str, Endpoint] = {"hang": hang, "drip": drip, "flood": flood, "headers": many_headers}
    urls = {name: await endpoints.url(endpoint) for name, endpoint in bad.items()}
    urls["redirect"] = await endpoints.url(plain(302, Location=good))
    timeouts = {"hang": 0.5, "drip": 0.5}
    jobs = [
        {"queue": name, "url": url, "retry": ONCE, "timeout_s": timeouts.get(name, 15)}
        for name, url in urls.items()
        for _ in range(EACH)
    ]
    jobs += [{"queue": "good", "url": good, "retry": ONCE} for _ in range(5 * EACH)]
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    made = await client.jobs.create_batch(jobs)
    async with server.calling():
        await server.advance()
    ended = [await client.jobs.get(result.job_id) for result in made]
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib

    by_queue = Counter((job.queue, job.status) for job in ended)
    assert by_queue["good", "SUCCEEDED"] == 5 * EACH
    outcomes: dict[str, set[str]] = {}
    for job in ended:
        for attempt in await client.jobs.attempts(job.job_id):
            outcomes.setdefault(job.queue, set()).add(attempt.outcome)
            assert len(str(attempt.response)) < 10_000
    assert outcomes["hang"] == {"retryable_failure"}
    assert outcomes["redirect"] == {"fatal_failure"}
    # An answer 2xx is a success as soon as its head is there; of the body a beginning is kept, and no more is read.
    assert outcomes["drip"] <= {"succeeded", "retryable_failure"}
    assert outcomes["flood"] == {"succeeded"}
    assert "succeeded" not in outcomes["headers"]
    assert grown_kib < 100 * 1024, f"{grown_kib / 1024:.0f} MiB more for answers that nobody reads"


ASKED = {
    "300": 300.0,
    "0": 0.0,
    "-5": None,
    "1000000000000": 86_400.0,
    "Sun, 06 Nov 1994 08:49:37 GMT": 0.0,
    "Fri, 01 Jan 2999 00:00:00 GMT": 86_400.0,
    "soon": None,
}


@pytest.mark.parametrize("status", [429, 503])
async def test_a_retry_is_never_earlier_than_asked_and_never_later_than_a_day(server, client, endpoints, status):
    """With a backoff of at most 20 s: malformed headers mean just that, a valid one the larger of the two."""
    jobs = {}
    for asked in ASKED:
        url = await endpoints.url(plain(status, Retry_After=asked))
        policy = RetryPolicy(max_attempts=3, initial_backoff_s=10, max_backoff_s=20)
        jobs[asked] = await client.jobs.create(queue="q", url=url, retry=policy)
    async with server.calling():
        await server.advance()
        for asked, wait_s in ASKED.items():
            job = await client.jobs.get(jobs[asked].job_id)
            assert job.status == "RETRYING"
            pause_s = (datetime.fromisoformat(job.next_attempt_at) - NOON).total_seconds()
            assert (wait_s or 0.0) <= pause_s <= max(wait_s or 0.0, 20.0), asked
        await server.advance(days=3)
    for job in jobs.values():
        ended = await client.jobs.get(job.job_id)
        assert (ended.status, ended.tries) == ("DEAD", 3)


async def test_jobs_that_failed_together_do_not_return_together(server, client):
    """Five hundred fail in one second; their retries are spread over the whole pause, wave after wave."""
    many, pause_s = 500, 50
    policy = RetryPolicy(max_attempts=10, initial_backoff_s=pause_s, max_backoff_s=pause_s)
    await client.jobs.create_batch([{"queue": "q", "handler": "h", "retry": policy} for _ in range(many)])
    for wave in range(3):
        due: list[datetime] = []
        while held := await client.queues.claim("q", worker="w", max=1_000):
            await client.attempts.complete_batch(
                {"token": job.lease_token, "outcome": "retryable_failure"} for job in held
            )
        async for job in client.jobs.list(queue="q", status="RETRYING", page=200):
            due.append(datetime.fromisoformat(job.next_attempt_at))
        assert len(due) == many, wave
        seconds = Counter((at - server.now) // timedelta(seconds=1) for at in due)
        assert set(seconds) <= set(range(pause_s + 1))
        assert max(seconds.values()) < 4 * many / pause_s
        await server.advance(seconds=pause_s)
