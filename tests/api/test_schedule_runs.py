"""The course of a schedule over the API: it runs, is paused and resumed, leaves runs out, runs beside its course and in arrears."""

import asyncio

import pytest

from tests.api.schedules import HOUR_S, HOURLY, TEMPLATE, schedule

KEY = {"Idempotency-Key": "k"}


async def test_a_schedule_runs_and_tells_of_it(server):
    kept = await schedule(server)
    await server.advance(13 * 60)
    assert await server.claim() == []
    await server.advance(20)
    (claimed,) = await server.claim()
    assert (claimed["schedule_id"], claimed["fire_at"]) == (kept.schedule_id, "2030-03-17T18:00:00Z")
    shown = await kept.get()
    assert (shown["runs"], shown["last_run_at"]) == (1, "2030-03-17T18:00:00Z")
    assert shown["next_run_at"] == "2030-03-17T19:00:00Z"
    await server.complete(claimed)
    assert (await kept.get())["last_status"] == "SUCCEEDED"
    await server.advance(HOUR_S)
    jobs = await kept.jobs()
    assert [(job["occurrence_at"][11:16], job["status"]) for job in jobs] == [
        ("20:00", "SCHEDULED"),
        ("19:00", "QUEUED"),
        ("18:00", "SUCCEEDED"),
    ]
    assert {job["origin"] for job in jobs} == {"schedule"}


