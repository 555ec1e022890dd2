"""Whoever writes a timer offers it: which members go into the near tier right after a commit.

Due within the loader's five minutes plus two buckets: the loader reads five minutes ahead bucket by bucket, and the overlap makes
sure that no timer can fall between a write that was too early to be offered and a bucket that was already read.
"""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.clock import Clock
from tocsin.model.job import JobState
from tocsin.model.partition import BUCKET_MS
from tocsin.near.port import NearTier
from tocsin.store.port import Due

HORIZON_MS = 5 * 60_000
OVERLAP_MS = 2 * BUCKET_MS


class Horizon:
    """Offers what is due soon."""

    def __init__(self, near: NearTier, clock: Clock) -> None:
        self._near, self._clock = near, clock

    async def offer(self, dues: Sequence[Due]) -> None:
        """Offer the members that are due soon; the others wait in the store."""
        until = self._clock.now_ms() + HORIZON_MS + OVERLAP_MS
        soon = [due for due in dues if due.due_at < until]
        if soon:
            await self._near.offer(soon)


def due_of(job: JobState) -> Due:
    """A job as the near tier knows it."""
    return Due(job.due_at, job.job_id, job.version, job.line, job.priority)
