"""One key: other tenants, other bodies, many at once, long afterwards (F-37, F-48, F-80)."""

from __future__ import annotations

import asyncio

import pytest

import tocsin
from tests.faults.conftest import worker_of
from tocsin.sdk.transport import Answer


async def post(client: tocsin.AsyncClient, key: str, body: str) -> Answer:
    return await client.transport.request("POST", "/v1/jobs", body=body.encode(), headers={"Idempotency-Key": key})


def job(payload: str) -> str:
    return '{"queue": "q", "target": {"type": "task", "handler": "h"}, "payload": ' + payload + "}"


async def stranger(server) -> tocsin.AsyncClient:
    made = await server.client.tenants.create("stranger")
    assert made.name == "stranger"
    token = await server.client.tokens.create("stranger", name="t", scopes=["admin", "work:*"])
    return tocsin.AsyncClient(transport=server.transport(token.token))


async def test_the_same_meaning_is_the_same_job_and_another_is_refused(server, client):
    first = await post(client, "k", job('{"a": 1, "b": [1, 2]}'))
    same = '{ "payload":{"b":[1,2],"a":1},\n"target":{"handler":"h","type":"task"},"queue":"q" }'
    again = await post(client, "k", same)
    assert (first.status, again.status) == (201, 200)
    assert again.headers["idempotency-replayed"] == "true"
    with pytest.raises(tocsin.Refused) as refused:
        await post(client, "k", job('{"a": 1, "b": [2, 1]}'))
    assert refused.value.status == 409
    assert len([each async for each in client.jobs.list()]) == 1


@pytest.mark.parametrize("bad", ['{"queue": "no spaces"}', "{", '{"queue": "q", "target": {"type": "task"}}'])
async def test_a_request_that_failed_binds_nothing(client, bad):
    with pytest.raises(tocsin.Refused):
        await post(client, "k", bad)
    assert (await post(client, "k", job("1"))).status == 201


async def test_fifty_parallel_first_uses_make_one_job_and_all_get_it(server, client):
    answers = await asyncio.gather(*(post(client, "k", job("1")) for _ in range(50)))
    assert sorted(answer.status for answer in answers) == [200] * 49 + [201]
    assert len([each async for each in client.jobs.list()]) == 1


async def test_tenants_do_not_share_keys(server, client):
    other = await stranger(server)
    mine, theirs = await post(client, "k", job('"mine"')), await post(other, "k", job('"theirs"'))
    assert (mine.status, theirs.status) == (201, 201)
    assert [each.payload async for each in other.jobs.list()] == ["theirs"]
    assert [each.payload async for each in client.jobs.list()] == ["mine"]


async def test_inside_the_week_it_is_the_same_job_and_afterwards_a_clean_new_one(server, client):
    async def h(payload, ctx):
        if ctx.attempt == 1:
            raise RuntimeError("the first time")
        ctx.progress("half way")
        return "done"

    order = {"queue": "q", "handler": "h", "payload": 1, "idempotency_key": "x"}
    first = await client.jobs.create(**order)
    async with server.running(worker_of(server, h=h)):
        await server.advance(hours=1)
        done = await client.jobs.get(first.job_id)
        assert (done.status, done.result) == ("SUCCEEDED", "done")

        await server.advance(days=6)
        again = await client.jobs.create(**order)
        assert again.replayed
        assert (again.job_id, again.status, again.result) == (first.job_id, "SUCCEEDED", "done")

        await server.advance(days=2)
    clean = await client.jobs.create(**order)
    assert not clean.replayed
    assert clean.job_id != first.job_id
    assert (clean.status, clean.attempt, clean.tries, clean.version) == ("QUEUED", 0, 0, 1)
    left_over = (clean.started_at, clean.finished_at, clean.last_error, clean.result, clean.progress, clean.worker)
    assert left_over == (None,) * 6
    assert await client.jobs.attempts(clean.job_id) == []
    # And the old one is still what it was.
    old = await client.jobs.get(first.job_id)
    assert (old.status, old.result, old.attempt) == ("SUCCEEDED", "done", 2)


async def test_as_long_as_the_job_lives_its_key_holds(server, client):
    order = {"queue": "q", "handler": "h", "delay": 20 * 86_400, "idempotency_key": "x"}
    first = await client.jobs.create(**order)
    await server.advance(days=19)
    assert (await client.jobs.create(**order)).job_id == first.job_id
