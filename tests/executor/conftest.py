"""Endpoints of every kind on the loopback, and jobs that call them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tocsin.clock import ManualClock
from tocsin.executor.guard import Guard, parse_allowances
from tocsin.executor.http import open_session
from tocsin.wire import ExecutorJob, HttpTarget

Endpoint = Callable[[asyncio.StreamReader, asyncio.StreamWriter, bytes], Awaitable[None]]


def job(url: str, *, payload: bytes = b'{"a": 1}', **changes) -> ExecutorJob:
    """A callback as the server hands it out."""
    target = {key: changes.pop(key) for key in ("method", "headers", "timeout_s") if key in changes}
    values: dict[str, Any] = {
        "job_id": "job_1",
        "attempt": 3,
        "tries": 2,
        "max_attempts": 6,
        "lease_token": "t",
        "lease_until": "2026-12-05T03:34:42Z",
        "lease_s": 30.0,
        "idempotency_key": "job_1@2026-12-05T03:34:12Z",
        "handler": None,
        "payload": msgspec.Raw(payload),
        "timeout_s": target.get("timeout_s", 30.0),
        "run_at": "2026-12-05T03:34:12Z",
        "fire_at": "2026-12-05T03:34:12Z",
        "queue": "reminders",
        "name": None,
        "tags": {},
        "schedule_id": None,
        "progress": msgspec.Raw(b"null"),
        "traceparent": None,
        "tenant": "acme",
        "target": HttpTarget(url=url, **target),
        "signature_headers": {"Webhook-Id": "job_1@x", "Webhook-Timestamp": "1", "Webhook-Signature": "v1,abc"},
    }
    return ExecutorJob(**(values | changes))


def plain(status: int, reason: str = "Whatever", body: bytes = b"", **headers: Any) -> Endpoint:
    """An endpoint that always gives this answer."""
    lines = [f"HTTP/1.1 {status} {reason}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    answer = ("\r\n".join(lines) + "\r\n\r\n").encode() + body

    async def endpoint(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
        writer.write(answer)

    return endpoint


class Endpoints:
    """Starts endpoints and remembers the requests that reached them."""

    def __init__(self, stack: contextlib.AsyncExitStack) -> None:
        self._stack = stack
        self.requests: list[bytes] = []
        self.connections = 0

    async def serve(self, endpoint: Endpoint) -> int:
        """Start an endpoint; the answer is its port."""
        tasks: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                while True:
                    request = await _request(reader)
                    self.requests.append(request)
                    await endpoint(reader, writer, request)
                    await writer.drain()
            except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                pass
            finally:
                tasks.discard(task)
                writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)

        async def stop() -> None:
            server.close()
            for task in list(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._stack.push_async_callback(stop)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def url(self, endpoint: Endpoint, path: str = "/hook") -> str:
        """Start an endpoint; the answer is its URL."""
        return f"http://127.0.0.1:{await self.serve(endpoint)}{path}"


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return head + await reader.readexactly(length)


@pytest.fixture
async def endpoints() -> AsyncIterator[Endpoints]:
    async with contextlib.AsyncExitStack() as stack:
        yield Endpoints(stack)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def session():
    """A session that may call the loopback."""
    async with open_session(Guard(parse_allowances("127.0.0.0/8:*"))) as opened:
        yield opened
