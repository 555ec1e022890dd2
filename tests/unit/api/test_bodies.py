"""What a body can be refused for, with a pointer to the field, and nothing is handed to the flow."""

import json

import pytest

JOB = {"queue": "mail", "target": {"type": "task", "handler": "send"}}
HTTP = {"type": "http", "url": "https://a.example/x"}


def job(**changes):
    return {**JOB, **changes}


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, {"/queue", "/target"}),
        ([], {""}),
        (None, {""}),
        ("x", {""}),
        (job(bogus=1, **{"a/b~c": 2}), {"/bogus", "/a~1b~0c"}),
        (job(queue=5), {"/queue"}),
        (job(queue=""), {"/queue"}),
        (job(queue="-x"), {"/queue"}),
        (job(queue="a b"), {"/queue"}),
        (job(queue="ä"), {"/queue"}),
        (job(queue="a\n"), {"/queue"}),
        (job(queue="q" * 129), {"/queue"}),
        (job(queue="a\0"), {"/queue"}),
        (job(name=""), {"/name"}),
        (job(name="x" * 201), {"/name"}),
        (job(name="a\tb"), {"/name"}),
        (job(name="a\x7fb"), {"/name"}),
        (job(name="a\n"), {"/name"}),
        (job(target={}), {"/target/type"}),
        (job(target={"type": "mail"}), {"/target/type"}),
        (job(target={"type": "task"}), {"/target/handler"}),
        (job(target={"type": "task", "handler": "x", "url": "https://a.example"}), {"/target/url"}),
        (job(target={"type": "task", "handler": "x", "timeout_s": 86_401}), {"/target/timeout_s"}),
        (job(target={**HTTP, "timeout_s": 3_601}), {"/target/timeout_s"}),
        (job(target={**HTTP, "timeout_s": 0.05}), {"/target/timeout_s"}),
        (job(target={**HTTP, "method": "HEAD", "bogus": 1}), {"/target/method", "/target/bogus"}),
        (job(target={**HTTP, "url": "ftp://a.example"}), {"/target/url"}),
        (job(target={**HTTP, "url": "https://u:p@a.example"}), {"/target/url"}),
        (
            job(target={**HTTP, "headers": {"Host": "x", "X/y": "a\r\nb"}}),
            {"/target/headers/Host", "/target/headers/X~1y"},
        ),
        (job(target={**HTTP, "headers": {"X": 5}}), {"/target/headers/X"}),
        (job(run_at="2026-12-05T09:00:00"), {"/run_at"}),
        (job(run_at="2026-12-05T09:00:60Z"), {"/run_at"}),
        (job(run_at="2026-12-05"), {"/run_at"}),
        (job(run_at=1_800_000_000), {"/run_at"}),
        (job(run_at="2026-01-01T00:00:00+24:00"), {"/run_at"}),
        (job(run_at="10000-01-01T00:00:00Z"), {"/run_at"}),
        (job(run_at="2026-12-05T09:00:00Z", delay_s=5), {"/delay_s"}),
        (job(delay_s=-1), {"/delay_s"}),
        (job(delay_s=366 * 86_400 + 1), {"/delay_s"}),
        (job(delay_s="5"), {"/delay_s"}),
        (job(delay_s=True), {"/delay_s"}),
        (job(delay_s=10**400), {"/delay_s"}),
        (job(timing={"class": "precise", "window_s": 5}), {"/timing/window_s"}),
        (job(timing={"window_s": 5}), {"/timing/window_s"}),
        (job(timing={"class": "flexible"}), {"/timing/window_s"}),
        (job(timing={"class": "flexible", "window_s": 0.5}), {"/timing/window_s"}),
        (job(timing={"class": "flexible", "window_s": 86_401}), {"/timing/window_s"}),
        (job(timing={"class": "soon"}), {"/timing/class"}),
        (job(timing={"class_": "precise"}), {"/timing/class_"}),
        (job(priority="urgent"), {"/priority"}),
        (job(priority=1), {"/priority"}),
        (job(retry={"max_attempts": 0}), {"/retry/max_attempts"}),
        (job(retry={"max_attempts": 101}), {"/retry/max_attempts"}),
        (job(retry={"max_attempts": 1.5}), {"/retry/max_attempts"}),
        (job(retry={"max_attempts": True}), {"/retry/max_attempts"}),
        (job(retry={"max_attempts": 2**70}), {"/retry/max_attempts"}),
        (job(retry={"initial_backoff_s": 20, "max_backoff_s": 10}), {"/retry/initial_backoff_s"}),
        (
            job(retry={"initial_backoff_s": 86_401, "max_backoff_s": -1}),
            {"/retry/initial_backoff_s", "/retry/max_backoff_s"},
        ),
        (job(expires_after_s=0), {"/expires_after_s"}),
        (job(expires_after_s=-5), {"/expires_after_s"}),
        (job(tags={"a": 5, "b": None}), {"/tags/a", "/tags/b"}),
        (job(tags={"": "x"}), {"/tags/"}),
        (job(tags={"k" * 65: "x"}), {"/tags/" + "k" * 65}),
        (job(tags={"k": "v" * 257}), {"/tags/k"}),
        (job(tags={str(n): "x" for n in range(21)}), {"/tags"}),
        (job(tags=["a"]), {"/tags"}),
        (job(tags={"a\0": "x"}), {"/tags"}),
        (job(payload={"a": [1, {"b": "x\0y"}]}), {"/payload/a/1/b"}),
        (job(payload={"a\0": 1}), {"/payload"}),
        (job(queue=1, delay_s="x", tags={"k": 1}), {"/queue", "/delay_s", "/tags/k"}),
    ],
    ids=lambda value: json.dumps(value)[:60] if not isinstance(value, set) else "",
)
async def test_a_job_that_is_not_right_is_422_and_names_every_field(desk, http, body, pointers):
    reply = await http("POST", "/v1/jobs", body)
    assert (reply.status, reply.kind) == (422, "invalid")
    assert reply.pointers == pointers
    assert not desk.wanted


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"  ",
        b"{",
        b"{]",
        b'{"queue": "mail",}',
        b"{'queue': 'mail'}",
        b'\xef\xbb\xbf{"queue": "mail"}',
        b'{"queue": "m\xff"}',
        b'{"queue": "mail", "target": {"type": "task", "handler": "send"}, "payload": "\xff"}',
        b'{"queue": "mail", "target": {"type": "task", "handler": "send"}, "payload": "\xed\xa0\x80"}',
        b'{"queue": "mail", "target": {"type": "task", "handler": "send"}, "payload": "\\ud800"}',
        b'{"queue": "mail", "target": {"type": "task", "handler": "send"}, "payload": {"\\udc00": 1}}',
        b'{"queue": "mail", "target": {"type": "task", "handler": "send"}, "name": "\\ud800\\u0041"}',
        b'{"queue": "mail", "target": {"type": "task", "handler": "send"}, "payload": NaN}',
        b'{"queue": "mail", "target": {"type": "task", "handler": "send"}, "delay_s": NaN}',
        b'{"queue": "mail", "target": {"type": "task", "handler": "send"}, "delay_s": -Infinity}',
        b'{"queue": "mail", "target": {"type": "task", "handler": "send"}, "payload": "a\x00b"}',
        b'{"queue": "mail", "target": {"type": "task", "handler": "send"}, "payload": "a\nb"}',
        b'{"queue": "mail", "target": {"type": "task", "handler": "send"}, "payload": 01}',
        b'{"queue": "mail", "target": {"type": "task", "handler": "send"}} trailing',
        b'{"queue": 5} trailing',
        b"[" * 5_000,
        b'{"payload": ' + b'{"a":' * 5_000,
    ],
)
async def test_what_is_not_json_is_400(desk, http, text):
    reply = await http("POST", "/v1/jobs", text, content_type="application/json")
    assert (reply.status, reply.kind) == (400, "unreadable")
    assert not desk.wanted


