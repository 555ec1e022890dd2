"""A schedule's timing in one plain English sentence.

Pure; stands beside `timing`, which computes the runs: here the same fields are put into words, for people who look at a preview
before they save. Nothing is stored, so there is nothing for a crash to leave behind.

A sentence says exactly which times and days are meant, no fewer and no more: from the sentence alone the five fields can be read
back (the tests do). So "every 7 minutes" is never said of `*/7`, which starts again at each full hour, and the two ways in which
the day fields combine (either matches, or both where one begins with a star) have words of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tocsin.clock import rfc3339
from tocsin.model.cron import Cron

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
# From Monday on, as Sunday ends the week in "Friday to Sunday".
WEEK = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_EVERY = "every "
# A list of numbers in even steps is cut short ("0, 7, ..., 56") from this length on.
_LONG = 5
# Up to so many times of day are given one by one, also where there is a shorter way to say it.
_FEW_TIMES = 4
# Up to so many are given one by one where there is none.
_MANY_TIMES = 8
# Up to so many stretches of the day: "from 09:00 to 11:45 and from 14:00 to 16:45".
_STRETCHES = 3


def explain(cron: Cron, zone_name: str) -> str:
    """When `cron` runs, such as "At 02:00, Monday to Friday, in Asia/Kolkata"."""
    minutes, hours = cron.minutes, cron.hours
    # Hours 0-23 without a star are all hours of the wall clock, which is another thing in a repeated hour.
    around_the_clock = len(hours) == 24 and cron.follows_elapsed_time
    time = _around_the_clock(minutes) if around_the_clock else _time_of_day(minutes, hours)
    days = _days(cron, daily=not around_the_clock)
    if not days and len(minutes) == 60:
        return time  # the same everywhere
    if days.startswith(WEEK) or (days.startswith(_EVERY) and not time[3].isdigit()):
        days = f", {days}"
    elif days:
        days = f" {days}"
    return f"{time}{days}, in {zone_name}"


def explain_interval(every_s: float, anchor: int | None) -> str:
    """When an interval of `every_s` runs, counted from `anchor` (ms since 1970 UTC; None: from the schedule's creation).
    The largest unit is the hour: a day may be longer or shorter than 24 of them."""
    every_ms = round(every_s * 1000)
    for unit_ms, unit in ((3_600_000, "hour"), (60_000, "minute")):
        if every_ms % unit_ms == 0:
            length = _counted(f"{every_ms // unit_ms:,}", unit)
            break
    else:
        seconds = f"{every_ms // 1000:,}" + f"{every_ms % 1000 / 1000:.3f}"[1:].rstrip("0").rstrip(".")
        length = _counted(seconds, "second")
    return f"Every {length}, counted from {'its creation' if anchor is None else rfc3339(anchor)}"


def days_of(cron: Cron) -> str:
    """The days on which `cron` runs, such as "on day 13 of the month or on a Friday"; empty for all days of all months."""
    return _days(cron, daily=False)


def _around_the_clock(minutes: Sequence[int]) -> str:
    pace = _pace(minutes)
    if pace is not None:
        return f"Every {_counted(str(pace), 'minute')}"
    if len(minutes) == 1:
        return f"Every hour at minute {minutes[0]}"
    return f"At minutes {numbers(minutes)} of every hour"


def _time_of_day(minutes: Sequence[int], hours: Sequence[int]) -> str:
    times = [(hour, minute) for hour in hours for minute in minutes]
    if len(times) <= _FEW_TIMES:
        return f"At {_times(times)}"
    pace, stretches = _pace(minutes), _runs(hours)
    if pace is not None and len(stretches) <= _STRETCHES:
        spans = [f"from {_clock(run[0], minutes[0])} to {_clock(run[-1], minutes[-1])}" for run in stretches]
        return f"Every {_counted(str(pace), 'minute')} {listed(spans)}"
    if len(minutes) == 1:
        step = _step(hours)
        if step is not None:
            return f"Every {_counted(str(step), 'hour')} from {_clock(*times[0])} to {_clock(*times[-1])}"
    if len(hours) == 1:
        step = _step(minutes)
        if step is not None:
            return f"Every {_counted(str(step), 'minute')} from {_clock(*times[0])} to {_clock(*times[-1])}"
    if len(times) <= _MANY_TIMES:
        return f"At {_times(times)}"
    of_hours = f"{_plural('hour', hours)} {numbers(hours, '{:02d}'.format)}"
    if len(minutes) == 60:
        return f"Every minute of {of_hours}"
    return f"At {_plural('minute', minutes)} {numbers(minutes)} of {of_hours}"


def _pace(minutes: Sequence[int]) -> int | None:
    """n, if these are all multiples of n of an hour that n divides: only then is it "every n minutes" from hour to hour."""
    pace = 60 // len(minutes)
    return pace if pace < 60 and list(minutes) == list(range(0, 60, pace)) and 60 % pace == 0 else None


def _times(times: Sequence[tuple[int, int]]) -> str:
    return listed([_clock(hour, minute) for hour, minute in times])


def _clock(hour: int, minute: int) -> str:
    return f"{hour:02d}:{minute:02d}"


def _days(cron: Cron, *, daily: bool) -> str:
    """`daily`: say "every day" too."""
    days, months = cron.days, cron.months
    week = sorted((weekday + 6) % 7 for weekday in cron.weekdays)  # 0 is Monday
    in_months = "" if len(months) == 12 else f"in {_month_names(months)}"
    if cron.day_restricted and cron.weekday_restricted:
        on_days = (
            "on any day of the month" if len(days) == 31 else f"on {_plural('day', days)} {numbers(days)} of the month"
        )
        either = f"{on_days} or on {_a_weekday(week)}"
        if len(days) == 31 or len(week) == 7:
            either += ", so every day"
        return f"{in_months}, {either}" if in_months else either
    if len(days) == 31:
        text = _every_weekday(week) if len(week) < 7 else "every day" if daily else ""
        return f"{text} {in_months}".strip()
    if len(days) == len(months) == 1:
        dates = f"on {days[0]} {MONTHS[months[0] - 1]}"
    else:
        dates = f"on {_plural('day', days)} {numbers(days)} of {_month_names(months) if in_months else 'the month'}"
    if len(week) == 7:
        return dates
    # A day field that begins with a star, but leaves days out: both fields must match.
    return f"{dates} {'if that is' if len(days) == 1 else 'that are'} {_a_weekday(week)}"


def _every_weekday(week: Sequence[int]) -> str:
    if _is_range(week):
        return f"{WEEK[week[0]]} to {WEEK[week[-1]]}"
    if len(week) == 6:
        return f"{_EVERY}day except {_left_out(week)}"
    return f"{_EVERY}{listed([WEEK[day] for day in week])}"


def _a_weekday(week: Sequence[int]) -> str:
    if len(week) == 7:
        return "any day of the week"
    if _is_range(week):
        return f"a day from {WEEK[week[0]]} to {WEEK[week[-1]]}"
    if len(week) == 6:
        return f"a day other than {_left_out(week)}"
    return f"a {listed([WEEK[day] for day in week], 'or')}"


def _left_out(week: Sequence[int]) -> str:
    return next(name for day, name in enumerate(WEEK) if day not in week)


def _month_names(months: Sequence[int]) -> str:
    return numbers(months, lambda month: MONTHS[month - 1], cut=False)


def numbers(values: Sequence[int], say: Callable[[int], str] = str, *, cut: bool = True) -> str:
    """Ascending numbers in words: "1", "1 and 2", "1 to 3, 5 and 9", and with `cut` "0, 7, ..., 56" for even steps."""
    step = _step(values)
    if cut and step is not None and step > 1:
        return f"{say(values[0])}, {say(values[1])}, ..., {say(values[-1])}"
    parts: list[str] = []
    for run in _runs(values):
        parts += [f"{say(run[0])} to {say(run[-1])}"] if len(run) > 2 else [say(value) for value in run]
    return listed(parts)


def listed(parts: Sequence[str], last: str = "and") -> str:
    """Parts as "a", "a and b", "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def _step(values: Sequence[int]) -> int | None:
    """The even step of a list that is long enough to be cut short."""
    if len(values) < _LONG:
        return None
    step = values[1] - values[0]
    return step if list(values) == list(range(values[0], values[-1] + 1, step)) else None


def _runs(values: Sequence[int]) -> list[list[int]]:
    """Ascending numbers as stretches without a hole."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return runs


def _is_range(values: Sequence[int]) -> bool:
    return len(values) > 2 and len(_runs(values)) == 1


def _plural(word: str, values: Collection[int]) -> str:
    return word if len(values) == 1 else f"{'the ' if word == 'hour' else ''}{word}s"


def _counted(count: str, unit: str) -> str:
    return unit if count == "1" else f"{count} {unit}s"
