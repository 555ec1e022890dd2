"""The HTTP transport against servers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import tocsin
from tocsin.sdk.http import HttpTransport

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@contextlib.asynccontextmanager
async def answering(*answers: bytes | None):
    """A server that gives each request the next of `answers` (None: silence; the last for ever), and what it was sent."""
    seen: list[bytes] = []
    connections: list[asyncio.Task[None] | None] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            while True:
                seen.append(await reader.readuntil(b"\r\n\r\n"))
                answer = answers[min(len(seen), len(answers)) - 1]
                if answer is None:
                    await asyncio.Event().wait()
                assert answer is not None
                writer.write(answer)
                if not answer.endswith(b"{}"):
                    break
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    transport = HttpTransport(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/base/", "tcs_secret")
    try:
        yield transport, seen, connections
    finally:
        await transport.close()
        server.close()
        for task in connections:
            assert task is not None
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)  # type: ignore[arg-type]


async def test_a_request_carries_the_token_and_nothing_of_the_environment(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with answering(OK) as (transport, seen, _):
        answer = await transport.request("GET", "/v1/jobs/a%2Fb", query=[("tag", "a:b&c"), ("tag", "d e")])
        assert answer.body == b"{}"
        line, *headers = seen[0].decode().split("\r\n")
        assert line == "GET /base/v1/jobs/a%2Fb?tag=a:b%26c&tag=d+e HTTP/1.1"
        names = {header.split(":")[0].lower(): header.split(": ", 1)[-1] for header in headers if header}
        assert names["authorization"] == "Bearer tcs_secret"
        assert "content-type" not in names


async def test_connections_are_kept():
    async with answering(OK) as (transport, seen, connections):
        for _ in range(3):
            await transport.request("POST", "/v1/x", body=b"{}")
        assert (len(seen), len(connections)) == (3, 1)


async def test_a_redirect_is_not_followed():
    redirect = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    async with answering(redirect) as (transport, seen, _):
        with pytest.raises(tocsin.Refused):
            await transport.request("GET", "/v1/me")
        assert len(seen) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"nonsense\r\n\r\n",
    ],
    ids=["closed", "body cut short", "chunk cut short", "not HTTP"],
)
async def test_a_broken_answer_means_that_nothing_is_known(answer):
    async with answering(answer) as (transport, _, _):
        with pytest.raises(tocsin.ServerUnavailable):
            await transport.request("POST", "/v1/jobs", body=b"{}")


async def test_after_a_silent_connection_none_of_its_pool_is_used_again():
    async with answering(OK, None, OK) as (transport, seen, connections):
        await transport.request("GET", "/v1/me")
        with pytest.raises(tocsin.ServerUnavailable, match=r"within 0\.2 s"):
            await transport.request("GET", "/v1/me", timeout_s=0.2)
        assert len(connections) == 1
        await transport.request("GET", "/v1/me")
        assert (len(seen), len(connections)) == (3, 2)


async def test_no_server_at_all_is_said_with_its_address():
    transport = HttpTransport("http://127.0.0.1:1", "t")
    with pytest.raises(tocsin.ServerUnavailable, match=r"http://127\.0\.0\.1:1"):
        await transport.request("GET", "/v1/me")
    await transport.close()


@pytest.mark.parametrize("url", ["localhost:8321", "ftp://x", "http://", "http://u:p@x", "http://x/?a=b"])
def test_what_is_not_an_address_is_refused(url):
    with pytest.raises(tocsin.TocsinError):
        HttpTransport(url, "t")


def test_a_token_with_a_line_break_is_refused_without_showing_it():
    with pytest.raises(tocsin.TocsinError) as refused:
        HttpTransport("http://x", "tcs_secret\r\nX: y")
    assert "secret" not in str(refused.value)


def test_the_environment_names_server_and_token(monkeypatch):
    monkeypatch.setenv("TOCSIN_URL", "https://tocsin.example/")
    assert HttpTransport().url == "https://tocsin.example"
    monkeypatch.delenv("TOCSIN_URL")
    assert HttpTransport().url == "http://127.0.0.1:8321"


async def test_a_client_may_be_used_on_one_event_loop_after_another():
    """Such as a client at module level and several `asyncio.run`, here each in a thread."""
    async with answering(OK) as (transport, _, connections):

        def once() -> None:
            async def request() -> None:
                await transport.request("GET", "/v1/me")
                await transport.close()

            asyncio.run(request())

        for _ in range(2):
            await asyncio.to_thread(once)
        assert len(connections) == 2
