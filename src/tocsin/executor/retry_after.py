"""What a `Retry-After` asks for (RFC 9110 §10.2.3): whole seconds, or a date in one of three notations.

Anything else is ignored, so that a broken header means the normal backoff and never an early or an endless wait.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tocsin.clock import datetime_of, ms_of

MAX_RETRY_AFTER_S = 86_400

_MONTHS = {
    name: at
    for at, name in enumerate(("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1)
}
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_DATES = (
    re.compile(rf"[A-Z][a-z]{{2}}, (?P<day>\d\d) (?P<month>[A-Z][a-z]{{2}}) (?P<year>\d{{4}}) {_TIME} GMT", re.ASCII),
    # The two obsolete notations that a recipient must still accept (RFC 9110 §5.6.7).
    re.compile(rf"[A-Z][a-z]{{5,8}}, (?P<day>\d\d)-(?P<month>[A-Z][a-z]{{2}})-(?P<year>\d\d) {_TIME} GMT", re.ASCII),
    re.compile(rf"[A-Z][a-z]{{2}} (?P<month>[A-Z][a-z]{{2}}) (?P<day>[\d ]\d) {_TIME} (?P<year>\d{{4}})", re.ASCII),
)


def retry_after_s(value: str | None, now_ms: int) -> float | None:
    """Seconds from now, 0 for a date in the past, at most a day; None when there is nothing valid."""
    if value is None:
        return None
    value = value.strip(" \t")
    if value.isascii() and value.isdigit():
        # Beyond seven digits it is over the limit anyway, and int() refuses thousands of them.
        return float(min(int(value.lstrip("0")[:7] or "0"), MAX_RETRY_AFTER_S))
    at_ms = _date_ms(value, now_ms)
    if at_ms is None:
        return None
    return min(max(0.0, (at_ms - now_ms) / 1000), float(MAX_RETRY_AFTER_S))


def _date_ms(value: str, now_ms: int) -> int | None:
    for notation in _DATES:
        if (found := notation.fullmatch(value)) is None:
            continue
        month, year, second = _MONTHS.get(found["month"], 0), int(found["year"]), int(found["second"])
        if len(found["year"]) == 2:
            year = _full_year(year, now_ms)
        # A leap second is written as 60, which a datetime cannot hold.
        leap = second == 60
        try:
            minute = datetime(year, month, int(found["day"]), int(found["hour"]), int(found["minute"]), tzinfo=UTC)
            moment = minute.replace(second=59 if leap else second)
        except ValueError:
            return None
        return ms_of(moment) + (1000 if leap else 0)
    return None


def _full_year(year: int, now_ms: int) -> int:
    """Two digits that would be more than 50 years ahead mean the century before (RFC 9110 §5.6.7)."""
    this_year = datetime_of(now_ms).year
    full = this_year - this_year % 100 + year
    return full - 100 if full > this_year + 50 else full
