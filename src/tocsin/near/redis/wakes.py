"""Wake-ups between processes: one connection that listens, and a callback per channel.

A wake-up is a hint. One that is lost (Redis is away, the connection is being made anew) costs the time until the sleeper looks
again by itself, never a job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from redis.exceptions import RedisClusterException, RedisError

from tocsin.clock import Clock
from tocsin.near.redis.connection import Connection

_AGAIN_S = 0.5


class Wakes:
    """Listens to channels. `hear` all channels before `start`."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection, self._clock = connection, clock
        self._heard: dict[str, Callable[[str], None]] = {}
        self._closing = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    def hear(self, channel: str, callback: Callable[[str], None]) -> None:
        """Call back with each message of a channel; the callback must not wait."""
        self._heard[channel] = callback

    async def start(self) -> None:
        """Listen from now on, until `close`."""
        ready = asyncio.Event()
        self._listening = asyncio.create_task(self._listen(ready), name="near tier's wake-ups")
        waiting = asyncio.ensure_future(ready.wait())
        await asyncio.wait([waiting, self._listening], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    async def close(self) -> None:
        """Stop listening."""
        self._closing.set()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None

    async def _listen(self, ready: asyncio.Event) -> None:
        while not self._closing.is_set():
            try:
                await self._hear(ready)
            except (RedisError, RedisClusterException, OSError):
                ready.set()
                await self._clock.wait(self._closing, _AGAIN_S)

    async def _hear(self, ready: asyncio.Event) -> None:
        pubsub = self._connection.pubsub()
        try:
            await pubsub.subscribe(*self._heard)
            ready.set()
            async for message in pubsub.listen():
                if message["type"] == "message":
                    self._heard[message["channel"]](message["data"])
        finally:
            await pubsub.aclose()  # type: ignore[no-untyped-call]
