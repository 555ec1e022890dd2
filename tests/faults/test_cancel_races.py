"""Cancels around the moment of a claim: what was answered is what happens (F-29)."""

from __future__ import annotations

import asyncio
import random

import tocsin

TIMES = 300


async def test_the_answer_to_a_cancel_always_matches_what_happens(server, client):
    chance = random.Random(29)
    answers: dict[str, str] = {}

    async def cancel(job_id: str, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        try:
            answers[job_id] = (await client.jobs.cancel(job_id)).status
        except tocsin.Refused as refused:
            if refused.status != 409:
                raise
            answers[job_id] = "REFUSED"

    held: dict[str, str] = {}
    for _ in range(TIMES // 10):
        made = await client.jobs.create_batch([{"queue": "q", "handler": "h"} for _ in range(10)])
        job_ids = [result.job_id for result in made if result.job_id]
        cancels = [asyncio.create_task(cancel(job_id, chance.randrange(60))) for job_id in job_ids]
        for _ in range(chance.randrange(40)):
            await asyncio.sleep(0)
        for claimed in await client.queues.claim("q", worker="w", max=10, lease_s=5):
            held[claimed.job_id] = claimed.lease_token
        await asyncio.gather(*cancels)

    assert len(answers) == TIMES
    for job_id, answer in answers.items():
        # Either it never started, or the worker is told at its next heartbeat; nothing in between.
        if answer == "CANCELLED":
            assert job_id not in held
            assert (await client.jobs.get(job_id)).attempt == 0
        else:
            assert answer == "CANCEL_REQUESTED"
            assert (await client.attempts.heartbeat(held[job_id])).cancel_requested is True
    assert {"CANCELLED", "CANCEL_REQUESTED"} == set(answers.values()), "both sides of the race were seen"

    for number, (job_id, token) in enumerate(held.items()):
        outcome = ("succeeded", "retryable_failure", "cancelled")[number % 3]
        ended = await client.attempts.complete(token, outcome)
        assert ended == ("SUCCEEDED" if outcome == "succeeded" else "CANCELLED")
        assert (await client.jobs.get(job_id)).status == ended


async def test_a_cancel_of_a_lost_attempt_takes_effect_with_the_lease(server, client):
    job = await client.jobs.create(queue="q", handler="h")
    await client.queues.claim("q", worker="w", lease_s=5)
    assert (await client.jobs.cancel(job.job_id)).status == "CANCEL_REQUESTED"
    await server.advance(seconds=8)
    now = await client.jobs.get(job.job_id)
    assert (now.status, now.attempt) == ("CANCELLED", 1)
    await server.advance(hours=1)
    assert await client.queues.claim("q", worker="w") == []
