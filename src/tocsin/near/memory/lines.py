"""The parts of the ready lines: a run of jobs, a line, a group of lines that are merged, a queue.

    Queue ── Line ── Run (one per priority)        a run's jobs are in order of due_at, so Due tuples are its entries
               Group: a heap of the runs' heads    precise tasks of one handler, or a tenant's precise callbacks, …

The score of a job is its due time less the boost of its priority. Inside a run the boost is the same for all, so the score is
compared only between runs, by the group. Jobs come nearly in order: a run is a deque that they are appended to, with a heap
for the few that come early. An entry counts only while `ready` names that very object.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush, heapreplace

from tocsin.model.job import PRIORITY_BOOST_MS, Line
from tocsin.model.timer import Due
from tocsin.near.port import QueueGate

Ready = dict[str, Due]
# The place of a run in its group: score and job of the run's head, or of one that was its head before.
Entry = tuple[int, str, int, "Run"]
Score = tuple[int, str]
_SWEEP_AT = 1_000


class Run:
    """A line's jobs of one priority. `entry` is its valid place in its group, None while it has none."""

    __slots__ = ("boost", "early", "entry", "jobs", "line", "serial")

    def __init__(self, line: ReadyLine, priority: int, serial: int) -> None:
        self.line = line
        self.boost = PRIORITY_BOOST_MS.get(priority, 0)
        self.serial = serial
        self.jobs: deque[Due] = deque()
        self.early: list[Due] = []
        self.entry: Entry | None = None

    def put(self, due: Due) -> bool:
        """Add a job; answers whether it is the head now."""
        jobs, early = self.jobs, self.early
        if not jobs:
            jobs.append(due)
            return not early or due < early[0]
        if due[0] >= jobs[-1][0]:
            jobs.append(due)
            return False
        heappush(early, due)
        return early[0] is due and due < jobs[0]

    def head(self, ready: Ready) -> Due | None:
        """The first job; entries of jobs that are gone are passed over for good."""
        jobs, early = self.jobs, self.early
        while jobs and ready.get(jobs[0][1]) is not jobs[0]:
            jobs.popleft()
            self.line.gone -= 1
        while early and ready.get(early[0][1]) is not early[0]:
            heappop(early)
            self.line.gone -= 1
        if jobs:
            return min(jobs[0], early[0]) if early else jobs[0]
        return early[0] if early else None

    def take(self, ready: Ready, most: int, limit: Score | None, taken: list[Due]) -> int:
        """Move the head, and up to `most` jobs that are before `limit` (due_at, job), to `taken`; how many."""
        jobs, early = self.jobs, self.early
        pop = ready.pop
        if limit is None and not early and not self.line.gone:
            chunk = [jobs.popleft() for _ in range(min(most, len(jobs)))]
            for due in chunk:
                pop(due[1], None)
            taken += chunk
            return len(chunk)
        found = 0
        while found < most:
            if early and (not jobs or early[0] < jobs[0]):
                if found and limit is not None and not early[0] < limit:
                    break
                due = heappop(early)
            elif jobs:
                if found and limit is not None and not jobs[0] < limit:
                    break
                due = jobs.popleft()
            else:
                break
            have = pop(due[1], None)
            if have is due:
                taken.append(due)
                found += 1
            else:
                self.line.gone -= 1
                if have is not None:
                    ready[due[1]] = have
        return found

    def sweep(self, ready: Ready) -> None:
        """Drop entries whose job is gone, also the second entry of a job that left and came back."""
        seen: set[str] = set()
        kept: list[Due] = []
        for due in sorted([*self.jobs, *self.early]):
            if ready.get(due[1]) is due and due[1] not in seen:
                seen.add(due[1])
                kept.append(due)
        self.jobs, self.early = deque(kept), []


class ReadyLine:
    """A ready line: its runs by priority, how many jobs wait, and whether others are parked outside."""

    __slots__ = ("count", "gone", "group", "line", "parked", "queue", "runs", "tenant")

    def __init__(self, line: Line, queue: Queue, group: Group, tenant: TenantCount) -> None:
        self.line = line
        self.queue = queue
        self.group = group
        self.tenant = tenant
        self.count = 0
        self.gone = 0
        self.parked: set[int] = set()  # the partitions in which jobs of this line are parked
        self.runs: dict[int, Run] = {}

    def run(self, priority: int) -> Run:
        """The run of a priority, made when it is first needed."""
        run = self.runs.get(priority)
        if run is None:
            run = self.runs[priority] = Run(self, priority, self.group.next_serial())
        return run

    def gained(self, count: int) -> tuple[ReadyLine, int]:
        """So many jobs came; the line and their number, for whoever wakes waiting claims."""
        self.count += count
        self.tenant.count += count
        return self, count

    def lost_one(self, ready: Ready) -> None:
        """A waiting job has left `ready`; its entry stays until it is passed over or swept out."""
        self.count -= 1
        self.tenant.count -= 1
        self.gone += 1
        if self.gone > self.count + _SWEEP_AT:
            for run in self.runs.values():
                run.sweep(ready)
            self.gone = 0

    def first_due(self, ready: Ready) -> int | None:
        """The smallest due_at of a waiting job."""
        heads = [run.head(ready) for run in self.runs.values()]
        return min((head[0] for head in heads if head is not None), default=None)


