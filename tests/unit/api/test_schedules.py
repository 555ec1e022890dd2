"""Schedules at the border: what reaches the flow, what is refused before it, how answers look."""

import json

import msgspec
import pytest

from tests.unit.api.stand_ins import NOW_MS, OWNER
from tocsin import wire
from tocsin.api.canonical import body_hash
from tocsin.errors import Refused
from tocsin.model.ids import new_ids, new_schedule_id

TASK = {"type": "task", "handler": "reports.settle"}
HTTP = {"type": "http", "url": "https://a.example/x", "headers": {"X-Key": "very secret"}}
TEMPLATE = {"queue": "mail", "target": TASK}
PUT = {"cron": "0 2 * * *", "job_template": TEMPLATE}
SCHEDULE = {"name": "report", **PUT}
BY_NAME = "/v1/schedules/by-name/"
# fmt: off
FIELDS = [
    "schedule_id", "name", "revision", "status", "broken_reason", "cron", "time_zone", "every_s", "anchor", "job_template",
    "missed_runs", "overlap", "start_at", "end_at", "max_runs", "paused", "pause_note", "pause_until", "next_run_at",
    "next_runs", "explanation", "hints", "runs", "last_run_at", "last_status", "created_at", "updated_at",
]
# fmt: on


async def test_a_created_schedule_is_201_and_shows_every_field(desk, http):
    reply = await http("POST", "/v1/schedules", SCHEDULE)
    assert reply.status == 201
    assert list(reply.json) == FIELDS
    assert reply.json["next_runs"][0] == {
        "at": "2030-03-17T20:30:00Z",
        "local": "2030-03-18T02:00:00+05:30",
        "note": None,
    }
    assert reply.json["missed_runs"] == {"policy": "run_latest", "starting_deadline_s": None, "max_catch_up": 100}
    _, tenant, body = desk.asked[0]
    assert (tenant, body.name, body.cron, body.overlap, body.paused) == (
        "shop",
        "report",
        "0 2 * * *",
        "allow",
        msgspec.UNSET,
    )


async def test_a_name_that_is_taken_is_409_with_the_schedules_id(desk, http):
    schedule_id = desk.add_schedule("report")
    reply = await http("POST", "/v1/schedules", SCHEDULE)
    assert (reply.status, reply.kind, reply.json["schedule_id"]) == (409, "schedule-exists", schedule_id)


async def test_null_is_the_default_of_every_field_that_has_one(desk, http):
    names = ("time_zone", "every_s", "anchor", "missed_runs", "overlap", "start_at", "end_at", "max_runs")
    nulls = dict.fromkeys([*names, "paused", "pause_note", "pause_until"])
    assert (await http("POST", "/v1/schedules", {**SCHEDULE, **nulls})).status == 201
    body = desk.asked[0][2]
    assert (body.overlap, body.paused, body.missed_runs) == ("allow", False, None)
    template = {
        **TEMPLATE,
        **dict.fromkeys(("name", "timing", "priority", "payload", "retry", "expires_after_s", "tags")),
    }
    assert (await http("POST", "/v1/schedules", {**SCHEDULE, "name": "b", "job_template": template})).status == 201


# --- upsert by name ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "report", "a/b", "/", "a:b", "x:trigger", "mail:skip-next", "a b?c#d%2F&=+", "{}", "{name}", "ü 😀", "by-name",
        "jobs", "x/jobs", "..", "x" * 200, "😀" * 200, "\ufffd",
    ],
)  # fmt: skip
async def test_a_name_in_the_path_is_free_text(desk, http, name):
    reply = await http("PUT", BY_NAME + name, PUT)
    assert (reply.status, reply.json["name"]) == (201, name)
    assert desk.asked[0][:3] == ("upsert", "shop", name)
    again = await http("PUT", BY_NAME + name, {**PUT, "name": name})
    assert (again.status, again.json) == (200, reply.json)


