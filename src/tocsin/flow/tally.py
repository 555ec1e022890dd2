"""Figures of queues: how many jobs stand where, how fast they complete, how late they start.

The stages tell the tally what they did; nothing is counted by a query on a hot path. A slow sweep sets the counts right, since
a crash between a commit and its count is possible. Lost with the process, rebuilt at start.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping

from tocsin.model.job import FINISHED, Lane, Line
from tocsin.telemetry import LATENESS
from tocsin.wire import Status

LANE_NAME = {Lane.PRECISE: "precise", Lane.FLEXIBLE: "flexible"}
RATE_WINDOW_S = 60
SAMPLES = 2_000

QueueKey = tuple[str, str]


class _Figures:
    __slots__ = ("completed", "counts", "lateness")

    def __init__(self) -> None:
        self.counts: dict[Status, int] = defaultdict(int)
        self.completed: deque[tuple[int, int]] = deque()
        self.lateness: deque[float] = deque(maxlen=SAMPLES)


class Tally:
    """The figures of every queue that this process has seen."""

    def __init__(self) -> None:
        self._queues: dict[QueueKey, _Figures] = defaultdict(_Figures)
        self._waiting: dict[str, int] = defaultdict(int)

    def moved(self, line: Line, before: Status | None, after: Status, count: int = 1) -> None:
        """`count` jobs of a line went from one state (None: just created) to another."""
        figures = self._queues[line.tenant, line.queue]
        if before is not None:
            figures.counts[before] -= count
        else:
            self._waiting[line.tenant] += count
        if after in FINISHED or after is Status.DEAD:
            self._waiting[line.tenant] -= count if before is not Status.DEAD else 0
        if after not in FINISHED:
            figures.counts[after] += count

    def left(self, line: Line, status: Status) -> None:
        """A job is not in this line any more, and will be counted in another."""
        self._queues[line.tenant, line.queue].counts[status] -= 1
        self._waiting[line.tenant] -= 1

    def fired(self, line: Line, count: int) -> None:
        """Jobs fired: they leave RETRYING as far as there are such, else SCHEDULED."""
        counts = self._queues[line.tenant, line.queue].counts
        retries = min(count, max(counts[Status.RETRYING], 0)) if counts[Status.SCHEDULED] < count else 0
        counts[Status.RETRYING] -= retries
        counts[Status.SCHEDULED] -= count - retries
        counts[Status.QUEUED] += count

    def revived(self, line: Line, count: int = 1) -> None:
        """Dead jobs are waiting again."""
        self._waiting[line.tenant] += count
        figures = self._queues[line.tenant, line.queue]
        figures.counts[Status.DEAD] -= count
        figures.counts[Status.RETRYING] += count

    def discarded(self, line: Line, count: int = 1) -> None:
        """Dead jobs are gone."""
        self._queues[line.tenant, line.queue].counts[Status.DEAD] -= count

    def started(self, line: Line, lateness_s: Iterable[float]) -> None:
        """Attempts of a line were claimed so late."""
        late = list(lateness_s)
        self._queues[line.tenant, line.queue].lateness.extend(late)
        LATENESS.observe(LANE_NAME[line.lane], late)

    def succeeded(self, tenant: str, queue: str, now_ms: int, count: int) -> None:
        """Running jobs of a queue succeeded."""
        figures = self._queues[tenant, queue]
        figures.counts[Status.RUNNING] -= count
        self._waiting[tenant] -= count
        recent, second = figures.completed, now_ms // 1000
        if recent and recent[-1][0] == second:
            recent[-1] = (second, recent[-1][1] + count)
            return
        recent.append((second, count))
        while recent[0][0] <= second - RATE_WINDOW_S:
            recent.popleft()

    def reset(self, counts: Mapping[tuple[str, str, Status], int]) -> None:
        """Take over the store's own count."""
        for figures in self._queues.values():
            figures.counts.clear()
        self._waiting.clear()
        for (tenant, queue, status), count in counts.items():
            self._queues[tenant, queue].counts[status] = count
            if status is not Status.DEAD:
                self._waiting[tenant] += count

    def waiting(self, tenant: str) -> int:
        """How many unfinished jobs a tenant has."""
        return max(self._waiting.get(tenant, 0), 0)

    def count(self, tenant: str, queue: str, status: Status) -> int:
        """How many jobs of a queue are in a state."""
        figures = self._queues.get((tenant, queue))
        return max(figures.counts.get(status, 0), 0) if figures else 0

    def completed_per_s(self, tenant: str, queue: str, now_ms: int) -> float:
        """Completions a second over the last ten seconds."""
        figures = self._queues.get((tenant, queue))
        if figures is None:
            return 0.0
        since = now_ms // 1000 - 10
        return sum(count for second, count in figures.completed if second >= since) / 10

    def lateness(self, tenant: str, queue: str) -> tuple[float, float] | None:
        """The median and the 99th percentile of the latest starts, in seconds."""
        figures = self._queues.get((tenant, queue))
        if figures is None or not figures.lateness:
            return None
        late = sorted(figures.lateness)
        return late[len(late) // 2], late[min(len(late) - 1, len(late) * 99 // 100)]
