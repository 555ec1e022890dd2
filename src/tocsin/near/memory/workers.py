"""The workers seen lately, for people who ask who works. A list of sightings, not an account; a restart begins anew."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.clock import Clock
from tocsin.near.port import WORKERS_KEPT_MS, WORKERS_SHOWN, WorkerSeen


class Workers:
    """The latest sighting of each (tenant, worker, queue)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, str, str], WorkerSeen] = {}

    def note(self, seen: Sequence[WorkerSeen]) -> None:
        """Remember; the oldest go where there are too many."""
        for sighting in seen:
            key = sighting.tenant, sighting.worker, sighting.queue
            self._seen.pop(key, None)
            self._seen[key] = sighting
        while len(self._seen) > WORKERS_SHOWN:
            del self._seen[next(iter(self._seen))]

    def all(self) -> list[WorkerSeen]:
        """Those of the last day, the latest first."""
        since = self._clock.now_ms() - WORKERS_KEPT_MS
        return [sighting for sighting in reversed(self._seen.values()) if sighting.seen_at >= since]
