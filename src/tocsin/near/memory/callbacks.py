"""Callbacks ready to be made, as the executor takes them: of all tenants, in fair order.

Each tenant has one group per lane over all its queues and hosts; tenants with jobs are in the lane's ring. A closed queue's
runs are put on its shelf when a pop comes upon them, and come back when the gate is configured or its pause is over; so
paused queues cost a pop nothing. Runs of a queue whose gate is not known are shelved too, and their queue is asked for.

Suspect jobs of all tenants have rings of their own. Scores of different tenants cannot be compared without giving up
fairness, so where a lane has both kinds, pops take turns between them.
"""

from __future__ import annotations

from heapq import heappop, heappush

from tocsin.model.fairness import DeficitRing
from tocsin.model.timer import Due
from tocsin.near.memory.lines import Entry, Group, Queue, Ready, Run

LANES = (0, 1)
_ASK_MOST = 100


class Callbacks:
    """The lines of callbacks of all tenants."""

    def __init__(self, ready: Ready, weights: dict[str, float]) -> None:
        self._ready = ready
        self._groups: tuple[dict[str, Group], ...] = ({}, {})
        self._suspects: tuple[dict[str, Group], ...] = ({}, {})
        self._rings = (DeficitRing(weights), DeficitRing(weights))
        self._suspect_rings = (DeficitRing(weights, 1), DeficitRing(weights, 1))
        self._just_suspect = [False, False]
        self._unknown: dict[Queue, None] = {}
        self._reopen: list[tuple[int, int, Queue]] = []
        self._serial = 0

    def group(self, tenant: str, lane: int, suspect: bool) -> Group:
        """The group that a line of callbacks belongs to."""
        groups = (self._suspects if suspect else self._groups)[lane]
        group = groups.get(tenant)
        if group is None:
            group = groups[tenant] = Group()
        return group

    def note(self, run: Run, head: Due) -> None:
        """A run has a new head."""
        line = run.line
        if run in line.queue.shelved:
            return
        line.group.note(run, head)
        rings = self._suspect_rings if line.line.suspect else self._rings
        rings[line.line.lane].join(line.line.tenant)

    def may_have(self, now_ms: int) -> bool:
        """Whether a pop could find something, or something to ask for."""
        self._open_again(now_ms)
        return bool(self._unknown) or any(len(ring) for ring in (*self._rings, *self._suspect_rings))

    def take(self, most: int, now_ms: int, taken: list[Due]) -> tuple[tuple[str, str], ...]:
        """Move up to `most` jobs to `taken`, a suspect one only alone; answers the queues to ask for."""
        self._open_again(now_ms)
        for lane in LANES:
            if len(taken) >= most:
                break
            if not taken and not self._just_suspect[lane] and self._take_suspect(lane, now_ms, taken):
                break
            self._take_ordinary(lane, most, now_ms, taken)
            self._just_suspect[lane] = False
            if not taken and self._take_suspect(lane, now_ms, taken):
                break
        return self._ask()

    def gate_changed(self, queue: Queue) -> None:
        """The queue was configured: its shelved runs are looked at again."""
        self._unknown.pop(queue, None)
        shelved, queue.shelved = queue.shelved, set()
        for run in shelved:
            head = run.head(self._ready)
            if head is not None:
                self.note(run, head)

    def forget_tenant(self, tenant: str) -> None:
        """A tenant without any lines needs no groups."""
        for lane in LANES:
            for groups in (self._groups, self._suspects):
                groups[lane].pop(tenant, None)
            for rings in (self._rings, self._suspect_rings):
                rings[lane].leave(tenant)

    def _take_ordinary(self, lane: int, most: int, now_ms: int, taken: list[Due]) -> None:
        ring, groups = self._rings[lane], self._groups[lane]
        while len(taken) < most and (turn := ring.turn()) is not None:
            tenant, allowed = turn
            asked = min(allowed, most - len(taken))
            found = 0
            while found < asked and (entry := self._best(groups[tenant], now_ms)) is not None:
                found += groups[tenant].take_run(self._ready, entry[3], asked - found, None, taken)
            ring.done(tenant, found, dry=found < asked)

    def _take_suspect(self, lane: int, now_ms: int, taken: list[Due]) -> bool:
        ring, groups = self._suspect_rings[lane], self._suspects[lane]
        while (turn := ring.turn()) is not None:
            tenant = turn[0]
            entry = self._best(groups[tenant], now_ms)
            if entry is None:
                ring.done(tenant, 0, dry=True)
                continue
            groups[tenant].take_run(self._ready, entry[3], 1, None, taken)
            ring.done(tenant, 1, dry=False)
            self._just_suspect[lane] = True
            return True
        return False

    def _best(self, group: Group, now_ms: int) -> Entry | None:
        """The group's best job in an open queue; what stands before it in closed ones is shelved."""
        while (entry := group.best(self._ready)) is not None:
            run = entry[3]
            queue = run.line.queue
            gate = queue.gate
            if gate is not None and not queue.closed(now_ms):
                return entry
            group.unlist(run)
            if gate is None:
                self._unknown[queue] = None
            elif not queue.shelved and gate.paused_until is not None:
                self._serial += 1
                heappush(self._reopen, (gate.paused_until, self._serial, queue))
            queue.shelved.add(run)
        return None

    def _open_again(self, now_ms: int) -> None:
        reopen = self._reopen
        while reopen and reopen[0][0] <= now_ms:
            self.gate_changed(heappop(reopen)[2])

    def _ask(self) -> tuple[tuple[str, str], ...]:
        if not self._unknown:
            return ()
        for queue in list(self._unknown):
            if not any(run.head(self._ready) for run in queue.shelved):
                self.gate_changed(queue)
        return tuple((queue.tenant, queue.name) for queue in self._unknown)[:_ASK_MOST]
