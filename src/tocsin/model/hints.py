"""Hints: what somebody who defines a schedule may not expect of it, each with the way out.

Pure; stands beside `explain`. A hint refuses nothing and is not stored: the same schedule may get other hints next year, when the
clocks change on other dates. They speak of the wrong minute, of days that not every month has, of local times that the zone
skips or repeats within a year, and of the ways in which cron's fields mislead.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import date, datetime, timedelta, tzinfo
from functools import lru_cache
from hashlib import blake2b
from statistics import median
from typing import NamedTuple

from tocsin.clock import EPOCH, datetime_of, ms_of, rfc3339
from tocsin.model.cron import Cron
from tocsin.model.explain import MONTHS, days_of, listed, numbers

_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
_YEAR_MS = 366 * _DAY_MS
# Offsets are compared at so many ms; no zone of these decades changes twice in between.
_LOOK_MS = _DAY_MS // 2
# The clock's range in which there are offsets to compare.
_LAST_MS = ms_of(datetime.max.replace(tzinfo=EPOCH.tzinfo)) - 2 * _YEAR_MS
# A schedule of more minutes than these has no minute that it could move to.
_FEW_MINUTES = 4
# The minutes at which people, and other schedulers, put most of their work.
_POPULAR = (0, 15, 30, 45)
# From so many schedules on, if it is also twice what the usual minute has, a minute is crowded.
_CROWD = 100
_DAYS_IN = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# The Gregorian calendar repeats after so many years.
_CYCLE = 400
_STEP = re.compile(r"\*/(\d+)\Z")
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


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
        spelled = f"1-31{day[1:]}" if not cron.day_restricted else f"0-6{weekday[1:]}"
        starred = day if not cron.day_restricted else weekday
        both = not (cron.day_restricted or cron.weekday_restricted)
        if both:
            spelled += f" and 0-6{weekday[1:]}"
            starred += f" and {weekday}"
        yield (
            f"A day field that begins with a star must match together with the other one: {days_of(cron)}. "
            f"To run when either matches, write {spelled} for {starred}."
        )


def _about_missing_days(cron: Cron, zone: tzinfo, now_ms: int) -> Iterator[str]:
    if not cron.day_restricted:
        return  # a star means what there is
    dates = {(month, day) for month in cron.months for day in cron.days if day <= _DAYS_IN[month - 1]}
    if dates == {(2, 29)} and not cron.weekday_restricted:
        year = _next_leap_year(cron, zone, now_ms)
        yield f"29 February is in leap years only, next in {year}. For every year take day 28, or 1 March."
        return
    parts: list[str] = []
    for day in sorted(cron.days & {29, 30, 31} if isinstance(cron.days, frozenset) else set(cron.days) & {29, 30, 31}):
        without = [month for month in sorted(cron.months) if day > _DAYS_IN[month - 1]]
        names = [MONTHS[month - 1] for month in without]
        if day == 29 and 2 in cron.months:
            names = ["February outside leap years"]
        if names:
            parts.append(f"{'day' if parts else 'Day'} {day} {'' if parts else 'is missing '}in {listed(names)}")
    if parts:
        yield f"{listed(parts)}: nothing runs for it there. Days 1 to 28 are in every month."


def _next_leap_year(cron: Cron, zone: tzinfo, now_ms: int) -> int:
    today = datetime_of(min(max(now_ms, 0), _LAST_MS)).astimezone(zone).date()
    for year in range(today.year, today.year + _CYCLE + 8):
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        if leap and (day := date(year, 2, 29)) > today and day.isoweekday() % 7 in cron.weekdays:
            return year
    raise AssertionError("29 February falls on each day of the week within 400 years")


class _Change(NamedTuple):
    """A change of a zone's offset: the instant (ms), and the wall clock just before and at it, without an offset."""

    at: int
    old: datetime
    new: datetime


