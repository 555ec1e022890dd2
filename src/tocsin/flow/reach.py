"""Reach: of what this process owns, the partitions whose database can be used.

A store may have several databases. While one is lost, whatever is asked of its partitions fails, and a pass that takes some of
them beside others fails as a whole: so the stages leave them alone, and the other databases' partitions go on. Once a second
`flow.gap` finds out by a write to each. A database that is back brings its partitions back as if they had just come into our hands:
`flow.custody` rebuilds them. Nothing is kept: a crash, or a second process that sees it otherwise, changes nothing.
"""

from __future__ import annotations

from tocsin import telemetry
from tocsin.lease.port import Leases
from tocsin.telemetry import log


class Reach:
    """`Leases` without what cannot be reached."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._lost: frozenset[int] = frozenset()

    async def acquire(self) -> None:
        """Take what this process may own."""
        await self._leases.acquire()

    def owned(self) -> tuple[int, ...]:
        """What is ours and can be reached."""
        owned = self._leases.owned()
        return tuple(each for each in owned if each not in self._lost) if self._lost else owned

    async def release(self) -> None:
        """Give everything back."""
        await self._leases.release()

    def saw(self, lost: frozenset[int], why: str = "") -> None:
        """The databases of these partitions cannot be used now, all others can."""
        if lost == self._lost:
            return
        if lost:
            log.error("database_lost", partitions=len(lost), error=why, next="what lives in the others goes on")
        else:
            log.warning("database_back", partitions=len(self._lost), next="its partitions are rebuilt in the near tier")
        self._lost = lost
        telemetry.UNREACHABLE.set(len(lost))
