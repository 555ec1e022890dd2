"""A request is judged in a fixed order, so that a stranger learns nothing and every client sees the same problem."""

import pytest

from tests.unit.api.stand_ins import NOW_MS, OWNER
from tocsin.errors import Overloaded, StoreUnavailable

JOB = {"queue": "mail", "target": {"type": "task", "handler": "send"}}


async def test_without_a_token_even_a_path_that_is_not_there_is_401(http):
    for path in ("/v1/jobs", "/v1/nothing", "/", "/v1/holds", "/metrics"):
        reply = await http("GET", path, token=None)
        assert (reply.status, reply.kind) == (401, "unauthorized")
        assert reply.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Bearer tcs_owner_wrong", "Bearer tcs_owner", "Basic b3duZXI6eA==", OWNER, "Bearer \x00"],
)
async def test_a_wrong_token_is_401(http, header):
    reply = await http("GET", "/v1/me", token=None, headers={"Authorization": header})
    assert reply.status == 401
    assert OWNER.rpartition("_")[2] not in reply.body.decode()


async def test_a_token_in_the_query_counts_for_nothing(http):
    reply = await http("GET", "/v1/me", token=None, query=[("access_token", OWNER), ("token", OWNER)])
    assert reply.status == 401


async def test_an_expired_token_is_401(desk, http):
    desk.give("tcs_old_secret", "read", expires_at=NOW_MS + 1000)
    assert (await http("GET", "/v1/me", token="tcs_old_secret")).status == 200
    desk.clock.advance(1)
    assert (await http("GET", "/v1/me", token="tcs_old_secret")).status == 401


async def test_an_unknown_path_is_404_for_every_method_and_body(http):
    for method in ("GET", "POST", "DELETE", "PATCH", "OPTIONS", "HEAD"):
        for path in (
            "/v2/jobs",
            "/v1/jobs/",
            "/v1//jobs",
            "/v1/jobs:cancel",
            "/v1/holds",
            "/v1/schedules/",
            "/v1/schedules/by-name/",
            "/v1/schedules:pause",
            "/v1/queues/a/b/c",
            "//",
        ):
            reply = await http(method, path, b"{" if method == "POST" else b"")
            assert reply.status == 404, path
            assert method == "HEAD" or reply.kind == "no-such-path"


async def test_an_unknown_method_is_405_with_what_is_allowed(http):
    reply = await http("PUT", "/v1/jobs", b"{", content_type="text/plain")
    assert (reply.status, reply.kind) == (405, "method-not-allowed")
    assert reply.headers["allow"] == "GET, HEAD, OPTIONS, POST"
    assert (await http("TRACE", "/healthz", token=None)).status == 405


async def test_options_says_what_is_allowed_and_nothing_about_origins(http):
    reply = await http("OPTIONS", "/v1/jobs", headers={"Origin": "https://evil.example"})
    assert (reply.status, reply.body, reply.headers["allow"]) == (204, b"", "GET, HEAD, OPTIONS, POST")
    assert not [name for name in reply.headers if name.startswith("access-control")]


async def test_a_missing_scope_is_403_before_the_body_is_looked_at(desk, http):
    reader = desk.give("tcs_reader_secret", "read")
    reply = await http("POST", "/v1/jobs", b"not json", token=reader, content_type="text/plain")
    assert (reply.status, reply.kind) == (403, "forbidden")


async def test_415_then_413_then_400_then_422(http):
    too_long = b"[" * (300 * 1024)
    assert (await http("POST", "/v1/jobs", too_long, content_type="text/plain")).status == 415
    assert (await http("POST", "/v1/jobs", too_long)).status == 413
    assert (await http("POST", "/v1/jobs", too_long[:1000])).status == 400
    assert (await http("POST", "/v1/jobs", b'{"queue": 5} x')).status == 400
    assert (await http("POST", "/v1/jobs", {"queue": 5})).status == 422


async def test_a_body_without_a_declared_length_is_stopped_at_the_limit(http):
    reply = await http("POST", "/v1/jobs", chunks=[b"[" * 65536] * 100)
    assert (reply.status, reply.kind) == (413, "too-large")
    small = [b'{"queue": "mail", ', b"", b'"target": {"type": "task", "handler": "send"}}']
    assert (await http("POST", "/v1/jobs", chunks=small)).status == 201


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 201),
        ("application/json; charset=utf-8", 201),
        ('Application/JSON;charset="UTF-8"', 201),
        ("application/json; charset=latin-1", 415),
        ("text/json", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        (None, 415),
    ],
)
async def test_only_json_in_utf8_is_taken(http, content_type, status):
    assert (await http("POST", "/v1/jobs", JOB, content_type=content_type)).status == status


async def test_a_compressed_body_is_not_taken(http):
    assert (await http("POST", "/v1/jobs", JOB, headers={"Content-Encoding": "gzip"})).status == 415


async def test_422_goes_before_404_and_404_before_409(desk, http):
    gone = desk.add_job("other")
    assert (await http("PATCH", f"/v1/jobs/{gone}", {"delay_s": -1})).status == 422
    assert (await http("PATCH", f"/v1/jobs/{gone}", {"delay_s": 1})).status == 404
    assert (await http("GET", "/v1/jobs/not-an-id")).status == 404
    assert (await http("GET", f"/v1/jobs/{gone}", query="x=1")).status == 422


async def test_a_store_that_cannot_write_is_503_with_a_time_to_come_back(desk, http):
    for failure, kind in ((StoreUnavailable("the disk is full"), "unavailable"), (Overloaded(), "overloaded")):
        desk.fail = failure
        reply = await http("POST", "/v1/jobs", JOB)
        assert (reply.status, reply.kind, reply.headers["retry-after"]) == (503, kind, "1")


async def test_a_bug_is_a_500_that_says_nothing_about_itself(desk, http):
    desk.fail = RuntimeError("secret-detail")
    reply = await http("POST", "/v1/jobs", JOB)
    assert (reply.status, reply.kind) == (500, "internal")
    assert b"secret-detail" not in reply.body
    assert b"RuntimeError" not in reply.body


async def test_every_answer_forbids_caching_and_guessing(http):
    for reply in (await http("GET", "/v1/me"), await http("GET", "/v1/x"), await http("GET", "/healthz", token=None)):
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["content-length"] == str(len(reply.body))


async def test_head_is_get_without_the_body(http):
    full, head = await http("GET", "/v1/me"), await http("HEAD", "/v1/me")
    assert (head.status, head.body, head.headers) == (200, b"", full.headers)


async def test_a_client_that_hangs_up_is_no_error(http):
    http.disconnect.set()
    reply = await http._exchange(
        {
            "type": "http",
            "method": "POST",
            "path": "/v1/jobs",
            "query_string": b"",
            "headers": [(b"authorization", f"Bearer {OWNER}".encode()), (b"content-type", b"application/json")],
        },
        [],
    )
    assert reply.status == 0


async def test_a_waiting_claim_ends_when_its_client_hangs_up(desk, http):
    http.disconnect.set()
    reply = await http("POST", "/v1/queues/mail:claim", {"worker": "w", "wait_s": 30})
    assert (reply.status, desk.claim_ended) == (0, "cancelled")


async def test_a_waiting_claim_is_answered(desk, http):
    desk.nothing_to_claim.set()
    reply = await http("POST", "/v1/queues/mail:claim", {"worker": "w", "wait_s": 30})
    assert (reply.status, reply.json) == (200, {"jobs": []})