@pytest.mark.parametrize("name", ["x" * 201, "a\nb", "a\0", "\x7f", "a\x9f"])
async def test_a_name_in_the_path_that_is_none_is_422(desk, http, name):
    reply = await http("PUT", BY_NAME + name, PUT)
    assert (reply.status, reply.pointers) == (422, {"/name"})
    assert not desk.asked


async def test_a_path_that_is_not_utf8_is_400(desk, http):
    text = json.dumps(PUT).encode()
    lines = {b"authorization": f"Bearer {OWNER}".encode(), b"content-type": b"application/json"}
    scope = {
        "type": "http",
        "method": "PUT",
        "path": BY_NAME + "a\ufffd",
        "raw_path": BY_NAME.encode() + b"a%FF",
        "query_string": b"",
        "headers": [*lines.items()],
    }
    reply = await http._exchange({**scope, "headers": [*lines.items(), (b"content-length", b"%d" % len(text))]}, [text])
    assert (reply.status, reply.kind) == (400, "unreadable")
    assert not desk.asked


async def test_an_upsert_may_repeat_its_name_but_not_name_another(desk, http):
    reply = await http("PUT", BY_NAME + "report", {**PUT, "name": "other"})
    assert (reply.status, reply.pointers) == (422, {"/name"})
    assert (await http("PUT", BY_NAME + "report", {**PUT, "name": None})).status == 201


async def test_only_put_is_served_under_a_name(http):
    for method in ("GET", "POST", "PATCH", "DELETE"):
        reply = await http(method, BY_NAME + "report")
        assert (reply.status, reply.headers["allow"]) == (405, "OPTIONS, PUT")


# --- scopes -----------------------------------------------------------------------------------------------------------


async def test_a_worker_may_declare_schedules_of_its_own_queue(desk, http):
    worker = desk.give("tcs_worker_secret", "work:mail")
    assert (await http("PUT", BY_NAME + "report", PUT, token=worker)).status == 201
    other = {**PUT, "job_template": {**TEMPLATE, "queue": "settlements"}}
    reply = await http("PUT", BY_NAME + "second", other, token=worker)
    assert (reply.status, reply.kind) == (403, "forbidden")
    everywhere = desk.give("tcs_everywhere_secret", "work:*")
    assert (await http("PUT", BY_NAME + "second", other, token=everywhere)).status == 201


async def test_a_worker_cannot_take_over_a_schedule_of_another_queue(desk, http):
    worker = desk.give("tcs_worker_secret", "work:mail")
    settlements = wire.JobTemplate(queue="settlements", target=wire.TaskTarget(handler="x"))
    desk.add_schedule("report", job_template=settlements)
    desk.add_schedule("broken", job_template=None)
    for name in ("report", "broken"):
        assert (await http("PUT", BY_NAME + name, PUT, token=worker)).status == 403
    assert "upsert" not in {asked[0] for asked in desk.asked}
    desk.add_schedule("theirs", "other", job_template=settlements)
    assert (await http("PUT", BY_NAME + "theirs", PUT, token=worker)).status == 201


async def test_a_missing_scope_is_403_before_the_body_is_looked_at(desk, http):
    reader = desk.give("tcs_reader_secret", "read")
    worker = desk.give("tcs_worker_secret", "work:mail")
    writer = desk.give("tcs_writer_secret", "write")
    one = f"/v1/schedules/{desk.add_schedule()}"
    writes = [
        ("POST", "/v1/schedules"),
        ("PATCH", one),
        ("DELETE", one),
        ("POST", one + ":trigger"),
        ("POST", one + ":skip-next"),
        ("POST", one + ":backfill"),
    ]
    reads = [("POST", "/v1/schedules:preview"), *(("GET", path) for path in ("/v1/schedules", one))]
    reads += [("GET", one + "/jobs"), ("GET", one + "/skips")]
    wrong = [(call, token) for call in writes for token in (reader, worker)]
    wrong += [(call, token) for call in reads for token in (worker, writer)]
    wrong.append((("PUT", BY_NAME + "x"), reader))
    for (method, path), token in wrong:
        reply = await http(method, path, b"not json", token=token, content_type="text/plain")
        assert reply.status == 403, (method, path)
    assert not desk.asked
    assert (await http("PUT", BY_NAME + "x", b"not json", token=worker)).status == 400


