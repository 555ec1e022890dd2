"""The lease index in Redis: which attempts are running and until when, for rescue.

A sorted set per partition orders jobs by the end of their lease, a hash beside it knows each job's attempt. A lost index is
rebuilt from the jobs by whoever owns the partition.
"""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.model.partition import partition_of
from tocsin.near.redis.keys import Keys
from tocsin.near.redis.scripts import Call, Script, Scripts

MOST_PER_CALL = 1_000
_PUT, _END, _OVER, _NEXT = (
    Script("lease_put"),
    Script("lease_end"),
    Script("lease_over"),
    Script("lease_next"),
)


class LeaseIndex:
    """Leases by job; an older attempt neither replaces nor ends a newer one."""

    def __init__(self, scripts: Scripts, keys: Keys) -> None:
        self._scripts, self._tags = scripts, keys.partition_tags

    async def put(self, leases: Sequence[tuple[str, int, int]]) -> None:
        """(job, attempt, end in ms): remember or renew."""
        await self._each_partition(_PUT, leases)

    async def end(self, leases: Sequence[tuple[str, int]]) -> None:
        """Forget the leases of attempts that have ended."""
        await self._each_partition(_END, leases)

    async def over(self, partitions: Sequence[int], before_ms: int, most: int) -> list[tuple[str, int]]:
        """(job, attempt) of up to `most` leases that were over before that instant, the longest over first."""
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
        answers = await self._scripts.run([Call(_NEXT, self._tags[each], ()) for each in partitions])
        return min((int(first) for first, _ in answers if first), default=None)

    async def count(self, partitions: Sequence[int]) -> int:
        """How many leases there are."""
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
