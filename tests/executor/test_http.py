"""The callback as the endpoint sees it, and every way in which it can end."""

import asyncio
import gzip
import json
from typing import Any

import pytest

from tests.executor.conftest import job, plain
from tocsin.executor.http import MAX_HEADER_LINES, call
from tocsin.wire import MAX_RESPONSE_BYTES


def headers_of(request: bytes) -> dict[str, str]:
    lines = request.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


async def test_the_payload_travels_byte_by_byte_with_all_headers(endpoints, session, clock):
    url = await endpoints.url(plain(200), "/a%2Fb?x=%7e#part")
    payload = b'{ "b" : 1.0e3, "a":"\xc3\xbc" }'
    done = await call(session, job(url, payload=payload, headers={"X-Own": "1"}, traceparent="00-ab-cd-01"), clock)
    assert done.outcome == "succeeded"
    [request] = endpoints.requests
    assert request.startswith(b"POST /a%2Fb?x=%7e HTTP/1.1\r\n")
    assert request.endswith(b"\r\n\r\n" + payload)
    headers = headers_of(request)
    assert headers.pop("host").startswith("127.0.0.1:")
    assert headers.pop("user-agent").startswith("Tocsin/")
    assert headers == {
        "accept": "*/*",
        "accept-encoding": "identity",
        "content-length": str(len(payload)),
        "content-type": "application/json",
        "idempotency-key": "job_1@2026-12-05T03:34:12Z",
        "tocsin-job-id": "job_1",
        "tocsin-attempt": "3",
        "tocsin-fire-at": "2026-12-05T03:34:12Z",
        "tocsin-queue": "reminders",
        "webhook-id": "job_1@x",
        "webhook-timestamp": "1",
        "webhook-signature": "v1,abc",
        "traceparent": "00-ab-cd-01",
        "x-own": "1",
    }


@pytest.mark.parametrize(
    ("method", "payload"), [("GET", b'{"a":1}'), ("DELETE", b'{"a":1}'), ("POST", b"null"), ("PUT", b"null")]
)
async def test_without_a_payload_there_is_no_body(endpoints, session, clock, method, payload):
    url = await endpoints.url(plain(204))
    done = await call(session, job(url, method=method, payload=payload), clock)
    assert (done.outcome, done.status_code) == ("succeeded", 204)
    [request] = endpoints.requests
    assert request.startswith(method.encode())
    assert request.endswith(b"\r\n\r\n")
    assert "content-type" not in headers_of(request)


async def test_the_jobs_own_content_type_wins_whatever_its_case(endpoints, session, clock):
    url = await endpoints.url(plain(200))
    own = {"content-TYPE": "text/plain", "user-agent": "me", "TraceParent": "00-own"}
    await call(session, job(url, headers=own, traceparent="00-ab-cd-01"), clock)
    [request] = endpoints.requests
    assert request.lower().count(b"traceparent:") == 1
    assert headers_of(request)["traceparent"] == "00-own"
    assert request.lower().count(b"content-type:") == 1
    assert headers_of(request)["content-type"] == "text/plain"
    assert headers_of(request)["user-agent"] == "me"


@pytest.mark.parametrize(
    ("status", "outcome", "error"),
    [
        (200, "succeeded", None),
        (201, "succeeded", None),
        (299, "succeeded", None),
        (304, "fatal_failure", "HTTP 304 Not Modified (redirects are not followed)"),
        (400, "fatal_failure", "HTTP 400 Bad Request"),
        (401, "fatal_failure", "HTTP 401 Unauthorized"),
        (404, "fatal_failure", "HTTP 404 Not Found"),
        (408, "retryable_failure", "HTTP 408 Request Timeout"),
        (409, "fatal_failure", "HTTP 409 Conflict"),
        (410, "fatal_failure", "HTTP 410 Gone"),
        (425, "retryable_failure", "HTTP 425 Too Early"),
        (429, "retryable_failure", "HTTP 429 Too Many Requests"),
        (500, "retryable_failure", "HTTP 500 Internal Server Error"),
        (503, "retryable_failure", "HTTP 503 Service Unavailable"),
        (599, "retryable_failure", "HTTP 599"),
        (600, "fatal_failure", "HTTP 600"),
    ],
)
async def test_the_status_classifies(endpoints, session, clock, status, outcome, error):
    url = await endpoints.url(plain(status))
    done = await call(session, job(url), clock)
    assert (done.outcome, done.error, done.status_code) == (outcome, error, status)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_final_and_not_followed(endpoints, session, clock, status):
    url = await endpoints.url(plain(status, Location="/hook"))
    done = await call(session, job(url), clock)
    assert done.outcome == "fatal_failure"
    assert done.error is not None
    assert done.error.endswith("(redirects are not followed)")
    assert len(endpoints.requests) == 1