@pytest.mark.parametrize("payload", [None, 0, "", "😀 ä", [], {}, 10**30, {"a": {"b": [1.5, "\\u0000"]}}])
async def test_any_json_value_can_be_a_payload_and_travels_as_it_was_sent(desk, http, payload):
    text = json.dumps(job(payload=payload)).encode()
    assert (await http("POST", "/v1/jobs", text)).status == 201
    assert json.loads(bytes(desk.wanted[0].job.payload)) == payload
    assert json.dumps(payload).encode() == bytes(desk.wanted[0].job.payload)


async def test_a_payload_has_at_most_64_kib(desk, http):
    most = "x" * (64 * 1024 - 2)
    assert (await http("POST", "/v1/jobs", job(payload=most))).status == 201
    reply = await http("POST", "/v1/jobs", job(payload=most + "x"))
    assert (reply.status, reply.kind, reply.pointers) == (413, "too-large", {"/payload"})
    assert len(desk.wanted) == 1


def nested(depth: int, opening: str = "[", closing: str = "]") -> bytes:
    inner = opening * depth + ("1" if opening != "[" else "") + closing * depth
    return json.dumps(job(payload="HERE")).replace('"HERE"', inner).encode()


@pytest.mark.parametrize(("depth", "status"), [(100, 201), (101, 422), (900, 422), (5_000, 422), (30_000, 422)])
async def test_a_payload_is_nested_at_most_100_deep(http, depth, status):
    assert (await http("POST", "/v1/jobs", nested(depth))).status == status
    if depth <= 5_000:
        assert (await http("POST", "/v1/jobs", nested(depth, '{"a":', "}"))).status == status


