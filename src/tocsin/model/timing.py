"""When a schedule's runs fall: instants, from a cron expression in a time zone or from an interval.

The rule for a clock that is changed. A schedule at fixed hours means the clock on the wall, once a day: a local time that the change
skips is made up for at the first whole minute after it (several of one gap make one run, and none of its own if that minute runs
anyway), and a local time that comes twice runs the first time. A schedule whose hour field is `*` or `*/n` means elapsed time: it
runs in both passes of a repeated hour and makes up for nothing.

How a run is found, in either direction: take the stretch of unchanging offset that holds the instant (`zones.Offsets`), ask the
expression for the nearest matching local minute, and take it if it still lies in the stretch. Otherwise go on at the next stretch
that can hold it, so that a run forty years away costs a handful of steps. Counting is the same with whole days added up.

Pure: nothing here reads a clock. Instants are milliseconds since 1970, in UTC.
"""

from __future__ import annotations

from datetime import tzinfo
from typing import Literal, NamedTuple, Protocol

from tocsin.model.cron import Cron
from tocsin.model.zones import CYCLE_DAYS, DAY_MS, FIRST_MS, LAST_MS, MINUTE_MS, RULES_MS, Stretch, minute_from, offsets

Note = Literal["gap", "repeat"]


class Run(NamedTuple):
    """One run: `offset_s` is the zone's offset from UTC at that instant. `note` is `gap` when it makes up for a local time that
    does not exist that day, `repeat` when its local time comes twice."""

    at: int
    offset_s: int
    note: Note | None


class Timing(Protocol):
    """When runs fall."""

    def next(self, after: int) -> Run | None:
        """The first run later than `after`; None: never again before the year 10000."""
        ...

    def last(self, before: int) -> Run | None:
        """The newest run earlier than `before`; None: never since the year 1."""
        ...

    def count(self, after: int, until: int) -> int:
        """How many runs lie in (after, until]; years cost little more than days."""
        ...


class CronTiming:
    """The runs of a cron expression in a zone."""

    __slots__ = ("_cron", "_fixed", "_latest", "_offsets")

    def __init__(self, cron: Cron, zone: tzinfo) -> None:
        self._cron = cron
        self._fixed = not cron.follows_elapsed_time
        self._offsets = offsets(zone)
        self._latest: tuple[int, Run | None] = (LAST_MS, None)

    def next(self, after: int) -> Run | None:
        # Schedules of one expression and zone share this object and ask the same when they fall due together.
        known, run = self._latest
        if known != after:
            run = self._next(after)
            self._latest = (after, run)
        return run

    def _next(self, after: int) -> Run | None:
        instant = max(after + 1, FIRST_MS)
        while instant <= LAST_MS:
            stretch = self._offsets.at(instant)
            low = minute_from(instant + stretch.offset)
            if self._fixed:
                if low <= stretch.first and self._makes_up(stretch):
                    return self._run(stretch, stretch.first)
                low = max(low, stretch.fresh)
            minute = self._cron.first(low)
            if minute is not None and minute <= stretch.last:
                return self._run(stretch, minute)
            if stretch.end - instant <= 2 * DAY_MS:
                instant = stretch.end  # the clocks may go back here, to minutes before `low`
            elif minute is None:
                return None
            else:
                instant = max(stretch.end, minute * MINUTE_MS - DAY_MS)
        return None

    def last(self, before: int) -> Run | None:
        instant = min(before - 1, LAST_MS)
        while instant >= FIRST_MS:
            stretch = self._offsets.at(instant)
            high = min((instant + stretch.offset) // MINUTE_MS, stretch.last)
            minute = self._cron.last(high)
            if minute is not None and minute >= (stretch.fresh if self._fixed else stretch.first):
                return self._run(stretch, minute)
            if self._fixed and high >= stretch.first and self._makes_up(stretch):
                return self._run(stretch, stretch.first)
            if instant - stretch.start <= 2 * DAY_MS:
                instant = stretch.start - 1  # before clocks that went back there are minutes after `high`
            elif minute is None:
                return None
            else:
                instant = min(stretch.start - 1, (minute + 1) * MINUTE_MS + DAY_MS)
        return None

    def count(self, after: int, until: int) -> int:
        start, until = max(after, FIRST_MS - 1), min(until, LAST_MS)
        cycle_ms = CYCLE_DAYS * DAY_MS
        known = max(start, RULES_MS)
        cycles = (until - known) // cycle_ms
        if cycles < 1:
            return self._count(start, until)
        whole = cycles * self._count(known, known + cycle_ms)
        return self._count(start, known) + whole + self._count(known + cycles * cycle_ms, until)

    def _count(self, after: int, until: int) -> int:
        total = 0
        instant = after + 1
        while instant <= until:
            stretch = self._offsets.at(instant)
            end = min(stretch.end, until + 1)
            low, high = minute_from(instant + stretch.offset), (end - 1 + stretch.offset) // MINUTE_MS
            if self._fixed:
                made_up = low <= stretch.first <= high and self._makes_up(stretch)
                total += made_up and not self._cron.matches(stretch.first)
                low = max(low, stretch.fresh)
            total += self._cron.count(low, high + 1)
            instant = end
        return total

    def _makes_up(self, stretch: Stretch) -> bool:
        """Whether the change at the beginning of a stretch skips a matching minute."""
        if stretch.skipped == stretch.first:
            return False
        minute = self._cron.first(stretch.skipped)
        return minute is not None and minute < stretch.first

    def _run(self, stretch: Stretch, minute: int) -> Run | None:
        at = minute * MINUTE_MS - stretch.offset
        if not FIRST_MS <= at <= LAST_MS:
            return None
        note: Note | None = None
        if minute >= stretch.twice or minute < stretch.fresh:
            note = "repeat"
        elif self._fixed and minute == stretch.first and self._makes_up(stretch):
            note = "gap"
        return Run(at, stretch.offset // 1_000, note)


class IntervalTiming:
    """Runs at `anchor + k x every_ms` for every whole number k, in elapsed time: no zone and no change of clocks matters."""

    __slots__ = ("_anchor", "_every")

    def __init__(self, every_ms: int, anchor: int) -> None:
        if every_ms < 1:
            raise ValueError("an interval is at least a millisecond")
        self._every, self._anchor = every_ms, anchor

    def next(self, after: int) -> Run | None:
        after = max(after, FIRST_MS - 1)
        at = self._anchor + ((after - self._anchor) // self._every + 1) * self._every
        return Run(at, 0, None) if at <= LAST_MS else None

    def last(self, before: int) -> Run | None:
        before = min(before, LAST_MS + 1)
        at = self._anchor + ((before - 1 - self._anchor) // self._every) * self._every
        return Run(at, 0, None) if at >= FIRST_MS else None

    def count(self, after: int, until: int) -> int:
        after, until = max(after, FIRST_MS - 1), min(until, LAST_MS)
        if until <= after:
            return 0
        return (until - self._anchor) // self._every - (after - self._anchor) // self._every
