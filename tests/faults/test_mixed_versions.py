"""Old workers beside new ones, and jobs that only the new ones know (F-13)."""

from __future__ import annotations

from collections import Counter

import msgspec

from tests.faults.conftest import worker_of

MANY = 200


async def test_jobs_that_old_workers_do_not_know_wait_for_new_ones_untouched(server, client):
    done: Counter[str] = Counter()

    async def old(payload):
        done["old"] += 1

    async def new(payload):
        done["new"] += 1

    olds = [worker_of(server, old=old) for _ in range(3)]
    async with server.running(*olds):
        made = await client.jobs.create_batch(
            [{"queue": "q", "handler": ("old", "new")[n % 2], "payload": n} for n in range(2 * MANY)]
        )
        await server.advance(minutes=5)
        assert done == {"old": MANY}
        waiting = [job async for job in client.jobs.list(queue="q", status="QUEUED")]
        assert len(waiting) == MANY
        assert {(job.attempt, job.tries) for job in waiting} == {(0, 0)}
        async with server.running(worker_of(server, new=new, old=old)):
            await server.advance(minutes=1)
    assert done == {"old": MANY, "new": MANY}
    jobs = [await client.jobs.get(result.job_id) for result in made]
    assert {(job.status, job.attempt, job.tries) for job in jobs} == {("SUCCEEDED", 1, 1)}


async def test_a_worker_that_gets_an_unknown_job_all_the_same_hands_it_back_uncharged(server, client):
    """As an old worker without a list of handlers would: it asks for everything."""
    job = await client.jobs.create(queue="q", handler="new")
    for attempt in (1, 2, 3):
        (claimed,) = await client.queues.claim("q", worker="old")
        assert (claimed.attempt, claimed.handler) == (attempt, "new")
        assert await client.attempts.complete(claimed.lease_token, "released") == "RETRYING"
        now = await client.jobs.get(job.job_id)
        assert (now.attempt, now.tries) == (attempt, 0)
        await server.advance(minutes=1)

    async def new(payload, ctx):
        return ctx.attempt

    async with server.running(worker_of(server, new=new)):
        await server.advance(minutes=1)
    done = await client.jobs.get(job.job_id)
    assert (done.status, done.result, done.tries) == ("SUCCEEDED", 4, 1)


async def test_a_client_of_a_newer_version_is_told_what_this_one_does_not_know(server, client):
    body = msgspec.json.encode(
        {
            "queue": "q",
            "target": {"type": "task", "handler": "h"},
            "not_yet_invented": True,
            "timing": {"class": "vague"},
        }
    )
    (result,) = msgspec.json.decode(
        (await client.transport.request("POST", "/v1/jobs:batch", body=b'{"jobs":[' + body + b"]}")).body
    )["results"]
    assert result["error"]["status"] == 422
    assert [job async for job in client.jobs.list()] == []
