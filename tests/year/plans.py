"""When the server of a year is down: now and then, or always but around the days on which clocks change."""

from __future__ import annotations

import random
from datetime import UTC, datetime

from tests.year.year import DAY_MS, MINUTE_MS, YEAR_MS, Outage
from tocsin.clock import ms_of

# Outages are over some minutes after a quarter of an hour, so that what they left behind is done before the next one.
PAST_MS = 7 * MINUTE_MS
QUARTER_MS = 15 * MINUTE_MS
OUTAGES = 40
OUTAGES_MIN = (20, 45, 100, 300, 900, 2_000, 5_760)
Mark = tuple[int, int, int]
# From when to when (month, day, hour) it runs in the short year: the first day, then where most clocks change.
WINDOWS: tuple[tuple[Mark, Mark], ...] = (
    ((1, 1, 0), (1, 1, 9)),
    ((2, 6, 23), (2, 7, 4)),  # Morocco, before Ramadan
    ((3, 14, 1), (3, 14, 13)),  # North America, and Morocco after Ramadan
    ((3, 27, 20), (3, 28, 12)),  # Europe, the Levant, Antarctica
    ((4, 3, 13), (4, 4, 10)),  # Australia, New Zealand, Chile
    ((10, 2, 14), (10, 3, 2)),  # Australia
    ((10, 30, 20), (10, 31, 14)),  # Europe
    ((11, 7, 1), (11, 7, 13)),  # North America
)


def all_year(begin: int, seed: int) -> list[Outage]:
    """Outages of minutes to days at random instants of a year; most begin with a crash."""
    chance = random.Random(seed)
    first = begin - begin % QUARTER_MS
    share = (YEAR_MS - DAY_MS) // OUTAGES
    outages = []
    for number in range(OUTAGES):
        length = chance.choice(OUTAGES_MIN) * MINUTE_MS
        down = first + number * share + chance.randrange(QUARTER_MS, share - length - DAY_MS)
        up = (down + length) // QUARTER_MS * QUARTER_MS + PAST_MS + chance.randrange(MINUTE_MS)
        outages.append(Outage(down, up, crash=chance.random() < 0.75))
    return outages


def around_clock_changes(year: int, changes: slice = slice(None)) -> tuple[list[Outage], int]:
    """Outages of weeks and months, and when (ms) it all ends: it runs on the first day and around these changes of clocks."""
    marks = [_at(year, mark) for window in (WINDOWS[0], *WINDOWS[1:][changes]) for mark in window]
    outages = [
        Outage(down, up + PAST_MS, crash=number % 2 == 0)
        for number, (down, up) in enumerate(zip(marks[1::2], marks[2::2], strict=False))
    ]
    return outages, marks[-1]


def _at(year: int, mark: Mark) -> int:
    month, day, hour = mark
    return ms_of(datetime(year, month, day, hour, tzinfo=UTC))
