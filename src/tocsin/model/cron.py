"""Cron expressions: five fields become sets, and sets answer which local minutes match.

The rules are those of crontab(5): lists, ranges, steps, three-letter names of months and weekdays, 7 for Sunday, `@daily` and its
kin. When both day fields are restricted either of them makes a day match; a day field that begins with `*` is not restricted, and
then both must match, so that `*/2` beside `MON` means the odd Mondays (cron's star rule, by the first character alone).

What is read is strict: everything else is refused with the field, the reason and what to write instead. cronsim expands the terms;
this module hands it only what it reads as crontab(5) does. It would take six fields, `L`, `W` and `#`, reads `5-5/2` as `5-59/2`,
and knows no macros.

A *local minute* is a number here: whole minutes from 1970-01-01 00:00 of a clock on the wall, whatever its zone. Which instants they
are is for `model/timing.py` to say. Everything is pure and safe to share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Literal, NamedTuple

from cronsim import CronSim, CronSimError

Field = Literal["minute", "hour", "day of month", "month", "day of week", "expression"]

MINUTES_A_DAY = 1_440
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal()
_CYCLE_DAYS = 146_097  # 400 years, after which dates fall on the same weekdays again
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class CronError(ValueError):
    """The expression cannot be used; `field` says where, `reason` why and what to write instead."""

    def __init__(self, where: Field, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.field: Field = where
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression, read. `weekdays` counts from 0, Sunday, to 6."""

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    day_restricted: bool
    weekday_restricted: bool
    # The hour field is `*` or `*/n`: the schedule follows elapsed time where the clocks change.
    follows_elapsed_time: bool
    # The same sets with one bit a value, so that "the next one" is a shift. Weekdays: the days of a month that match, by the weekday
    # of its first.
    _minute_bits: int = field(repr=False, compare=False)
    _hour_bits: int = field(repr=False, compare=False)
    _day_bits: int = field(repr=False, compare=False)
    _month_bits: int = field(repr=False, compare=False)
    _weekday_bits: tuple[int, ...] = field(repr=False, compare=False)

    @staticmethod
    def parse(text: str) -> Cron:
        """Read an expression; raises CronError. Expressions that were read before cost nothing."""
        return _parse(text)

    def matches(self, minute: int) -> bool:
        """Whether a local minute matches."""
        return self.first(minute) == minute

    def first(self, minute: int) -> int | None:
        """The first matching local minute from `minute` on, itself included; None: there is none up to the year 9999."""
        day, rest = divmod(minute, MINUTES_A_DAY)
        day += _EPOCH_DAY
        if day < 1:
            day, rest = 1, 0
        found = self._day_from(day)
        if found == day:
            hour, rest = divmod(rest, 60)
            hours = self._hour_bits >> hour
            if hours & 1 and (minutes := self._minute_bits >> rest):
                return (day - _EPOCH_DAY) * MINUTES_A_DAY + hour * 60 + rest + _lowest(minutes)
            if hours := hours >> 1:
                hour += 1 + _lowest(hours)
                return (day - _EPOCH_DAY) * MINUTES_A_DAY + hour * 60 + self.minutes[0]
            found = self._day_from(day + 1)
        if found is None:
            return None
        return (found - _EPOCH_DAY) * MINUTES_A_DAY + self.hours[0] * 60 + self.minutes[0]

    def last(self, minute: int) -> int | None:
        """The last matching local minute up to `minute`, itself included; None: there is none from the year 1 on."""
        day, rest = divmod(minute, MINUTES_A_DAY)
        day += _EPOCH_DAY
        if day > _LAST_DAY:
            day, rest = _LAST_DAY, MINUTES_A_DAY - 1
        found = self._day_until(day)
        if found == day:
            hour, rest = divmod(rest, 60)
            hours = self._hour_bits & ((2 << hour) - 1)
            if hours >> hour and (minutes := self._minute_bits & ((2 << rest) - 1)):
                return (day - _EPOCH_DAY) * MINUTES_A_DAY + hour * 60 + _highest(minutes)
            if hours := hours & ((1 << hour) - 1):
                return (day - _EPOCH_DAY) * MINUTES_A_DAY + _highest(hours) * 60 + self.minutes[-1]
            found = self._day_until(day - 1)
        if found is None:
            return None
        return (found - _EPOCH_DAY) * MINUTES_A_DAY + self.hours[-1] * 60 + self.minutes[-1]

    def count(self, low: int, high: int) -> int:
        """How many local minutes of [low, high) match: whole days by arithmetic, so years cost as little as days."""
        low = max(low, (1 - _EPOCH_DAY) * MINUTES_A_DAY)
        high = min(high, (_LAST_DAY + 1 - _EPOCH_DAY) * MINUTES_A_DAY)
        if low >= high:
            return 0
        first_day, skipped = divmod(low, MINUTES_A_DAY)
        last_day, kept = divmod(high, MINUTES_A_DAY)
        first_day, last_day = first_day + _EPOCH_DAY, last_day + _EPOCH_DAY
        total = self._days_between(first_day, last_day) * len(self.hours) * len(self.minutes)
        if skipped and self._day_from(first_day) == first_day:
            total -= self._before(skipped)
        if kept and self._day_from(last_day) == last_day:
            total += self._before(kept)
        return total

    def _before(self, rest: int) -> int:
        """How many minutes of a matching day come before its `rest`th."""
        hour, rest = divmod(rest, 60)
        whole = (self._hour_bits & ((1 << hour) - 1)).bit_count() * len(self.minutes)
        if self._hour_bits >> hour & 1:
            whole += (self._minute_bits & ((1 << rest) - 1)).bit_count()
        return whole

    def _day_from(self, day: int) -> int | None:
        """The first matching day (an ordinal of `date`) from `day` on."""
        if day > _LAST_DAY:
            return None
        at = date.fromordinal(day)
        year, month, passed = at.year, at.month, at.day - 1
        first = day - passed
        while True:
            length = _LENGTHS[month] + (month == 2 and _leap(year))
            if self._month_bits >> month & 1 and (days := self._month_days(first, length) >> passed):
                return first + passed + _lowest(days)
            first, passed, month = first + length, 0, month + 1
            if month > 12:
                year, month = year + 1, 1
                if year > date.max.year:
                    return None

    def _day_until(self, day: int) -> int | None:
        """The last matching day up to `day`."""
        if day < 1:
            return None
        at = date.fromordinal(day)
        year, month = at.year, at.month
        first, length = day - at.day + 1, at.day
        while True:
            if self._month_bits >> month & 1 and (days := self._month_days(first, length)):
                return first + _highest(days)
            month -= 1
            if month < 1:
                year, month = year - 1, 12
                if year < 1:
                    return None
            length = _LENGTHS[month] + (month == 2 and _leap(year))
            first -= length

    def _days_between(self, low: int, high: int) -> int:
        """How many days of [low, high) match."""
        cycles = (high - low) // _CYCLE_DAYS
        if cycles > 1:
            middle = low + cycles * _CYCLE_DAYS
            return cycles * self._days_between(low, low + _CYCLE_DAYS) + self._days_between(middle, high)
        total = 0
        while low < high:
            at = date.fromordinal(low)
            passed = at.day - 1
            length = _LENGTHS[at.month] + (at.month == 2 and _leap(at.year))
            first = low - passed
            if self._month_bits >> at.month & 1:
                total += (self._month_days(first, min(length, high - first)) >> passed).bit_count()
            low = first + length
        return total

    def _month_days(self, first: int, length: int) -> int:
        """The matching ones of a month's first `length` days, one bit each, given the ordinal of its first."""
        # An ordinal modulo 7 is cron's weekday: the first of January of the year 1 was a Monday.
        weekdays = self._weekday_bits[first % 7]
        either = self.day_restricted and self.weekday_restricted
        days = self._day_bits | weekdays if either else self._day_bits & weekdays
        return days & ((1 << length) - 1)


