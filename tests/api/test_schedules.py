"""Schedules as their owner sees them: defined, shown, changed, listed, deleted; and what each refuses."""

import asyncio
import json
from typing import Any

import pytest

from tests.api.schedules import BY_NAME, HOUR_S, HOURLY, TEMPLATE, Kept, schedule
from tests.unit.api.test_schedules import FIELDS

HTTP = {"type": "http", "url": "https://a.example/x", "headers": {"Authorization": "Bearer abc"}}


# --- create -----------------------------------------------------------------------------------------------------------


async def test_a_schedule_is_shown_as_it_was_asked_for(server):
    asked: dict[str, Any] = {
        "name": "merchant-settlement-report",
        "cron": "0 2 * * *",
        "time_zone": "Asia/Kolkata",
        "job_template": {
            "queue": "settlements",
            "target": HTTP,
            "name": "settle",
            "payload": {"report": "daily"},
            "priority": "high",
            "retry": {"max_attempts": 3},
            "timing": {"class": "flexible", "window_s": 60, "may_widen": False},
            "expires_after_s": 600,
            "tags": {"region": "IN"},
        },
        "missed_runs": {"policy": "run_all", "starting_deadline_s": 900, "max_catch_up": 5},
        "overlap": "forbid",
        "start_at": "2030-03-18T00:00:00+05:30",
        "end_at": "2030-04-18T00:00:00Z",
        "max_runs": 10,
    }
    reply = await server.http("POST", "/v1/schedules", asked)
    assert reply.status == 201
    shown = reply.json
    assert list(shown) == FIELDS
    assert shown == await Kept(server, shown["schedule_id"]).get()
    for name in ("name", "cron", "time_zone", "missed_runs", "overlap", "end_at", "max_runs"):
        assert shown[name] == asked[name]
    assert shown["start_at"] == "2030-03-17T18:30:00Z"
    template = shown["job_template"]
    assert template["target"]["headers"] == {"Authorization": "***"}
    for name in ("queue", "name", "payload", "priority", "timing", "expires_after_s", "tags"):
        assert template[name] == asked["job_template"][name]
    assert shown["next_run_at"] == "2030-03-17T20:30:00Z"
    assert [run["at"] for run in shown["next_runs"]] == [f"2030-03-{day}T20:30:00Z" for day in range(17, 22)]
    assert shown["next_runs"][0]["local"] == "2030-03-18T02:00:00+05:30"


async def test_what_is_left_out_has_its_default(server):
    shown = await (await schedule(server)).get()
    assert (shown["status"], shown["revision"], shown["paused"], shown["overlap"]) == ("active", 1, False, "allow")
    assert (shown["time_zone"], shown["every_s"], shown["start_at"], shown["end_at"]) == ("UTC", None, None, None)
    assert shown["missed_runs"] == {"policy": "run_latest", "starting_deadline_s": None, "max_catch_up": 100}
    assert (shown["runs"], shown["last_run_at"], shown["last_status"]) == (0, None, None)
    assert (shown["max_runs"], shown["pause_note"], shown["pause_until"]) == (None, None, None)
    assert (shown["broken_reason"], shown["created_at"]) == (None, "2030-03-17T17:46:40Z")
    assert shown["explanation"]
    assert shown["next_run_at"] == "2030-03-17T18:00:00Z"
    assert shown["job_template"]["payload"] is None


async def test_an_interval_runs_first_one_interval_after_its_creation(server):
    shown = await (await schedule(server, cron=None, every_s=600)).get()
    assert (shown["cron"], shown["every_s"], shown["anchor"]) == (None, 600.0, "2030-03-17T17:46:40Z")
    assert [run["at"][11:] for run in shown["next_runs"][:2]] == ["17:56:40Z", "18:06:40Z"]
    anchored = await (await schedule(server, "b", cron=None, every_s=HOUR_S, anchor="2030-01-01T00:15:00Z")).get()
    assert anchored["next_run_at"] == "2030-03-17T18:15:00Z"


