"""The lease index: which attempts are running and until when, for rescue.

A dict is the index. A heap orders it by claims: the jobs of one claim end together, so they share a place. A place is never
later than the lease's own end; a renewal touches the dict only, and its place is corrected when it comes to the top. A lost
index is rebuilt from the jobs at start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush

_SLACK = 10_000

# (lease_until, a number of its own, the jobs that had this end when it was noted)
Place = tuple[int, int, list[str]]


class LeaseIndex:
    """Leases by job; an older attempt never replaces a newer one. Which clock the ends are of is the caller's matter."""

    def __init__(self) -> None:
        self._leases: dict[str, tuple[str, int, int]] = {}
        self._places: list[Place] = []
        self._serial = 0
        self._placed = 0

    def __len__(self) -> int:
        return len(self._leases)

    def put(self, leases: Sequence[tuple[str, int, int]]) -> None:
        """(job, attempt, end in ms): remember or renew."""
        held = self._leases
        last: int | None = None
        for lease in leases:
            job_id, attempt, until = lease
            have = held.get(job_id)
            if have is not None:
                if have[1] > attempt:
                    continue
                if until >= have[2]:
                    held[job_id] = lease
                    continue
            held[job_id] = lease
            if until != last:
                last = until
                jobs = self._new_place(until)
            jobs.append(job_id)
            self._placed += 1
        if self._placed > 4 * len(held) + _SLACK:
            # Jobs shorter than their lease leave their place behind: it would stay for the lease's whole length.
            self._places, self._placed = [], 0
            self._note(held.values())

    def end(self, leases: Sequence[tuple[str, int]]) -> None:
        """Forget the leases of attempts that have ended."""
        held = self._leases
        for job_id, attempt in leases:
            have = held.pop(job_id, None)
            if have is not None and have[1] > attempt:
                held[job_id] = have

    def over(self, before_ms: int, most: int, wanted: Callable[[str], bool] | None = None) -> list[tuple[str, int]]:
        """(job, attempt) of up to `most` leases that were over before that instant, the longest over first; with `wanted` only
        of jobs for which it is true."""
        found: dict[str, int] = {}
        seen: list[Place] = []
        while len(found) < most and self.next_end() is not None and self._places[0][0] < before_ms:
            place = heappop(self._places)
            self._correct(place)
            seen.append(place)
            for job_id in place[2]:
                if wanted is None or wanted(job_id):
                    found[job_id] = self._leases[job_id][1]
        for place in seen:
            heappush(self._places, place)
        return list(found.items())[:most]

    def next_end(self) -> int | None:
        """The earliest end."""
        held, places = self._leases, self._places
        while places:
            until, _, jobs = places[0]
            if jobs:
                lease = held.get(jobs[-1])
                if lease is not None and lease[2] == until:
                    return until
                self._correct(places[0])
            if not jobs:
                heappop(places)
        return None

    def _correct(self, place: Place) -> None:
        """Only the jobs whose lease ends then stay in a place; renewed ones get a later one."""
        until, _, jobs = place
        leases = [lease for job_id in jobs if (lease := self._leases.get(job_id)) is not None]
        self._placed -= len(jobs)
        jobs[:] = [lease[0] for lease in leases if lease[2] == until]
        self._placed += len(jobs)
        self._note(lease for lease in leases if lease[2] != until)

    def _note(self, leases: Iterable[tuple[str, int, int]]) -> None:
        by_end: dict[int, list[str]] = {}
        for job_id, _, until in leases:
            if until not in by_end:
                by_end[until] = self._new_place(until)
            by_end[until].append(job_id)
            self._placed += 1

    def _new_place(self, until: int) -> list[str]:
        self._serial += 1
        jobs: list[str] = []
        heappush(self._places, (until, self._serial, jobs))
        return jobs