class _Rule(NamedTuple):
    """What one field may hold."""

    name: Field
    low: int
    high: int
    names: tuple[str, ...]
    allowed: str  # in words, for messages


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_RULES = (
    _Rule("minute", 0, 59, (), "0-59"),
    _Rule("hour", 0, 23, (), "0-23"),
    _Rule("day of month", 1, 31, (), "1-31"),
    _Rule("month", 1, 12, _MONTHS, "1-12 or jan-dec"),
    _Rule("day of week", 0, 7, _WEEKDAYS, "0-7 (0 and 7 are Sunday) or sun-sat"),
)
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_DIGITS = re.compile(r"[0-9]{1,9}")
_ELAPSED = re.compile(r"\*(/[0-9]+)?")
# What other crons write, and what to do about it here.
_EXTENSIONS = (
    (re.compile(r".*\?.*"), "`?` is not used here: write `*`"),
    (
        re.compile(r".*#.*"),
        "`#` (the n-th weekday of a month) is not supported: for the first Monday write `0 9 */100,1-7 * mon`",
    ),
    (re.compile(r".*~.*"), "`~` (a value at random) is not supported: write a number"),
    (re.compile(r"H(\(.*)?", re.IGNORECASE), "`H` (a value by hash) is not supported: write a number"),
    (
        re.compile(r"([0-9]+|L)?W", re.IGNORECASE),
        "`W` (the nearest weekday) is not supported: let the job run on several days and look at the date itself",
    ),
    (
        re.compile(r"([0-9]|[a-z]{3})?L", re.IGNORECASE),
        "`L` (the last) is not supported: let the job run on every day that may be it, such as `28-31`, and look at the date itself",
    ),
)


