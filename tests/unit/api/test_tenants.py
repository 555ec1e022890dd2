"""Tokens, tenants and keys: who may do what, and what is never shown twice."""

import pytest

from tests.unit.api.stand_ins import NOW_MS, OWNER
from tocsin.clock import rfc3339
from tocsin.model.signing import key_of


@pytest.fixture
def operator(desk):
    return desk.give("tcs_op_secret", "operator", tenant="other")


async def test_anybody_with_a_token_may_ask_who_it_is(desk, http):
    worker = desk.give("tcs_w_secret", "work:mail")
    assert (await http("GET", "/v1/me", token=worker)).json == {
        "tenant": "shop",
        "scopes": ["work:mail"],
        "quotas": {
            "creates_per_s": None,
            "jobs_per_minute_bucket": None,
            "precise_per_s": None,
            "waiting_jobs": 10.0,
            "concurrent_callbacks": None,
            "stored_bytes": None,
        },
        "usage": {"waiting_jobs": 3},
    }


@pytest.mark.parametrize(
    ("scope", "calls"),
    [
        ("read", {"GET /v1/jobs", "GET /v1/queues"}),
        ("write", {"POST /v1/jobs", "PUT /v1/queues/mail"}),
        (
            "admin",
            {"GET /v1/jobs", "GET /v1/queues", "POST /v1/jobs", "PUT /v1/queues/mail", "GET /v1/tenants/shop/tokens"},
        ),
        ("work:mail", {"POST /v1/queues/mail:claim"}),
        ("work:*", {"POST /v1/queues/mail:claim"}),
        ("work:other", set()),
        ("executor", {"POST /v1/executor:claim"}),
    ],
)
async def test_a_scope_opens_its_own_doors_only(desk, http, scope, calls):
    token = desk.give("tcs_t_secret", scope)
    bodies = {
        "GET /v1/jobs": None,
        "GET /v1/queues": None,
        "POST /v1/jobs": {"queue": "mail", "target": {"type": "task", "handler": "send"}},
        "PUT /v1/queues/mail": {},
        "POST /v1/queues/mail:claim": {"worker": "w"},
        "POST /v1/executor:claim": {"worker": "w"},
        "GET /v1/tenants/shop/tokens": None,
        "POST /v1/tenants": {"name": "new"},
        "GET /metrics": None,
    }
    opened = set()
    for call, body in bodies.items():
        method, path = call.split(" ")
        reply = await http(method, path, b"" if body is None else body, token=token)
        assert reply.status in (200, 201, 403), call
        if reply.status != 403:
            opened.add(call)
    assert opened == calls


async def test_a_token_is_made_shown_once_used_and_deleted(desk, http):
    body = {"name": "worker", "scopes": ["work:mail", "read"], "expires_at": rfc3339(NOW_MS + 60_000)}
    reply = await http("POST", "/v1/tenants/shop/tokens", body)
    made = reply.json
    assert reply.status == 201
    assert made["token"].startswith(f"tcs_{made['token_id']}_")
    assert (await http("GET", "/v1/me", token=made["token"])).json["scopes"] == ["work:mail", "read"]
    listed = (await http("GET", "/v1/tenants/shop/tokens")).json["items"]
    assert made["token_id"] in {one["token_id"] for one in listed}
    assert not any("token" in one for one in listed)
    assert made["token"].rpartition("_")[2].encode() not in repr(desk.token_rows).encode()
    gone = await http("DELETE", f"/v1/tenants/shop/tokens/{made['token_id']}")
    assert (gone.status, gone.body) == (204, b"")
    assert (await http("GET", "/v1/me", token=made["token"])).status == 401
    assert (await http("DELETE", f"/v1/tenants/shop/tokens/{made['token_id']}")).status == 404


