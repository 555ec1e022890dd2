"""Claims, heartbeats and reports over HTTP."""

import pytest


async def test_a_claim_hands_out_everything_a_worker_needs(server):
    job = await server.create(name="n", payload={"a": [1]}, tags={"t": "v"}, delay_s=2)
    assert await server.claim() == []
    await server.advance(2)
    (claimed,) = await server.claim(lease_s=20)
    token = claimed.pop("lease_token")
    assert claimed == {
        "job_id": job["job_id"],
        "attempt": 1,
        "tries": 1,
        "max_attempts": 6,
        "lease_until": "2030-03-17T17:47:02Z",
        "lease_s": 20.0,
        "idempotency_key": job["idempotency_key"],
        "handler": "send",
        "payload": {"a": [1]},
        "timeout_s": 3600.0,
        "run_at": "2030-03-17T17:46:42Z",
        "fire_at": "2030-03-17T17:46:42Z",
        "queue": "mail",
        "name": "n",
        "tags": {"t": "v"},
        "schedule_id": None,
        "progress": None,
        "traceparent": None,
    }
    running = await server.get(job)
    assert (running["status"], running["worker"], running["lease_until"]) == ("RUNNING", "w-1", "2030-03-17T17:47:02Z")
    beaten = await server.http("POST", f"/v1/attempts/{token}:heartbeat", {"progress": {"done": 1}})
    assert beaten.json == {"lease_until": "2030-03-17T17:47:02Z", "lease_s": 20.0, "cancel_requested": False}
    assert (await server.get(job))["progress"] == {"done": 1}


async def test_an_unknown_and_a_paused_queue_give_nothing(server):
    assert await server.claim("nothing-here") == []
    await server.create()
    await server.http("PUT", "/v1/queues/mail", {"paused": True})
    assert await server.claim() == []
    await server.http("PUT", "/v1/queues/mail", {"paused": False})
    assert len(await server.claim()) == 1


async def test_a_repeated_request_gets_the_same_jobs(server):
    for _ in range(3):
        await server.create()
    first = await server.claim(max=2, request_id="r1")
    assert await server.claim(max=2, request_id="r1") == first
    assert len(await server.claim(request_id="r2")) == 1


async def test_the_recorded_outcome_may_be_repeated_and_no_other(server):
    await server.create()
    (claimed,) = await server.claim()
    for _ in range(3):
        assert (await server.complete(claimed)).json == {"status": "SUCCEEDED"}
    late = await server.complete(claimed, "fatal_failure")
    assert (late.status, late.kind) == (409, "attempt-superseded")
    beat = await server.http("POST", f"/v1/attempts/{claimed['lease_token']}:heartbeat")
    assert (beat.status, beat.kind) == (409, "attempt-superseded")


async def test_a_result_that_is_too_large_leaves_the_attempt_open(server):
    job = await server.create()
    (claimed,) = await server.claim()
    assert (await server.complete(claimed, result="x" * 16_384)).status == 413
    assert (await server.get(job))["status"] == "RUNNING"
    assert (await server.complete(claimed, result={"ok": True})).status == 200
    assert (await server.get(job))["result"] == {"ok": True}


async def test_a_long_error_is_kept_in_part(server):
    job = await server.create()
    (claimed,) = await server.claim()
    reply = await server.complete(claimed, "fatal_failure", error="ä" * 100_000)
    assert reply.json == {"status": "DEAD"}
    error = (await server.get(job))["last_error"]
    assert len(error.encode()) <= 8 * 1024
    assert error.endswith("… (cut)")


async def test_cancelled_needs_a_request(server):
    job = await server.create()
    (claimed,) = await server.claim()
    reply = await server.complete(claimed, "cancelled")
    assert (reply.status, reply.pointers) == (422, {"/outcome"})
    await server.http("DELETE", f"/v1/jobs/{job['job_id']}")
    assert (await server.complete(claimed, "cancelled")).json == {"status": "CANCELLED"}


