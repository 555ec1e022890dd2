"""What is served without a tenant."""

import json
import re


async def test_alive_and_ready_need_no_token(desk, http):
    alive = await http("GET", "/healthz", token=None)
    assert alive.json["status"] == "alive"
    assert alive.json["zone_data"] == "2026a"
    assert (await http("GET", "/readyz", token=None)).json == {"status": "ready", "zone_data": "2026a"}


async def test_readiness_is_asked_once_a_second_and_gives_its_reasons(desk, http):
    await http("GET", "/readyz", token=None)
    desk.unready = ["the store cannot write: disk full", "the clock is 400 ms off"]
    assert (await http("GET", "/readyz", token=None)).status == 200
    desk.clock.advance(1)
    reply = await http("GET", "/readyz", token=None)
    assert (reply.status, reply.kind, reply.json["reasons"]) == (503, "not-ready", desk.unready)
    assert reply.headers["retry-after"] == "1"
    assert desk.health_asked == 2


async def test_metrics_are_for_operators(desk):
    served, without = desk.http(metrics=lambda: b"tocsin_jobs_total 1\n"), desk.http()
    operator = desk.give("tcs_op_secret", "operator")
    assert (await served("GET", "/metrics")).status == 403
    reply = await served("GET", "/metrics", token=operator)
    assert (reply.status, reply.body) == (200, b"tocsin_jobs_total 1\n")
    assert reply.headers["content-type"].startswith("text/plain")
    assert (await without("GET", "/metrics", token=operator)).status == 404


async def test_the_clock_is_only_there_where_it_can_be_moved(desk, http):
    operator = desk.give("tcs_op_secret", "operator")
    assert (await http("POST", "/v1/dev/clock:advance", {"seconds": 5}, token=operator)).status == 404
    assert b"clock:advance" not in (await http("GET", "/openapi.json", token=None)).body

    async def advance(seconds: float) -> int:
        desk.clock.advance(seconds)
        return desk.clock.now_ms()

    manual = desk.http(advance=advance)
    reply = await manual("POST", "/v1/dev/clock:advance", {"seconds": 20.5}, token=operator)
    assert reply.json == {"now": "2030-03-17T17:47:00.500Z"}
    assert b"clock:advance" in (await manual("GET", "/openapi.json", token=None)).body
    assert (await manual("POST", "/v1/dev/clock:advance", {"seconds": -1}, token=operator)).status == 422


async def test_the_page_has_no_scripts_and_may_load_nothing(http):
    page = await http("GET", "/docs", token=None)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-frame-options"] == "DENY"
    text = page.body.decode()
    assert not re.search(r"<script|<link|<img|https?://|\son\w+=|style=", text)
    assert "/v1/jobs:batch" in text


async def test_the_document_names_every_operation(http):
    document = json.loads((await http("GET", "/openapi.json", token=None)).body)
    assert document["openapi"] == "3.1.0"
    called = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert {
        "POST /v1/jobs",
        "POST /v1/jobs:batch",
        "PATCH /v1/jobs/{job_id}",
        "POST /v1/queues/{queue}:claim",
        "POST /v1/attempts:complete",
        "POST /v1/executor:claim",
        "PUT /v1/queues/{queue}",
        "POST /v1/queues/{queue}/dead-letters:redrive",
        "DELETE /v1/tenants/{tenant}/tokens/{token_id}",
        "GET /healthz",
    } <= called
    names = set(document["components"]["schemas"])
    pointed = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document)))
    assert pointed <= names


async def test_another_protocol_is_turned_away(http):
    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message["type"])

    await http.app({"type": "websocket"}, receive, send)
    assert sent == ["websocket.close"]


async def test_the_lifespan_is_acknowledged(http):
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message["type"])

    await http.app({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