@pytest.mark.parametrize(
    ("changes", "pointers"),
    [
        ({"scopes": ["operator", "read", "executor"]}, {"/scopes/0", "/scopes/2"}),
        ({"scopes": ["all"]}, {"/scopes/0"}),
        ({"scopes": ["work:"]}, {"/scopes/0"}),
        ({"scopes": ["work:a b"]}, {"/scopes/0"}),
        ({"scopes": []}, {"/scopes"}),
        ({"name": ""}, {"/name"}),
        ({"expires_at": rfc3339(NOW_MS)}, {"/expires_at"}),
        ({"expires_at": "soon"}, {"/expires_at"}),
    ],
)
async def test_a_token_that_cannot_be_made_is_422(desk, http, operator, changes, pointers):
    body = {"name": "t", "scopes": ["read"], **changes}
    for token in (OWNER, operator):
        reply = await http("POST", "/v1/tenants/shop/tokens", body, token=token)
        assert (reply.status, reply.pointers) == (422, pointers)
    assert len(desk.token_rows) == 2


async def test_an_admin_sees_and_changes_its_own_tenant_only(http, operator):
    assert [one["name"] for one in (await http("GET", "/v1/tenants")).json["items"]] == ["shop"]
    assert (await http("GET", "/v1/tenants/shop")).status == 200
    for method, path in (
        ("GET", "/v1/tenants/other"),
        ("GET", "/v1/tenants/other/tokens"),
        ("GET", "/v1/tenants/other/signing-keys"),
        ("POST", "/v1/tenants/other/signing-keys"),
        ("DELETE", "/v1/tenants/other/tokens/op"),
        ("GET", "/v1/tenants/nobody/tokens"),
    ):
        assert (await http(method, path)).status == 404, path
    assert (await http("PATCH", "/v1/tenants/shop", {"weight": 100})).status == 403
    assert (await http("POST", "/v1/tenants", {"name": "new"})).status == 403


async def test_an_operator_acts_on_every_tenant(desk, http, operator):
    made = await http("POST", "/v1/tenants", {"name": "new", "quotas": {"waiting_jobs": 5}}, token=operator)
    assert (made.status, made.json["quotas"]["waiting_jobs"]) == (201, 5.0)
    assert (await http("POST", "/v1/tenants", {"name": "new"}, token=operator)).status == 409
    changed = await http("PATCH", "/v1/tenants/new", {"weight": 2.5, "quotas": None}, token=operator)
    assert (changed.json["weight"], changed.json["quotas"]["waiting_jobs"]) == (2.5, None)
    names = [one["name"] for one in (await http("GET", "/v1/tenants", token=operator)).json["items"]]
    assert names == ["new", "other", "shop"]
    assert (await http("PATCH", "/v1/tenants/nobody", {"weight": 2}, token=operator)).status == 404
    assert (await http("PATCH", "/v1/tenants/new", {}, token=operator)).status == 422
    assert (
        await http("POST", "/v1/tenants/new/tokens", {"name": "t", "scopes": ["admin"]}, token=operator)
    ).status == 201


async def test_signing_keys_are_rotated_and_shown_once(desk, http):
    made = []
    for _ in range(3):
        reply = await http("POST", "/v1/tenants/shop/signing-keys")
        assert (reply.status, len(key_of(reply.json["secret"]))) == (201, 32)
        made.append(reply.json["key_id"])
        desk.clock.advance(1)
    items = (await http("GET", "/v1/tenants/shop/signing-keys")).json["items"]
    assert [(one["key_id"], one["active"]) for one in items] == [(made[2], True), (made[1], True), (made[0], False)]
    assert not any("secret" in one for one in items)


async def test_tokens_are_believed_for_five_seconds(desk, http):
    for _ in range(10):
        await http("GET", "/v1/me")
    assert desk.looked_up == 1
    del desk.token_rows["owner"]
    desk.clock.advance(4.9)
    assert (await http("GET", "/v1/me")).status == 200
    desk.clock.advance(0.2)
    assert (await http("GET", "/v1/me")).status == 401
    for _ in range(10):
        await http("GET", "/v1/me", token="tcs_owner_guess")
    assert desk.looked_up == 2
