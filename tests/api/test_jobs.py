"""The life of a job as its owner sees it."""

import asyncio
import json

import pytest

from tests.api.conftest import JOB

HTTP = {"type": "http", "url": "https://a.example/x", "headers": {"Authorization": "Bearer abc"}}


async def test_a_job_is_shown_as_it_was_asked_for(server):
    asked = {
        "queue": "payment-reminders",
        "name": "reminder for inv_8842",
        "run_at": "2030-12-05T09:00:00+05:30",
        "timing": {"class": "flexible", "window_s": 600, "may_widen": False},
        "priority": "high",
        "target": HTTP,
        "payload": {"invoice_id": "inv_8842"},
        "retry": {"max_attempts": 3, "initial_backoff_s": 1},
        "expires_after_s": 3600,
        "tags": {"region": "IN"},
    }
    reply = await server.http("POST", "/v1/jobs", asked)
    job = reply.json
    assert reply.status == 201
    assert job == await server.get(job)
    assert job["run_at"] == "2030-12-05T03:30:00Z"
    assert "2030-12-05T03:30:00Z" <= job["fire_at"] < "2030-12-05T03:40:00Z"
    assert job["idempotency_key"] == f"{job['job_id']}@{job['fire_at'][:19]}Z"
    assert job["target"]["headers"] == {"Authorization": "***"}
    for name in ("queue", "name", "timing", "priority", "payload", "expires_after_s", "tags"):
        assert job[name] == asked[name]
    assert job["retry"] == {"max_attempts": 3, "initial_backoff_s": 1.0, "max_backoff_s": 600.0}
    assert (job["status"], job["version"], job["attempt"], job["tries"]) == ("SCHEDULED", 1, 0, 0)
    assert (job["origin"], job["created_at"]) == ("api", "2030-03-17T17:46:40Z")


async def test_what_is_left_out_has_its_default(server):
    job = await server.create()
    assert (job["status"], job["fire_at"], job["run_at"]) == ("QUEUED",) + ("2030-03-17T17:46:40Z",) * 2
    assert (job["payload"], job["tags"], job["priority"], job["max_attempts"]) == (None, {}, "normal", 6)
    past = await server.create(run_at="1969-12-31T23:59:59Z")
    assert (past["status"], past["fire_at"]) == ("QUEUED", "2030-03-17T17:46:40Z")


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"run_at": "2031-03-18T17:46:41Z"}, "/run_at"),
        ({"run_at": "9999-12-31T23:59:59.999999Z"}, "/run_at"),
        ({"run_at": "9999-12-31T23:59:59.9999999Z"}, "/run_at"),
        ({"run_at": "9999-12-31T23:59:59-10:00"}, "/run_at"),
        ({"run_at": "0001-01-01T00:00:00+10:00"}, "/run_at"),
        ({"retry": {"initial_backoff_s": 601}}, "/retry/initial_backoff_s"),
        ({"retry": {"max_backoff_s": 9}}, "/retry/initial_backoff_s"),
    ],
)
async def test_what_needs_the_time_or_the_queue_is_judged_too(server, changes, pointer):
    reply = await server.http("POST", "/v1/jobs", {**JOB, **changes})
    assert (reply.status, reply.kind, reply.pointers) == (422, "invalid", {pointer})
    assert await server.stored() == 0


@pytest.mark.parametrize("run_at", ["2031-03-18T17:46:40Z", "0001-01-01T00:00:00Z", "2031-03-18 23:16:40+05:30"])
async def test_the_ends_of_what_can_be_asked_for(server, run_at):
    assert (await server.create(run_at=run_at))["status"] in ("SCHEDULED", "QUEUED")


async def test_the_queues_policy_is_the_default_of_its_jobs(server):
    await server.http(
        "PUT", "/v1/queues/mail", {"retry": {"max_attempts": 2, "initial_backoff_s": 1, "max_backoff_s": 5}}
    )
    assert (await server.create())["retry"] == {"max_attempts": 2, "initial_backoff_s": 1.0, "max_backoff_s": 5.0}
    reply = await server.http("POST", "/v1/jobs", {**JOB, "retry": {"initial_backoff_s": 6}})
    assert reply.pointers == {"/retry/initial_backoff_s"}


# --- idempotency (F-37, F-48) -----------------------------------------------------------------------------------------


