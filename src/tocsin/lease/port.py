"""The lease port: who owns which partitions. Embedded: one file lock; a fleet: PostgreSQL or etcd."""

from __future__ import annotations

from typing import Protocol


class Leases(Protocol):
    """This process's ownership of partitions."""

    async def acquire(self) -> None:
        """Take what this process may own; raises LeaseHeld naming the holder."""
        ...

    def owned(self) -> tuple[int, ...]:
        """The partitions that this process may act for now; empty when its lease is not certain."""
        ...

    async def release(self) -> None:
        """Give everything back."""
        ...
