"""The transport without a socket: it calls an ASGI application in the same process.

For the test harness and for the executor inside an embedded server. The application's lifespan is not this module's
business: whoever made the application starts it. A request that is given up (a time-out, a cancelled task) tells the
application `http.disconnect`, as a closed connection would, and the call ends there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote, urlencode

from tocsin.errors import ServerUnavailable
from tocsin.sdk.transport import DEFAULT_TIMEOUT_S, Answer, accept

Message = MutableMapping[str, Any]
# Frameworks type their applications in ways that do not agree with one another.
App = Callable[..., Any]


class AsgiTransport:
    """An application of this process; works on that application's event loop only."""

    def __init__(self, app: App, token: str = "") -> None:
        self._app = app
        self._token = token

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Answer:
        call = _Call(body or b"")
        try:
            async with asyncio.timeout(timeout_s):
                await self._app(self._scope(method, path, query, body, headers), call.receive, call.send)
        except TimeoutError as exc:
            raise ServerUnavailable(f"no answer within {timeout_s:g} s") from exc
        if not call.ended:
            raise ServerUnavailable("the application ended without an answer")
        return accept(call.status, call.headers, b"".join(call.chunks))

    def fresh(self) -> None:
        return None

    async def close(self) -> None:
        pass

    def _scope(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]] | None,
        body: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> MutableMapping[str, Any]:
        lines = [(b"host", b"tocsin.local"), (b"content-length", str(len(body or b"")).encode())]
        if self._token:
            lines.append((b"authorization", f"Bearer {self._token}".encode()))
        if body is not None:
            lines.append((b"content-type", b"application/json"))
        lines.extend(
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()
        )
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode("ascii"),
            "query_string": urlencode(query or []).encode("ascii"),
            "root_path": "",
            "headers": lines,
            "client": ("127.0.0.1", 0),
            "server": ("tocsin.local", 80),
            "state": {},
        }


class _Call:
    """The two channels of one request."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self.status = 0
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []
        self.ended = False

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        # The caller is still there for as long as this call runs: giving it up cancels the task that waits here.
        await asyncio.get_running_loop().create_future()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]
            }
        elif message["type"] == "http.response.body":
            self.chunks.append(message.get("body", b""))
            self.ended = not message.get("more_body", False)
