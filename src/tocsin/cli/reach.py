"""How commands reach a server: one transport of the SDK, asked synchronously.

Answers are kept as they came, so that `--json` prints exactly what the API said.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

if TYPE_CHECKING:
    from tocsin.sdk.transport import Transport

T = TypeVar("T")
_url = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """A good answer: its status and its body as it came."""

    status: int
    body: bytes

    @property
    def value(self) -> Any:
        """The body as Python has it."""
        return json.loads(self.body)


def use(url: str) -> None:
    """Take `url` for every following call; empty: TOCSIN_URL."""
    global _url
    _url = url


def connect() -> Transport:
    """A transport to the server that was named."""
    from tocsin.sdk.http import HttpTransport

    return HttpTransport(_url or None)


def call(
    method: str,
    path: str,
    *,
    query: list[tuple[str, str]] | None = None,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """One request. Raises `Refused` or `ServerUnavailable`."""
    return run(lambda transport: ask(transport, method, path, query=query, body=body, headers=headers))


async def ask(
    transport: Transport,
    method: str,
    path: str,
    *,
    query: list[tuple[str, str]] | None = None,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """One request on a transport that is open already."""
    import msgspec

    encoded = None if body is None else msgspec.json.encode(body)
    answer = await transport.request(method, path, query=query, body=encoded, headers=headers)
    return Reply(answer.status, answer.body)


def run(work: Callable[[Transport], Awaitable[T]]) -> T:
    """Do `work` with a transport that is closed afterwards."""
    import asyncio

    async def go() -> T:
        transport = connect()
        try:
            return await work(transport)
        finally:
            await transport.close()

    return asyncio.run(go())


def part(name: str) -> str:
    """A name as one segment of a path: whatever was typed stays inside that segment."""
    return quote(name, safe="")
