"""The lease index in Redis: which attempts are running and until when, for rescue.

A sorted set per partition orders jobs by the end of their lease, a hash beside it knows each job's attempt. A lost index is
rebuilt from the jobs by whoever owns the partition.

Most jobs take less than a second and a lease at least five, so the lease of a job that was claimed by this process a moment ago is
held back here for up to two seconds: a job that ends meanwhile never costs Redis a word. A process that dies within that time
leaves its jobs to their workers' heartbeats, which other processes note at once, and where the worker has died too (it ran on the same
machine), to the recheck. So only those are held back that fell due a moment ago: their recheck is still to come, within two
minutes. A job that has waited for long is looked at once an hour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tocsin import telemetry
from tocsin.clock import Clock
from tocsin.errors import NearUnavailable
from tocsin.model.partition import partition_of
from tocsin.near.redis.keys import Keys
from tocsin.near.redis.scripts import Call, Script, Scripts

MOST_PER_CALL = 1_000
HELD_BACK_S = 2.0
MOST_HELD_BACK = 50_000
_PUT, _END, _OVER, _NEXT = (
    Script("lease_put"),
    Script("lease_end"),
    Script("lease_over"),
    Script("lease_next"),
)


class LeaseIndex:
    """Leases by job; an older attempt neither replaces nor ends a newer one."""

    def __init__(self, scripts: Scripts, keys: Keys, clock: Clock) -> None:
        self._scripts, self._tags, self._clock = scripts, keys.partition_tags, clock
        self._held_back: dict[str, tuple[int, int]] = {}
        self._closing = asyncio.Event()
        self._later: asyncio.Task[None] | None = None

    async def put(self, leases: Sequence[tuple[str, int, int]], *, hold_back: bool = False) -> None:
        """(job, attempt, end in ms): remember or renew; with `hold_back` not before two seconds are over."""
        others: list[tuple[str, int, int]] = []
        for job_id, attempt, end in leases:
            held = self._held_back.get(job_id)
            if hold_back or (held is not None and held[0] == attempt):
                self._held_back[job_id] = attempt, end
            elif held is None or held[0] < attempt:
                others.append((job_id, attempt, end))
        if len(self._held_back) > MOST_HELD_BACK:
            await self.flush()
        elif self._held_back and self._later is None:
            self._later = asyncio.create_task(self._flush_later(), name="leases held back")
        await self._each_partition(_PUT, others)

    async def end(self, leases: Sequence[tuple[str, int]]) -> None:
        """Forget the leases of attempts that have ended."""
        others: list[tuple[str, int]] = []
        for job_id, attempt in leases:
            held = self._held_back.get(job_id)
            if held is not None and held[0] == attempt:
                del self._held_back[job_id]
            else:
                others.append((job_id, attempt))
        await self._each_partition(_END, others)

    async def flush(self) -> None:
        """Tell Redis of what is held back. Raises NearUnavailable; then it is told later."""
        held, self._held_back = self._held_back, {}
        try:
            await self._each_partition(_PUT, [(job_id, *lease) for job_id, lease in held.items()])
        except NearUnavailable:
            self._held_back = held | self._held_back
            raise

    async def close(self) -> None:
        """Tell Redis, and hold nothing back any more."""
        self._closing.set()
        if self._later is not None:
            await self._later

    async def _flush_later(self) -> None:
        try:
            while self._held_back:
                await self._clock.wait(self._closing, HELD_BACK_S)
                try:
                    await self.flush()
                except NearUnavailable:
                    telemetry.NOT_TOLD.labels("leases").inc()
                    if self._closing.is_set():
                        break
        finally:
            # Whatever ended it, the next lease that is held back begins anew.
            self._later = None

    async def over(self, partitions: Sequence[int], before_ms: int, most: int) -> list[tuple[str, int]]:
        """(job, attempt) of up to `most` leases that were over before that instant, the longest over first."""
        await self.flush()
        answers = await self._scripts.run([Call(_OVER, self._tags[each], (before_ms, most)) for each in partitions])
        found = [
            (int(end), job_id, int(attempt))
            for answer in answers
            for job_id, end, attempt in zip(answer[::3], answer[1::3], answer[2::3], strict=True)
        ]
        found.sort(key=lambda lease: lease[0])
        return [(job_id, attempt) for _, job_id, attempt in found[:most]]

    async def next_end(self, partitions: Sequence[int]) -> int | None:
        """The earliest end."""
        await self.flush()
        answers = await self._scripts.run([Call(_NEXT, self._tags[each], ()) for each in partitions])
        return min((int(first) for first, _ in answers if first), default=None)

    async def count(self, partitions: Sequence[int]) -> int:
        """How many leases there are."""
        await self.flush()
        answers = await self._scripts.run([Call(_NEXT, self._tags[each], ()) for each in partitions])
        return sum(int(count) for _, count in answers)

    async def _each_partition(self, script: Script, leases: Sequence[Sequence[str | int]]) -> None:
        """Run a program for the leases of each partition, a bounded number at a time."""
        by_partition: dict[int, list[Sequence[str | int]]] = {}
        for lease in leases:
            by_partition.setdefault(partition_of(str(lease[0]), len(self._tags)), []).append(lease)
        await self._scripts.run(
            [
                Call(script, self._tags[partition], [part for lease in some[at : at + MOST_PER_CALL] for part in lease])
                for partition, some in by_partition.items()
                for at in range(0, len(some), MOST_PER_CALL)
            ]
        )
