"""Ready lines: jobs that have fired and wait for a worker, in the tag of their tenant and queue.

    push -> in line -> pop -> in hand -> settle -> gone
               ^                 |
               └── unpop, or ten seconds ┘        (hands.py, callbacks.py)

A line is what is counted, limited and parked; its jobs stand in sets by queue, lane, suspicion, priority and handler, since
that is how claims take them. `lua/lines.lua` says which keys there are. Everything is in one tag, so each step is one program
and either happens or does not. A process that dies between two steps leaves its jobs in hand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tocsin.model.job import Line
from tocsin.model.timer import Due
from tocsin.near.port import QueueGate
from tocsin.near.redis.keys import Keys
from tocsin.near.redis.members import SEPARATOR, line_of, line_text
from tocsin.near.redis.programs import LineScript, Programs
from tocsin.near.redis.scripts import Call, Script
from tocsin.near.redis.totals import TenantTotals
from tocsin.near.redis.waits import Waits

# As many jobs as one program is given: others have their turn in between.
JOBS_A_CALL = 1_000
_PUSH = LineScript("lines_push")
_REMOVE = LineScript("lines_remove")
_CONFIGURE = LineScript("lines_configure")
_PARK = LineScript("lines_park")
_COUNT = LineScript("lines_count")
_RETURN = LineScript("lines_return")
_PARKED, _FIND, _FIGURES = Script("lines_parked"), Script("lines_find"), Script("lines_figures")


def place_of(tenant: str, queue: str) -> str:
    """A queue's name as the programs know it."""
    return f"{tenant}{SEPARATOR}{queue}"


