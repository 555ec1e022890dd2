"""Who gets in, over the real store: tokens, tenants, and what nobody may see."""

from tests.asgi import Http
from tocsin import roles
from tocsin.api.auth import Rule
from tocsin.api.operations import OPERATIONS
from tocsin.clock import ManualClock, SystemEntropy
from tocsin.config import Settings


async def test_every_operation_but_the_probes_needs_a_token(server):
    for operation in OPERATIONS:
        path = operation.path
        for name in operation.params:
            path = path.replace("{" + name + "}", "x")
        for token, query in ((None, ""), ("tcs_owner_wrong", ""), (None, "access_token=tcs_owner_secret")):
            reply = await server.http(operation.method, path, token=token, query=query)
            if operation.rule is not Rule.PUBLIC:
                assert reply.status == 401, path
            assert "access-control-allow-origin" not in reply.headers


async def test_a_form_of_another_site_changes_nothing(server):
    for content_type in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data"):
        body = b'{"queue": "mail", "target": {"type": "task", "handler": "x"}}'
        headers = {"Origin": "https://evil.example"}
        assert (await server.http("POST", "/v1/jobs", body, content_type=content_type, headers=headers)).status == 415
    assert await server.stored() == 0


async def test_a_made_token_works_until_it_is_deleted(server):
    made = (await server.http("POST", "/v1/tenants/shop/tokens", {"name": "t", "scopes": ["read"]})).json
    assert (await server.http("GET", "/v1/jobs", token=made["token"])).status == 200
    assert (await server.http("POST", "/v1/jobs", {}, token=made["token"])).status == 403
    assert (await server.http("DELETE", f"/v1/tenants/shop/tokens/{made['token_id']}")).status == 204
    assert (await server.http("GET", "/v1/jobs", token=made["token"])).status == 401


async def test_an_operator_makes_a_tenant_that_can_start(server):
    boss = "tcs_operator_secret"
    assert (await server.http("POST", "/v1/tenants", {"name": "new", "weight": 3}, token=boss)).status == 201
    assert (await server.http("POST", "/v1/tenants", {"name": "new"}, token=boss)).status == 409
    body = {"name": "first", "scopes": ["admin"]}
    made = (await server.http("POST", "/v1/tenants/new/tokens", body, token=boss)).json["token"]
    assert (await server.http("GET", "/v1/me", token=made)).json["tenant"] == "new"
    job = {"queue": "q", "target": {"type": "task", "handler": "h"}}
    assert (await server.http("POST", "/v1/jobs", job, token=made)).status == 201


async def test_a_quota_refuses_with_its_name_and_a_time(server):
    boss = "tcs_operator_secret"
    await server.http("PATCH", "/v1/tenants/shop", {"quotas": {"creates_per_s": 2}}, token=boss)
    await server.advance(6)
    job = {"queue": "q", "target": {"type": "task", "handler": "h"}}
    replies = [await server.http("POST", "/v1/jobs", job) for _ in range(3)]
    assert [reply.status for reply in replies] == [201, 201, 429]
    assert replies[2].json["quota"] == "creates_per_s"
    assert int(replies[2].headers["retry-after"]) >= 1
    assert (await server.http("GET", "/v1/me")).json["quotas"]["creates_per_s"] == 2.0


async def test_metrics_name_no_tenant(server):
    await server.create()
    reply = await server.http("GET", "/metrics", token="tcs_operator_secret")
    assert reply.status == 200
    assert b"shop" not in reply.body
    assert (await server.http("GET", "/metrics")).status == 403


async def test_the_manual_clock_is_moved_over_http(server):
    await server.create(delay_s=90)
    path = "/v1/dev/clock:advance"
    reply = await server.http("POST", path, {"seconds": 100}, token="tcs_operator_secret")
    assert reply.json == {"now": "2030-03-17T17:48:20Z"}
    assert len(await server.claim()) == 1


async def test_a_running_server_is_ready(server):
    assert (await server.http("GET", "/readyz", token=None)).json["status"] == "ready"


async def test_who_asks_too_early_on_a_clock_that_stands_still_is_told_when_it_is_ready(tmp_path):
    process = await roles.build(Settings(data=tmp_path), ManualClock(), SystemEntropy())
    http = Http(process.app, "none")
    assert (await http("GET", "/readyz", token=None)).status == 503
    await process.start()
    assert (await http("GET", "/readyz", token=None)).status == 200
    await process.stop()