async def test_one_occurrence_waits_as_an_ordinary_job(server):
    kept = await schedule(server, job_template={**TEMPLATE, "payload": {"a": 1}, "tags": {"k": "v"}})
    (job,) = await kept.jobs()
    assert (job["status"], job["origin"], job["schedule_id"]) == ("SCHEDULED", "schedule", kept.schedule_id)
    assert (job["occurrence_at"], job["run_at"], job["fire_at"]) == ("2030-03-17T18:00:00Z",) * 3
    assert (job["queue"], job["payload"], job["tags"]) == ("mail", {"a": 1}, {"k": "v"})
    listed = (await server.http("GET", "/v1/jobs", query=[("schedule_id", kept.schedule_id)])).json["items"]
    assert listed == [job]
    assert await server.get(job) == job


async def test_a_second_create_is_409_with_the_first_ones_id(server):
    kept = await schedule(server)
    reply = await server.http("POST", "/v1/schedules", {"name": "report", **HOURLY, "cron": "5 5 * * *"})
    assert (reply.status, reply.json["schedule_id"]) == (409, kept.schedule_id)
    other = await server.http("POST", "/v1/schedules", {"name": "report", **HOURLY}, token="tcs_stranger_secret")
    assert other.status == 201
    assert (await kept.get())["cron"] == "0 * * * *"


async def test_of_many_parallel_creates_of_one_name_one_is_made(server):
    body = {"name": "report", **HOURLY}
    replies = await asyncio.gather(*(server.http("POST", "/v1/schedules", body) for _ in range(20)))
    assert sorted(reply.status for reply in replies) == [201] + [409] * 19
    assert len({reply.json["schedule_id"] for reply in replies}) == 1
    assert await server.stored() == 1


@pytest.mark.parametrize(
    ("changes", "pointers"),
    [
        ({"cron": None}, {"/cron", "/every_s"}),
        ({"every_s": 60}, {"/cron", "/every_s"}),
        ({"cron": "0 25 * * *"}, {"/cron"}),
        ({"cron": "0 0 31 2 *"}, {"/cron"}),
        ({"cron": "* * * *"}, {"/cron"}),
        ({"time_zone": "Mars/Base"}, {"/time_zone"}),
        ({"time_zone": "+05:30"}, {"/time_zone"}),
        ({"time_zone": "../../etc/passwd"}, {"/time_zone"}),
        ({"start_at": "2030-04-01T00:00:00Z", "end_at": "2030-03-31T00:00:00Z"}, {"/end_at"}),
        ({"every_s": 0, "cron": None}, {"/every_s"}),
        ({"job_template": {**TEMPLATE, "target": {**HTTP, "url": "ftp://a.example"}}}, {"/job_template/target/url"}),
        ({"job_template": {**TEMPLATE, "retry": {"max_backoff_s": 9}}}, {"/job_template/retry/initial_backoff_s"}),
    ],
)
async def test_what_needs_more_than_one_field_is_judged_too(server, changes, pointers):
    body = {**HOURLY, **changes}
    for method, path, sent in (
        ("POST", "/v1/schedules", {"name": "report", **body}),
        ("PUT", BY_NAME + "report", body),
    ):
        reply = await server.http(method, path, sent)
        assert (reply.status, reply.kind) == (422, "invalid")
        assert reply.pointers == pointers
    assert (await server.http("GET", "/v1/schedules")).json["items"] == []
    assert await server.stored() == 0


# --- upsert -----------------------------------------------------------------------------------------------------------


async def test_an_upsert_that_changes_nothing_keeps_the_revision(server):
    body = {**HOURLY, "job_template": {**TEMPLATE, "payload": {"b": 1, "a": [1, 2]}}}
    made = await server.http("PUT", BY_NAME + "report", body)
    assert (made.status, made.json["revision"]) == (201, 1)
    await server.advance(60)
    turned = json.dumps(dict(reversed(list(body.items()))), indent=2).encode()
    said = {**body, "name": "report", "time_zone": "UTC", "overlap": "allow", "missed_runs": {}, "max_runs": None}
    spelled = {**said, "job_template": {"payload": {"a": [1, 2], "b": 1}, **TEMPLATE, "tags": None}}
    for sent in (body, turned, said, spelled):
        again = await server.http("PUT", BY_NAME + "report", sent)
        assert (again.status, again.json) == (200, made.json)
    assert await server.stored() == 1


