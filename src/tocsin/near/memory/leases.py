"""The lease index: which attempts are running and until when, for rescue.

A dict is the index; a heap orders it by an instant that is never later than the lease's own end. A renewal touches the dict
only; its old place in the heap is corrected when it comes to the top. A lost index is rebuilt from the jobs at start.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace

_SLACK = 10_000


class LeaseIndex:
    """Leases by job; an older attempt never replaces a newer one."""

    def __init__(self) -> None:
        self._leases: dict[str, tuple[str, int, int]] = {}
        self._ends: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._leases)

    def put(self, leases: Sequence[tuple[str, int, int]]) -> None:
        """(job, attempt, lease_until ms): remember or renew."""
        held, ends = self._leases, self._ends
        for lease in leases:
            job_id, attempt, until = lease
            have = held.get(job_id)
            if have is None or until < have[2]:
                if have is not None and have[1] > attempt:
                    continue
                heappush(ends, (until, job_id))
            elif have[1] > attempt:
                continue
            held[job_id] = lease
        if len(ends) > 4 * len(held) + _SLACK:
            self._rebuild()

    def end(self, leases: Sequence[tuple[str, int]]) -> None:
        """Forget the leases of attempts that have ended."""
        held = self._leases
        for job_id, attempt in leases:
            have = held.pop(job_id, None)
            if have is not None and have[1] > attempt:
                held[job_id] = have

    def over(self, before_ms: int, most: int) -> list[tuple[str, int]]:
        """(job, attempt) of up to `most` leases that were over before that instant, the longest over first."""
        ends = self._ends
        found: dict[str, tuple[int, str]] = {}
        while len(found) < most and self.next_end() is not None and ends[0][0] < before_ms:
            entry = heappop(ends)
            found[entry[1]] = entry
        for entry in found.values():
            heappush(ends, entry)
        return [self._leases[job_id][:2] for job_id in found]

    def next_end(self) -> int | None:
        """The earliest end."""
        held, ends = self._leases, self._ends
        while ends:
            until, job_id = ends[0]
            lease = held.get(job_id)
            if lease is None:
                heappop(ends)
            elif lease[2] != until:
                heapreplace(ends, (lease[2], job_id))
            else:
                return until
        return None

    def _rebuild(self) -> None:
        # Jobs shorter than their lease leave their place behind: without this a second's work would stay for the lease's length.
        self._ends[:] = [(until, job_id) for job_id, _, until in self._leases.values()]
        heapify(self._ends)