# --- what is refused at the border ------------------------------------------------------------------------------------


def schedule(**changes):
    return {**SCHEDULE, **changes}


def template(**changes):
    return schedule(job_template={**TEMPLATE, **changes})


WRONG = [
    (schedule(bogus=1), {"/bogus"}),
    (schedule(cron=5), {"/cron"}),
    (schedule(cron=""), {"/cron"}),
    (schedule(cron="*" * 501), {"/cron"}),
    (schedule(cron="* *\0"), {"/cron"}),
    (schedule(time_zone=""), {"/time_zone"}),
    (schedule(time_zone="x" * 101), {"/time_zone"}),
    (schedule(every_s=0), {"/every_s"}),
    (schedule(every_s=0.5), {"/every_s"}),
    (schedule(every_s="60"), {"/every_s"}),
    (schedule(every_s=True), {"/every_s"}),
    (schedule(every_s=10**400), {"/every_s"}),
    (schedule(anchor="2026-12-05T09:00:00"), {"/anchor"}),
    (schedule(start_at="2026-12-05T09:00:60Z"), {"/start_at"}),
    (schedule(end_at="9999-12-31T23:59:59-10:00"), {"/end_at"}),
    (schedule(anchor="0001-01-01T00:00:00+10:00"), {"/anchor"}),
    (schedule(pause_until=5, pause_note="x" * 1001), {"/pause_until", "/pause_note"}),
    (schedule(max_runs=0), {"/max_runs"}),
    (schedule(max_runs=1.5), {"/max_runs"}),
    (schedule(paused="yes"), {"/paused"}),
    (schedule(overlap="queue"), {"/overlap"}),
    (schedule(missed_runs={"policy": "later"}), {"/missed_runs/policy"}),
    (schedule(missed_runs={"starting_deadline_s": 0}), {"/missed_runs/starting_deadline_s"}),
    (schedule(missed_runs={"max_catch_up": 0, "x": 1}), {"/missed_runs/max_catch_up", "/missed_runs/x"}),
    (schedule(job_template=None), {"/job_template"}),
    (schedule(job_template={}), {"/job_template/queue", "/job_template/target"}),
    (template(queue="a b"), {"/job_template/queue"}),
    (template(run_at="2030-01-01T00:00:00Z", delay_s=5), {"/job_template/run_at", "/job_template/delay_s"}),
    (template(target={"type": "mail"}), {"/job_template/target/type"}),
    (template(target={"type": "task"}), {"/job_template/target/handler"}),
    (template(target={**HTTP, "url": "ftp://a.example"}), {"/job_template/target/url"}),
    (template(target={**HTTP, "url": "https://u:p@a.example"}), {"/job_template/target/url"}),
    (
        template(target={**HTTP, "headers": {"Host": "x", "X/y": "a\r\nb"}}),
        {"/job_template/target/headers/Host", "/job_template/target/headers/X~1y"},
    ),
    (template(target={**HTTP, "headers": {"X-Key": "***"}}), {"/job_template/target/headers/X-Key"}),
    (template(timing={"class": "flexible"}), {"/job_template/timing/window_s"}),
    (template(timing={"window_s": 5}), {"/job_template/timing/window_s"}),
    (template(retry={"initial_backoff_s": 2, "max_backoff_s": 1}), {"/job_template/retry/initial_backoff_s"}),
    (template(expires_after_s=0), {"/job_template/expires_after_s"}),
    (template(tags={"k": 5}), {"/job_template/tags/k"}),
    (template(payload={"a": ["x\0"]}), {"/job_template/payload/a/0"}),
]