async def test_an_upsert_that_changes_something_is_a_new_revision(server):
    kept = await schedule(server)
    changed = await server.http("PUT", BY_NAME + "report", {**HOURLY, "cron": "30 * * * *"})
    assert (changed.status, changed.json["revision"], changed.json["schedule_id"]) == (200, 2, kept.schedule_id)
    assert changed.json["next_run_at"] == "2030-03-17T18:30:00Z"
    assert await kept.waiting() == ["2030-03-17T18:30:00Z"]


async def test_an_upsert_undoes_nobodys_pause(server):
    kept = await schedule(server)
    paused = await kept.patch(paused=True, pause_note="stocktaking")
    again = (await server.http("PUT", BY_NAME + "report", HOURLY)).json
    assert (again["paused"], again["pause_note"], again["revision"]) == (True, "stocktaking", paused["revision"])
    changed = (await server.http("PUT", BY_NAME + "report", {**HOURLY, "cron": "1 * * * *"})).json
    assert (changed["paused"], changed["pause_note"], changed["cron"]) == (True, "stocktaking", "1 * * * *")
    assert await kept.waiting() == []
    assert (await server.http("PUT", BY_NAME + "report", {**HOURLY, "paused": False})).json["status"] == "active"


async def test_parallel_upserts_leave_one_next_occurrence(server):
    bodies = [{**HOURLY, "cron": f"{minute} * * * *"} for minute in (1, 2, 3, 4)] * 5
    replies = await asyncio.gather(*(server.http("PUT", BY_NAME + "report", body) for body in bodies))
    assert sorted({reply.status for reply in replies}) == [200, 201]
    assert [reply.status for reply in replies].count(201) == 1
    kept = Kept(server, replies[0].json["schedule_id"])
    shown = await kept.get()
    assert await kept.waiting() == [shown["next_run_at"]]
    assert shown["next_run_at"][14:16] == f"{int(shown['cron'][0]):02d}"


@pytest.mark.parametrize("name", ["a/b:trigger", "x?y#z%2F", "mail:jobs", "ü 😀", "{name}", "x" * 200])
async def test_any_name_can_be_upserted_and_found(server, name):
    made = await server.http("PUT", BY_NAME + name, HOURLY)
    assert (made.status, made.json["name"]) == (201, name)
    found = (await server.http("GET", "/v1/schedules", query=[("name", name)])).json["items"]
    assert [one["schedule_id"] for one in found] == [made.json["schedule_id"]]


async def test_a_worker_may_declare_schedules_of_its_own_queue_only(server):
    worker = await server.give("tcs_worker_secret", "work:mail")
    reader = await server.give("tcs_reader_secret", "read")
    other = {**HOURLY, "job_template": {**TEMPLATE, "queue": "settlements"}}
    await schedule(server, "theirs", job_template=other["job_template"])
    assert (await server.http("PUT", BY_NAME + "report", HOURLY, token=worker)).status == 201
    assert (await server.http("PUT", BY_NAME + "report", HOURLY, token=worker)).status == 200
    for name, body in (("second", other), ("theirs", HOURLY), ("theirs", other)):
        assert (await server.http("PUT", BY_NAME + name, body, token=worker)).status == 403
    assert (await server.http("PUT", BY_NAME + "report", HOURLY, token=reader)).status == 403
    assert (await server.http("POST", "/v1/schedules", {"name": "x", **HOURLY}, token=worker)).status == 403
    assert (await server.http("GET", "/v1/schedules", token=worker)).status == 403
    assert (await server.http("GET", "/v1/schedules", token=reader)).status == 200


# --- change -----------------------------------------------------------------------------------------------------------


