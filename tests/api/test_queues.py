"""Queues and dead letters over HTTP."""


async def dead(server, count: int, **changes) -> list[dict]:
    jobs = [await server.create(**changes) for _ in range(count)]
    for claimed in await server.claim():
        await server.complete(claimed, "fatal_failure", error="boom 503")
        await server.advance(1)
    return jobs


async def test_a_queue_comes_into_being_with_its_first_job(server):
    assert (await server.http("GET", "/v1/queues/mail")).status == 404
    assert (await server.http("GET", "/v1/queues")).json["items"] == []
    await server.create()
    await server.create(delay_s=60)
    shown = (await server.http("GET", "/v1/queues/mail")).json
    assert (shown["paused"], shown["lease_s"]) == (False, 30.0)
    assert (shown["stats"]["scheduled"], shown["stats"]["ready"]) == (1, 1)
    assert (await server.http("GET", "/v1/queues")).json["items"] == [shown]
    assert (await server.http("GET", "/v1/queues/mail", token="tcs_stranger_secret")).status == 404


async def test_settings_survive_a_look(server):
    body = {"paused": True, "pause_note": "x", "lease_s": 60, "retry": {"max_attempts": 2}}
    put = await server.http("PUT", "/v1/queues/new", body)
    assert put.status == 200
    assert (await server.http("GET", "/v1/queues/new")).json == put.json
    await server.http("PUT", "/v1/queues/new", {"paused": False})
    await server.create(queue="new")
    (claimed,) = await server.claim("new")
    assert (claimed["lease_s"], claimed["max_attempts"]) == (60.0, 2)


async def test_dead_letters_are_listed_redriven_and_discarded(server):
    jobs = await dead(server, 5)
    path = "/v1/queues/mail/dead-letters"
    seen, cursor = [], None
    while True:
        query = [("limit", "2"), *([("cursor", cursor)] if cursor else [])]
        page = (await server.http("GET", path, query=query)).json
        seen += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert {one["job_id"] for one in seen} == {one["job_id"] for one in jobs}
    assert [one["finished_at"] for one in seen] == sorted((one["finished_at"] for one in seen), reverse=True)
    assert {one["status"] for one in seen} == {"DEAD"}
    dry = await server.http("POST", path + ":redrive", {"filter": {"error_contains": "503"}, "dry_run": True})
    assert dry.json == {"matched": 5, "redriven": 0}
    none = await server.http("POST", path + ":redrive", {"filter": {"error_contains": "504"}})
    assert none.json == {"matched": 0, "redriven": 0}
    one = await server.http("POST", path + ":redrive", {"job_ids": [jobs[0]["job_id"], "nonsense"]})
    assert one.json == {"matched": 1, "redriven": 1}
    assert (await server.get(jobs[0]))["status"] in ("RETRYING", "QUEUED")
    gone = await server.http("POST", path + ":discard", {"filter": {}, "max": 3})
    assert gone.json == {"matched": 4, "discarded": 3}
    assert len((await server.http("GET", path)).json["items"]) == 1
    other = await server.http("POST", path + ":discard", {"filter": {}}, token="tcs_stranger_secret")
    assert other.json == {"matched": 0, "discarded": 0}


async def test_a_redriven_job_keeps_its_key_and_its_number(server):
    (job,) = await dead(server, 1)
    await server.http("POST", "/v1/queues/mail/dead-letters:redrive", {"filter": {}})
    await server.advance(1)
    (claimed,) = await server.claim()
    assert (claimed["attempt"], claimed["tries"]) == (2, 1)
    assert claimed["idempotency_key"] == job["idempotency_key"]