def _about_clock_changes(cron: Cron, zone: tzinfo, now_ms: int) -> Iterator[str]:
    """The next skipped and the next repeated local time of a schedule, within a year."""
    if cron.follows_elapsed_time:
        return
    told: set[bool] = set()
    for change in _changes(zone, now_ms // _DAY_MS):
        gap = change.new > change.old
        if change.at <= now_ms or gap in told:
            continue
        times = _times_between(cron, *sorted((change.old, change.new)))
        if times:
            told.add(gap)
            yield _of_gap(zone, change, times) if gap else _of_repeat(zone, change, times)


def _of_gap(zone: tzinfo, change: _Change, times: Sequence[datetime]) -> str:
    first, resumed = times[0], _time(change.new, change.old)
    if len(times) == 1:
        what = f"{first:%H:%M} does not exist that day, and it runs once at {resumed} instead"
    else:
        what = f"{_span(times)} do not exist that day, and one run at {resumed} stands for them"
    return (
        f"On {change.old:%Y-%m-%d} the clocks of {zone} go forward from {change.old:%H:%M} to {resumed}: {what}."
        f"{_avoided(change.old, change.new)}"
    )


def _of_repeat(zone: tzinfo, change: _Change, times: Sequence[datetime]) -> str:
    first = times[0]
    once = rfc3339(change.at - (change.old - first) // timedelta(milliseconds=1))
    if len(times) == 1:
        what = f"{first:%H:%M} comes twice, and it runs once, the first time ({once})"
    else:
        what = f"{_span(times)} come twice, and each runs once, the first time (from {once} on)"
    return (
        f"On {first:%Y-%m-%d} the clocks of {zone} go back from {_time(change.old, first)} to {_time(change.new, first)}: {what}."
        f"{_avoided(change.new, change.old)}"
    )


def _span(times: Sequence[datetime]) -> str:
    return f"its {len(times)} times from {times[0]:%H:%M} to {times[-1]:%H:%M}"


def _time(moment: datetime, seen: datetime) -> str:
    """The time of day, with the date where it is another one than `seen`'s."""
    return f"{moment:%H:%M}" if moment.date() == seen.date() else f"{moment:%H:%M on %Y-%m-%d}"


def _avoided(first: datetime, end: datetime) -> str:
    """Which times of the day lie outside [first, end)."""
    sides = [f"before {first:%H:%M}"] if first.hour or first.minute else []
    sides += [f"from {end:%H:%M} on"] if end.hour or end.minute else []
    if end - first >= timedelta(days=1) or not sides:
        return ""
    return f" A time {' or '.join(sides)} avoids that."


def _times_between(cron: Cron, first: datetime, end: datetime) -> list[datetime]:
    """The local times of a schedule in [first, end), which is a day long at most."""
    at = first + timedelta(seconds=-first.second % 60)
    times: list[datetime] = []
    while at < end:
        if at.minute in cron.minutes and at.hour in cron.hours and _on_day(cron, at):
            times.append(at)
        at += timedelta(minutes=1)
    return times


def _on_day(cron: Cron, day: date) -> bool:
    by_day, by_weekday = day.day in cron.days, day.isoweekday() % 7 in cron.weekdays
    either = cron.day_restricted and cron.weekday_restricted
    return day.month in cron.months and (by_day or by_weekday if either else by_day and by_weekday)


@lru_cache(maxsize=1024)
def _changes(zone: tzinfo, today: int) -> tuple[_Change, ...]:
    """A zone's changes of offset within a year from the start of a day (days since 1970)."""
    at = today * _DAY_MS
    if not 0 <= at <= _LAST_MS:
        return ()
    found: list[_Change] = []
    until, offset = at + _YEAR_MS + _DAY_MS, _offset(zone, at)
    while at < until:
        later = _offset(zone, at + _LOOK_MS)
        if later != offset:
            low, high = at, at + _LOOK_MS
            while high - low > 1000:
                middle = (low + high) // 2000 * 1000
                low, high = (middle, high) if _offset(zone, middle) == offset else (low, middle)
            utc = datetime_of(high).replace(tzinfo=None)
            found.append(_Change(high, utc + offset, utc + later))
        at, offset = at + _LOOK_MS, later
    return tuple(found)


def _offset(zone: tzinfo, at_ms: int) -> timedelta:
    return datetime_of(at_ms).astimezone(zone).utcoffset() or timedelta()


def _about_uneven_steps(cron: Cron) -> Iterator[str]:
    """`*/45` is not "every 45 minutes": each hour starts it again."""
    minute, hour, *others = _fields(cron)
    if others != ["*", "*", "*"]:
        return
    if hour == "*" and (step := _uneven(minute, 60)):
        yield (
            f"{minute} starts again with every hour, at {_minutes(sorted(cron.minutes))}. "
            f"For an even pace of {step} minutes take an interval: every_s {step * 60}."
        )
    elif len(cron.minutes) == 1 and (step := _uneven(hour, 24)):
        yield (
            f"{hour} starts again with every day (hours {numbers(sorted(cron.hours))}). "
            f"For an even pace of {step} hours take an interval: every_s {step * 3600}."
        )


def _uneven(text: str, span: int) -> int | None:
    found = _STEP.match(text)
    step = int(found[1]) if found else 1
    return step if span % step else None


def _about_crowds(cron: Cron, zone: tzinfo, crowd: Sequence[int] | None) -> Iterator[str]:
    minutes = sorted(cron.minutes)
    if len(minutes) > _FEW_MINUTES:
        return
    counts = crowd if crowd is not None and len(crowd) == 60 else [0] * 60
    usual = median(counts)
    crowded = [m for m in minutes if m in _POPULAR or (counts[m] >= _CROWD and counts[m] > 2 * usual)]
    if not crowded:
        return

    def rank(moved: Collection[int]) -> tuple[int, bool, bytes]:
        by_chance = blake2b(f"{cron.text}\0{zone}\0{min(moved)}".encode(), digest_size=8).digest()
        return sum(counts[m] for m in moved), any(m % 5 == 0 for m in moved), by_chance

    # All minutes move alike, so that the pauses between them stay.
    moves = [sorted((m + by) % 60 for m in minutes) for by in range(1, 60)]
    best = min((moved for moved in moves if moved != minutes), key=rank)
    here, there = sum(counts[m] for m in minutes), sum(counts[m] for m in best)
    if there > here or (there == here and any(counts)):
        return
    _, *others = _fields(cron)
    yield (
        f"Many schedules run at {_minutes(crowded)}. If yours need not, {_minutes(best)} {'is' if len(best) == 1 else 'are'} quieter: "
        f"{' '.join([_minute_field(best), *others])}"
    )


def _minutes(minutes: Sequence[int]) -> str:
    return f"{'minute' if len(minutes) == 1 else 'minutes'} {numbers(minutes)}"


def _minute_field(minutes: Sequence[int]) -> str:
    pace = 60 // len(minutes)
    if len(minutes) > 2 and list(minutes) == list(range(minutes[0], 60, pace)):
        return f"{minutes[0]}-59/{pace}"
    return ",".join(map(str, minutes))


def _fields(cron: Cron) -> list[str]:
    """The five fields as they were written."""
    text = cron.text.strip()
    return _MACROS.get(text, text).split()