async def test_a_change_of_the_timing_moves_the_waiting_occurrence(server):
    kept = await schedule(server)
    changed = await kept.patch(cron="15 * * * *", time_zone="Asia/Kolkata")
    assert (changed["revision"], changed["next_run_at"]) == (2, "2030-03-17T18:45:00Z")
    assert await kept.waiting() == ["2030-03-17T18:45:00Z"]
    interval = await kept.patch(cron=None, every_s=60, anchor="2030-03-17T00:00:00Z")
    assert (interval["cron"], interval["next_run_at"]) == (None, "2030-03-17T17:47:00Z")
    cron = await kept.patch(every_s=None, cron="0 * * * *", time_zone=None)
    assert (cron["every_s"], cron["next_run_at"]) == (None, "2030-03-17T18:00:00Z")


async def test_a_timing_of_the_other_kind_takes_the_place_of_the_one_before(server):
    kept = await schedule(server)
    interval = await kept.patch(every_s=600)
    assert (interval["cron"], interval["next_run_at"]) == (None, "2030-03-17T17:56:40Z")
    cron = await kept.patch(cron="0 * * * *")
    assert (cron["every_s"], cron["next_run_at"]) == (None, "2030-03-17T18:00:00Z")
    assert await kept.waiting() == ["2030-03-17T18:00:00Z"]


async def test_a_change_of_the_template_changes_the_waiting_job_in_place(server):
    kept = await schedule(server)
    (before,) = await kept.jobs()
    await kept.patch(job_template={**TEMPLATE, "payload": {"new": True}})
    (after,) = [job for job in await kept.jobs() if job["status"] == "SCHEDULED"]
    assert (after["payload"], after["occurrence_at"]) == ({"new": True}, before["occurrence_at"])
    await server.advance(HOUR_S)
    (claimed,) = await server.claim()
    assert claimed["payload"] == {"new": True}


async def test_a_change_that_changes_nothing_keeps_the_revision(server):
    kept = await schedule(server)
    assert (await kept.patch(cron="0 * * * *", overlap=None, max_runs=None, time_zone=None))["revision"] == 1


async def test_null_in_a_change_is_the_default(server):
    kept = await schedule(
        server, time_zone="Asia/Kolkata", overlap="forbid", max_runs=5, missed_runs={"policy": "skip"}
    )
    shown = await kept.patch(time_zone=None, overlap=None, max_runs=None, missed_runs=None)
    assert (shown["time_zone"], shown["overlap"], shown["max_runs"]) == ("UTC", "allow", None)
    assert shown["missed_runs"]["policy"] == "run_latest"


async def test_if_match_is_the_revision(server):
    kept = await schedule(server)
    for wrong in ('"2"', '"0"', "x", 'W/"1"'):
        reply = await server.http("PATCH", kept.path, {"overlap": "forbid"}, headers={"If-Match": wrong})
        assert (reply.status, (await kept.get())["revision"]) == (412, 1)
    good = await server.http("PATCH", kept.path, {"overlap": "forbid"}, headers={"If-Match": '"1"'})
    assert (good.status, good.json["revision"]) == (200, 2)
    assert (await server.http("PATCH", kept.path, {"overlap": "allow"}, headers={"If-Match": '"1"'})).status == 412
    assert (await server.http("PATCH", kept.path, {"overlap": "allow"}, headers={"If-Match": "*"})).status == 200


@pytest.mark.parametrize(
    ("changes", "pointers"),
    [
        ({"name": "x"}, {"/name"}),
        ({"cron": "61 * * * *"}, {"/cron"}),
        ({"cron": None}, {"/cron", "/every_s"}),
        ({"cron": "1 * * * *", "every_s": 60}, {"/cron", "/every_s"}),
        ({"anchor": "2030-01-01T00:00:00Z"}, {"/anchor"}),
        ({"time_zone": "Nowhere"}, {"/time_zone"}),
        ({"start_at": "2030-04-01T00:00:00Z", "end_at": "2030-03-31T00:00:00Z"}, {"/end_at"}),
    ],
)
async def test_a_wrong_change_changes_nothing(server, changes, pointers):
    kept = await schedule(server)
    before = await kept.get()
    reply = await server.http("PATCH", kept.path, changes)
    assert (reply.status, reply.pointers) == (422, pointers)
    assert await kept.get() == before
    assert await kept.waiting() == [before["next_run_at"]]