@pytest.mark.parametrize(("body", "pointers"), WRONG, ids=[json.dumps(one)[-50:] for one, _ in WRONG])
async def test_a_schedule_that_is_not_right_is_422_and_names_every_field(desk, http, body, pointers):
    put = {name: value for name, value in body.items() if name != "name"}
    patch = {name: value for name, value in put.items() if name not in PUT or value != PUT[name]}
    calls = [("POST", "/v1/schedules", body), ("PUT", BY_NAME + "report", put)]
    if "***" not in json.dumps(body):  # a change may mean the value that is kept
        calls.append(("PATCH", f"/v1/schedules/{desk.add_schedule('other')}", patch))
    for method, path, sent in calls:
        reply = await http(method, path, sent)
        assert (reply.status, reply.kind) == (422, "invalid"), method
        assert reply.pointers == pointers, method
    assert not desk.asked


@pytest.mark.parametrize(
    ("name", "pointers"),
    [(None, {"/name"}), ("", {"/name"}), ("a\n", {"/name"}), ("x" * 201, {"/name"}), (5, {"/name"})],
)
async def test_a_schedule_needs_a_name(desk, http, name, pointers):
    assert (await http("POST", "/v1/schedules", schedule(name=name))).pointers == pointers
    assert (await http("POST", "/v1/schedules", PUT)).pointers == {"/name"}
    assert not desk.asked


async def test_the_payload_of_a_template_has_at_most_64_kib_and_100_levels(desk, http):
    most = "x" * (64 * 1024 - 2)
    assert (await http("POST", "/v1/schedules", template(payload=most))).status == 201
    one = f"/v1/schedules/{desk.add_schedule('other')}"
    for method, path in (("POST", "/v1/schedules"), ("PUT", BY_NAME + "x"), ("PATCH", one)):
        for payload, status in ((json.dumps(most + "x"), 413), ("[" * 101 + "]" * 101, 422)):
            sent = json.dumps(
                {"job_template": {**TEMPLATE, "payload": "HERE"}} if method == "PATCH" else template(payload="HERE")
            )
            reply = await http(method, path, sent.replace('"HERE"', payload).encode())
            assert (reply.status, reply.pointers) == (status, {"/job_template/payload"})
        assert (await http(method, path, b"[" * 300 * 1024)).status == 413
    assert len(desk.asked) == 1


async def test_lone_surrogates_are_no_json(http):
    for field in ('"cron": "\\ud800"', '"time_zone": "\\udc00"', '"pause_note": "\\ud800x"'):
        assert (await http("POST", "/v1/schedules", b'{"name": "x", %s}' % field.encode())).status == 400


async def test_the_flows_refusals_are_passed_on(desk, http):
    desk.fail = Refused(422, "invalid", "Invalid request", "x", errors=(("/cron", "hour: 25 is not in 0-23"),))
    for method, path, body in (
        ("POST", "/v1/schedules", SCHEDULE),
        ("PUT", BY_NAME + "report", PUT),
        ("POST", "/v1/schedules:preview", {"cron": "0 25 * * *"}),
        ("PATCH", f"/v1/schedules/{desk.add_schedule()}", {"cron": "0 25 * * *"}),
    ):
        reply = await http(method, path, body)
        assert (reply.status, reply.pointers) == (422, {"/cron"})
        assert reply.json["errors"][0]["detail"] == "hour: 25 is not in 0-23"


# --- change, look -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        (b"", {""}),
        ({}, {""}),
        ({"name": "x"}, {"/name"}),
        ({"schedule_id": "x"}, {"/schedule_id"}),
        ({"job_template": None}, {"/job_template"}),
    ],
)
async def test_a_change_must_change_something_that_can_be_changed(desk, http, body, pointers):
    reply = await http("PATCH", f"/v1/schedules/{desk.add_schedule()}", body)
    assert (reply.status, reply.pointers) == (422, pointers)
    assert not desk.asked