async def test_brackets_inside_of_text_do_not_nest(http):
    assert (await http("POST", "/v1/jobs", job(payload=['[{\\"' * 200]))).status == 201


async def test_a_hostile_body_is_read_once(http):
    # Each quote could begin a string that never ends; read anew from each of them this would take hours.
    hostile = b'{"payload": ' + b"[" * 5_000 + b'"' + b'\\"' * 60_000
    assert (await http("POST", "/v1/jobs", hostile)).status == 400


async def test_more_brackets_than_can_be_looked_at_are_refused(http):
    body = b'{"jobs": [' + b"[" * 600_000 + b"]" * 600_000 + b"]}"
    assert (await http("POST", "/v1/jobs:batch", body)).status == 422


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, {""}),
        (b"", {""}),
        ({"queue": "x"}, {"/queue"}),
        ({"run_at": "2026-12-05T09:00:00Z", "delay_s": 0}, {"/delay_s"}),
        ({"retry": {"initial_backoff_s": 2, "max_backoff_s": 1}}, {"/retry/initial_backoff_s"}),
        ({"timing": {"class": "flexible"}}, {"/timing/window_s"}),
        ({"target": {"type": "http", "url": "nowhere"}}, {"/target/url"}),
        ({"target": None}, {"/target"}),
        ({"name": "a\0"}, {"/name"}),
    ],
)
async def test_a_patch_that_is_not_right_is_422(desk, http, body, pointers):
    reply = await http("PATCH", f"/v1/jobs/{desk.add_job()}", body)
    assert (reply.status, reply.pointers) == (422, pointers)
    assert not desk.asked


async def test_null_in_a_patch_is_the_default(desk, http):
    job_id = desk.add_job()
    body = {"run_at": None, "delay_s": 5, "retry": None, "timing": None, "priority": None, "name": None, "tags": None}
    assert (await http("PATCH", f"/v1/jobs/{job_id}", body)).status == 200


@pytest.mark.parametrize(
    ("header", "version"),
    [(None, None), ('"3"', 3), ("3", 3), ("*", None), ('W/"3"', -1), ('"x"', -1), ('"3", "4"', -1), ("", -1)],
)
async def test_if_match_names_a_version(desk, http, header, version):
    headers = {} if header is None else {"If-Match": header}
    job_id = desk.add_job()
    assert (await http("PATCH", f"/v1/jobs/{job_id}", {"delay_s": 1}, headers=headers)).status == 200
    assert desk.asked[0][-1] == version


async def test_an_action_may_come_without_a_body_and_a_content_type(desk, http):
    job_id = desk.add_job()
    assert (await http("POST", f"/v1/jobs/{job_id}:run-now")).status == 200
    assert (await http("POST", f"/v1/jobs/{job_id}:run-now", {})).status == 200
    assert (await http("POST", f"/v1/jobs/{job_id}:run-now", {"x": 1})).status == 422
    assert (await http("POST", f"/v1/jobs/{job_id}:run-now", b"{}", content_type=None)).status == 415
    assert (await http("POST", "/v1/queues/mail:claim")).pointers == {"/worker"}
    assert (await http("POST", f"/v1/attempts/{desk.lease()}:heartbeat")).status == 200