async def test_a_header_that_comes_back_masked_keeps_its_value(server):
    kept = await schedule(server, job_template={"queue": "calls", "target": HTTP})
    shown = (await kept.get())["job_template"]
    assert shown["target"]["headers"] == {"Authorization": "***"}
    moved = {**shown, "target": {**shown["target"], "url": "https://evil.example/x"}}
    assert (await server.http("PATCH", kept.path, {"job_template": moved})).status == 422
    await kept.patch(job_template={**shown, "payload": {"n": 1}})
    job = (await kept.act("trigger")).json
    assert job["target"]["headers"] == {"Authorization": "***"}
    claimed = await server.http("POST", "/v1/executor:claim", {"worker": "x"}, token="tcs_executor_secret")
    (call,) = claimed.json["jobs"]
    assert (call["payload"], call["target"]["headers"]) == ({"n": 1}, {"Authorization": "Bearer abc"})


# --- lists, deletion --------------------------------------------------------------------------------------------------


async def test_schedules_are_listed_newest_first_and_filtered(server):
    kept = [await schedule(server, f"s{number}") for number in range(5)]
    await kept[1].patch(paused=True)
    await server.http("POST", "/v1/schedules", {"name": "s0", **HOURLY}, token="tcs_stranger_secret")
    seen, cursor = [], None
    while True:
        query = [("limit", "2"), *([("cursor", cursor)] if cursor else [])]
        page = (await server.http("GET", "/v1/schedules", query=query)).json
        seen += [one["schedule_id"] for one in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert seen == sorted((one.schedule_id for one in kept), reverse=True)
    for wanted, names in (
        ("status=paused", ["s1"]),
        ("name=s3", ["s3"]),
        ("name=s1&status=active", []),
        ("status=broken", []),
        ("name=s", []),
    ):
        found = (await server.http("GET", "/v1/schedules", query=wanted)).json["items"]
        assert [one["name"] for one in found] == names


async def test_a_deleted_schedule_is_gone_and_its_name_is_free(server):
    kept = await schedule(server)
    await server.advance(HOUR_S)
    (claimed,) = await server.claim()
    (waiting,) = [job for job in await kept.jobs() if job["status"] == "SCHEDULED"]
    reply = await server.http("DELETE", kept.path)
    assert (reply.status, reply.body) == (204, b"")
    for method, tail, body in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("PATCH", "", {"paused": True}),
        ("GET", "/jobs", None),
        ("GET", "/skips", None),
        ("POST", ":trigger", None),
        ("POST", ":skip-next", None),
    ):
        assert (await server.http(method, kept.path + tail, *([body] if body else []))).status == 404
    assert (await server.get(waiting))["status"] == "CANCELLED"
    assert (await server.complete(claimed)).status == 200
    again = await schedule(server)
    shown = await again.get()
    assert again.schedule_id != kept.schedule_id
    assert (shown["runs"], shown["last_run_at"], shown["revision"], await again.skips()) == (0, None, 1, [])


async def test_another_tenants_schedule_is_not_there(server):
    kept = await schedule(server)
    stranger = "tcs_stranger_secret"
    span = {"from": "2030-03-01T00:00:00Z", "to": "2030-03-02T00:00:00Z"}
    for method, tail, body in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("PATCH", "", {"paused": True}),
        ("GET", "/jobs", None),
        ("GET", "/skips", None),
        ("POST", ":trigger", {}),
        ("POST", ":skip-next", {}),
        ("POST", ":backfill", span),
    ):
        reply = await server.http(method, kept.path + tail, *([body] if body is not None else []), token=stranger)
        assert reply.status == 404, tail
    assert (await server.http("GET", "/v1/schedules", token=stranger)).json["items"] == []
    assert (await kept.get())["revision"] == 1