async def test_in_a_change_absent_keeps_and_null_is_the_default(desk, http):
    one = f"/v1/schedules/{desk.add_schedule()}"
    assert (await http("PATCH", one, {"paused": None, "overlap": None, "end_at": None})).status == 200
    body = desk.asked[0][3]
    assert (body.paused, body.overlap, body.end_at, body.start_at) == (None, None, None, msgspec.UNSET)


async def test_a_masked_header_in_a_change_goes_to_the_flow(desk, http):
    masked = {**TEMPLATE, "target": {**HTTP, "headers": {"X-Key": "***"}}}
    assert (await http("PATCH", f"/v1/schedules/{desk.add_schedule()}", {"job_template": masked})).status == 200


@pytest.mark.parametrize(
    ("header", "revision"), [(None, None), ('"3"', 3), ("3", 3), ("*", None), ('W/"3"', -1), ('"x"', -1), ("", -1)]
)
async def test_if_match_names_a_revision(desk, http, header, revision):
    headers = {} if header is None else {"If-Match": header}
    one = f"/v1/schedules/{desk.add_schedule()}"
    assert (await http("PATCH", one, {"paused": True}, headers=headers)).status == 200
    assert desk.asked[0][-1] == revision


async def test_header_values_are_masked_in_every_answer(desk, http):
    schedule_id = desk.add_schedule()
    one = f"/v1/schedules/{schedule_id}"
    called = template(target=HTTP)
    replies = [
        await http("POST", "/v1/schedules", {**called, "name": "made"}),
        await http("PUT", BY_NAME + "put", {"cron": "* * * * *", "job_template": called["job_template"]}),
        await http("PUT", BY_NAME + "report", PUT),
        await http("GET", one),
        await http("GET", "/v1/schedules"),
        await http("PATCH", one, {"paused": True}),
        await http("POST", one + ":skip-next"),
        await http("POST", one + ":trigger"),
        await http("GET", one + "/jobs"),
    ]
    for reply in replies:
        assert reply.status in (200, 201)
        assert b"very secret" not in reply.body
        assert b'"X-Key":"***"' in reply.body
    assert desk.schedules[schedule_id][1].job_template.target.headers == {"X-Key": "very secret"}


async def test_what_is_not_there_or_another_tenants_is_404(desk, http):
    foreign = desk.add_schedule(tenant="other")
    (job_id,) = new_ids(1, NOW_MS, desk.entropy)
    gone = new_schedule_id(NOW_MS, desk.entropy, "shop", "gone")
    for schedule_id in (foreign, gone, job_id, "x", "by-name", "sch_", "sch_" + "0" * 25, gone.lower(), gone + "0"):
        for method, tail, body in (
            ("GET", "", None),
            ("PATCH", "", {"paused": True}),
            ("DELETE", "", None),
            ("GET", "/jobs", None),
            ("GET", "/skips", None),
            ("POST", ":trigger", {}),
            ("POST", ":skip-next", None),
            ("POST", ":backfill", {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}),
        ):
            if (schedule_id, tail[:1]) == ("by-name", "/"):
                continue
            reply = await http(method, f"/v1/schedules/{schedule_id}{tail}", *([] if body is None else [body]))
            assert (reply.status, reply.kind) == (404, "not-found"), (schedule_id, tail)
    assert foreign in desk.schedules


async def test_422_goes_before_404(desk, http):
    gone = f"/v1/schedules/{desk.add_schedule(tenant='other')}"
    assert (await http("PATCH", gone, {"every_s": 0})).status == 422
    assert (await http("POST", gone + ":trigger", {"x": 1})).status == 422
    assert (await http("POST", gone + ":trigger", headers={"Idempotency-Key": "ä"})).status == 422
    assert (await http("POST", gone + ":backfill")).status == 422
    assert (await http("GET", gone + "/jobs", query="cursor=x")).status == 400
    assert (await http("GET", gone + "/skips", query="cursor=x")).status == 400
    assert (await http("GET", gone, query="x=1")).status == 422


