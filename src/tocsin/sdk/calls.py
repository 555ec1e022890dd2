"""One call of the client: a request, repeated when it is safe to repeat it and the server did not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from tocsin.clock import Clock, Entropy
from tocsin.errors import Overloaded, ServerUnavailable
from tocsin.sdk.answers import Items
from tocsin.sdk.backoff import Backoff
from tocsin.sdk.transport import DEFAULT_TIMEOUT_S, Answer, Transport, decode

T = TypeVar("T")
TRIES = 4
MAX_PAUSE_S = 5.0
PAGE = 200


class Calls:
    """What every group of calls (`client.jobs`, `client.queues`, …) is made of."""

    def __init__(self, transport: Transport, clock: Clock, entropy: Entropy) -> None:
        self.transport, self.clock, self.entropy = transport, clock, entropy

    async def send(
        self,
        method: str,
        path: str,
        *,
        repeat: bool,
        query: list[tuple[str, str]] | None = None,
        json: object = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Answer:
        """Send it. `repeat` says that doing it twice is the same as doing it once; then it is tried up to four times."""
        if json is not None:
            body = msgspec.json.encode(json)
        backoff, never = Backoff(self.entropy, first_s=0.5, cap_s=MAX_PAUSE_S), asyncio.Event()
        while True:
            try:
                return await self.transport.request(
                    method, path, query=query, body=body, headers=headers, timeout_s=timeout_s
                )
            except ServerUnavailable as exc:
                if not repeat or backoff.failures + 1 >= TRIES:
                    raise
                asked_s = min(exc.retry_after_s, MAX_PAUSE_S) if isinstance(exc, Overloaded) else 0.0
            await self.clock.wait(never, backoff.next_s(asked_s))

    async def get(self, path: str, kind: type[T], query: list[tuple[str, str]] | None = None) -> T:
        """Read one thing."""
        return decode((await self.send("GET", path, query=query, repeat=True)).body, kind)

    async def pages(self, path: str, kind: type[T], query: list[tuple[str, str]], page: int = PAGE) -> AsyncIterator[T]:
        """Read a list to its end, one page at a time and no page before it is needed."""
        cursor: str | None = None
        while True:
            asked = [*query, ("limit", str(page))]
            if cursor is not None:
                asked.append(("cursor", cursor))
            answer = await self.get(path, Items[kind], asked)  # type: ignore[valid-type]
            for item in answer.items:
                yield item
            cursor = answer.next_cursor
            if cursor is None:
                return


def path(*parts: str) -> str:
    """A path of the API; every second part is a name or an ID and is quoted."""
    return "/v1/" + "".join(quote(part, safe="") if index % 2 else part for index, part in enumerate(parts))


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
