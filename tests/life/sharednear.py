"""The near tier of a fleet in a test: one for all processes, which can be lost and be away, as a server can.

Its content is that of the tier in memory. What a server adds is done here, as `near.redis` does it: a loss is a new generation, which
nobody can use until some process has looked at it, and in which each partition is closed until its owner has begun it; a
call that meets a closed partition does what it can for the others and says `NearUnavailable`. What an owner before took is
due again when the next one begins the partition, and what a process forgets of its own stays for the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tests.life.disk import Fault
from tocsin.clock import Clock
from tocsin.errors import NearUnavailable, StoreUnavailable
from tocsin.model.partition import partition_of
from tocsin.model.timer import Due
from tocsin.near.memory import MemoryNearTier
from tocsin.near.port import NearTier

# Calls about jobs: what they are given are members, or tuples that begin with the job.
_OF_DUES = ("offer", "drop", "restore")
_OF_JOBS = ("lease", "unlease", "remove")
# Calls about partitions, which are asked for first.
_OF_PARTITIONS = ("take", "next_due", "cuts", "leases_over", "next_lease_end", "figures")


class Way(Protocol):
    """A process's way to the near tier."""

    async def ask(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One call."""
        ...


class Server(Way, Protocol):
    """What tests do to the near tier of all. `away`: it answers nobody."""

    away: bool

    @property
    def troubled(self) -> bool:
        """Whether a call may fail now."""
        ...

    def lose(self) -> None:
        """Everything is gone: a restart, a failover."""
        ...


class SharedNear:
    """The server. `away`: it answers nobody."""

    def __init__(self, clock: Clock, partitions: int, **limits: int) -> None:
        self._clock, self.partitions, self._limits = clock, partitions, limits
        self._count = 0
        self.away = False
        self.lose()

    def lose(self) -> None:
        """Everything is gone: a restart, a failover."""
        self._near: NearTier = MemoryNearTier(self._clock, self.partitions, **self._limits)
        self._taken: dict[str, Due] = {}
        self._open = False
        self._begun: set[int] = set()
        self._count += 1

    @property
    def troubled(self) -> bool:
        """Whether a call may fail now."""
        return self.away or not self._open or len(self._begun) < self.partitions

    async def generation(self) -> str:
        self._must_answer()
        self._open = True
        return f"generation {self._count}"

    async def begin(self, partitions: Sequence[int]) -> None:
        await self.generation()
        self._begun.update(partitions)
        back = [due for due in self._taken.values() if partition_of(due.job_id, self.partitions) in partitions]
        await self.restore(back)

    async def forget(self, partitions: Sequence[int]) -> None:
        """A process keeps nothing of its own here."""

    async def restore(self, dues: Sequence[Due]) -> None:
        for due in dues:
            self._taken.pop(due.job_id, None)
        await self._near.restore(dues)

    async def drop(self, dues: Sequence[Due]) -> None:
        for due in dues:
            self._taken.pop(due.job_id, None)
        await self._near.drop(dues)

    async def take(self, partitions: Sequence[int], now_ms: int, most: int) -> list[Due]:
        taken = await self._near.take(partitions, now_ms, most)
        self._taken |= {due.job_id: due for due in taken}
        return taken

    async def ask(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One call of one process."""
        if name in ("generation", "begin", "forget"):
            return await getattr(self, name)(*args)
        self._must_answer()
        if not self._open:
            raise NearUnavailable("what was here is lost, and nobody has looked at what is here now")
        call = getattr(self, name, None) or getattr(self._near, name)
        if name in _OF_PARTITIONS:
            self._must_be_begun(set(args[0]))
            return await call(*args)
        job: Callable[[Any], str] | None = None
        if name in _OF_DUES:
            job = _job_of_due
        elif name in _OF_JOBS:
            job = _job
        if job is None:
            return await call(*args, **kwargs)
        there = [one for one in args[0] if partition_of(job(one), self.partitions) in self._begun]
        answer = await call(there)
        self._must_be_begun({partition_of(job(one), self.partitions) for one in args[0]})
        return answer

    def _must_answer(self) -> None:
        if self.away:
            raise NearUnavailable("the near tier does not answer")

    def _must_be_begun(self, partitions: set[int]) -> None:
        closed = partitions - self._begun
        if closed:
            raise NearUnavailable(f"partitions {sorted(closed)} have not been begun yet")


class View:
    """One process's way to the shared tier, around whose calls it may die. Where `yielding`, others may call in between."""

    def __init__(self, way: Way, fault: Fault) -> None:
        self.way, self._fault = way, fault
        self.yielding = False

    def __getattr__(self, name: str) -> Any:
        async def asked(*args: Any, **kwargs: Any) -> Any:
            await self._point(f"before near.{name}")
            answer = await self.way.ask(name, args, kwargs)
            await self._point(f"after near.{name}")
            return answer

        return asked

    async def _point(self, name: str) -> None:
        try:
            self._fault.point(name)
        except StoreUnavailable as error:
            raise NearUnavailable(str(error)) from error
        if self.yielding:
            await asyncio.sleep(0)


def _job_of_due(due: Due) -> str:
    return due.job_id


def _job(one: Any) -> str:
    return one if isinstance(one, str) else str(one[0])
