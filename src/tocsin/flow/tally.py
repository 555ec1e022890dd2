"""Figures of queues: how many jobs stand where, how fast they complete, how late they start.

The stages tell the tally what they did; nothing is counted by a query on a hot path. A slow sweep sets the counts right, since
a crash between a commit and its count is possible. Lost with the process, rebuilt at start. Where there are many processes, each
also remembers what it has counted until `flow.reckon` has told it to all.
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
CountKey = tuple[str, str, Status]


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
        # What this process has counted and has not told the others yet; see `flow.reckon`.
        self._untold: dict[CountKey, int] | None = None

    def share(self) -> None:
        """From now on remember what is counted here, for `take_untold`."""
        self._untold = defaultdict(int)

    def take_untold(self) -> dict[CountKey, int]:
        """What was counted here since the last call; counts that have gone back and forth are left out."""
        untold, self._untold = self._untold or {}, defaultdict(int)
        return {key: change for key, change in untold.items() if change}

    def put_back(self, untold: Mapping[CountKey, int]) -> None:
        """The others could not be told: remember it for the next time."""
        if self._untold is not None:
            for key, change in untold.items():
                self._untold[key] += change

    async def take_over(self, counts: Mapping[CountKey, int]) -> None:
        """`reset`, as whoever counts for all is told to put the counts."""
        self.reset(counts)

    def adopt(self, counts: Mapping[CountKey, int]) -> None:
        """Take over what all processes have counted together, and what was counted here meanwhile."""
        together = dict(counts)
        for key, change in (self._untold or {}).items():
            together[key] = together.get(key, 0) + change
        self.reset(together)

    def _add(self, tenant: str, queue: str, status: Status, change: int) -> None:
        self._queues[tenant, queue].counts[status] += change
        if self._untold is not None:
            self._untold[tenant, queue, status] += change

    def moved(self, line: Line, before: Status | None, after: Status, count: int = 1) -> None:
        """`count` jobs of a line went from one state (None: just created) to another."""
        if before is not None:
            self._add(line.tenant, line.queue, before, -count)
        else:
            self._waiting[line.tenant] += count
        if after in FINISHED or after is Status.DEAD:
            self._waiting[line.tenant] -= count if before is not Status.DEAD else 0
        if after not in FINISHED:
            self._add(line.tenant, line.queue, after, count)

    def left(self, line: Line, status: Status) -> None:
        """A job is not in this line any more, and will be counted in another."""
        self._add(line.tenant, line.queue, status, -1)
        self._waiting[line.tenant] -= 1

    def fired(self, line: Line, count: int) -> None:
        """Jobs fired: they leave RETRYING as far as there are such, else SCHEDULED."""
        counts = self._queues[line.tenant, line.queue].counts
        retries = min(count, max(counts[Status.RETRYING], 0)) if counts[Status.SCHEDULED] < count else 0
        if retries:
            self._add(line.tenant, line.queue, Status.RETRYING, -retries)
        self._add(line.tenant, line.queue, Status.SCHEDULED, retries - count)
        self._add(line.tenant, line.queue, Status.QUEUED, count)

    def revived(self, line: Line, count: int = 1) -> None:
        """Dead jobs are waiting again."""
        self._waiting[line.tenant] += count
        self._add(line.tenant, line.queue, Status.DEAD, -count)
        self._add(line.tenant, line.queue, Status.RETRYING, count)

    def discarded(self, line: Line, count: int = 1) -> None:
        """Dead jobs are gone."""
        self._add(line.tenant, line.queue, Status.DEAD, -count)

    def started(self, line: Line, lateness_s: Iterable[float]) -> None:
        """Attempts of a line were claimed so late."""
        late = list(lateness_s)
        self._queues[line.tenant, line.queue].lateness.extend(late)
        LATENESS.observe(LANE_NAME[line.lane], late)

    def succeeded(self, tenant: str, queue: str, now_ms: int, count: int) -> None:
        """Running jobs of a queue succeeded."""
        figures = self._queues[tenant, queue]
        self._add(tenant, queue, Status.RUNNING, -count)
        self._waiting[tenant] -= count
        recent, second = figures.completed, now_ms // 1000
        if recent and recent[-1][0] == second:
            recent[-1] = (second, recent[-1][1] + count)
            return
        recent.append((second, count))
        while recent[0][0] <= second - RATE_WINDOW_S:
            recent.popleft()

    def reset(self, counts: Mapping[CountKey, int]) -> None:
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
