"""In a batch every item is judged by itself: a bad one costs its neighbours nothing."""

import json
from typing import Any

from tests.unit.api.stand_ins import NOW_MS
from tocsin.errors import Refused
from tocsin.store.port import NotYours
from tocsin.wire import Status

JOB = {"queue": "mail", "target": {"type": "task", "handler": "send"}}


async def test_bad_jobs_are_answered_in_their_places(desk, http):
    bad: list[Any] = [
        {"queue": 5},
        {**JOB, "payload": "x" * 65_536},
        {**JOB, "payload": "a\0"},
        {**JOB, "idempotency_key": ""},
        17,
        {**JOB, "run_at": "2026-12-05T09:00:00Z", "delay_s": 1},
    ]
    jobs = [item for one in bad for item in (JOB, one)]
    reply = await http("POST", "/v1/jobs:batch", {"jobs": jobs})
    results = reply.json["results"]
    assert reply.status == 200
    assert [set(one) for one in results[::2]] == [{"job_id", "status", "replayed"}] * len(bad)
    assert [one["error"]["status"] for one in results[1::2]] == [422, 413, 422, 422, 422, 422]
    assert results[1]["error"]["errors"][0]["pointer"] == "/queue"
    assert len(desk.wanted) == len(bad)


async def test_a_job_nested_without_end_is_alone_in_its_fault(desk, http):
    for depth in (101, 900, 5_000):
        deep = json.dumps({**JOB, "payload": 0}).replace(" 0}", "[" * depth + "]" * depth + "}")
        text = f'{{"jobs": [{json.dumps(JOB)}, {deep}, {json.dumps(JOB)}]}}'
        results = (await http("POST", "/v1/jobs:batch", text.encode())).json["results"]
        assert ["error" in one for one in results] == [False, True, False]
        assert results[1]["error"]["errors"] == [{"pointer": "/payload", "detail": "is nested more than 100 deep"}]


async def test_what_the_flow_refuses_stands_in_its_place(desk, http):
    desk.answers = [Refused(409, "idempotency-key-conflict", "Conflict", "bound to another body")]
    desk.answers *= 1
    reply = await http("POST", "/v1/jobs:batch", {"jobs": [JOB]})
    assert reply.json["results"][0]["error"]["type"] == "/problems/idempotency-key-conflict"


async def test_an_empty_batch_is_fine_and_5001_jobs_are_not(desk, http):
    assert (await http("POST", "/v1/jobs:batch", {"jobs": []})).json == {"results": []}
    assert (await http("POST", "/v1/jobs:batch", {"jobs": [JOB] * 5_000})).status == 200
    reply = await http("POST", "/v1/jobs:batch", {"jobs": [JOB] * 5_001})
    assert (reply.status, reply.pointers) == (422, {"/jobs"})


async def test_a_batch_has_at_most_16_mib(http):
    assert (await http("POST", "/v1/jobs:batch", b" " * (16 * 1024 * 1024 + 1))).status == 413


async def test_completions_are_judged_one_by_one(desk, http):
    good, other_queue = desk.lease(), desk.lease(queue="other")
    worker = desk.give("tcs_w_secret", "work:mail")
    items: list[Any] = [
        {"token": good, "outcome": "succeeded"},
        {"token": "forged", "outcome": "succeeded"},
        {"token": other_queue, "outcome": "succeeded"},
        {"token": desk.lease("other"), "outcome": "succeeded"},
        {"token": good, "outcome": "lost"},
        {"token": good, "outcome": "succeeded", "result": "x" * 16_384},
        {"token": good, "outcome": "succeeded", "status_code": 200},
        {"outcome": "succeeded"},
        {"token": good, "outcome": "retryable_failure", "error": "a\0b"},
        5,
        {"token": good, "outcome": "fatal_failure"},
    ]
    desk.answers = [Status.SUCCEEDED, NotYours.SUPERSEDED]
    reply = await http("POST", "/v1/attempts:complete", {"items": items}, token=worker)
    results = reply.json["results"]
    assert results[0] == {"token": good, "status": "SUCCEEDED"}
    statuses = [one["error"]["status"] if "error" in one else 0 for one in results]
    assert statuses == [0, 404, 403, 404, 422, 413, 422, 422, 422, 422, 409]
    assert [one.get("token") for one in results[:5]] == [item["token"] for item in items[:5]]
    assert len(desk.asked[-1]) == 3


async def test_heartbeats_are_judged_one_by_one(desk, http):
    good = desk.lease()
    reply = await http("POST", "/v1/attempts:heartbeat", {"tokens": [good, "forged", desk.lease("other")]})
    first, *rest = reply.json["results"]
    assert first == {
        "token": good,
        "lease_until": "2030-03-17T17:47:10Z",
        "lease_s": 30.0,
        "cancel_requested": False,
    }
    assert [one["error"]["status"] for one in rest] == [404, 404]
    assert NOW_MS == 1_900_000_000_000
    assert (await http("POST", "/v1/attempts:heartbeat", {"tokens": ["x"] * 5_001})).status == 422
