"""Ready lines in memory: jobs that have fired and wait for a worker, and those that a claim has in hand.

    push -> ready (in a line) -> pop -> in hand -> settle -> gone
                 ^                        |
                 └── unpop, or ten seconds ┘

A job is in `ready` or in hand, never in both. A newer version pushed while an older one is in hand is kept aside until that
hand is emptied: the claim may have found the older one void.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tocsin.clock import Clock
from tocsin.model.job import HTTP, Line
from tocsin.model.timer import Due
from tocsin.near.memory.callbacks import LANES, Callbacks
from tocsin.near.memory.hands import Hands
from tocsin.near.memory.lines import Group, Queue, Ready, ReadyLine, Run, TenantCount, take_merged
from tocsin.near.memory.waiters import Place, Waiters
from tocsin.near.port import Pop, Popped, QueueGate

_PURGE_AT = 1_024


class ReadyLines:
    """All ready lines of this process."""

    def __init__(
        self,
        clock: Clock,
        weights: dict[str, float],
        *,
        line_limit: int,
        tenant_limit: int,
        hands: Hands,
        waiters: Waiters,
    ) -> None:
        self._clock = clock
        self._line_limit = line_limit
        self._tenant_limit = tenant_limit
        # However full a tenant's other lines are (paused ones, say), each may have so many: they must not stop its work.
        self._reserve = tenant_limit // 500
        self._hands = hands
        self._waiters = waiters
        self._ready: Ready = {}
        self._newer: dict[str, Due] = {}
        self._lines: dict[Line, ReadyLine] = {}
        self._parked: dict[Line, ReadyLine] = {}
        self._queues: dict[tuple[str, str], Queue] = {}
        self._tenants: dict[str, TenantCount] = {}
        self._callbacks = Callbacks(self._ready, weights)
        self._purge_at = _PURGE_AT

    def __len__(self) -> int:
        return len(self._ready)

    # coming

    def push(self, dues: Sequence[Due], *, unpark: bool) -> list[Due]:
        """Put jobs into their lines; answers the refused."""
        ready, lines, hand = self._ready, self._lines, self._hands.jobs
        refused: list[Due] = []
        came: list[tuple[ReadyLine, int]] = []
        last: Line | None = None
        target: ReadyLine | None = None
        last_priority, start, room = 0, 0, 0
        for due in dues:
            due_at, job_id, version, line, priority = due
            have = ready.get(job_id)
            if have is not None:
                if have[2] >= version:
                    continue
                self._lose(have)
            elif job_id in hand:
                if hand[job_id][2] < version:
                    self._newer[job_id] = due
                continue
            if line is not last or priority != last_priority:
                last, last_priority = line, priority
                if room < start and target is not None:
                    came.append(target.gained(start - room))
                target = lines.get(line) or self._line(line)
                run = target.run(priority)
                start = room = self._room(target, unpark)
            if room <= 0:
                refused.append(due)
                continue
            room -= 1
            ready[job_id] = due
            jobs = run.jobs
            if jobs and due_at >= jobs[-1][0]:
                jobs.append(due)
            elif run.put(due):
                self._note(run, due)
        if room < start and target is not None:
            came.append(target.gained(start - room))
        if self._waiters:
            self._wake(came)
        return refused

    def unpop(self, request_id: str) -> None:
        """Put a request's jobs back into their lines."""
        self._put_back(self._hands.open(request_id) or [])

    # going

    def pop(self, wish: Pop) -> Popped:
        """Take jobs for a request; see the port."""
        elapsed_s = self._clock.elapsed_s()
        self.return_overdue(elapsed_s)
        hands = self._hands
        again = hands.of(wish.request_id)
        if again is not None:
            return Popped(dues=list(again), again=True)
        answer = hands.answer(wish.request_id)
        if answer is not None:
            return Popped(dues=[], repeated=True, attempts=answer)
        taken: list[Due] = []
        ask = (
            self._callbacks.take(wish.most, wish.now_ms, taken) if wish.queue is None else self._take_tasks(wish, taken)
        )
        if taken:
            hands.give(wish.request_id, list(taken), elapsed_s)
        return Popped(dues=taken, ask=ask)

    def settle(self, request_id: str, claimed: Sequence[tuple[str, int]]) -> None:
        """The request's claim is written."""
        released = self._hands.open(request_id)
        if released is None:
            # Too late: its jobs went back into their lines. What was claimed is not waiting there any more.
            for job_id, _ in claimed:
                self.remove(job_id)
        if claimed:
            self._hands.remember(request_id, claimed, self._clock.elapsed_s())
        if self._newer and released:
            newer = [self._newer.pop(due[1]) for due in released if due[1] in self._newer]
            self._put_back(newer)

    def remove(self, job_id: str) -> None:
        """Forget a job, in line or in hand."""
        have = self._ready.get(job_id)
        if have is not None:
            self._lose(have)
            return
        if self._hands.jobs.pop(job_id, None) is not None:
            self._newer.pop(job_id, None)

    def return_overdue(self, elapsed_s: float) -> None:
        """Jobs whose request did not settle in time go back into their lines."""
        back = self._hands.overdue(elapsed_s)
        if back:
            self._put_back(back)
        self._hands.forget_old(elapsed_s)

    # waiting

    async def wait(self, wish: Pop, timeout_s: float) -> None:
        """Sleep until there may be a job for the wish."""
        self.return_overdue(self._clock.elapsed_s())
        if not self._may_have(wish):
            place: Place = None if wish.queue is None else (wish.tenant or "", wish.queue)
            await self._waiters.wait(place, wish.handlers, timeout_s)

    # settings and figures

    def configure(self, tenant: str, name: str, gate: QueueGate) -> None:
        """Set a queue's gate."""
        queue = self._queue(tenant, name)
        queue.gate = gate
        self._callbacks.gate_changed(queue)
        self._wake((line, line.count) for line in queue.lines.values())

    def set_parked(self, line: Line, partition: int, parked: bool) -> None:
        """Mark a line as having parked jobs in a partition, or not."""
        target = self._lines.get(line) or self._line(line)
        if parked:
            target.parked.add(partition)
            self._parked[line] = target
            return
        target.parked.discard(partition)
        if not target.parked:
            self._parked.pop(line, None)

    def lines_with_room(self, partitions: Sequence[int]) -> list[Line]:
        """Marked lines that are under half full (half of their reserve, where the tenant's lines together are full)."""
        return [
            line
            for line, target in self._parked.items()
            if not target.parked.isdisjoint(partitions)
            and target.count * 2 < self._line_limit
            and (target.tenant.count < self._tenant_limit or target.count * 2 < self._reserve)
        ]

    def count(self, tenant: str, name: str) -> tuple[int, int | None]:
        """How many jobs of a queue wait, and the smallest due_at among them."""
        queue = self._queues.get((tenant, name))
        if queue is None:
            return 0, None
        lines = [line for line in queue.lines.values() if line.count]
        firsts = [first for line in lines if (first := line.first_due(self._ready)) is not None]
        return sum(line.count for line in lines), min(firsts, default=None)

    # inside

    def _take_tasks(self, wish: Pop, taken: list[Due]) -> tuple[tuple[str, str], ...]:
        queue = self._queues.get((wish.tenant or "", wish.queue or ""))
        if queue is None or queue.closed(wish.now_ms):
            return ()
        if queue.gate is None:
            return ((queue.tenant, queue.name),) if self._has_tasks(queue, wish.handlers) else ()
        ready = self._ready
        for lane in LANES:
            if len(taken) >= wish.most:
                break
            groups = _chosen(queue.tasks[lane], wish.handlers)
            suspects = _chosen(queue.suspects[lane], wish.handlers)
            if suspects and not taken:
                # By score, but never two suspects in a row while others wait: each costs a whole claim.
                first_suspect, first = _first(suspects, ready), _first(groups, ready)
                if first_suspect is not None and (
                    first is None or (first_suspect < first and not queue.just_suspect[lane])
                ):
                    take_merged(suspects, ready, 1, taken)
                    queue.just_suspect[lane] = True
                    break
                queue.just_suspect[lane] = False
            if groups:
                take_merged(groups, ready, wish.most - len(taken), taken)
        return ()

    def _may_have(self, wish: Pop) -> bool:
        now_ms = self._clock.now_ms()
        if wish.queue is None:
            return self._callbacks.may_have(now_ms)
        queue = self._queues.get((wish.tenant or "", wish.queue))
        return queue is not None and not queue.closed(now_ms) and self._has_tasks(queue, wish.handlers)

    def _has_tasks(self, queue: Queue, handlers: tuple[str, ...] | None) -> bool:
        ready = self._ready
        return any(
            _first(_chosen(groups, handlers), ready) is not None
            for by_lane in (queue.tasks, queue.suspects)
            for groups in by_lane
        )

    def _put_back(self, dues: Sequence[Due]) -> None:
        """Jobs that were taken out before go back, whatever the limits say."""
        came: list[tuple[ReadyLine, int]] = []
        for taken in dues:
            due = self._newer.pop(taken[1], taken)
            if due[1] in self._ready:
                continue
            target = self._lines.get(due[3]) or self._line(due[3])
            self._ready[due[1]] = due
            came.append(target.gained(1))
            run = target.run(due[4])
            if run.put(due):
                self._note(run, due)
        self._wake(came)

    def _lose(self, have: Due) -> None:
        del self._ready[have[1]]
        self._lines[have[3]].lost_one(self._ready)

    def _room(self, target: ReadyLine, unpark: bool) -> int:
        if target.parked and not unpark:
            return 0
        shared = self._tenant_limit - target.tenant.count
        return min(self._line_limit - target.count, max(shared, self._reserve - target.count))

    def _note(self, run: Run, head: Due) -> None:
        if run.line.line.handler == HTTP:
            self._callbacks.note(run, head)
        else:
            run.line.group.note(run, head)

    def _wake(self, came: Iterable[tuple[ReadyLine, int]]) -> None:
        now_ms = self._clock.now_ms()
        for target, count in came:
            line = target.line
            if not target.queue.closed(now_ms):
                place: Place = None if line.handler == HTTP else (line.tenant, line.queue)
                self._waiters.wake(place, line.handler, count)

    def _queue(self, tenant: str, name: str) -> Queue:
        queue = self._queues.get((tenant, name))
        if queue is None:
            queue = self._queues[tenant, name] = Queue(tenant, name)
        return queue

    def _line(self, line: Line) -> ReadyLine:
        """A line that is not there yet."""
        if len(self._lines) >= self._purge_at:
            self._purge()
        queue = self._queue(line.tenant, line.queue)
        if line.handler == HTTP:
            group = self._callbacks.group(line.tenant, line.lane, line.suspect)
        else:
            groups = (queue.suspects if line.suspect else queue.tasks)[line.lane]
            group = groups.get(line.handler) or groups.setdefault(line.handler, Group())
        tenant = self._tenants.get(line.tenant) or self._tenants.setdefault(line.tenant, TenantCount())
        target = self._lines[line] = queue.lines[line] = ReadyLine(line, queue, group, tenant)
        return target

    def _purge(self) -> None:
        """Forget empty lines: a tenant may have one per host that it ever called."""
        for line, target in list(self._lines.items()):
            if not target.count and not target.parked:
                del self._lines[line], target.queue.lines[line]
                for run in target.runs.values():
                    target.group.unlist(run)
                    target.queue.shelved.discard(run)
        alive = {line.tenant for line in self._lines}
        for name in [name for name in self._tenants if name not in alive]:
            del self._tenants[name]
            self._callbacks.forget_tenant(name)
        for key, queue in list(self._queues.items()):
            if not queue.lines:
                for groups in (*queue.tasks, *queue.suspects):
                    groups.clear()
                if queue.gate is None:
                    del self._queues[key]
        self._purge_at = max(_PURGE_AT, 2 * len(self._lines))


def _chosen(groups: dict[str, Group], handlers: tuple[str, ...] | None) -> list[Group]:
    """The groups that a wish may take from."""
    if handlers is None:
        return [group for group in groups.values() if group.heads]
    return [group for handler in dict.fromkeys(handlers) if (group := groups.get(handler)) is not None and group.heads]


def _first(groups: list[Group], ready: Ready) -> tuple[int, str] | None:
    """The best score in groups."""
    firsts = [entry[:2] for group in groups if (entry := group.best(ready)) is not None]
    return min(firsts, default=None)
