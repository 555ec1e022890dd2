"""The near-tier port over the structures in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tocsin.clock import Clock
from tocsin.model.fairness import bounded_weight
from tocsin.model.job import Line
from tocsin.model.partition import partition_of
from tocsin.model.timer import Due, TimerKey
from tocsin.near.memory.due import DueSets
from tocsin.near.memory.hands import Hands
from tocsin.near.memory.leases import LeaseIndex
from tocsin.near.memory.ready import ReadyLines
from tocsin.near.memory.waiters import Waiters
from tocsin.near.memory.workers import Workers
from tocsin.near.port import (
    DUE_PER_TENANT_LANE,
    IN_HAND_MS,
    LINE_LIMIT,
    REMEMBER_REQUEST_MS,
    TENANT_LIMIT,
    CountKey,
    Cut,
    NearFigures,
    Pop,
    Popped,
    QueueGate,
    WorkerSeen,
)

LONGEST_WAIT_S = 1.0


class MemoryNearTier:
    """The near tier of one process that owns all `partitions`. The limits are settable for tests."""

    def __init__(
        self,
        clock: Clock,
        partitions: int,
        *,
        due_limit: int = DUE_PER_TENANT_LANE,
        line_limit: int = LINE_LIMIT,
        tenant_limit: int = TENANT_LIMIT,
    ) -> None:
        self._clock, self._partitions = clock, partitions
        self._weights: dict[str, float] = {}
        self._due = DueSets(clock, partitions, self._weights, due_limit)
        self._hands = Hands(IN_HAND_MS / 1000, REMEMBER_REQUEST_MS / 1000)
        self._waiters = Waiters(clock)
        self._ready = ReadyLines(
            clock,
            self._weights,
            line_limit=line_limit,
            tenant_limit=tenant_limit,
            hands=self._hands,
            waiters=self._waiters,
        )
        self._leases = LeaseIndex()
        self._counts: dict[CountKey, int] = {}
        self._workers = Workers(clock)
        self._closed = False

    # generations: what is in memory is lost with the process only

    async def generation(self) -> str:
        return "memory"

    async def begin(self, partitions: Sequence[int]) -> None:
        pass

    # due sets

    async def offer(self, dues: Sequence[Due]) -> list[Due]:
        return self._due.offer(dues)

    async def take(self, partitions: Sequence[int], now_ms: int, most: int) -> list[Due]:
        return self._due.take(partitions, now_ms, most)

    async def drop(self, dues: Sequence[Due]) -> None:
        self._due.drop(dues)

    async def restore(self, dues: Sequence[Due]) -> None:
        self._due.restore(dues)

    async def next_due(self, partitions: Sequence[int]) -> int | None:
        return self._due.next_due(partitions)

    async def wait_due(self, timeout_s: float) -> None:
        earlier = self._due.earlier
        await self._clock.wait(earlier, timeout_s)
        earlier.clear()

    async def cuts(self, partitions: Sequence[int]) -> list[Cut]:
        return self._due.cuts(partitions)

    async def move_cut(self, cut: Cut, from_time: int | None, after: TimerKey | None = None) -> None:
        self._due.move_cut(cut, from_time, after)

    async def forget(self, partitions: Sequence[int]) -> None:
        self._due.forget(partitions)

    async def set_weight(self, tenant: str, weight: float) -> None:
        if weight == 1.0:
            self._weights.pop(tenant, None)
        else:
            self._weights[tenant] = bounded_weight(weight)

    # ready lines

    async def push(self, dues: Sequence[Due], *, unpark: bool = False) -> list[Due]:
        return self._ready.push(dues, unpark=unpark)

    async def pop(self, wish: Pop) -> Popped:
        return self._ready.pop(wish)

    async def settle(self, request_id: str, claimed: Sequence[tuple[str, int]]) -> None:
        self._ready.settle(request_id, claimed)

    async def unpop(self, request_id: str) -> None:
        self._ready.unpop(request_id)

    async def wait_ready(self, wish: Pop, timeout_s: float) -> bool:
        if timeout_s > 0 and not self._closed:
            await self._ready.wait(wish, min(timeout_s, LONGEST_WAIT_S))
        return not self._closed

    async def remove(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            self._due.remove(job_id)
            self._ready.remove(job_id)

    async def configure(self, tenant: str, queue: str, gate: QueueGate) -> None:
        self._ready.configure(tenant, queue, gate)

    async def set_parked(self, line: Line, partition: int, parked: bool) -> None:
        self._ready.set_parked(line, partition, parked)

    async def lines_with_room(self, partitions: Sequence[int]) -> list[Line]:
        return self._ready.lines_with_room(partitions)

    # leases: kept on the elapsed clock, so that a step of the wall clock neither ends nor lengthens them

    async def lease(self, leases: Sequence[tuple[str, int, int]], *, rechecked_soon: bool = False) -> None:
        offset = self._offset_ms()
        self._leases.put([(job_id, attempt, until - offset) for job_id, attempt, until in leases])

    async def unlease(self, leases: Sequence[tuple[str, int]]) -> None:
        self._leases.end(leases)

    async def leases_over(self, partitions: Sequence[int], before_ms: int, most: int) -> list[tuple[str, int]]:
        wanted = None
        if len(partitions) < self._partitions:
            mine = frozenset(partitions)
            wanted = lambda job_id: partition_of(job_id, self._partitions) in mine  # noqa: E731
        return self._leases.over(before_ms - self._offset_ms(), most, wanted)

    async def next_lease_end(self, partitions: Sequence[int]) -> int | None:
        end = self._leases.next_end()
        return None if end is None else end + self._offset_ms()

    def _offset_ms(self) -> int:
        """What the wall clock shows more than the elapsed one."""
        return self._clock.now_ms() - round(self._clock.elapsed_s() * 1000)

    # what all processes know together: here there is one

    async def add_counts(self, changes: Mapping[CountKey, int]) -> None:
        for key, change in changes.items():
            self._counts[key] = self._counts.get(key, 0) + change

    async def counts(self) -> dict[CountKey, int]:
        return dict(self._counts)

    async def reset_counts(self, counts: Mapping[CountKey, int]) -> None:
        self._counts = dict(counts)

    async def note_workers(self, seen: Sequence[WorkerSeen]) -> None:
        self._workers.note(seen)

    async def workers(self) -> list[WorkerSeen]:
        return self._workers.all()

    # all

    async def figures(self, partitions: Sequence[int]) -> NearFigures:
        self._ready.return_overdue(self._clock.elapsed_s())
        return NearFigures(
            due=len(self._due), ready=len(self._ready), in_hand=len(self._hands), leases=len(self._leases)
        )

    async def ready_count(self, tenant: str, queue: str) -> tuple[int, int | None]:
        return self._ready.count(tenant, queue)

    async def quiesce(self) -> None:
        self._closed = True
        self._waiters.close()
        self._due.earlier.set()

    async def close(self) -> None:
        await self.quiesce()