class TenantCount:
    """How many jobs wait in all lines of a tenant."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Group:
    """Runs that are taken from together, best score first.

    Every run that has jobs has one valid entry in the heap, at or before the score of its head; entries that became void are
    dropped when they come to the top.
    """

    __slots__ = ("_serial", "heads")

    def __init__(self) -> None:
        self.heads: list[Entry] = []
        self._serial = 0

    def next_serial(self) -> int:
        """A number that orders runs whose heads are equal."""
        self._serial += 1
        return self._serial

    def note(self, run: Run, head: Due) -> None:
        """The run has this new head."""
        run.entry = (head[0] - run.boost, head[1], run.serial, run)
        heappush(self.heads, run.entry)
        if len(self.heads) > 2 * self._serial + _SWEEP_AT:
            self.heads[:] = [entry for entry in self.heads if entry[3].entry is entry]
            heapify(self.heads)

    def unlist(self, run: Run) -> None:
        """Leave a run out until it is noted again."""
        run.entry = None

    def best(self, ready: Ready) -> Entry | None:
        """The place of the best job."""
        heads = self.heads
        while heads:
            entry = heads[0]
            run = entry[3]
            if run.entry is not entry:
                heappop(heads)
                continue
            head = run.head(ready)
            if head is None:
                heappop(heads)
                run.entry = None
                continue
            score = head[0] - run.boost
            if score == entry[0] and head[1] == entry[1]:
                return entry
            run.entry = (score, head[1], run.serial, run)
            heapreplace(heads, run.entry)
        return None

    def take(self, ready: Ready, most: int, bound: Score | None, taken: list[Due]) -> int:
        """Move up to `most` jobs, the best first, to `taken` while they are before `bound`; how many."""
        found = 0
        while found < most and (entry := self.best(ready)) is not None:
            if bound is not None and not entry < bound:
                break
            found += self.take_run(ready, entry[3], most - found, bound, taken)
        return found

    def take_run(self, ready: Ready, run: Run, most: int, bound: Score | None, taken: list[Due]) -> int:
        """Take from the run that has the best job, until another run has a better one."""
        heads = self.heads
        limit = bound
        for other in heads[1:3]:
            if limit is None or other < limit:
                limit = other[:2]
        if limit is not None:
            limit = (limit[0] + run.boost, limit[1])
        found = run.take(ready, most, limit, taken)
        run.line.count -= found
        run.line.tenant.count -= found
        return found


class Queue:
    """A tenant's queue: its gate, its lines, and its task lines grouped as claims take them."""

    __slots__ = ("gate", "just_suspect", "lines", "name", "shelved", "suspects", "tasks", "tenant")

    def __init__(self, tenant: str, name: str) -> None:
        self.tenant = tenant
        self.name = name
        self.gate: QueueGate | None = None
        self.lines: dict[Line, ReadyLine] = {}
        # By lane: groups of task lines by handler, ordinary and suspect ones.
        self.tasks: tuple[dict[str, Group], ...] = ({}, {})
        self.suspects: tuple[dict[str, Group], ...] = ({}, {})
        self.just_suspect = [False, False]
        # Runs of callbacks that were found while the gate was closed or not known.
        self.shelved: set[Run] = set()

    def closed(self, now_ms: int) -> bool:
        """Whether the gate is known to be closed."""
        gate = self.gate
        return gate is not None and gate.paused and (gate.paused_until is None or gate.paused_until > now_ms)


def take_merged(groups: list[Group], ready: Ready, most: int, taken: list[Due]) -> int:
    """Move up to `most` jobs of several groups, the best first, to `taken`; how many."""
    if len(groups) == 1:
        return groups[0].take(ready, most, None, taken)
    heads = [(entry[:2], at) for at, group in enumerate(groups) if (entry := group.best(ready)) is not None]
    heapify(heads)
    found = 0
    while heads and found < most:
        at = heads[0][1]
        bound = min(heads[1:3])[0] if len(heads) > 1 else None
        found += groups[at].take(ready, most - found, bound, taken)
        entry = groups[at].best(ready)
        if entry is None:
            heappop(heads)
        else:
            heapreplace(heads, (entry[:2], at))
    return found
