"""Follow: when a job of a schedule has ended, what waited for that starts: the next of a backlog, or an occurrence that was held.

Who ends jobs only says so, in memory. A crash makes that forgotten; the sweep looks at every schedule that has something waiting
within three minutes. Two that follow the same end are harmless: one move wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tocsin.clock import Clock
from tocsin.flow.agenda import FAULTS, REFUSED, Agenda, Broken, Entry
from tocsin.flow.ends import Ends
from tocsin.flow.occurrences import Decided, Mover
from tocsin.store.schedules import Moved, ScheduleRow, ScheduleStore
from tocsin.telemetry import log

BATCH = 500
ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Followed:
    """How many ends were looked at, and how many schedules went on."""

    ended: int = 0
    started: int = 0

    @property
    def more(self) -> bool:
        return self.ended > 0


class Follower:
    """Starts what waited for the end of others."""

    name = "follow"
    rhythmic = False

    def __init__(self, schedules: ScheduleStore, mover: Mover, agenda: Agenda, ends: Ends, clock: Clock) -> None:
        self._schedules, self._mover, self._agenda = schedules, mover, agenda
        self._ends, self._clock = ends, clock

    async def step(self) -> Followed:
        """Look at what has ended since the last pass."""
        batch = self._ends.first(BATCH)
        if not batch:
            return Followed()
        pairs = await self._schedules.of_jobs(batch)
        rows = {pair[1].schedule_id: pair[1] for pair in pairs if pair is not None and pair[1] is not None}
        started = await self.go_on(list(rows.values()))
        self._ends.forget(batch)
        return Followed(len(batch), started)

    async def go_on(self, rows: Sequence[ScheduleRow]) -> int:
        """Start what may start of these schedules' backlogs; how many schedules went on."""
        started, waiting = 0, list(rows)
        for _ in range(ROUNDS):
            entries = [entry for row in waiting if (entry := await self._waiting(row)) is not None]
            if not entries:
                break
            looks = await self._agenda.looks(entries)
            decided: list[Decided] = []
            dropped: dict[str, str] = {}
            for entry, look in zip(entries, looks, strict=True):
                step = self._agenda.begin(entry, look)
                try:
                    step.advance()
                except FAULTS as error:
                    step = self._agenda.begin(entry, look)
                    step.give_up_backlogs()
                    dropped[step.schedule_id] = repr(error)
                decided.append(Decided(entry, step, entry.row.tenant, entry.row.name, {}))
            answers = await self._mover.write(decided)
            started += sum(won is Moved.WON for won in answers)
            lost: list[str] = []
            for entry, won in zip(entries, answers, strict=True):
                schedule_id = entry.row.schedule_id
                if won is Moved.REFUSED:
                    await self._agenda.break_off(entry.row, REFUSED)
                elif won is not Moved.WON:
                    lost.append(schedule_id)
                elif schedule_id in dropped:
                    log.error(
                        "backlogs_dropped", schedule=schedule_id, error=dropped[schedule_id], next="it goes on without"
                    )
            waiting = [row for row in await self._schedules.get(lost) if row is not None] if lost else []
        return started

    async def _waiting(self, row: ScheduleRow) -> Entry | None:
        """A schedule that has something waiting; None for all others."""
        try:
            entry = self._agenda.entry(row)
        except Broken as broken:
            if row.status != "broken":
                await self._agenda.break_off(row, str(broken))
            return None
        return entry if entry.state.held or entry.state.backlogs else None

    async def next_at(self) -> int | None:
        return self._clock.now_ms() if self._ends.first(1) else None

    async def rest(self, timeout_s: float) -> None:
        await self._ends.wait(timeout_s)