@pytest.mark.parametrize(
    ("status", "asked", "wait"),
    [
        (429, "300", 300.0),
        (503, "0", 0.0),
        (429, "-5", None),
        (429, "1e12", None),
        (503, "1000000000000", 86_400.0),
        (429, "Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        (429, "Mon, 01 Jan 2099 00:00:00 GMT", 86_400.0),
        (429, "tomorrow", None),
        (500, "300", None),
        (200, "300", None),
    ],
)
async def test_retry_after_counts_on_429_and_503(endpoints, session, clock, status, asked, wait):
    url = await endpoints.url(plain(status, Retry_After=asked))
    assert (await call(session, job(url), clock)).retry_after_s == wait


async def test_chosen_headers_and_the_bodys_beginning_are_kept(endpoints, session, clock):
    url = await endpoints.url(
        plain(
            500, "<script>", b"caf\xc3\xa9 \xff \0", Content_Type="text/plain", X_Request_Id="r" * 600, Set_Cookie="a=b"
        )
    )
    done = await call(session, job(url), clock)
    assert done.error == "HTTP 500 Internal Server Error"
    assert done.response is not None
    assert done.response.body == "café � �"
    assert done.response.headers == {"content-type": "text/plain", "x-request-id": "r" * 512}


async def test_cookies_are_not_kept(endpoints, session, clock):
    url = await endpoints.url(plain(200, Set_Cookie="session=1"))
    await call(session, job(url), clock)
    await call(session, job(url), clock)
    assert "cookie" not in headers_of(endpoints.requests[1])


async def test_a_connection_is_used_again(endpoints, session, clock):
    url = await endpoints.url(plain(200, body=b"ok"))
    for _ in range(5):
        await call(session, job(url), clock)
    assert endpoints.connections == 1


async def test_an_echoed_secret_is_not_stored(endpoints, session, clock):
    async def echo(reader, writer, request):
        body = json.dumps({"got": headers_of(request)}).encode()
        writer.write(b"HTTP/1.1 401 No\r\nX-Request-Id: Bearer s3cr3t-token\r\n")
        writer.write(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)

    done = await call(session, job(await endpoints.url(echo), headers={"Authorization": "Bearer s3cr3t-token"}), clock)
    assert done.response is not None
    assert "s3cr3t" not in str(done)
    assert done.response.headers["x-request-id"] == "***"
    assert '"authorization": "***"' in done.response.body


async def test_silence_ends_at_the_timeout(endpoints, session, clock):
    async def silent(reader, writer, request):
        await reader.read()

    done = await call(session, job(await endpoints.url(silent), timeout_s=0.2), clock)
    assert (done.outcome, done.error, done.status_code) == ("retryable_failure", "timed out after 0.2 s", None)
    assert done.response is None


def dripping(head: bytes):
    async def drip(reader, writer, request):
        writer.write(head)
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    return drip


@pytest.mark.parametrize(
    ("head", "outcome", "error", "status"),
    [
        (b"", "retryable_failure", None, None),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", "retryable_failure", "timed out after 0.5 s", None),
        (b"HTTP/1.1 200 OK\r\n\r\n", "retryable_failure", "HTTP 200 OK, but timed out after 0.5 s", 200),
        (b"HTTP/1.1 500 No\r\n\r\n", "retryable_failure", "HTTP 500 Internal Server Error", 500),
        (b"HTTP/1.1 404 No\r\n\r\n", "fatal_failure", "HTTP 404 Not Found", 404),
    ],
    ids=["no status", "headers", "body of a success", "body of a failure", "body of a final failure"],
)
async def test_a_dripping_answer_ends_at_the_timeout(endpoints, session, clock, head, outcome, error, status):
    done = await call(session, job(await endpoints.url(dripping(head)), timeout_s=0.5), clock)
    assert (done.outcome, done.status_code) == (outcome, status)
    if error is not None:
        assert done.error == error


@pytest.mark.parametrize("status", [200, 500])
async def test_of_a_huge_body_only_the_beginning_is_read(endpoints, session, clock, status):
    sent = 0

    async def huge(reader, writer, request):
        nonlocal sent
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 5000000000\r\n\r\n".encode())
        for _ in range(500_000):
            writer.write(b"y" * 10_000)
            sent += 10_000
            await writer.drain()

    done = await call(session, job(await endpoints.url(huge)), clock)
    assert done.outcome == ("succeeded" if status == 200 else "retryable_failure")
    assert done.response is not None
    assert done.response.body == "y" * MAX_RESPONSE_BYTES
    assert sent < 50_000_000


async def test_a_huge_binary_body_is_stored_within_the_limit(endpoints, session, clock):
    url = await endpoints.url(plain(200, body=b"\xff" * 10_000))
    done = await call(session, job(url), clock)
    assert done.response is not None
    assert 0 < len(done.response.body.encode()) <= MAX_RESPONSE_BYTES


async def test_a_gzip_bomb_is_not_unpacked(endpoints, session, clock):
    bomb = gzip.compress(b"\0" * 50_000_000)
    url = await endpoints.url(plain(200, body=bomb, Content_Encoding="gzip"))
    done = await call(session, job(url), clock)
    assert done.outcome == "succeeded"
    assert done.response is not None
    assert len(done.response.body.encode()) <= MAX_RESPONSE_BYTES


@pytest.mark.parametrize(
    "head",
    [
        b"".join(b"X-%d: v\r\n" % number for number in range(100_000)),
        b"X-Long: " + b"v" * 10_000_000 + b"\r\n",
    ],
    ids=["100,000 lines", "10 MB in one"],
)
async def test_too_many_headers_are_not_read(endpoints, session, clock, head):
    async def endpoint(reader, writer, request):
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"Content-Length: 0\r\n\r\n")
        await writer.drain()

    done = await call(session, job(await endpoints.url(endpoint)), clock)
    assert done.outcome == "retryable_failure"
    assert done.error is not None
    assert "headers were too large" in done.error
    assert len(done.error) < 600


