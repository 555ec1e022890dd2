"""Time zones by their IANA names, from one pinned copy of the data, and where their clocks change.

The data is the `tzdata` package's and nothing else's: the system's copy is often older, and two nodes that read different copies
would compute different instants. Its version is reported. A zone is read from the package's own file, so that the process's
zoneinfo settings neither matter nor are touched.

`Offsets` cuts time into stretches of one offset from UTC. zoneinfo does not tell when clocks change, so it is asked for the offset
every other day and each change is then closed in on; the answers are kept, by windows of two years. No zone of the database has ever
kept an offset for less than six days (a test holds that).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from datetime import datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib import import_module, resources
from typing import NamedTuple
from zoneinfo import ZoneInfo

MINUTE_MS = 60_000
DAY_MS = 86_400_000
# The calendar's ends: the years 1 to 9999, in UTC.
FIRST_MS = -62_135_596_800_000
LAST_MS = 253_402_300_799_999
_MS = timedelta(milliseconds=1)


class UnknownZone(ValueError):
    """There is no such time zone; the message says what to write instead."""


class Zones:
    """The zones of one version of the database.

    `load` makes a zone of a name and may raise KeyError, ValueError or OSError for one that it does not have. `names`, when given,
    are all that are offered and serve to suggest a near one.
    """

    def __init__(self, version: str, load: Callable[[str], tzinfo], names: Collection[str] | None = None) -> None:
        self.version = version
        self._load = load
        self._names = None if names is None else frozenset(names)
        self._loaded: dict[str, tzinfo] = {}

    def zone(self, name: str) -> tzinfo:
        """The zone of that name; raises UnknownZone. The same name is always the same object."""
        zone = self._loaded.get(name)
        if zone is not None:
            return zone
        if self._names is not None and name not in self._names:
            raise UnknownZone(_way_out(name, self._names))
        try:
            zone = self._load(name)
        except (KeyError, ValueError, OSError) as exc:
            raise UnknownZone(_way_out(name, self._names or ())) from exc
        self._loaded[name] = zone
        return zone


@cache
def pinned_zones() -> Zones:
    """The zones of the tzdata package."""
    package = resources.files("tzdata")
    names = set((package / "zones").read_text(encoding="utf-8").split())
    names.discard("Factory")  # the database's word for "nobody has set a zone"

    def load(name: str) -> tzinfo:
        with package.joinpath("zoneinfo", *name.split("/")).open("rb") as file:
            return ZoneInfo.from_file(file, key=name)

    return Zones(str(import_module("tzdata").IANA_VERSION), load, names)


_OFFSET = re.compile(r"(?:UTC|GMT|Z)?\s*([+-])(\d{1,2})(?::?(\d\d))?", re.ASCII | re.IGNORECASE)
_ABBREVIATION = re.compile(r"[A-Z]{3,5}")


def _way_out(name: str, names: Collection[str]) -> str:
    """Why a name is refused, and what to write instead."""
    if not name:
        return "a time zone is needed: its IANA name, for example Europe/Berlin, or UTC"
    shown = f"`{name[:60]}…`" if len(name) > 60 else f"`{name}`"
    if offset := _OFFSET.fullmatch(name):
        sign, hours, minutes = offset[1], int(offset[2]), int(offset[3] or 0)
        fixed = f"Etc/GMT{'-' if sign == '+' else '+'}{hours}"
        way_out = (
            f", or {fixed} for a fixed one (the sign is turned round there)" if not minutes and fixed in names else ""
        )
        return f"{shown} is an offset and not a zone, it knows no clock changes: write an IANA name such as Asia/Kolkata{way_out}"
    if near := _near(name, names):
        return f"{shown} is not a time zone of the IANA database: did you mean {' or '.join(near)}?"
    if _ABBREVIATION.fullmatch(name):
        return f"{shown} is not a time zone of the IANA database, and abbreviations mean several: write a name such as Europe/Berlin"
    return f"{shown} is not a time zone of the IANA database: write a name such as Europe/Berlin, Asia/Kolkata or UTC"


def _near(name: str, names: Collection[str]) -> list[str]:
    """What a name was perhaps meant to be, at most two."""
    wanted = name.strip().replace(" ", "_").lower()
    places: dict[str, str] = {}
    for known in sorted(names):
        place = known if "/" in wanted else known.rpartition("/")[2]
        places.setdefault(place.lower(), known)
    if wanted in places:
        return [places[wanted]]
    if len(wanted) > 40 or _ABBREVIATION.fullmatch(name):
        return []  # an abbreviation is near to others that mean another time
    return list(dict.fromkeys(places[near] for near in get_close_matches(wanted, places, n=2, cutoff=0.75)))


class Stretch(NamedTuple):
    """A time in which a zone's offset from UTC stays the same: the instants of [start, end), in milliseconds.

    The rest are local minutes, as `model/cron.py` counts them. `first` and `last` are the first and last whole ones of the stretch.
    When the clocks go forward at its beginning, those of [skipped, first) do not exist; when they go back there, those of
    [first, fresh) have been before. From `twice` on they come again after its end.
    """

    start: int
    end: int
    offset: int
    first: int
    last: int
    skipped: int
    fresh: int
    twice: int

    def later(self, days: int) -> Stretch:
        """The same, so many days later."""
        ms, minutes = days * DAY_MS, days * 1_440
        start, end, offset, *local = self
        return Stretch(start + ms, end + ms, offset, *(minute + minutes for minute in local))


# The calendar repeats after 400 years, which are a whole number of these windows as well as of weeks; so do the rules that hold for
# the future. Before 1800 the database has local mean time only; from 2100 on it has rules only.
_WINDOW_DAYS = 773
_WINDOWS_A_CYCLE = 189
_WINDOW_MS = _WINDOW_DAYS * DAY_MS
_WINDOWS_KEPT = 400  # more than from 1800 until the rules repeat themselves
CYCLE_DAYS = _WINDOW_DAYS * _WINDOWS_A_CYCLE
_EARLIEST = -5_364_662_400_000 // _WINDOW_MS
_LATEST = 4_102_444_800_000 // _WINDOW_MS + 1
# From this instant on the calendar and every zone repeat themselves after CYCLE_DAYS.
RULES_MS = (_LATEST + 1) * _WINDOW_MS
_PROBE_S = 2 * 86_400
# No clock has ever been moved by more than a day, so a change further off than this says nothing about a window's own minutes.
_MARGIN_S = 3 * 86_400
_NEVER = 1 << 62


class Offsets:
    """A zone's stretches. Asking anew costs about a microsecond, a window not asked for before about a third of a millisecond."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone
        self._windows: dict[int, tuple[Stretch, ...]] = {}

    def at(self, instant: int) -> Stretch:
        """The stretch that an instant lies in. It may be cut at either end; what it says of local minutes holds all the same."""
        window = instant // _WINDOW_MS
        cycles = 0
        if window > _LATEST:
            cycles = (window - _LATEST - 1) // _WINDOWS_A_CYCLE
        elif window < _EARLIEST:
            window = _EARLIEST - 1
        moved = cycles * _WINDOWS_A_CYCLE
        stretches = self._windows.get(window - moved)
        if stretches is None:
            if len(self._windows) >= _WINDOWS_KEPT:
                self._windows.clear()
            stretches = self._windows[window - moved] = self._cut(window - moved)
        instant -= moved * _WINDOW_MS
        for stretch in stretches:
            if instant < stretch.end:
                return stretch.later(moved * _WINDOW_DAYS) if moved else stretch
        raise AssertionError("a window's stretches reach to its end")

    def _cut(self, window: int) -> tuple[Stretch, ...]:
        """The stretches of one window."""
        start, end = window * _WINDOW_MS, (window + 1) * _WINDOW_MS
        if window < _EARLIEST:
            start = FIRST_MS - DAY_MS
            return (_stretch(start, end, (start, self._offset(end // 1_000)), None, self._offset(end // 1_000)),)
        changes = self._changes(start // 1_000 - _MARGIN_S, end // 1_000 + _MARGIN_S)
        stretches = []
        for number, (at, offset) in enumerate(changes):
            following = changes[number + 1] if number + 1 < len(changes) else None
            low = max(start, at)
            high = min(end, following[0]) if following else end
            if low < high:
                before = changes[number - 1][1] if number else offset
                stretches.append(_stretch(low, high, (at, offset), following, before))
        return tuple(stretches)

    def _changes(self, low: int, high: int) -> list[tuple[int, int]]:
        """The changes of [low, high) in seconds, as instant and new offset in milliseconds; the first is what holds at `low`."""
        offset = self._offset(low)
        changes = [(low * 1_000, offset)]
        for probe in range(low, high, _PROBE_S):
            until = min(probe + _PROBE_S, high)
            new = self._offset(until)
            if new == offset:
                continue
            old_at, new_at = probe, until
            while new_at - old_at > 1:
                middle = (old_at + new_at) // 2
                if self._offset(middle) == offset:
                    old_at = middle
                else:
                    new_at = middle
            offset = new
            changes.append((new_at * 1_000, offset))
        return changes

    def _offset(self, second: int) -> int:
        offset = datetime.fromtimestamp(second, self._zone).utcoffset()
        if offset is None:
            raise ValueError(f"{self._zone} knows no offset from UTC")
        return offset // _MS


@lru_cache(maxsize=1_024)
def offsets(zone: tzinfo) -> Offsets:
    """The one `Offsets` of a zone, so that all schedules of the zone share what it has found out."""
    return Offsets(zone)


def _stretch(start: int, end: int, change: tuple[int, int], following: tuple[int, int] | None, before: int) -> Stretch:
    at, offset = change
    first = minute_from(at + offset)
    border = minute_from(at + before)
    return Stretch(
        start=start,
        end=end,
        offset=offset,
        first=first,
        last=(end - 1 + offset) // MINUTE_MS,
        skipped=min(border, first),
        fresh=max(border, first),
        twice=minute_from(sum(following)) if following else _NEVER,
    )


def minute_from(local_ms: int) -> int:
    """The first whole minute from a local time on."""
    return -(-local_ms // MINUTE_MS)