class Lines:
    """What comes into lines, and what they look like."""

    def __init__(self, programs: Programs, keys: Keys, waits: Waits, *, line_limit: int, tenant_limit: int) -> None:
        self._programs, self._keys, self._waits = programs, keys, waits
        self._line_limit, self._tenant_limit = line_limit, tenant_limit
        # However full a tenant's other lines are (paused ones, say), each may have so many: they must not stop its work.
        self._reserve = tenant_limit // 500
        self._totals = TenantTotals(programs, keys)

    async def push(self, dues: Sequence[Due], *, unpark: bool) -> list[Due]:
        """Put jobs into their lines; answers the refused, in their order."""
        if not dues:
            return []
        batches = self._batches(dues)
        await self._totals.refresh({line.tenant for runs in batches.values() for line, _ in runs})
        tags: list[str] = []
        orders: list[list[int]] = []
        calls: list[Call] = []
        for tag, runs in batches.items():
            for args, order in self._packed(tag, runs, dues):
                tags.append(tag)
                orders.append(order)
                head = ("1" if unpark else "0", self._line_limit, self._tenant_limit, self._reserve)
                calls.append(self._programs.call(_PUSH, tag, *head, *args))
        refused: list[int] = []
        callbacks: dict[str, int] = {}
        for tag, order, (came, numbers, *tenants) in zip(tags, orders, await self._programs.run(calls), strict=True):
            callbacks[tag] = callbacks.get(tag, 0) + came
            refused += [order[int(number)] for number in numbers.split()]
            for tenant, number in zip(tenants[::2], tenants[1::2], strict=True):
                self._totals.note(tenant, tag, int(number))
        await self._waits.wake_callbacks(callbacks)
        return [dues[at] for at in sorted(refused)]

    async def remove(self, job_ids: Sequence[str]) -> None:
        """Forget jobs. No ID tells its queue, so every tag is asked first which of them it has."""
        tags = self._keys.line_tags
        for start in range(0, len(job_ids), JOBS_A_CALL):
            piece = job_ids[start : start + JOBS_A_CALL]
            found = await self._programs.run([self._programs.plain(_FIND, tag, *piece) for tag in tags])
            await self._programs.run(
                [self._programs.call(_REMOVE, tag, *jobs) for tag, jobs in zip(tags, found, strict=True) if jobs]
            )

    async def configure(self, tenant: str, queue: str, gate: QueueGate) -> None:
        """Set a queue's gate for all processes."""
        until = "paused" if gate.paused_until is None else str(gate.paused_until)
        tag = self._keys.line_tag(tenant, queue)
        callbacks = await self._programs.run_one(
            _CONFIGURE, tag, place_of(tenant, queue), until if gate.paused else "open"
        )
        await self._waits.wake_callbacks({tag: callbacks})

    async def set_parked(self, line: Line, partition: int, parked: bool) -> None:
        """Say whether a line has parked jobs in a partition."""
        tag = self._keys.line_tag(line.tenant, line.queue)
        await self._programs.run_one(_PARK, tag, line_text(line), partition, "1" if parked else "0")

    async def with_room(self, partitions: Sequence[int]) -> list[Line]:
        """Lines with parked jobs that are under half full (half of their reserve, where the tenant's lines together are full)."""
        if not partitions:
            return []
        tags = self._keys.line_tags
        wanted = " ".join(map(str, partitions))
        answers = await self._programs.run([self._programs.plain(_PARKED, tag, wanted) for tag in tags])
        found = [
            (tag, line_of(answer[at]), int(answer[at + 1]), int(answer[at + 2]))
            for tag, answer in zip(tags, answers, strict=True)
            for at in range(0, len(answer), 3)
        ]
        await self._totals.refresh({line.tenant for _, line, _, _ in found})
        room = []
        for tag, line, in_line, of_tenant in found:
            self._totals.note(line.tenant, tag, of_tenant)
            shared = of_tenant + self._totals.elsewhere(line.tenant, tag) < self._tenant_limit
            if in_line * 2 < self._line_limit and (shared or in_line * 2 < self._reserve):
                room.append(line)
        return room

    async def count(self, tenant: str, queue: str) -> tuple[int, int | None]:
        """How many jobs of a queue are in line, and the smallest due_at among them."""
        answer = await self._programs.run_one(_COUNT, self._keys.line_tag(tenant, queue), place_of(tenant, queue))
        return sum(answer[::2]), min(map(int, answer[1::2]), default=None)

    async def figures(self) -> tuple[int, int]:
        """How many jobs are in line and in hand, of all; what dead processes have in hand goes back first."""
        tags = self._keys.line_tags
        now = self._programs.steady.now_ms()
        answers = await self._programs.run([self._programs.plain(_FIGURES, tag, now) for tag in tags])
        overdue = [at for at, (_, _, hands) in enumerate(answers) if hands]
        if overdue:
            back = await self._programs.run([self._programs.call(_RETURN, tags[at]) for at in overdue])
            await self._waits.wake_callbacks(dict(zip((tags[at] for at in overdue), back, strict=True)))
            again = await self._programs.run([self._programs.plain(_FIGURES, tags[at], now) for at in overdue])
            for at, answer in zip(overdue, again, strict=True):
                answers[at] = answer
        return sum(ready for ready, _, _ in answers), sum(held for _, held, _ in answers)

    # inside

    def _batches(self, dues: Sequence[Due]) -> dict[str, dict[tuple[Line, int], list[int]]]:
        """The places of jobs in `dues` by tag, and there by line and priority."""
        batches: dict[str, dict[tuple[Line, int], list[int]]] = defaultdict(dict)
        last: Line | None = None
        last_priority = 0
        order: list[int] = []
        for at, due in enumerate(dues):
            line, priority = due[3], due[4]
            if line is not last or priority != last_priority:
                last, last_priority = line, priority
                order = batches[self._keys.line_tag(line.tenant, line.queue)].setdefault((line, priority), [])
            order.append(at)
        return batches

    def _packed(
        self, tag: str, runs: dict[tuple[Line, int], list[int]], dues: Sequence[Due]
    ) -> list[tuple[list[str | int], list[int]]]:
        """The arguments of each call for a tag, and the places in `dues` of its jobs."""
        calls: list[tuple[list[str | int], list[int]]] = [([], [])]
        for (line, priority), order in runs.items():
            place, text = place_of(line.tenant, line.queue), line_text(line)
            elsewhere = self._totals.elsewhere(line.tenant, tag)
            start = 0
            while start < len(order):
                args, placed = calls[-1]
                piece = order[start : start + JOBS_A_CALL - len(placed)]
                if not piece:
                    calls.append(([], []))
                    continue
                start += len(piece)
                placed += piece
                suspect = "1" if line.suspect else "0"
                args += (
                    place,
                    line.tenant,
                    int(line.lane),
                    suspect,
                    priority,
                    line.handler,
                    text,
                    elsewhere,
                    len(piece),
                )
                for at in piece:
                    due = dues[at]
                    args += (due[1], due[2], due[0])
        return calls