async def test_a_deleted_schedule_is_204_and_then_404(desk, http):
    one = f"/v1/schedules/{desk.add_schedule()}"
    reply = await http("DELETE", one)
    assert (reply.status, reply.body) == (204, b"")
    assert (await http("DELETE", one)).status == 404


async def test_a_list_is_filtered_and_read_page_by_page(desk, http):
    wanted = sorted((desk.add_schedule(f"s{n}") for n in range(5)), reverse=True)
    desk.add_schedule("s1", "other")
    seen, cursor = [], None
    while True:
        page = (
            await http("GET", "/v1/schedules", query=[("limit", "2"), *([("cursor", cursor)] if cursor else [])])
        ).json
        seen += [one["schedule_id"] for one in page["items"]]
        cursor = cursor if (last := page["next_cursor"]) is None else last
        if last is None:
            break
    assert seen == wanted
    await http("GET", "/v1/schedules", query=[("status", "paused"), ("name", "a/b")])
    assert desk.asked[-1] == ("list", "shop", "paused", "a/b", None, 50)
    for query, pointer in (
        ("status=stopped", "/status"),
        ("name=", "/name"),
        ("name=a&name=b", "/name"),
        ("queue=x", "/queue"),
    ):
        assert (await http("GET", "/v1/schedules", query=query)).pointers == {pointer}
    assert (await http("GET", "/v1/schedules", query=[("cursor", cursor), ("name", "s1")])).kind == "bad-cursor"
    assert (await http("GET", "/v1/jobs", query=[("cursor", cursor)])).kind == "bad-cursor"


async def test_jobs_and_skips_go_on_behind_their_last(desk, http):
    first, second = desk.add_schedule("a"), desk.add_schedule("b")
    for _ in range(3):
        desk.add_job()
    desk.skipped = [wire.Skip(from_="a", to="b", count=3, reason="paused", recorded_at="c", detail=None)]
    jobs = (await http("GET", f"/v1/schedules/{first}/jobs", query="limit=2")).json
    rest = (await http("GET", f"/v1/schedules/{first}/jobs", query=[("cursor", jobs["next_cursor"])])).json
    assert (len(jobs["items"]), len(rest["items"]), rest["next_cursor"]) == (2, 1, None)
    skips = (await http("GET", f"/v1/schedules/{first}/skips", query="limit=1")).json
    assert skips["items"] == [
        {"from": "a", "to": "b", "count": 3, "reason": "paused", "recorded_at": "c", "detail": None}
    ]
    await http("GET", f"/v1/schedules/{first}/skips", query=[("cursor", skips["next_cursor"])])
    assert desk.asked[-1] == ("skips", "shop", first, (-5, "paused"), 50)
    for kind, cursor in (("jobs", jobs["next_cursor"]), ("skips", skips["next_cursor"])):
        assert (await http("GET", f"/v1/schedules/{second}/{kind}", query=[("cursor", cursor)])).status == 400


# --- actions ----------------------------------------------------------------------------------------------------------


async def test_a_trigger_answers_the_job_and_may_have_no_body(desk, http):
    one = f"/v1/schedules/{desk.add_schedule()}:trigger"
    bodies: list[list[object]] = [[], [{}], [{"payload": None}], [{"payload": {"a": 1}}]]
    for body in bodies:
        reply = await http("POST", one, *body)
        assert (reply.status, reply.json["job_id"] in desk.jobs) == (201, True)
    assert [asked[3].payload for asked in desk.asked[:2]] == [msgspec.UNSET] * 2
    assert [bytes(asked[3].payload) for asked in desk.asked[2:]] == [b"null", b'{"a": 1}']
    assert {asked[4:] for asked in desk.asked} == {(None, b"")}
    too_long = await http("POST", one, {"payload": "x" * 65_536})
    assert (too_long.status, too_long.pointers) == (413, {"/payload"})