async def test_a_repeated_key_with_an_equal_body_gets_the_job_as_it_is_now(server):
    body = {**JOB, "delay_s": 5, "payload": {"a": 1, "b": [1, 2]}}
    first = await server.http("POST", "/v1/jobs", body, headers={"Idempotency-Key": "k"})
    assert (first.status, "idempotency-replayed" in first.headers) == (201, False)
    await server.advance(6)
    turned = json.dumps(dict(reversed(list(body.items()))), indent=2).encode()
    again = await server.http("POST", "/v1/jobs", turned, headers={"Idempotency-Key": "k"})
    assert (again.status, again.headers["idempotency-replayed"]) == (200, "true")
    assert (again.json["job_id"], again.json["status"]) == (first.json["job_id"], "QUEUED")
    (claimed,) = await server.claim()
    await server.complete(claimed)
    done = await server.http("POST", "/v1/jobs", body, headers={"Idempotency-Key": "k"})
    assert (done.status, done.json["status"]) == (200, "SUCCEEDED")


async def test_a_repeated_key_with_another_body_is_409(server):
    await server.http("POST", "/v1/jobs", JOB, headers={"Idempotency-Key": "k"})
    for other in ({**JOB, "payload": 1}, {**JOB, "queue": "letters"}, {**JOB, "name": None}):
        reply = await server.http("POST", "/v1/jobs", other, headers={"Idempotency-Key": "k"})
        assert reply.status == 409, other
    assert await server.stored() == 1


async def test_a_failed_create_binds_nothing(server):
    bad = {**JOB, "run_at": "2040-01-01T00:00:00Z"}
    assert (await server.http("POST", "/v1/jobs", bad, headers={"Idempotency-Key": "k"})).status == 422
    assert (await server.http("POST", "/v1/jobs", JOB, headers={"Idempotency-Key": "k"})).status == 201


async def test_a_key_belongs_to_its_tenant(server):
    first = await server.http("POST", "/v1/jobs", JOB, headers={"Idempotency-Key": "k"})
    other = await server.http("POST", "/v1/jobs", JOB, headers={"Idempotency-Key": "k"}, token="tcs_stranger_secret")
    assert (first.status, other.status) == (201, 201)
    assert first.json["job_id"] != other.json["job_id"]


async def test_of_fifty_parallel_first_uses_one_makes_the_job(server):
    replies = await asyncio.gather(
        *(server.http("POST", "/v1/jobs", JOB, headers={"Idempotency-Key": "k"}) for _ in range(50))
    )
    assert sorted(reply.status for reply in replies) == [200] * 49 + [201]
    assert len({reply.json["job_id"] for reply in replies}) == 1
    assert await server.stored() == 1


async def test_a_key_inside_a_batch_is_the_same_key(server):
    single = await server.http("POST", "/v1/jobs", {**JOB, "delay_s": 5}, headers={"Idempotency-Key": "k"})
    body = {"jobs": [{**JOB, "delay_s": 5.0, "idempotency_key": "k"}, {**JOB, "idempotency_key": "k"}]}
    same, other = (await server.http("POST", "/v1/jobs:batch", body)).json["results"]
    assert same == {"job_id": single.json["job_id"], "status": "SCHEDULED", "replayed": True}
    assert other["error"]["status"] == 409


# --- batches, lists ---------------------------------------------------------------------------------------------------


async def test_one_bad_job_stops_no_other(server):
    jobs = [JOB, {**JOB, "queue": ""}, {**JOB, "payload": "\0"}, {**JOB, "run_at": "2040-01-01T00:00:00Z"}, JOB]
    results = (await server.http("POST", "/v1/jobs:batch", {"jobs": jobs, "window_s": 60})).json["results"]
    assert ["job_id" in one for one in results] == [True, False, False, False, True]
    assert [one["error"]["status"] for one in results[1:4]] == [422, 422, 422]
    assert await server.stored() == 2


async def test_every_job_that_was_there_throughout_is_listed_once(server):
    body = {"jobs": [{**JOB, "delay_s": n, "tags": {"n": str(n % 3)}} for n in range(60)]}
    made = [one["job_id"] for one in (await server.http("POST", "/v1/jobs:batch", body)).json["results"]]
    seen, cursor = [], None
    while True:
        query = [("limit", "7"), *([("cursor", cursor)] if cursor else [])]
        page = (await server.http("GET", "/v1/jobs", query=query)).json
        seen += [one["job_id"] for one in page["items"]]
        await server.create(delay_s=3)
        await server.advance(1)
        for claimed in await server.claim(max=2):
            await server.complete(claimed)
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert [one for one in seen if one in made] == sorted(made, reverse=True)
    tagged = (await server.http("GET", "/v1/jobs", query="tag=n:1&limit=200")).json["items"]
    assert {one["job_id"] for one in tagged} == set(made[1::3])