async def test_an_ordinary_number_of_headers_is_read(endpoints, session, clock):
    lines: dict[str, Any] = {f"X_{number}": "v" for number in range(MAX_HEADER_LINES - 10)}
    url = await endpoints.url(plain(200, **lines))
    assert (await call(session, job(url), clock)).outcome == "succeeded"


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"", "the connection was closed before an answer had come"),
        (b"HTTP/1.1 200 OK\r\nX: ", "the connection was closed before an answer had come"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
            "HTTP 200 OK, but the connection was closed before the whole answer had come",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "HTTP 200 OK, but the connection was closed before the whole answer had come",
        ),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not valid HTTP"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "not valid HTTP"),
    ],
)
async def test_a_connection_that_breaks_may_be_tried_again(endpoints, session, clock, sent, error):
    async def endpoint(reader, writer, request):
        writer.write(sent)
        await writer.drain()
        raise ConnectionError

    done = await call(session, job(await endpoints.url(endpoint)), clock)
    assert done.outcome == "retryable_failure"
    assert done.error is not None
    assert error in done.error


async def test_a_refused_connection_may_be_tried_again(session, clock, unused_tcp_port):
    done = await call(session, job(f"http://127.0.0.1:{unused_tcp_port}/"), clock)
    assert done.outcome == "retryable_failure"
    assert done.error == f"could not connect to 127.0.0.1:{unused_tcp_port}: Connection refused"


async def test_tls_that_fails_may_be_tried_again(session, clock):
    async def not_tls(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(not_tls, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        done = await call(session, job(f"https://127.0.0.1:{port}/"), clock)
    assert done.outcome == "retryable_failure"
    assert done.error is not None
    assert done.error.startswith(f"could not connect to 127.0.0.1:{port}: ")


async def test_a_request_that_cannot_be_written_is_final(endpoints, session, clock):
    url = await endpoints.url(plain(200))
    done = await call(session, job(url, headers={"X-A": "secret-value\r\nHost: evil"}), clock)
    assert done.outcome == "fatal_failure"
    assert done.error is not None
    assert "secret" not in done.error
    assert endpoints.requests == []


async def test_a_cancelled_call_closes_its_connection(endpoints, session, clock):
    arrived, closed = asyncio.Event(), asyncio.Event()

    async def silent(reader, writer, request):
        arrived.set()
        await reader.read()
        closed.set()

    running = asyncio.create_task(call(session, job(await endpoints.url(silent)), clock))
    await arrived.wait()
    running.cancel()
    await asyncio.wait_for(closed.wait(), 5)
    assert (await asyncio.gather(running, return_exceptions=True))[0].__class__ is asyncio.CancelledError


async def test_a_stream_of_interim_answers_ends_at_the_timeout(endpoints, session, clock):
    async def interim(reader, writer, request):
        while True:
            writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    done = await call(session, job(await endpoints.url(interim), timeout_s=0.5), clock)
    assert (done.outcome, done.error) == ("retryable_failure", "timed out after 0.5 s")
