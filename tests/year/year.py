"""A year in the life of a server with a thousand schedules, in virtual time: it crashes, it is down, it comes back.

The real stages over a real file: schedules are created as their owners do, their occurrences fire, a worker completes them. Time
goes from one instant at which something is due to the next. At random instants the process dies somewhere in the work that is due
there, between two steps of the writer or around a call of the near tier, and another one starts: at once, or after an outage.

    created ─▶ instant ─▶ instant ─x crash, restart ─▶ instant ─x crash, outage …… restart, what was missed ─▶ instant ─▶ … end
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.life.disk import Crashed
from tests.life.sqliteworld import SqliteWorld
from tests.year.almanac import Entry, almanac
from tests.year.expected import Expected, Skipped
from tests.year.worker import Worker
from tocsin.clock import ms_of
from tocsin.errors import ServerUnavailable
from tocsin.model.schedule import decode_state
from tocsin.service import Conductor
from tocsin.wire import Status

BEGIN = datetime(2027, 1, 1, 0, 5, tzinfo=UTC)
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
YEAR_MS = 365 * DAY_MS
# A crash strikes after so many points at most, about what the work of one instant passes.
POINTS = 60


@dataclass(frozen=True, slots=True)
class Outage:
    """Nothing runs from `down` to `up`. `crash`: the process dies in the middle of what is due at `down`."""

    down: int
    up: int
    crash: bool = True


@dataclass(slots=True)
class Result:
    """What the year has come to."""

    instants: int = 0
    occurrences: int = 0
    crashes: int = 0
    outages: int = 0
    restarts: int = 0


class Year:
    """One run of the year over a file in `folder`, the same for the same seed."""

    def __init__(
        self, folder: Path, outages: Sequence[Outage], *, crash_every: int, length_ms: int = YEAR_MS, seed: int = 1
    ) -> None:
        # A worker that could not report before an outage does so after it: the job must still be known then.
        longest = max((outage.up - outage.down for outage in outages), default=0)
        retention_s = (longest + DAY_MS) // 1_000
        self._world = SqliteWorld(
            folder, seed=seed, partitions=1, start=BEGIN, retention_s=retention_s, gap_s=float("inf")
        )
        self._begin = ms_of(BEGIN)
        self._end = self._begin + length_ms
        self._outages, self._crash_every = outages, crash_every
        self._chance = random.Random(seed)
        self.entries: list[Entry] = almanac(self._begin, self._world.zones, seed)
        self.expected = Expected(self.entries, self._begin)
        self.worker = Worker(self._world)
        self._names: dict[str, str] = {}
        self._upkeep_at = 0
        # The skips of each schedule by their keys: they are read after each outage, because the archive ends them, too.
        self._skips: dict[str, dict[tuple[int, str], Skipped]] = defaultdict(dict)
        self.result = Result()

    async def run(self, tell: Callable[[int, Result], None] = lambda now, result: None) -> Result:
        """Live through it; `tell` hears how far it has come."""
        await self._world.start()
        for entry in self.entries:
            made = await self._world.on.define.create(entry.tenant, entry.body)
            self._names[made.schedule_id] = entry.name
        for outage in self._outages:
            await self._live(outage.down, tell)
            await self._go_down(outage)
        await self._live(self._end, tell)
        self._world.clock.advance(120)  # what a crash has left behind is found within a minute
        await self._settled()
        self.result.occurrences = self.worker.completed
        return self.result

    async def check(self) -> None:
        """What ran and what was skipped is what the model says, and every schedule waits for its next occurrence."""
        schedules = self._world.on.store.schedules
        rows = await schedules.get(list(self._names))
        for course, row in zip(self.expected.courses, rows, strict=True):
            assert row is not None, f"{course.entry.name} is gone"
            ran = sorted(self.worker.ran[row.schedule_id])
            assert ran == course.runs, _difference(course.entry.name, course.runs, ran)
            skips = sorted(self._skips[row.schedule_id].values())
            assert skips == course.skips, f"{course.entry.name} skipped {skips}, expected {course.skips}"
            state = decode_state(row.state)
            assert state.next_at == course.next_at, f"{course.entry.name} waits for {state.next_at}"
            assert state.runs == len(ran), f"{course.entry.name} counts {state.runs} runs, it had {len(ran)}"
            assert not state.held, f"{course.entry.name} still holds {state.held}"
            assert not state.backlogs, f"{course.entry.name} still has {state.backlogs}"
        live = await self._world.on.store.jobs.live_counts()
        assert {status for _, _, status in live} == {Status.SCHEDULED}, live
        assert sum(live.values()) == len(self.entries), live

    async def close(self) -> None:
        """Let go of the file."""
        self._world.fault.clear()
        await self._world.stop()

    # --- time

    async def _live(self, until: int, tell: Callable[[int, Result], None]) -> None:
        """The process runs until that instant, whose own occurrences are still to come."""
        clock = self._world.clock
        for at in self._instants(until):
            clock.advance_to(at)
            crash = self._chance.randrange(self._crash_every) == 0
            await self._settled(self._chance.randrange(POINTS) if crash else None)
            self.expected.due(at)
            self.result.instants += 1
            self.result.occurrences = self.worker.completed
            tell(at, self.result)

    def _instants(self, until: int) -> Iterator[int]:
        while (at := self.expected.next_at) < until:
            yield at

    async def _go_down(self, outage: Outage) -> None:
        """Die, perhaps in the middle of what is due, and be back when the outage is over."""
        world, undecided = self._world, set[str]()
        self.result.outages += 1
        world.clock.advance_to(self.expected.next_at)
        if outage.crash:
            world.fault.after(self._chance.randrange(POINTS))
            try:
                await self._rounds()
            except (Crashed, ServerUnavailable):
                self.result.crashes += 1
            world.fault.clear()
            undecided = await self._undecided()
        else:
            await self._settled()
        world.clock.advance_to(outage.up)
        await self._start()
        await self._settled(self._chance.randrange(POINTS))
        self.expected.outage(world.clock.now_ms(), undecided)
        await self._read_skips()

    async def _read_skips(self) -> None:
        for schedule_id in self._names:
            for one in await self._world.on.store.schedules.skips(schedule_id, None, 2):
                skip = Skipped(one.first, one.last, one.count, one.reason)
                self._skips[schedule_id][one.first, one.reason] = skip

    async def _undecided(self) -> set[str]:
        """The schedules that have not moved on from this instant, by their rows: a crash came before or after each move."""
        await self._world.boot()
        rows = await self._world.on.store.schedules.get(list(self._names))
        now = self._world.clock.now_ms()
        return {
            self._names[row.schedule_id]
            for row in rows
            if row is not None and (decode_state(row.state).next_at or 0) <= now
        }

    # --- one instant

    async def _settled(self, crash_after: int | None = None) -> None:
        """Do all that is due now; with `crash_after` the process dies after so many points and another does the rest."""
        if crash_after is not None:
            self._world.fault.after(crash_after)
        while True:
            try:
                await self._rounds()
                break
            except (Crashed, ServerUnavailable):
                self.result.crashes += 1
                await self._start()
        self._world.fault.clear()

    async def _start(self) -> None:
        self.result.restarts += 1
        self._upkeep_at = 0
        await self._world.restart()

    async def _rounds(self) -> None:
        on, clock = self._world.on, self._world.clock
        while True:
            await self._stages()
            if await self.worker.work():
                continue
            soon = await on.dispatch.next_at()  # catching up is spread over a few seconds
            if soon is None or soon > clock.now_ms() + MINUTE_MS:
                return
            clock.advance_to(soon)

    async def _stages(self) -> None:
        """What fires occurrences runs at each instant; the upkeep, which would be most of the work, runs every three hours."""
        on, now = self._world.on, self._world.clock.now_ms()
        if now >= self._upkeep_at:
            await self._world.settle()
            self._upkeep_at = now + 3 * HOUR_MS
        else:
            await Conductor((on.load, on.dispatch, on.follow, on.rescue), self._world.clock).settle()


def _difference(name: str, expected: Sequence[int], ran: Sequence[int]) -> str:
    missing, extra = sorted(set(expected) - set(ran)), sorted(set(ran) - set(expected))
    twice = sorted({at for at in ran if ran.count(at) > 1}) if len(ran) != len(set(ran)) else []
    return f"{name}: did not run {missing[:10]}, ran though it should not {extra[:10]}, ran twice {twice[:10]}"
