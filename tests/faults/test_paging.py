"""Pages over a list that changes under the reader's hands: each job that was there throughout, exactly once (F-76)."""

from __future__ import annotations

import random

import pytest

import tocsin
from tocsin.wire import RetryPolicy

POLICY = RetryPolicy(max_attempts=100, initial_backoff_s=0, max_backoff_s=0)


async def test_every_job_that_stays_is_seen_once_while_others_come_move_and_go(server, client):
    chance = random.Random(76)
    old = await client.jobs.create_batch([{"queue": "q", "handler": "h", "retry": POLICY} for _ in range(100)])
    while held := await client.queues.claim("q", worker="w", max=100):
        await client.attempts.complete_batch({"token": job.lease_token, "outcome": "succeeded"} for job in held)
    await server.advance(days=29, hours=23)
    # In groups of the same instant.
    made: list[str] = []
    for _ in range(20):
        batch = [{"queue": "q", "handler": "h", "retry": POLICY} for _ in range(20)]
        made += [result.job_id or "" for result in await client.jobs.create_batch(batch)]
        await server.advance(seconds=1)

    seen: list[str] = []
    cursor = None
    while True:
        query = [("limit", "7")] + ([("cursor", cursor)] if cursor else [])
        page = await client._calls.get("/v1/jobs", dict, query)
        seen += [job["job_id"] for job in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        # Between two pages: new ones, one to five attempts of some, and in the end the old ones go.
        await client.jobs.create(queue="q", handler="h")
        for job in await client.queues.claim("q", worker="w", max=5):
            outcome = chance.choice(["retryable_failure", "succeeded", "fatal_failure", "released"])
            await client.attempts.complete(job.lease_token, outcome)
        if len(seen) in range(200, 207):
            await server.advance(days=1)
    assert [job_id for job_id in seen if job_id in set(made)] == sorted(made, reverse=True)
    assert len(seen) == len(set(seen))
    assert {result.job_id for result in old}.isdisjoint(seen[210:])


@pytest.mark.parametrize("cursor", ["", "x", "bm90IGEgY3Vyc29y", "eyJpZCI6ICJqb2JfMSJ9", "9" * 5000])
async def test_a_foreign_cursor_is_refused(server, client, cursor):
    with pytest.raises(tocsin.Refused) as refused:
        await client.transport.request("GET", "/v1/jobs", query=[("cursor", cursor)])
    assert refused.value.status == 400