async def test_jobs_of_a_schedule_are_read_page_by_page(server):
    kept = await schedule(server)
    for _ in range(6):
        await server.advance(HOUR_S)
    seen, cursor = [], None
    while True:
        query = [("limit", "2"), *([("cursor", cursor)] if cursor else [])]
        page = (await server.http("GET", f"{kept.path}/jobs", query=query)).json
        seen += [job["occurrence_at"] for job in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert seen == [f"2030-03-{18 if hour < 12 else 17}T{hour:02d}:00:00Z" for hour in (0, 23, 22, 21, 20, 19, 18)]


async def test_what_is_paused_does_not_run_and_leaves_one_skip(server):
    kept = await schedule(server)
    paused = await kept.patch(paused=True, pause_note="the bank is closed")
    assert (paused["status"], paused["paused"], paused["pause_note"]) == ("paused", True, "the bank is closed")
    assert (await kept.patch(paused=True))["status"] == "paused"
    assert await kept.waiting() == []
    await server.advance(3 * HOUR_S)
    assert await server.claim() == []
    resumed = await kept.patch(paused=False)
    assert (resumed["status"], resumed["paused"], resumed["pause_note"]) == ("active", False, None)
    assert (resumed["next_run_at"], resumed["runs"]) == ("2030-03-17T21:00:00Z", 0)
    assert await server.claim() == []
    (skip,) = await kept.skips()
    assert (skip["from"], skip["to"]) == ("2030-03-17T18:00:00Z", "2030-03-17T20:00:00Z")
    assert (skip["count"], skip["reason"]) == (3, "paused")
    assert set(skip) == {"from", "to", "count", "reason", "recorded_at", "detail"}
    await server.advance(HOUR_S)
    assert len(await server.claim()) == 1


async def test_a_pause_may_end_by_itself(server):
    kept = await schedule(server)
    shown = await kept.patch(paused=True, pause_until="2030-03-17T19:30:00Z")
    assert (shown["status"], shown["pause_until"]) == ("paused", "2030-03-17T19:30:00Z")
    assert shown["next_run_at"] == "2030-03-17T20:00:00Z"
    await server.advance(2 * HOUR_S)
    assert await server.claim() == []
    shown = await kept.get()
    assert (shown["status"], shown["paused"], shown["pause_until"]) == ("active", False, None)
    await server.advance(HOUR_S)
    (claimed,) = await server.claim()
    assert claimed["fire_at"] == "2030-03-17T20:00:00Z"
    assert [(skip["count"], skip["reason"]) for skip in await kept.skips()] == [(2, "paused")]


async def test_a_schedule_may_begin_paused(server):
    kept = await schedule(server, paused=True, pause_note="not yet")
    shown = await kept.get()
    assert (shown["status"], shown["pause_note"]) == ("paused", "not yet")
    await server.advance(2 * HOUR_S)
    assert await server.claim() == []
    assert (await kept.patch(paused=None))["status"] == "active"


async def test_skip_next_leaves_one_more_out_each_time(server):
    kept = await schedule(server)
    for hour in (19, 20):
        reply = await kept.act("skip-next")
        assert (reply.status, reply.json["next_run_at"]) == (200, f"2030-03-17T{hour}:00:00Z")
    assert await kept.waiting() == ["2030-03-17T20:00:00Z"]
    skips = await kept.skips()
    assert {skip["reason"] for skip in skips} == {"skipped_by_user"}
    assert sum(skip["count"] for skip in skips) == 2
    await server.advance(3 * HOUR_S)
    assert [one["fire_at"] for one in await server.claim()] == ["2030-03-17T20:00:00Z"]


async def test_without_a_next_run_none_can_be_skipped(server):
    kept = await schedule(server, end_at="2030-03-17T18:30:00Z")
    assert (await kept.act("skip-next")).status == 200
    shown = await kept.get()
    assert (shown["status"], shown["next_run_at"], shown["next_runs"]) == ("finished", None, [])
    assert (await kept.act("skip-next")).status == 409
    assert (await kept.act("trigger")).status == 409


async def test_to_cancel_the_waiting_job_is_to_skip_it(server):
    kept = await schedule(server)
    (job,) = await kept.jobs()
    path = f"/v1/jobs/{job['job_id']}"
    assert (await server.http("PATCH", path, {"run_at": "2030-03-18T00:00:00Z"})).status == 409
    wider = {"timing": {"class": "flexible", "window_s": 7_200}}
    assert (await server.http("PATCH", path, wider)).json["type"] == "/problems/occurrence-time"
    reply = await server.http("DELETE", path)
    assert (reply.status, reply.json["status"]) == (200, "CANCELLED")
    assert (await kept.get())["next_run_at"] == "2030-03-17T19:00:00Z"
    assert [(skip["count"], skip["reason"]) for skip in await kept.skips()] == [(1, "skipped_by_user")]


async def test_a_waiting_job_that_is_run_now_is_the_occurrence(server):
    kept = await schedule(server)
    (job,) = await kept.jobs()
    assert (await server.http("POST", f"/v1/jobs/{job['job_id']}:run-now")).json["status"] == "QUEUED"
    assert (await kept.get())["next_run_at"] == "2030-03-17T19:00:00Z"
    await server.advance(1000)
    assert [one["job_id"] for one in await server.claim()] == [job["job_id"]]


# --- trigger ----------------------------------------------------------------------------------------------------------


async def test_a_trigger_runs_beside_the_schedule(server):
    kept = await schedule(server, job_template={**TEMPLATE, "payload": {"report": "daily"}})
    reply = await kept.act("trigger")
    assert (reply.status, reply.json["origin"], reply.json["status"]) == (201, "manual", "QUEUED")
    assert (reply.json["schedule_id"], reply.json["payload"]) == (kept.schedule_id, {"report": "daily"})
    for payload in ({"report": "again"}, None):
        assert (await kept.act("trigger", {"payload": payload})).json["payload"] == payload
    shown = await kept.get()
    assert (shown["next_run_at"], shown["runs"], shown["revision"]) == ("2030-03-17T18:00:00Z", 0, 1)
    assert len(await server.claim()) == 3
    await kept.patch(paused=True)
    assert (await kept.act("trigger")).status == 201
    assert len([job for job in await kept.jobs() if job["origin"] == "manual"]) == 4


async def test_a_repeated_trigger_is_the_same_job_also_after_its_end(server):
    kept = await schedule(server)
    first = await kept.act("trigger", {"payload": 1}, headers=KEY)
    assert (first.status, "idempotency-replayed" in first.headers) == (201, False)
    (claimed,) = await server.claim()
    await server.complete(claimed)
    again = await kept.act("trigger", b'{ "payload" : 1.0 }', headers=KEY)
    assert (again.status, again.headers["idempotency-replayed"]) == (200, "true")
    assert (again.json["job_id"], again.json["status"]) == (first.json["job_id"], "SUCCEEDED")
    assert (await kept.act("trigger", {"payload": 2}, headers=KEY)).status == 409
    assert (await kept.act("trigger", headers=KEY)).status == 409
    assert await server.claim() == []


async def test_of_many_parallel_triggers_with_one_key_one_makes_the_job(server):
    kept = await schedule(server)
    replies = await asyncio.gather(*(kept.act("trigger", headers=KEY) for _ in range(20)))
    assert sorted(reply.status for reply in replies) == [200] * 19 + [201]
    assert len({reply.json["job_id"] for reply in replies}) == 1
    assert len(await server.claim()) == 1


async def test_a_key_means_one_thing_whatever_it_was_used_for_first(server):
    first, second = await schedule(server, "a"), await schedule(server, "b")
    assert (await first.act("trigger", headers=KEY)).status == 201
    assert (await second.act("trigger", headers=KEY)).status == 409
    job = {"queue": "mail", "target": TEMPLATE["target"]}
    assert (await server.http("POST", "/v1/jobs", job, headers=KEY)).status == 409
    assert (await server.http("POST", "/v1/jobs", job, headers={"Idempotency-Key": "j"})).status == 201
    assert (await first.act("trigger", headers={"Idempotency-Key": "j"})).status == 409


# --- backfill ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "hours"), [("oldest_first", [9, 10, 11]), ("newest_first", [11, 10, 9])])
async def test_a_backfill_runs_a_time_that_is_over_one_after_another(server, order, hours):
    kept = await schedule(server)
    span = {"from": "2030-03-17T09:00:00Z", "to": "2030-03-17T12:00:00Z", "order": order}
    reply = await kept.act("backfill", span)
    assert (reply.status, reply.json["count"]) == (202, 3)
    assert reply.json["backfill_id"]
    seen = []
    for _ in hours:
        await server.advance(5)
        (claimed,) = await server.claim()
        job = (await server.http("GET", f"/v1/jobs/{claimed['job_id']}")).json
        assert (job["origin"], job["schedule_id"]) == ("backfill", kept.schedule_id)
        seen.append(job["occurrence_at"])
        await server.complete(claimed)
    assert seen == [f"2030-03-17T{hour:02d}:00:00Z" for hour in hours]
    await server.advance(5)
    assert await server.claim() == []
    shown = await kept.get()
    assert (shown["runs"], shown["next_run_at"]) == (0, "2030-03-17T18:00:00Z")


async def test_a_backfill_may_run_several_at_once(server):
    kept = await schedule(server)
    span = {"from": "2030-03-17T00:00:00Z", "to": "2030-03-17T10:00:00Z", "concurrency": 4}
    assert (await kept.act("backfill", span)).json["count"] == 10
    await server.advance(5)
    first = await server.claim()
    assert len(first) == 4
    for one in first[:2]:
        await server.complete(one)
    await server.advance(5)
    assert len(await server.claim()) == 2


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"to": "2030-03-17T17:46:41Z"}, "/to"),
        ({"from": "2030-03-17T12:00:00Z", "to": "2030-03-17T09:00:00Z"}, None),
        ({"from": "2030-03-01T00:00:00Z", "max": 24}, "/max"),
    ],
)
async def test_a_backfill_that_is_too_much_or_not_over_is_422(server, changes, pointer):
    kept = await schedule(server)
    span = {"from": "2030-03-17T09:00:00Z", "to": "2030-03-17T12:00:00Z", **changes}
    reply = await kept.act("backfill", span)
    assert reply.status == 422
    assert pointer is None or reply.pointers == {pointer}
    assert await server.stored() == 1


