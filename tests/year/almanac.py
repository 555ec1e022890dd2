"""A thousand schedules in forty zones, as teams define them: most at night or on the hour, some all day long.

All of their occurrences fall on quarters of an hour, so that many are due together. About half of the daily ones lie where clocks
change: in gaps, in repeated hours, at midnights that do not exist. A year of them has about a million occurrences.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime
from itertools import cycle

from tocsin.clock import datetime_of
from tocsin.model.cron import Cron
from tocsin.model.timing import CronTiming, IntervalTiming, Timing
from tocsin.model.zones import Zones
from tocsin.wire import JobTemplate, MissedPolicy, MissedRuns, ScheduleCreate, TaskTarget

# What their clocks do: nothing, an hour forward and back, half an hour, two hours, at midnight, around Ramadan.
ZONES = (
    "UTC",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Africa/El_Aaiun",
    "Africa/Lagos",
    "America/Anchorage",
    "America/Asuncion",
    "America/Bogota",
    "America/Chicago",
    "America/Denver",
    "America/Halifax",
    "America/Havana",
    "America/Los_Angeles",
    "America/Mexico_City",
    "America/New_York",
    "America/Nuuk",
    "America/Phoenix",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Jerusalem",
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "Asia/Shanghai",
    "Asia/Tehran",
    "Asia/Tokyo",
    "Atlantic/Azores",
    "Australia/Adelaide",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Europe/Berlin",
    "Europe/Chisinau",
    "Europe/Dublin",
    "Europe/London",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "Pacific/Easter",
)
# An expression and how many of the thousand have it. `m`: a quarter of the hour; `n`: an hour of the night, `h`: any hour.
CRONS = (
    ("*/15 * * * *", 4),
    ("m * * * *", 30),
    ("m */2 * * *", 12),
    ("m */3 * * *", 30),
    ("0,30 9-17 * * 1-5", 24),
    ("m n * * *", 400),
    ("m h * * *", 200),
    ("m 1,13 * * *", 120),
    ("0 0 * * *", 50),
    ("m n * * 0", 30),
    ("m h 1,15 * 1", 20),
    ("m n 28-31 * *", 20),
)
INTERVALS_H = (6, 8, 12, 24, 36)
INTERVALS = 60
HOUR_MS = 3_600_000
# Runs that are caught up one after another, at most so many.
CATCH_UP = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """A schedule of the almanac: what is asked for, and its timing straight from the model."""

    name: str
    tenant: str
    body: ScheduleCreate
    timing: Timing

    @property
    def policy(self) -> MissedPolicy:
        """What becomes of its missed runs."""
        assert self.body.missed_runs is not None, "each has one"
        return self.body.missed_runs.policy


def almanac(begin: int, zones: Zones, seed: int) -> list[Entry]:
    """The schedules of a year that begins at `begin` (ms), the same for the same seed."""
    chance = random.Random(seed)
    texts = [text for text, count in CRONS for _ in range(count)]
    entries: list[Entry] = []
    for number, (text, zone) in enumerate(zip(texts, cycle(ZONES), strict=False)):
        minute = chance.choice(("0", "0", "0", "30", "30", "15", "45"))
        cron = text.replace("m", minute).replace("n", str(chance.choice((0, 1, 2, 3)))).replace("h", _hour(chance))
        entries.append(_entry(number, chance, CronTiming(Cron.parse(cron), zones.zone(zone)), cron=cron, zone=zone))
    for number in range(INTERVALS):
        every_h = INTERVALS_H[number % len(INTERVALS_H)]
        anchor = begin + chance.randrange(0, 96) * HOUR_MS // 4
        timing = IntervalTiming(every_h * HOUR_MS, anchor)
        entries.append(_entry(len(texts) + number, chance, timing, every_h=every_h, anchor=datetime_of(anchor)))
    return entries


def _hour(chance: random.Random) -> str:
    return str(chance.randrange(24))


def _entry(
    number: int,
    chance: random.Random,
    timing: Timing,
    *,
    cron: str | None = None,
    zone: str | None = None,
    every_h: int | None = None,
    anchor: datetime | None = None,
) -> Entry:
    often = cron is not None and not cron.split()[1].isdigit()
    policies: tuple[MissedPolicy, ...] = ("run_latest", "run_latest", "run_latest", "skip")
    policy = chance.choice(policies if often else (*policies, "run_all"))
    name = f"{number:04} {cron or f'every {every_h} h'} {zone or ''}".strip()
    body = ScheduleCreate(
        name=name,
        cron=cron,
        time_zone=zone,
        every_s=None if every_h is None else every_h * 3_600,
        anchor=anchor,
        job_template=JobTemplate(queue="q", target=TaskTarget(handler="do")),
        missed_runs=MissedRuns(policy=policy, max_catch_up=CATCH_UP),
    )
    return Entry(name, ("acme", "bolt")[number % 2], body, timing)