@lru_cache(maxsize=8_192)
def _parse(text: str) -> Cron:
    fields = _fields(text)
    read = " ".join(_rewritten(rule, part) for rule, part in zip(_RULES, fields, strict=True))
    try:
        sets = CronSim(read, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError:
        # All else was refused above: no month of the field has such a day.
        raise CronError(
            "day of month", "it never comes: none of the months given has such a day; give a day that one of them has"
        ) from None
    days, months = _sorted(sets.days), _sorted(sets.months)
    weekdays = tuple(sorted({day % 7 for day in sets.weekdays if isinstance(day, int)}))
    minutes, hours = _sorted(sets.minutes), _sorted(sets.hours)
    return Cron(
        text=text,
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=weekdays,
        day_restricted=not fields[2].startswith("*"),
        weekday_restricted=not fields[4].startswith("*"),
        follows_elapsed_time=_ELAPSED.fullmatch(fields[1]) is not None,
        _minute_bits=_bits(minutes),
        _hour_bits=_bits(hours),
        _day_bits=_bits(days) >> 1,
        _month_bits=_bits(months),
        _weekday_bits=tuple(_bits(day for day in range(31) if (first + day) % 7 in weekdays) for first in range(7)),
    )


def _fields(text: str) -> list[str]:
    """The five fields of an expression, macros written out."""
    strange = next((sign for sign in text if sign not in " \t" and (sign.isspace() or not sign.isprintable())), None)
    if strange is not None:
        raise CronError(
            "expression", f"only spaces and tabs separate fields, and it holds {_named(strange)}: remove that"
        )
    fields = [part for part in text.replace("\t", " ").split(" ") if part]
    if not fields:
        raise CronError("expression", "it is empty: write five fields, for example `0 9 * * mon-fri`, or `@daily`")
    if fields[0].startswith("@"):
        return _macro(fields)
    if re.match(r"(CRON_)?TZ=", fields[0]):
        raise CronError("expression", "a zone does not stand in the expression: put it into `time_zone`")
    if len(fields) == 5:
        return fields
    found = f"five fields are needed (minute, hour, day of month, month, day of week) and it has {len(fields)}"
    if len(fields) in (6, 7):
        found += "; seconds and years are not supported: leave those fields out"
    raise CronError("expression", found)


def _macro(fields: list[str]) -> list[str]:
    word = fields[0]
    if len(fields) == 1 and word in _MACROS:
        return _MACROS[word].split(" ")
    if word == "@every":
        raise CronError("expression", "`@every` is not cron: give the interval as `every_s` instead")
    if word == "@reboot":
        raise CronError("expression", "`@reboot` names no time: give five fields, or one such as `@daily`")
    if word.lower() in _MACROS:
        raise CronError("expression", f"write `{word.lower()}`, in small letters and alone")
    known = ", ".join(_MACROS)
    raise CronError("expression", f"{_shown(word)} is not known: write one of {known}, or five fields")


def _rewritten(rule: _Rule, text: str) -> str:
    """A field as cronsim reads it the way crontab(5) means it: numbers only, no range of one value."""
    return ",".join(_term(rule, term) for term in text.split(","))


def _term(rule: _Rule, term: str) -> str:
    if not term:
        raise CronError(rule.name, "a comma stands without a value beside it: remove it")
    span, slash, step = term.partition("/")
    if slash and not (_DIGITS.fullmatch(step) and int(step) > 0):
        raise CronError(
            rule.name, f"{_shown(step)} is not a step: after `/` write one whole number above 0, as in `*/5`"
        )
    if span == "*":
        return term
    if span.startswith("*"):
        raise CronError(rule.name, f"{_shown(span)} is not a value: `*` stands alone; every n-th is `*/n`")
    start, dash, end = span.partition("-")
    if not dash:
        low = _value(rule, start)
        if slash:
            raise CronError(
                rule.name, f"a step needs a range: for every {step} from {start} on write `{start}-{rule.high}/{step}`"
            )
        return str(low)
    if not start or not end:
        raise CronError(
            rule.name, f"{_shown(span)} is half a range: write both ends, as in `1-5`; there are no negative values"
        )
    low, high = _value(rule, start), _value(rule, end)
    if rule.names is _WEEKDAYS and end.lower() == "sun" and low > 0:
        high = 7  # `fri-sun` is three days: by name Sunday closes the week as well as it opens it
    if high < low:
        raise CronError(
            rule.name,
            f"the range {_shown(span)} runs backwards: write it as two, `{start}-{rule.high},{rule.low}-{end}`",
        )
    return str(low) if low == high else f"{low}-{high}{slash}{step}"


def _value(rule: _Rule, text: str) -> int:
    if rule.names and text.lower() in rule.names:
        return rule.names.index(text.lower()) + (rule.names is _MONTHS)
    if text.isascii() and text.isdigit():
        if _DIGITS.fullmatch(text) and rule.low <= int(text) <= rule.high:
            return int(text)
        raise CronError(rule.name, f"{_shown(text)} is out of range: {rule.allowed}")
    if rule.names and text[:3].lower() in rule.names and text.isascii() and text.isalpha():
        raise CronError(
            rule.name, f"{_shown(text)} is not a name here: names have three letters, write `{text[:3].lower()}`"
        )
    for extension, way_out in _EXTENSIONS:
        if extension.fullmatch(text):
            raise CronError(rule.name, way_out)
    raise CronError(
        rule.name, f"{_shown(text)} is not a value: write {rule.allowed}, `*`, or lists, ranges and steps of them"
    )


def _named(sign: str) -> str:
    """A sign that cannot be shown, by what people call it."""
    names = {"\n": "a line break", "\r": "a line break", "\xa0": "a no-break space", "\0": "a NUL"}
    return names.get(sign, f"the sign U+{ord(sign):04X}")


def _shown(text: str) -> str:
    """A piece of the user's text, fit for a message."""
    return f"`{text[:40]}…`" if len(text) > 40 else f"`{text}`"


def _sorted(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(values))


def _bits(values: Iterable[int]) -> int:
    return sum(1 << value for value in values)


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _highest(bits: int) -> int:
    return bits.bit_length() - 1


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