# --- bounds -----------------------------------------------------------------------------------------------------------


async def test_a_schedule_ends_after_so_many_runs(server):
    kept = await schedule(server, max_runs=2)
    assert len((await kept.get())["next_runs"]) == 2
    for _ in range(4):
        await server.advance(HOUR_S)
    assert len(await server.claim()) == 2
    shown = await kept.get()
    assert (shown["status"], shown["runs"], shown["next_run_at"]) == ("finished", 2, None)
    assert (await kept.act("trigger")).status == 409
    assert [
        one["name"] for one in (await server.http("GET", "/v1/schedules", query="status=finished")).json["items"]
    ] == ["report"]
    assert (await kept.patch(max_runs=None))["status"] == "active"


async def test_a_schedule_runs_between_its_start_and_its_end(server):
    kept = await schedule(server, start_at="2030-03-17T19:00:00Z", end_at="2030-03-17T21:00:00Z")
    assert [run["at"][11:13] for run in (await kept.get())["next_runs"]][:2] == ["19", "20"]
    for _ in range(5):
        await server.advance(HOUR_S)
    starts = sorted(one["fire_at"][11:13] for one in await server.claim())
    assert starts[:2] == ["19", "20"]
    assert (await kept.get())["status"] == "finished"


async def test_an_upsert_of_what_was_deleted_makes_a_new_one(server):
    kept = await schedule(server)
    await server.http("DELETE", kept.path)
    reply = await server.http("PUT", "/v1/schedules/by-name/report", HOURLY)
    assert (reply.status, reply.json["revision"]) == (201, 1)


async def test_a_page_of_skips_is_no_longer_than_its_limit_while_a_pause_goes_on(server):
    kept = await schedule(server, cron="0 */2 * * *")
    for _ in range(3):
        await server.advance(4 * HOUR_S)
        await kept.act("skip-next")
    await kept.patch(paused=True)
    await server.advance(8 * HOUR_S)
    for limit in (1, 2, 3):
        seen, cursor = [], None
        for _ in range(5):
            query = [("limit", str(limit)), *([("cursor", cursor)] if cursor else [])]
            page = (await server.http("GET", f"{kept.path}/skips", query=query)).json
            assert len(page["items"]) <= limit
            seen += [skip["reason"] for skip in page["items"]]
            if (cursor := page["next_cursor"]) is None:
                break
        assert seen == ["paused", *["skipped_by_user"] * 3], limit


async def test_a_pause_that_ends_after_the_last_run_leaves_the_schedule_finished(server):
    kept = await schedule(server, end_at="2030-03-17T18:30:00Z")
    await kept.patch(paused=True, pause_until="2030-03-17T19:00:00Z")
    server.process.clock.advance(2 * HOUR_S)  # before anybody has looked at it
    shown = await kept.get()
    assert (shown["status"], shown["paused"], shown["next_run_at"]) == ("finished", False, None)
    await server.advance(HOUR_S)
    assert (await kept.get())["status"] == "finished"
    assert [(skip["count"], skip["reason"]) for skip in await kept.skips()] == [(1, "paused")]
