"""The connection to Redis: one client per process, short time-outs, no retries, and one translation of errors.

Whatever keeps Redis from answering (gone, loading, full, read-only, cluster down, silent for `TIMEOUT_S`) is `NearUnavailable`: the
caller goes on without the near tier and comes back, which is better than waiting inside a driver. Calls may have been carried
out all the same, so all of them can be repeated.

After a lost connection, and after a read-only answer (this server is a replica now), the idle connections are dropped too: the next
call looks for the primary anew behind the same name.
"""

from __future__ import annotations

import asyncio
import builtins
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import hiredis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import PubSub
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ClusterDownError,
    ConnectionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from tocsin.errors import ConfigError, NearUnavailable

TIMEOUT_S = 1.5
CONNECTIONS = 32
_CLUSTER = "+cluster"
# Answers of a server that is there and will not do it now: a failed snapshot, a primary that lost its replicas or is busy.
_NOT_NOW = ("MISCONF", "NOREPLICAS", "BUSY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "OOM", "READONLY")

Command = Sequence[str | int]
_pack: Callable[[tuple[str | int, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]


class Connection:
    """A pool of connections to one server or one cluster."""

    def __init__(self, url: str) -> None:
        addresses = url.split()
        self._client: Redis | RedisCluster
        if len(addresses) == 1 and not urlsplit(url.strip()).scheme.endswith(_CLUSTER):
            self._client = _single(addresses[0])
            self._listeners = deque([self._client])
        else:
            addresses = [address.replace(_CLUSTER, "", 1) for address in addresses]
            self._client = _cluster(addresses)
            self._listeners = deque(_single(address) for address in addresses)

    async def run(self, commands: Sequence[Command]) -> list[Any]:
        """Send all in one round trip; answers or `ResponseError`s that the caller must look at, in the same order."""
        try:
            answers = await (self._trip(commands) if isinstance(self._client, Redis) else self._spread(commands))
        except (RedisError, RedisClusterException, OSError) as exc:
            await self._drop_connections()
            raise unavailable(exc) from exc
        for answer in answers:
            if isinstance(answer, Exception) and _is_unavailable(answer):
                if isinstance(answer, ReadOnlyError):
                    await self._drop_connections()
                raise unavailable(answer) from answer
        return answers

    async def _trip(self, commands: Sequence[Command]) -> list[Any]:
        """One round trip to a single server. The driver's own pipeline packs in Python and sets a time-out for each answer, which
        cost more than the programs that are asked for; here there is one of each for all."""
        assert isinstance(self._client, Redis)
        pool: Any = self._client.connection_pool
        packed = b"".join([_pack(tuple(command)) for command in commands])
        answers: list[Any] = []
        connection = None
        try:
            async with asyncio.timeout(TIMEOUT_S):
                connection = await pool.get_connection()
                await connection.send_packed_command([packed], check_health=False)
                for _ in commands:
                    try:
                        answers.append(await connection.read_response())
                    except ResponseError as error:
                        answers.append(error)
        except builtins.TimeoutError as exc:
            raise TimeoutError(f"no answer within {TIMEOUT_S} s") from exc
        finally:
            if connection is not None:
                await pool.release(connection)
        return answers

    async def _spread(self, commands: Sequence[Command]) -> list[Any]:
        """One round trip to each of a cluster's servers that is concerned."""
        pipeline: Any = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        answers: list[Any] = await pipeline.execute(raise_on_error=False)
        return answers

    async def ask(self, *command: str | int) -> Any:
        """Send one command; raises what it answers if that is an error."""
        (answer,) = await self.run([command])
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def on_every_server(self, *command: str | int) -> list[Any]:
        """Send one command to each primary."""
        if isinstance(self._client, Redis):
            return [await self.ask(*command)]
        try:
            await self._client.initialize()
            return [
                await self._client.execute_command(*command, target_nodes=node) for node in self._client.get_primaries()
            ]
        except (RedisError, RedisClusterException, OSError) as exc:
            raise unavailable(exc) from exc

    async def scan(self, cursor: int, pattern: str, count: int) -> tuple[int, list[str]]:
        """One step through all keys of a single server; a cluster's keys in one go, since its cursors are many."""
        if isinstance(self._client, Redis):
            at, names = await self.ask("SCAN", cursor, "MATCH", pattern, "COUNT", count)
            return int(at), names
        try:
            return 0, [name async for name in self._client.scan_iter(match=pattern, count=count)]
        except (RedisError, RedisClusterException, OSError) as exc:
            raise unavailable(exc) from exc

    def pubsub(self) -> PubSub:
        """A connection that listens; in a cluster to each named server in turn, since all pass on what is published."""
        self._listeners.rotate(-1)
        return self._listeners[-1].pubsub(ignore_subscribe_messages=True)

    async def close(self) -> None:
        """Let go of every connection."""
        for client in {self._client, *self._listeners}:
            await client.aclose()

    async def _drop_connections(self) -> None:
        if isinstance(self._client, Redis):
            await self._client.connection_pool.disconnect(inuse_connections=False)


def unavailable(exc: BaseException) -> NearUnavailable:
    """What the flow sees of an error of the driver."""
    return NearUnavailable(f"Redis cannot answer now: {type(exc).__name__}: {exc}; the same call will be tried again")


def _is_unavailable(exc: Exception) -> bool:
    if isinstance(
        exc, ConnectionError | TimeoutError | OutOfMemoryError | ReadOnlyError | ClusterDownError | TryAgainError
    ):
        return True
    return isinstance(exc, ResponseError) and str(exc).startswith(_NOT_NOW)


def _options() -> dict[str, Any]:
    return {
        "decode_responses": True,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": TIMEOUT_S,
        "socket_connect_timeout": TIMEOUT_S,
    }


def _single(url: str) -> Redis:
    try:
        # `_trip` has one time-out around all that it does.
        options = _options() | {"socket_timeout": None}
        pool = BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=TIMEOUT_S, **options)
    except ValueError as exc:
        raise ConfigError(f"near is {_shown(url)}: {_why(exc)}; use redis://host:port/db or rediss://…") from None
    return Redis.from_pool(pool)


def _cluster(addresses: list[str]) -> RedisCluster:
    nodes: list[ClusterNode] = []
    parsed: dict[str, Any] = {}
    for address in addresses:
        try:
            parsed = dict(parse_url(address))
        except ValueError as exc:
            raise ConfigError(f"near names {_shown(address)}: {_why(exc)}; use redis+cluster://host:port") from None
        nodes.append(ClusterNode(parsed.get("host", "localhost"), parsed.get("port", 6379)))
    secure = addresses[0].startswith("rediss")
    credentials = {name: parsed[name] for name in ("username", "password") if name in parsed}
    return RedisCluster(
        startup_nodes=nodes,
        max_connections=CONNECTIONS,
        ssl=secure,
        **_options(),
        **credentials,
    )


def _why(exc: ValueError) -> str:
    """What is wrong with an address, without quoting it: what stands where a port should may be the beginning of a password."""
    return (
        "its port is no number (a / in a password is written %2F)"
        if str(exc).startswith("Port")
        else "its scheme is another"
    )


def _shown(url: str) -> str:
    """An address as errors may show it: without the password."""
    return url.rpartition("@")[2] if "@" in url else url
