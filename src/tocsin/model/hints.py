"""Hints: what somebody who defines a schedule may not expect of it, each with the way out.

Pure; stands beside `explain`. A hint refuses nothing and is not stored: the same schedule may get other hints next year, when the
clocks change on other dates. They speak of the wrong minute, of days that not every month has, of local times that the zone
skips or repeats within a year, and of the ways in which cron's fields mislead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from hashlib import blake2b
from statistics import median
from typing import NamedTuple

from tocsin.clock import datetime_of, rfc3339
from tocsin.model.cron import MINUTES_A_DAY, Cron
from tocsin.model.explain import MONTHS, days_of, listed, numbers
from tocsin.model.zones import DAY_MS, FIRST_MS, LAST_MS, MINUTE_MS, offsets

_YEAR_MS = 366 * DAY_MS
# A schedule of more minutes than these has no minute that it could move to.
_FEW_MINUTES = 4
# The minutes at which people, and other schedulers, put most of their work.
_POPULAR = (0, 15, 30, 45)
# From so many schedules on, if it is also twice what the usual minute has, a minute is crowded.
_CROWD = 100
_DAYS_IN = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# Beyond, nobody means a pace.
_LONG_STEP = 10_000
_STEP = re.compile(r"\*/(\d+)\Z")


def hints(cron: Cron, zone: tzinfo, now_ms: int, crowd: Sequence[int] | None) -> list[str]:
    """What to know about `cron` in `zone` (its name is `str(zone)`) within a year from now. `crowd`: how many schedules of the
    installation run in each of the 60 minutes of the hour."""
    return [
        *_about_day_fields(cron),
        *_about_missing_days(cron, zone, now_ms),
        *_about_clock_changes(cron, zone, now_ms),
        *_about_uneven_steps(cron),
        *_about_crowds(cron, zone, crowd),
    ]


def interval_hints(every_s: float) -> list[str]:
    """What to know about an interval."""
    if every_s % 86_400:
        return []
    return [
        "This follows elapsed time, not the wall clock: where clocks change, its time of day moves. For a time of day use cron."
    ]


def _about_day_fields(cron: Cron) -> Iterator[str]:
    """How the two day fields combine, where both leave days out (crontab(5); the star's part is in the source of Vixie's cron)."""
    if cron.day_restricted and cron.weekday_restricted:
        yield f"Both day fields are given, so it runs when either matches: {days_of(cron)}. For one of them only, put * into the other."
    elif len(cron.days) < 31 and len(cron.weekdays) < 7:
        day, weekday = _fields(cron)[2], _fields(cron)[4]
        spelled = [] if cron.day_restricted else [f"1-31{day[1:]} for {day}"]
        spelled += [] if cron.weekday_restricted else [f"0-6{weekday[1:]} for {weekday}"]
        yield (
            f"A day field that begins with a star must match together with the other one: {days_of(cron)}. "
            f"To run when either matches, write {listed(spelled)}."
        )


def _about_missing_days(cron: Cron, zone: tzinfo, now_ms: int) -> Iterator[str]:
    if not cron.day_restricted:
        return  # a star means what there is
    dates = {(month, day) for month in cron.months for day in cron.days if day <= _DAYS_IN[month - 1]}
    if dates == {(2, 29)} and not cron.weekday_restricted:
        soonest = cron.first(_local_minute(zone, now_ms) + 1)
        following = "" if soonest is None else f", next in {_date(soonest)[:4]}"
        yield f"29 February is in leap years only{following}. For every year take day 28, or 1 March."
        return
    parts: list[str] = []
    for day in sorted({29, 30, 31}.intersection(cron.days)):
        without = [month for month in cron.months if day > _DAYS_IN[month - 1]]
        names = [MONTHS[month - 1] for month in without]
        if day == 29 and 2 in cron.months:
            names = ["February outside leap years"]
        if names:
            parts.append(f"{'day' if parts else 'Day'} {day} {'' if parts else 'is missing '}in {listed(names)}")
    if parts:
        yield f"{listed(parts)}: nothing runs for it there. Days 1 to 28 are in every month."


class _Change(NamedTuple):
    """A change of a zone's clocks, at the instant `at` (ms). The local minutes [low, high) are skipped or come twice by it."""

    at: int
    low: int
    high: int
    skips: bool


def _about_clock_changes(cron: Cron, zone: tzinfo, now_ms: int) -> Iterator[str]:
    """The next skipped and the next repeated local time of a schedule, within a year."""
    if cron.follows_elapsed_time:
        return
    told: set[bool] = set()
    for change in _changes(zone, now_ms, now_ms + _YEAR_MS):
        first = cron.first(change.low)
        if first is None or first >= change.high or change.skips in told:
            continue
        told.add(change.skips)
        times = _Times(cron.count(change.low, change.high), first, cron.last(change.high - 1) or first)
        yield _of_gap(zone, change, times) if change.skips else _of_repeat(zone, change, times)


def _changes(zone: tzinfo, after: int, until: int) -> Iterator[_Change]:
    """A zone's changes at instants of (after, until]."""
    known, at, found = offsets(zone), max(after, FIRST_MS), after
    while at <= min(until, LAST_MS):
        stretch = known.at(at)
        at = stretch.end
        # A stretch may be cut, and then tells of its change again.
        change = stretch.first * MINUTE_MS - stretch.offset
        if found < change <= until:
            if stretch.skipped < stretch.first:
                yield _Change(change, stretch.skipped, stretch.first, skips=True)
            elif stretch.fresh > stretch.first:
                yield _Change(change, stretch.first, stretch.fresh, skips=False)
            found = change


