"""Ends: which jobs of schedules have ended since somebody looked, as far as something may wait for that.

Every stage that ends jobs tells it; `flow.follow` looks. In memory only: a crash is made good by the sweep of schedules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tocsin.clock import Clock
from tocsin.model.ids import is_leader


class Ends:
    """A mailbox of ends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ended: dict[str, None] = {}
        self._event = asyncio.Event()

    def tell(self, job_ids: Iterable[str]) -> None:
        """These jobs have ended; most are no schedule's, or nothing can wait for them."""
        leaders = [job_id for job_id in job_ids if is_leader(job_id)]
        if leaders:
            self._ended.update(dict.fromkeys(leaders))
            self._event.set()

    def first(self, most: int) -> list[str]:
        """The first ends that have not been forgotten."""
        return [job_id for job_id, _ in zip(self._ended, range(most), strict=False)]

    def forget(self, job_ids: Iterable[str]) -> None:
        """These have been followed."""
        for job_id in job_ids:
            self._ended.pop(job_id, None)

    async def wait(self, timeout_s: float) -> None:
        """Until there is one, at most `timeout_s`."""
        await self._clock.wait(self._event, timeout_s)
        self._event.clear()