async def test_lists_are_filtered(server):
    late, _ = await server.create(delay_s=500), await server.create(queue="letters")
    await server.advance(1)
    await server.create(tags={"a": "b:c"})

    async def count(query: str) -> int:
        return len((await server.http("GET", "/v1/jobs", query=query)).json["items"])

    assert await count("queue=mail") == 2
    assert await count("status=SCHEDULED") == 1
    assert await count("tag=a:b:c&queue=mail") == 1
    assert await count("schedule_id=sch_x") == 0
    assert await count("created_after=2030-03-17T17:46:41Z") == 1
    assert await count("created_before=2030-03-17T17:46:41Z") == 2
    assert (await server.http("GET", "/v1/jobs", query="status=SCHEDULED")).json["items"] == [await server.get(late)]
    assert (await server.http("GET", "/v1/jobs", token="tcs_stranger_secret")).json["items"] == []


# --- changes ----------------------------------------------------------------------------------------------------------


async def test_a_scheduled_job_is_changed_and_nothing_else_is(server):
    job = await server.create(delay_s=600, name="n", tags={"a": "b"}, target=HTTP)
    path = f"/v1/jobs/{job['job_id']}"
    changed = (await server.http("PATCH", path, {"delay_s": 900, "name": None}, headers={"If-Match": '"1"'})).json
    assert (changed["version"], changed["name"], changed["tags"]) == (2, None, {"a": "b"})
    assert changed["fire_at"] == "2030-03-17T18:01:40Z"
    assert changed["idempotency_key"] == job["idempotency_key"]
    same = (await server.http("PATCH", path, {"tags": {"a": "b"}})).json
    assert same["version"] == 2
    assert (await server.http("PATCH", path, {"priority": "low"}, headers={"If-Match": '"1"'})).status == 412
    assert (await server.http("PATCH", path, {})).status == 422
    assert (await server.http("PATCH", path, {"payload": "x" * 65_536})).status == 413
    assert (await server.http("PATCH", path, {"run_at": "2040-01-01T00:00:00Z"})).pointers == {"/run_at"}
    assert (await server.get(job))["version"] == 2
    fired = (await server.http("PATCH", path, {"run_at": "2000-01-01T00:00:00Z"})).json
    assert fired["status"] == "QUEUED"
    assert (await server.http("PATCH", path, {"name": "x"})).status == 409


async def test_a_job_is_cancelled_once_and_for_all(server):
    job = await server.create(delay_s=60)
    path = f"/v1/jobs/{job['job_id']}"
    for _ in range(2):
        reply = await server.http("DELETE", path)
        assert (reply.status, reply.json["status"]) == (200, "CANCELLED")
    assert (await server.http("POST", path + ":run-now")).status == 409
    running = await server.create()
    (claimed,) = await server.claim()
    for _ in range(2):
        reply = await server.http("DELETE", f"/v1/jobs/{running['job_id']}")
        assert (reply.status, reply.json["status"]) == (202, "CANCEL_REQUESTED")
    assert (await server.complete(claimed, "retryable_failure")).json == {"status": "CANCELLED"}
    done = await server.create()
    (claimed,) = await server.claim()
    await server.complete(claimed)
    assert (await server.http("DELETE", f"/v1/jobs/{done['job_id']}")).status == 409


async def test_run_now_runs_now(server):
    job = await server.create(delay_s=3600)
    reply = await server.http("POST", f"/v1/jobs/{job['job_id']}:run-now")
    assert (reply.status, reply.json["status"], reply.json["version"]) == (200, "QUEUED", 2)
    (claimed,) = await server.claim()
    assert claimed["idempotency_key"] == job["idempotency_key"]
    assert (await server.http("POST", f"/v1/jobs/{job['job_id']}:run-now")).status == 409


async def test_another_tenants_job_is_not_there_for_any_call(server):
    job = await server.create(delay_s=60)
    path = f"/v1/jobs/{job['job_id']}"
    for method, where, body in (
        ("GET", path, None),
        ("PATCH", path, {"name": "mine"}),
        ("DELETE", path, None),
        ("GET", path + "/attempts", None),
        ("POST", path + ":run-now", {}),
    ):
        reply = await server.http(method, where, b"" if body is None else body, token="tcs_stranger_secret")
        assert reply.status == 404, where
    assert (await server.get(job))["version"] == 1


async def test_an_id_of_any_form_is_simply_not_there(server):
    for job_id in ("x", "job_", "job_" + "0" * 26, "job_" + "Z" * 26, "job_" + "u" * 26, "JOB_x", "☃", "a" * 5000):
        for method, tail in (("GET", ""), ("DELETE", ""), ("GET", "/attempts"), ("POST", ":run-now")):
            assert (await server.http(method, f"/v1/jobs/{job_id}{tail}")).status == 404, job_id