async def test_a_rescued_attempt_is_superseded(server):
    job = await server.create()
    (claimed,) = await server.claim(lease_s=5)
    await server.advance(10)
    (again,) = await server.claim()
    assert (again["job_id"], again["attempt"]) == (job["job_id"], 2)
    late = await server.complete(claimed)
    assert (late.status, late.kind) == (409, "attempt-superseded")
    assert (await server.complete(again)).json == {"status": "SUCCEEDED"}
    attempts = (await server.http("GET", f"/v1/jobs/{job['job_id']}/attempts")).json
    assert [(one["attempt"], one["outcome"]) for one in attempts["items"]] == [(1, "lost"), (2, "succeeded")]
    assert attempts["next_cursor"] is None


@pytest.mark.parametrize("who", ["tcs_stranger_secret", "tcs_owner_secret"])
async def test_a_token_of_another_tenant_or_a_forged_one_is_404(server, who):
    await server.create()
    (claimed,) = await server.claim()
    token = claimed["lease_token"]
    if who == "tcs_owner_secret":
        token = token.replace("~1~", "~2~")
    for action, body in (("heartbeat", {}), ("complete", {"outcome": "succeeded"})):
        assert (await server.http("POST", f"/v1/attempts/{token}:{action}", body, token=who)).status == 404
    batch = await server.http(
        "POST", "/v1/attempts:complete", {"items": [{"token": token, "outcome": "succeeded"}]}, token=who
    )
    assert batch.json["results"][0]["error"]["status"] == 404
    assert (await server.complete(claimed)).status == 200


async def test_a_batch_of_reports_is_answered_in_order(server):
    for _ in range(4):
        await server.create()
    claimed = await server.claim()
    tokens = [one["lease_token"] for one in claimed]
    beats = (await server.http("POST", "/v1/attempts:heartbeat", {"tokens": [*tokens, "x"]})).json["results"]
    assert [one["token"] for one in beats] == [*tokens, "x"]
    assert beats[-1]["error"]["status"] == 404
    outcomes = ["succeeded", "retryable_failure", "fatal_failure", "released"]
    items = [{"token": token, "outcome": outcome} for token, outcome in zip(tokens, outcomes, strict=True)]
    results = (await server.http("POST", "/v1/attempts:complete", {"items": items})).json["results"]
    assert [one["status"] for one in results] == ["SUCCEEDED", "RETRYING", "DEAD", "RETRYING"]


async def test_an_executor_gets_callbacks_of_every_tenant_with_everything_it_needs(server):
    await server.http("POST", "/v1/tenants/shop/signing-keys")
    target = {"type": "http", "url": "https://a.example/x", "headers": {"X-Key": "open"}}
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    body = {"queue": "hooks", "target": target, "payload": {"a": 1}}
    await server.http("POST", "/v1/jobs", body, headers={"traceparent": trace})
    await server.http("POST", "/v1/jobs", body, token="tcs_stranger_secret")
    assert await server.claim("hooks") == []
    reply = await server.http("POST", "/v1/executor:claim", {"worker": "e", "max": 10}, token="tcs_executor_secret")
    by_tenant = {one["tenant"]: one for one in reply.json["jobs"]}
    assert set(by_tenant) == {"shop", "other"}
    mine = by_tenant["shop"]
    assert mine["target"]["headers"] == {"X-Key": "open"}
    assert mine["traceparent"] == trace
    assert mine["signature_headers"]["Webhook-Signature"].startswith("v1,")
    path = f"/v1/attempts/{mine['lease_token']}:complete"
    report = {"outcome": "succeeded", "status_code": 204, "response": {"headers": {"x": "y"}, "body": ""}}
    assert (await server.http("POST", path, report)).status == 422
    assert (await server.http("POST", path, report, token="tcs_executor_secret")).json == {"status": "SUCCEEDED"}
    (attempt,) = (await server.http("GET", f"/v1/jobs/{mine['job_id']}/attempts")).json["items"]
    assert (attempt["status_code"], attempt["outcome"]) == (204, "succeeded")
