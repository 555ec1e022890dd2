"""The near-tier port over the parts in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from tocsin.clock import Clock
from tocsin.errors import NearUnavailable
from tocsin.model.fairness import bounded_weight
from tocsin.model.job import Line
from tocsin.model.timer import Due, TimerKey
from tocsin.near.port import (
    DUE_PER_TENANT_LANE,
    LINE_LIMIT,
    TENANT_LIMIT,
    CountKey,
    Cut,
    NearFigures,
    Pop,
    Popped,
    QueueGate,
    WorkerSeen,
)
from tocsin.near.redis.connection import Connection
from tocsin.near.redis.due import DueSets
from tocsin.near.redis.epoch import Epoch
from tocsin.near.redis.heads import Heads
from tocsin.near.redis.keys import Keys
from tocsin.near.redis.leases import LeaseIndex
from tocsin.near.redis.ready import ReadyLines
from tocsin.near.redis.scripts import Scripts
from tocsin.near.redis.take import Taker
from tocsin.near.redis.wakes import Wakes


async def open_near(
    url: str,
    clock: Clock,
    *,
    installation: str,
    partitions: int,
    due_limit: int = DUE_PER_TENANT_LANE,
    line_limit: int = LINE_LIMIT,
    tenant_limit: int = TENANT_LIMIT,
) -> RedisNearTier:
    """A tier on the servers of `url`. A server that cannot be reached now is no error: calls say so, and later ones work."""
    near = RedisNearTier(
        Connection(url),
        clock,
        Keys(installation, partitions),
        due_limit=due_limit,
        line_limit=line_limit,
        tenant_limit=tenant_limit,
    )
    await near.start()
    return near


class RedisNearTier:
    """One process's near tier. The limits are settable for tests."""

    def __init__(
        self, connection: Connection, clock: Clock, keys: Keys, *, due_limit: int, line_limit: int, tenant_limit: int
    ) -> None:
        self._connection = connection
        self._epoch = Epoch(connection, keys)
        self._wakes = Wakes(connection, clock)
        self._weights: dict[str, float] = {}
        scripts = Scripts(connection, self._epoch.name, self._epoch.refresh, self._epoch.mark, self._epoch.doubt)
        heads = Heads(clock)
        self._wakes.hear(keys.due_channel, heads.hear)
        self._taker = Taker(scripts, keys, heads, clock, self._weights)
        self._epoch.on_end(self._taker.clear)
        self._due = DueSets(scripts, keys, heads, self._taker, due_limit)
        self._leases = LeaseIndex(scripts, keys, clock)
        self._ready = ReadyLines(
            scripts, keys, self._wakes, clock, self._weights, line_limit=line_limit, tenant_limit=tenant_limit
        )

    async def start(self) -> None:
        """Listen, and begin the epoch if none has begun."""
        await self._wakes.start()
        try:
            await self._epoch.look()
        except NearUnavailable:
            # Asked for again by the first call that needs it.
            return

    # generations

    async def generation(self) -> str:
        return await self._epoch.look()

    async def begin(self, partitions: Sequence[int]) -> None:
        await self._epoch.begin(partitions)
        await self._taker.return_taken(partitions)

    # due sets

    async def offer(self, dues: Sequence[Due]) -> list[Due]:
        return await self._due.offer(dues)

    async def take(self, partitions: Sequence[int], now_ms: int, most: int) -> list[Due]:
        return await self._taker.take(partitions, now_ms, most)

    async def drop(self, dues: Sequence[Due]) -> None:
        await self._due.drop(dues)

    async def restore(self, dues: Sequence[Due]) -> None:
        await self._due.restore(dues)

    async def next_due(self, partitions: Sequence[int]) -> int | None:
        return await self._taker.next_due(partitions)

    async def wait_due(self, timeout_s: float) -> None:
        await self._taker.wait(timeout_s)

    async def cuts(self, partitions: Sequence[int]) -> list[Cut]:
        return await self._due.cuts(partitions)

    async def move_cut(self, cut: Cut, from_time: int | None, after: TimerKey | None = None) -> None:
        await self._due.move_cut(cut, from_time, after)

    async def forget(self, partitions: Sequence[int]) -> None:
        self._taker.forget(partitions)

    async def set_weight(self, tenant: str, weight: float) -> None:
        if weight == 1.0:
            self._weights.pop(tenant, None)
        else:
            self._weights[tenant] = bounded_weight(weight)

    # ready lines

    async def push(self, dues: Sequence[Due], *, unpark: bool = False) -> list[Due]:
        return await self._ready.lines.push(dues, unpark=unpark)

    async def pop(self, wish: Pop) -> Popped:
        return await self._ready.pop(wish)

    async def settle(self, request_id: str, claimed: Sequence[tuple[str, int]]) -> None:
        await self._ready.hands.settle(request_id, claimed)

    async def unpop(self, request_id: str) -> None:
        await self._ready.hands.unpop(request_id)

    async def wait_ready(self, wish: Pop, timeout_s: float) -> bool:
        return await self._ready.waits.wait(wish, timeout_s)

    async def remove(self, job_ids: Sequence[str]) -> None:
        await asyncio.gather(self._due.remove(job_ids), self._ready.lines.remove(job_ids))

    async def configure(self, tenant: str, queue: str, gate: QueueGate) -> None:
        await self._ready.lines.configure(tenant, queue, gate)

    async def set_parked(self, line: Line, partition: int, parked: bool) -> None:
        await self._ready.lines.set_parked(line, partition, parked)

    async def lines_with_room(self, partitions: Sequence[int]) -> list[Line]:
        return await self._ready.lines.with_room(partitions)

    # leases

    async def lease(self, leases: Sequence[tuple[str, int, int]], *, rechecked_soon: bool = False) -> None:
        await self._leases.put(leases, hold_back=rechecked_soon)

    async def unlease(self, leases: Sequence[tuple[str, int]]) -> None:
        await self._leases.end(leases)

    async def leases_over(self, partitions: Sequence[int], before_ms: int, most: int) -> list[tuple[str, int]]:
        return await self._leases.over(partitions, before_ms, most)

    async def next_lease_end(self, partitions: Sequence[int]) -> int | None:
        return await self._leases.next_end(partitions)

    # what all processes know together

    async def add_counts(self, changes: Mapping[CountKey, int]) -> None:
        await self._ready.known.add_counts(changes)

    async def counts(self) -> dict[CountKey, int]:
        return await self._ready.known.counts()

    async def reset_counts(self, counts: Mapping[CountKey, int]) -> None:
        await self._ready.known.reset_counts(counts)

    async def note_workers(self, seen: Sequence[WorkerSeen]) -> None:
        await self._ready.known.note_workers(seen)

    async def workers(self) -> list[WorkerSeen]:
        return await self._ready.known.workers()

    # all

    async def figures(self, partitions: Sequence[int]) -> NearFigures:
        due, leases, (ready, in_hand), memory = await asyncio.gather(
            self._due.count(partitions),
            self._leases.count(partitions),
            self._ready.lines.figures(),
            self._epoch.memory(),
        )
        return NearFigures(
            due=due, ready=ready, in_hand=in_hand, leases=leases, bytes_used=memory.used, bytes_limit=memory.limit
        )

    async def ready_count(self, tenant: str, queue: str) -> tuple[int, int | None]:
        return await self._ready.lines.count(tenant, queue)

    async def quiesce(self) -> None:
        self._taker.wake()
        self._ready.waits.quiesce()

    async def close(self) -> None:
        await self.quiesce()
        await self._leases.close()
        await self._ready.waits.close()
        await self._wakes.close()
        await self._connection.close()
