"""What all processes know together: counts of jobs, and the workers seen. Approximate, and set right from the store.

Both live in the first line tag: a hash that is added to, and the sightings by their time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tocsin.clock import Clock
from tocsin.near.port import WORKERS_KEPT_MS, WORKERS_SHOWN, CountKey, WorkerSeen
from tocsin.near.redis.keys import Keys
from tocsin.near.redis.members import SEPARATOR
from tocsin.near.redis.scripts import Script, Scripts
from tocsin.wire import Status

_COUNT, _READ, _WORKERS = Script("known_count"), Script("known_read"), Script("known_workers")


class Known:
    """The shared knowledge."""

    def __init__(self, scripts: Scripts, keys: Keys, clock: Clock) -> None:
        self._scripts, self._clock = scripts, clock
        self._tag = keys.line_tags[0]

    async def add_counts(self, changes: Mapping[CountKey, int]) -> None:
        """Add to the counts."""
        if changes:
            await self._scripts.run_one(_COUNT, self._tag, "add", *_flat(changes))

    async def reset_counts(self, counts: Mapping[CountKey, int]) -> None:
        """Put these in the place of all counts."""
        await self._scripts.run_one(_COUNT, self._tag, "set", *_flat(counts))

    async def counts(self) -> dict[CountKey, int]:
        """All counts that are not zero."""
        answer = await self._scripts.run_one(_READ, self._tag, "counts")
        found: dict[CountKey, int] = {}
        for name, number in zip(answer[::2], answer[1::2], strict=True):
            tenant, queue, status = name.split(SEPARATOR)
            found[tenant, queue, Status(status)] = int(number)
        return found

    async def note_workers(self, seen: Sequence[WorkerSeen]) -> None:
        """Remember sightings; the oldest go where there are too many."""
        if seen:
            flat: list[str | int] = []
            for each in seen:
                flat += (SEPARATOR.join((each.tenant, each.queue, each.worker)), each.seen_at, each.claimed)
            await self._scripts.run_one(_WORKERS, self._tag, WORKERS_SHOWN, *flat)

    async def workers(self) -> list[WorkerSeen]:
        """Those of the last day, the latest first."""
        since = self._clock.now_ms() - WORKERS_KEPT_MS
        answer = await self._scripts.run_one(_READ, self._tag, "workers", since)
        found = []
        for name, claimed, seen_at in zip(answer[::3], answer[1::3], answer[2::3], strict=True):
            tenant, queue, worker = name.split(SEPARATOR, 2)
            found.append(
                WorkerSeen(tenant=tenant, worker=worker, queue=queue, seen_at=int(seen_at), claimed=int(claimed))
            )
        return found


def _flat(counts: Mapping[CountKey, int]) -> list[str | int]:
    return [
        part
        for (tenant, queue, status), number in counts.items()
        for part in (SEPARATOR.join((tenant, queue, status.value)), number)
    ]
