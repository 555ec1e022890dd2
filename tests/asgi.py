"""Calls an ASGI application without a socket and says exactly what came back."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

UNSET: Any = object()


@dataclass(frozen=True)
class Reply:
    """What a request was answered with."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def pointers(self) -> set[str]:
        """The pointers of a problem's errors."""
        assert self.headers["content-type"] == "application/problem+json", self.body
        return {one["pointer"] for one in self.json.get("errors", [])}

    @property
    def kind(self) -> str:
        """The last part of a problem's type."""
        assert self.headers["content-type"] == "application/problem+json", self.body
        assert self.json["status"] == self.status
        return self.json["type"].removeprefix("/problems/")


@dataclass
class Http:
    """A client of an application; `token` goes with every request that names no other."""

    app: Any
    token: str | None = None
    disconnect: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = UNSET,
        *,
        token: Any = UNSET,
        query: Any = None,
        headers: dict[str, str] | None = None,
        content_type: str | None = UNSET,
        chunks: list[bytes] | None = None,
        raw_path: bool = False,
    ) -> Reply:
        """`body` is sent as it is if bytes, else as JSON; `chunks` is a body without a declared length."""
        text = b"" if body is UNSET else body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [(b"host", b"tocsin.test")]
        token = self.token if token is UNSET else token
        if token is not None:
            lines.append((b"authorization", f"Bearer {token}".encode()))
        if content_type is UNSET:
            content_type = "application/json" if text or chunks else None
        if content_type is not None:
            lines.append((b"content-type", content_type.encode()))
        lines.append((b"transfer-encoding", b"chunked") if chunks else (b"content-length", str(len(text)).encode()))
        lines += [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": query.encode() if isinstance(query, str) else urlencode(query or []).encode(),
            "root_path": "",
            "headers": lines,
        }
        return await self._exchange(scope, chunks or [text])

    async def _exchange(self, scope: dict[str, Any], parts: list[bytes]) -> Reply:
        waiting, sent = list(parts), []

        async def receive() -> dict[str, Any]:
            if waiting:
                part = waiting.pop(0)
                return {"type": "http.request", "body": part, "more_body": bool(waiting)}
            await self.disconnect.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        if not sent:
            return Reply(0, {}, b"")
        start, end = sent
        names = {name.decode(): value.decode() for name, value in start["headers"]}
        return Reply(start["status"], names, end["body"])