async def test_a_repeated_trigger_is_the_same_job(desk, http):
    one = f"/v1/schedules/{desk.add_schedule()}:trigger"
    headers = {"Idempotency-Key": "k"}
    first = await http("POST", one, headers=headers)
    again = await http("POST", one, {}, headers=headers)
    assert (first.status, again.status, again.headers["idempotency-replayed"]) == (201, 200, "true")
    assert "idempotency-replayed" not in first.headers
    assert first.json["job_id"] == again.json["job_id"]
    assert (await http("POST", one, {"payload": 1}, headers=headers)).status == 409
    assert (await http("POST", f"/v1/schedules/{desk.add_schedule('b')}:trigger", headers=headers)).status == 409


async def test_the_key_of_a_trigger_is_bound_to_its_schedule(desk, http):
    schedule_id = desk.add_schedule()
    path = f"/v1/schedules/{schedule_id}:trigger"
    await http("POST", path, {"payload": {"b": 1, "a": 2}}, headers={"Idempotency-Key": "k"})
    *_, key, hashed = desk.asked[0]
    assert (key, hashed) == ("k", body_hash(b'{"payload":{"a":2,"b":1}}', path))
    assert hashed != body_hash(b'{"payload":{"a":2,"b":1}}')
    for wrong in ("", "x" * 256, "ä"):
        assert (await http("POST", path, headers={"Idempotency-Key": wrong})).pointers == {"/headers/Idempotency-Key"}


async def test_skip_next_and_backfill_go_to_the_flow(desk, http):
    schedule_id = desk.add_schedule()
    one = f"/v1/schedules/{schedule_id}"
    skipped = await http("POST", one + ":skip-next")
    assert (skipped.status, skipped.json["schedule_id"]) == (200, schedule_id)
    assert (await http("POST", one + ":skip-next", {"count": 2})).pointers == {"/count"}
    span = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00+01:00"}
    reply = await http("POST", one + ":backfill", span)
    assert (reply.status, reply.json) == (202, {"backfill_id": "bf_1", "count": 7})
    body = desk.asked[-1][3]
    assert (body.max, body.order, body.concurrency) == (1000, "oldest_first", 1)
    for changes, pointer in (
        ({"from": "2026-01-01"}, "/from"),
        ({"to": None}, "/to"),
        ({"to": "9999-12-31T23:59:59-01:00"}, "/to"),
        ({"max": 0}, "/max"),
        ({"max": wire.MAX_BACKFILL + 1}, "/max"),
        ({"order": "random"}, "/order"),
        ({"concurrency": 0}, "/concurrency"),
        ({"from_": "2026-01-01T00:00:00Z"}, "/from_"),
    ):
        assert (await http("POST", one + ":backfill", {**span, **changes})).pointers == {pointer}
    assert (await http("POST", one + ":backfill")).pointers == {"/from", "/to"}


async def test_a_preview_creates_nothing_and_needs_no_more_than_read(desk, http):
    reader = desk.give("tcs_reader_secret", "read")
    reply = await http("POST", "/v1/schedules:preview", {"cron": "0 2 * * *", "count": 100}, token=reader)
    assert (reply.status, reply.json) == (200, {"runs": [], "explanation": "never", "hints": []})
    for changes, pointer in (
        ({"count": 0}, "/count"),
        ({"count": 101}, "/count"),
        ({"after": "2026-01-01T00:00:00"}, "/after"),
        ({"after": "0001-01-01T00:00:00+01:00"}, "/after"),
        ({"every_s": 0}, "/every_s"),
        ({"name": "x"}, "/name"),
    ):
        assert (await http("POST", "/v1/schedules:preview", {"cron": "* * * * *", **changes})).pointers == {pointer}
    assert len(desk.asked) == 1