class _Times(NamedTuple):
    """Local minutes of a schedule: how many, the first, the last."""

    number: int
    first: int
    last: int

    def __str__(self) -> str:
        return f"its {self.number} times from {_time(self.first)} to {_time(self.last)}"


def _of_gap(zone: tzinfo, change: _Change, times: _Times) -> str:
    resumed = _time(change.high, change.low)
    if times.number == 1:
        what = f"{_time(times.first)} does not exist that day, and it runs once at {resumed} instead"
    else:
        what = f"{times} do not exist that day, and one run at {resumed} stands for them"
    return (
        f"On {_date(change.low)} the clocks of {zone} go forward from {_time(change.low)} to {resumed}: {what}."
        f"{_avoided(change)}"
    )


def _of_repeat(zone: tzinfo, change: _Change, times: _Times) -> str:
    once = rfc3339(change.at - (change.high - times.first) * MINUTE_MS)
    if times.number == 1:
        what = f"{_time(times.first)} comes twice, and it runs once, the first time ({once})"
    else:
        what = f"{times} come twice, and each runs once, the first time (from {once} on)"
    return (
        f"On {_date(change.low)} the clocks of {zone} go back from {_time(change.high, change.low)} to {_time(change.low)}: {what}."
        f"{_avoided(change)}"
    )


def _avoided(change: _Change) -> str:
    """The way out: a time of day outside of the change."""
    if change.high - change.low >= MINUTES_A_DAY:
        return ""
    sides = [f"before {_time(change.low)}"] if change.low % MINUTES_A_DAY else []
    sides += [f"from {_time(change.high)} on"] if change.high % MINUTES_A_DAY else []
    return f" A time {' or '.join(sides)} avoids that."


def _local_minute(zone: tzinfo, at: int) -> int:
    at = min(max(at, FIRST_MS), LAST_MS)
    return (at + offsets(zone).at(at).offset) // MINUTE_MS


def _date(minute: int) -> str:
    return datetime_of(minute * MINUTE_MS).date().isoformat()


def _time(minute: int, seen: int | None = None) -> str:
    """A local minute's time of day, with the date where it is another one than `seen`'s."""
    rest = minute % MINUTES_A_DAY
    time = f"{rest // 60:02d}:{rest % 60:02d}"
    return time if seen is None or minute // MINUTES_A_DAY == seen // MINUTES_A_DAY else f"{time} on {_date(minute)}"


def _about_uneven_steps(cron: Cron) -> Iterator[str]:
    """`*/45` is not "every 45 minutes": each hour starts it again."""
    minute, hour, *others = _fields(cron)
    if others != ["*", "*", "*"]:
        return
    if hour == "*" and (step := _uneven(minute, 60)):
        yield (
            f"{minute} starts again with every hour, at {_minutes(cron.minutes)}. "
            f"For an even pace of {step} minutes take an interval: every_s {step * 60}."
        )
    elif len(cron.minutes) == 1 and (step := _uneven(hour, 24)):
        yield (
            f"{hour} starts again with every day, at {'hour' if len(cron.hours) == 1 else 'hours'} {numbers(cron.hours)}. "
            f"For an even pace of {step} hours take an interval: every_s {step * 3600}."
        )


def _uneven(text: str, span: int) -> int | None:
    found = _STEP.match(text)
    step = int(found[1]) if found else 1
    return step if span % step and step < _LONG_STEP else None


def _about_crowds(cron: Cron, zone: tzinfo, crowd: Sequence[int] | None) -> Iterator[str]:
    minutes = list(cron.minutes)
    counts = crowd if crowd is not None and len(crowd) == 60 else [0] * 60
    crowded = [minute for minute in minutes if _is_crowded(minute, counts)]
    if len(minutes) > _FEW_MINUTES or not crowded:
        return

    def rank(moved: Sequence[int]) -> tuple[int, bool, bytes]:
        by_chance = blake2b(f"{cron.text}\0{zone}\0{moved[0]}".encode(), digest_size=8).digest()
        return sum(counts[minute] for minute in moved), any(minute % 5 == 0 for minute in moved), by_chance

    # All minutes move alike, so that the pauses between them stay.
    moves = [sorted((minute + by) % 60 for minute in minutes) for by in range(1, 60)]
    best = min((moved for moved in moves if moved != minutes), key=rank)
    if rank(best)[0] > rank(minutes)[0]:
        return
    yield (
        f"Many schedules run at {_minutes(crowded)}. If yours need not, {_minutes(best)} {'is' if len(best) == 1 else 'are'} quieter: "
        f"{' '.join([_minute_field(best), *_fields(cron)[1:]])}"
    )


def _is_crowded(minute: int, counts: Sequence[int]) -> bool:
    usual = median(counts)
    if minute in _POPULAR:
        return sum(counts) < _CROWD or counts[minute] > usual  # a new installation says nothing yet
    return counts[minute] >= _CROWD and counts[minute] > 2 * usual


def _minutes(minutes: Sequence[int]) -> str:
    return f"{'minute' if len(minutes) == 1 else 'minutes'} {numbers(minutes)}"


def _minute_field(minutes: Sequence[int]) -> str:
    pace = 60 // len(minutes)
    if len(minutes) > 2 and list(minutes) == list(range(minutes[0], 60, pace)):
        return f"{minutes[0]}-59/{pace}"
    return ",".join(map(str, minutes))


def _fields(cron: Cron) -> list[str]:
    """The five fields as they were written; those of `@daily` and its kin as they could have been."""
    if not cron.text.strip().startswith("@"):
        return cron.text.split()
    sets = (cron.minutes, 60), (cron.hours, 24), (cron.days, 31), (cron.months, 12), (cron.weekdays, 7)
    return ["*" if len(values) == every else ",".join(map(str, values)) for values, every in sets]
