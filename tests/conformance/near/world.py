"""What the near tier's conformance suite is written against: a factory per adapter, and members to put in.

An adapter joins the suite by a factory in `ADAPTERS`: (request, clock, partitions, limits) -> a tier, empty and connected; the
request gives it the fixture of its server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pytest

from tests.servers.redis import RedisServer, new_installation
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.model.ids import new_ids
from tocsin.model.job import HTTP, Lane, Line
from tocsin.model.partition import partition_of
from tocsin.near.memory import MemoryNearTier
from tocsin.near.port import (
    DUE_PER_TENANT_LANE,
    LINE_LIMIT,
    TENANT_LIMIT,
    NearTier,
    Pop,
    Popped,
    QueueGate,
)
from tocsin.near.redis import open_near
from tocsin.store.port import Due

PARTITIONS = 4


class Make(Protocol):
    """Makes an adapter's tier with these limits."""

    def __call__(
        self,
        *,
        partitions: int = PARTITIONS,
        due_limit: int = DUE_PER_TENANT_LANE,
        line_limit: int = LINE_LIMIT,
        tenant_limit: int = TENANT_LIMIT,
    ) -> Awaitable[World]: ...


async def memory(
    request: pytest.FixtureRequest,
    clock: ManualClock,
    partitions: int,
    due_limit: int,
    line_limit: int,
    tenant_limit: int,
) -> NearTier:
    return MemoryNearTier(clock, partitions, due_limit=due_limit, line_limit=line_limit, tenant_limit=tenant_limit)


async def redis(
    request: pytest.FixtureRequest,
    clock: ManualClock,
    partitions: int,
    due_limit: int,
    line_limit: int,
    tenant_limit: int,
) -> NearTier:
    server: RedisServer = request.getfixturevalue("redis_server")
    near = await open_near(
        server.url,
        clock,
        installation=new_installation(),
        partitions=partitions,
        due_limit=due_limit,
        line_limit=line_limit,
        tenant_limit=tenant_limit,
    )
    await near.begin(range(partitions))
    return near


ADAPTERS: dict[str, Callable[[pytest.FixtureRequest, ManualClock, int, int, int, int], Awaitable[NearTier]]] = {
    "memory": memory,
    "redis": redis,
}
SHARED = frozenset({"redis"})


@dataclass
class World:
    """A tier, its clock, and short words for what the tests do with it."""

    near: NearTier
    clock: ManualClock
    partitions: int
    # Other processes reach what is in it, so a process that forgets a partition takes nothing away.
    shared: bool = False
    entropy: SeededEntropy = field(default_factory=lambda: SeededEntropy(1))
    requests: int = 0

    @property
    def all(self) -> range:
        return range(self.partitions)

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    def job_id(self, partition: int | None = None) -> str:
        while True:
            job_id = new_ids(1, self.now, self.entropy)[0]
            if partition is None or partition_of(job_id, self.partitions) == partition:
                return job_id

    def due(
        self,
        after_ms: int = 0,
        *,
        tenant: str = "acme",
        queue: str = "mail",
        lane: Lane = Lane.PRECISE,
        handler: str = "send",
        hold: str = "",
        suspect: bool = False,
        priority: int = 0,
        version: int = 1,
        job_id: str | None = None,
        partition: int | None = None,
    ) -> Due:
        """A member due so many milliseconds from now."""
        line = Line(tenant, queue, lane, handler, hold, suspect)
        return Due(self.now + after_ms, job_id or self.job_id(partition), version, line, priority)

    def dues(self, count: int, after_ms: int = 0, *, tenant: str = "acme", queue: str = "mail") -> list[Due]:
        """Many members alike, cheaply."""
        line = Line(tenant, queue, Lane.PRECISE, "send", "")
        at = self.now + after_ms
        return [Due(at, job_id, 1, line, 0) for job_id in new_ids(count, self.now, self.entropy)]

    def callback(self, after_ms: int = 0, *, host: str = "a", **words: object) -> Due:
        """A callback's member."""
        return self.due(after_ms, handler=HTTP, hold=f"https://{host}:443", **words)  # type: ignore[arg-type]

    async def turns(self) -> None:
        """Let everything that can go on now go on, what is on its way to and from a server included.

        A call may need a new connection first, which takes some round trips of its own: so there are many here."""
        for _ in range(12 if self.shared else 3):
            await self.near.generation()
            await turns()

    async def take(self, most: int = 1_000) -> list[Due]:
        return await self.near.take(self.all, self.now, most)

    async def take_and_drop(self, most: int = 1_000) -> list[Due]:
        taken = await self.take(most)
        await self.near.drop(taken)
        return taken

    async def open(self, *queues: tuple[str, str]) -> None:
        for tenant, queue in queues or (("acme", "mail"),):
            await self.near.configure(tenant, queue, QueueGate())

    def wish(
        self,
        most: int = 100,
        *,
        request_id: str | None = None,
        tenant: str = "acme",
        queue: str = "mail",
        handlers: tuple[str, ...] | None = None,
    ) -> Pop:
        """A worker's wish; a new request unless named."""
        self.requests += 1
        return Pop(
            request_id=request_id or f"request {self.requests}",
            tenant=tenant,
            queue=queue,
            handlers=handlers,
            most=most,
            now_ms=self.now,
        )

    def executor_wish(self, most: int = 100, request_id: str | None = None) -> Pop:
        """The executor's wish."""
        self.requests += 1
        return Pop(
            request_id=request_id or f"request {self.requests}",
            tenant=None,
            queue=None,
            handlers=None,
            most=most,
            now_ms=self.now,
        )

    async def pop(self, wish: Pop | None = None) -> Popped:
        return await self.near.pop(wish or self.wish())

    async def claim(self, wish: Pop | None = None) -> list[str]:
        """Pop and settle, as a claim does; the jobs in the order in which they were handed out."""
        wish = wish or self.wish()
        popped = await self.near.pop(wish)
        assert not popped.ask, "the test forgot to open a queue"
        await self.near.settle(wish.request_id, [(due.job_id, 1) for due in popped.dues])
        return ids(popped.dues)


def ids(dues: Sequence[Due]) -> list[str]:
    """The jobs of members."""
    return [due.job_id for due in dues]


async def turns() -> None:
    """Let everything that can go on now go on inside this process (see `World.turns`)."""
    for _ in range(20):
        await asyncio.sleep(0)
