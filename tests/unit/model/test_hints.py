"""Hints: when one is given, what it says, and that its way out is one."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amount import examples
from tocsin.clock import ms_of, rfc3339
from tocsin.model.cron import Cron
from tocsin.model.hints import hints, interval_hints
from tocsin.model.timing import CronTiming
from tocsin.model.zones import DAY_MS, pinned_zones

# Dates of the past: no new zone data will move their clock changes.
NOW = ms_of(datetime(2023, 11, 30, 12, tzinfo=UTC))
YEAR_MS = 366 * DAY_MS
QUIET = [0] * 60


def given_for(text: str, zone: str = "UTC", now_ms: int = NOW, crowd: list[int] | None = None) -> list[str]:
    return hints(Cron.parse(text), pinned_zones().zone(zone), now_ms, crowd)


def about(word: str, text: str, zone: str = "UTC", **more) -> str | None:
    """The one hint that holds a word."""
    found = [hint for hint in given_for(text, zone, **more) if word in hint]
    assert len(found) <= 1
    return found[0] if found else None


def advised(text: str, zone: str = "UTC", **more) -> str | None:
    """The expression that the hint about the minute names."""
    hint = about("quieter", text, zone, **more)
    return hint.rpartition(": ")[2] if hint else None


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("17 2 * * *", "UTC"),
        ("* * * * *", "America/New_York"),
        ("7-59/10 * * * *", "Europe/London"),
        ("23 */2 * * 1-5", "America/New_York"),
        ("52 9 1,15 * *", "Asia/Kolkata"),
        ("37 2 */2 * *", "Asia/Kolkata"),
    ],
)
def test_what_holds_no_surprise_gets_no_hint(text, zone):
    assert given_for(text, zone) == []


def test_the_full_hour_gets_a_hint_with_a_quieter_minute():
    hint = about("quieter", "0 2 * * 1-5", "Asia/Kolkata")
    assert hint is not None
    assert re.fullmatch(
        r"Many schedules run at minute 0\. If yours need not, minute (\d+) is quieter: \1 2 \* \* 1-5", hint
    )
    assert hint == about("quieter", "0 2 * * 1-5", "Asia/Kolkata", now_ms=NOW + 40 * DAY_MS, crowd=QUIET)


@pytest.mark.parametrize(
    "text",
    ["0 2 * * *", "15 2 * * *", "30 * * * *", "45 9-17 * * mon-fri", "0,30 9 1 jan *", "*/15 * * * *", "@weekly"],
)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
def test_without_figures_the_minute_is_by_chance_and_no_multiple_of_five(text, zone):
    other = advised(text, zone)
    assert other is not None
    was, now = Cron.parse(text), Cron.parse(other)
    assert all(minute % 5 for minute in now.minutes)
    assert len(now.minutes) == len(was.minutes)
    assert (now.hours, now.days, now.months, now.weekdays) == (was.hours, was.days, was.months, was.weekdays)
    assert about("quieter", other, zone) is None


def test_an_even_pace_stays_one():
    other = advised("*/15 8-17 * * *")
    assert other is not None
    assert re.fullmatch(r"\d+-59/15 8-17 \* \* \*", other)


def test_advice_is_spread_over_the_hour():
    minutes = {advised(f"0 2 {day} * *") for day in range(1, 29)} | {advised(f"0 3 {day} * *") for day in range(1, 29)}
    assert len({other.split()[0] for other in minutes if other}) > 15


def test_the_quietest_minute_is_advised():
    crowd = [50] * 60
    crowd[0], crowd[23], crowd[55] = 900, 4, 3
    assert advised("0 2 * * *", crowd=crowd) == "55 2 * * *"
    crowd[55] = 50
    assert advised("0 2 * * *", crowd=crowd) == "23 2 * * *"


def test_a_crowded_minute_is_told_of_wherever_it_is():
    crowd = [40] * 60
    crowd[7] = 99
    assert advised("7 2 * * *", crowd=crowd) is None
    crowd[7] = 100
    assert advised("7 2 * * *", crowd=crowd) is not None
    assert advised("7 2 * * *", crowd=[90] * 7 + [170] + [90] * 52) is None


def test_the_quietest_minute_of_all_gets_no_hint():
    crowd = [40] * 60
    crowd[30] = 2
    assert advised("30 2 * * *", crowd=crowd) is None
    assert advised("30 2 * * *", crowd=[40] * 60) is None


def test_a_schedule_of_many_minutes_has_nowhere_to_go():
    assert advised("*/10 * * * *") is None
    assert advised("0-30 2 * * *") is None


@pytest.mark.parametrize(
    ("text", "zone", "hint"),
    [
        (
            "30 2 * * *",
            "America/New_York",
            "On 2024-03-10 the clocks of America/New_York go forward from 02:00 to 03:00: 02:30 does not exist that day, "
            "and it runs once at 03:00 instead. A time before 02:00 or from 03:00 on avoids that.",
        ),
        (
            "*/20 2 * * *",
            "America/New_York",
            "On 2024-03-10 the clocks of America/New_York go forward from 02:00 to 03:00: its 3 times from 02:00 to 02:40 do "
            "not exist that day, and one run at 03:00 stands for them. A time before 02:00 or from 03:00 on avoids that.",
        ),
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "On 2024-10-06 the clocks of Australia/Lord_Howe go forward from 02:00 to 02:30: 02:15 does not exist that day, "
            "and it runs once at 02:30 instead. A time before 02:00 or from 02:30 on avoids that.",
        ),
        (
            "0 0 * * *",
            "America/Havana",
            "On 2024-03-10 the clocks of America/Havana go forward from 00:00 to 01:00: 00:00 does not exist that day, "
            "and it runs once at 01:00 instead. A time from 01:00 on avoids that.",
        ),
        (
            "30 23 * * *",
            "America/Nuuk",
            "On 2024-03-30 the clocks of America/Nuuk go forward from 23:00 to 00:00 on 2024-03-31: 23:30 does not exist that "
            "day, and it runs once at 00:00 on 2024-03-31 instead. A time before 23:00 avoids that.",
        ),
    ],
)
def test_a_skipped_time_is_foretold(text, zone, hint):
    assert about("go forward", text, zone) == hint


@pytest.mark.parametrize(
    ("text", "zone", "hint"),
    [
        (
            "30 1 * * *",
            "America/New_York",
            "On 2024-11-03 the clocks of America/New_York go back from 02:00 to 01:00: 01:30 comes twice, and it runs once, "
            "the first time (2024-11-03T05:30:00Z). A time before 01:00 or from 02:00 on avoids that.",
        ),
        (
            "0,30 1 * * *",
            "Europe/London",
            "On 2024-10-27 the clocks of Europe/London go back from 02:00 to 01:00: its 2 times from 01:00 to 01:30 come "
            "twice, and each runs once, the first time (from 2024-10-27T00:00:00Z on). "
            "A time before 01:00 or from 02:00 on avoids that.",
        ),
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "On 2024-04-07 the clocks of Australia/Lord_Howe go back from 02:00 to 01:30: 01:45 comes twice, and it runs once, "
            "the first time (2024-04-06T14:45:00Z). A time before 01:30 or from 02:00 on avoids that.",
        ),
        (
            "30 23 * * *",
            "America/Nuuk",
            "On 2024-10-26 the clocks of America/Nuuk go back from 00:00 on 2024-10-27 to 23:00: 23:30 comes twice, and it runs "
            "once, the first time (2024-10-27T00:30:00Z). A time before 23:00 avoids that.",
        ),
    ],
)
def test_a_repeated_time_is_foretold(text, zone, hint):
    assert about("go back", text, zone) == hint


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("30 * * * *", "America/New_York"),  # follows elapsed time
        ("30 */2 * * *", "America/New_York"),
        ("30 2 * * *", "Asia/Kolkata"),  # no clock changes
        ("30 2 * * *", "UTC"),
        ("30 3 * * *", "America/New_York"),  # another time of day
        ("30 2 * * 1-5", "America/New_York"),  # never on a Sunday
        ("30 2 1 * *", "America/New_York"),
        ("30 2 * 6 *", "America/New_York"),
    ],
)
def test_a_time_that_always_comes_once_is_not_spoken_of(text, zone):
    assert about("clocks", text, zone) is None


def test_a_change_that_is_over_or_further_than_a_year_is_not_spoken_of():
    after_it = ms_of(datetime(2024, 3, 10, 7, tzinfo=UTC))
    assert about("2024-03-10", "30 2 * * *", "America/New_York", now_ms=after_it - 1)
    assert about("2024-03-10", "30 2 * * *", "America/New_York", now_ms=after_it) is None
    assert about("clocks", "30 2 10 3 *", "America/New_York", now_ms=after_it) is None


def test_a_whole_day_that_is_left_out_is_foretold():
    hint = about("go forward", "0 9 * * *", "Pacific/Apia", now_ms=ms_of(datetime(2011, 12, 1, tzinfo=UTC)))
    assert hint is not None
    assert hint.endswith("09:00 does not exist that day, and it runs once at 00:00 on 2011-12-31 instead.")


ZONES = [
    "America/New_York",
    "Europe/London",
    "Australia/Lord_Howe",
    "America/Havana",
    "America/Nuuk",
    "Antarctica/Troll",
    "Africa/Casablanca",
    "Asia/Kolkata",
]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(["0", "30", "59", "*/20", "7,52"]),
    st.sampled_from(["0", "1", "2", "3", "23", "0-3", "*", "*/3"]),
    st.sampled_from(ZONES),
    st.integers(1990, 2060),
)
def test_hints_about_clocks_tell_of_the_next_run_that_they_change(minute, hour, zone_name, year):
    cron, zone = Cron.parse(f"{minute} {hour} * * *"), pinned_zones().zone(zone_name)
    now_ms = ms_of(datetime(year, 6, 10, tzinfo=UTC))
    said = {kind: about(f"go {kind}", cron.text, zone_name, now_ms=now_ms) for kind in ("forward", "back")}
    made_up, twice = first_noted(cron, zone, now_ms, "gap"), first_noted(cron, zone, now_ms, "repeat")
    if cron.follows_elapsed_time:
        assert said == {"forward": None, "back": None}
        return
    assert (made_up is None) == (said["forward"] is None)
    assert (twice is None) == (said["back"] is None)
    if said["forward"]:
        local = datetime.fromtimestamp((made_up or 0) / 1000, zone)
        assert f"at {local:%H:%M}" in said["forward"]
    if said["back"]:
        assert rfc3339(twice or 0) in said["back"]


def first_noted(cron: Cron, zone, now_ms: int, note: str) -> int | None:
    timing = CronTiming(cron, zone)
    run = timing.next(now_ms)
    while run is not None and run.at <= now_ms + YEAR_MS:
        if run.note == note:
            return run.at
        run = timing.next(run.at)
    return None


def test_29_february_is_in_leap_years_only():
    said = "29 February is in leap years only, next in 2024. For every year take day 28, or 1 March."
    assert about("leap", "17 3 29 2 *") == said
    assert about("leap", "17 3 29-31 feb *") == said
    assert about("next in 2024", "17 3 29 2 *", now_ms=ms_of(datetime(2024, 2, 29, 3, 16, 59, tzinfo=UTC)))
    assert about("next in 2028", "17 3 29 2 *", now_ms=ms_of(datetime(2024, 2, 29, 3, 17, tzinfo=UTC)))
    assert about("next in 2032", "17 3 29 2 */7")  # a Sunday


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            "17 3 31 * *",
            "Day 31 is missing in February, April, June, September and November: nothing runs for it there. "
            "Days 1 to 28 are in every month.",
        ),
        (
            "17 3 30 * *",
            "Day 30 is missing in February: nothing runs for it there. Days 1 to 28 are in every month.",
        ),
        (
            "17 3 1,29 * *",
            "Day 29 is missing in February outside leap years: nothing runs for it there. Days 1 to 28 are in every month.",
        ),
        (
            "17 3 30,31 1-4 *",
            "Day 30 is missing in February and day 31 in February and April: nothing runs for it there. "
            "Days 1 to 28 are in every month.",
        ),
        ("17 3 31 1,3,5 *", None),
        ("17 3 28 * *", None),
        ("17 3 */2 * *", None),
    ],
)
def test_days_that_not_every_month_has_are_named(text, hint):
    assert about("missing", text) == hint


def test_two_day_fields_match_either_way():
    assert given_for("17 3 13 * 5") == [
        "Both day fields are given, so it runs when either matches: on day 13 of the month or on a Friday. "
        "For one of them only, put * into the other."
    ]


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("17 3 */2 * 1", "1-31/2 for */2"),
        ("17 3 13 * */2", "0-6/2 for */2"),
        ("17 3 */100,1-7 * MON", "1-31/100,1-7 for */100,1-7"),
        ("17 3 */3 * */2", "1-31/3 for */3 and 0-6/2 for */2"),
    ],
)
def test_a_star_among_two_day_fields_means_both(text, spelled):
    hint = about("star", text)
    assert hint is not None
    assert hint.endswith(f" To run when either matches, write {spelled}.")
    fields = text.split()
    for change in spelled.split(" and "):
        new, _, old = change.partition(" for ")
        at = next(place for place in (2, 4) if fields[place] == old)
        fields[at] = new
    was, now = Cron.parse(text), Cron.parse(" ".join(fields))
    assert (was.days, was.weekdays) == (now.days, now.weekdays)
    assert now.day_restricted
    assert now.weekday_restricted


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            "*/45 * * * *",
            "*/45 starts again with every hour, at minutes 0 and 45. "
            "For an even pace of 45 minutes take an interval: every_s 2700.",
        ),
        (
            "*/90 * * * *",
            "*/90 starts again with every hour, at minute 0. For an even pace of 90 minutes take an interval: every_s 5400.",
        ),
        (
            "17 */5 * * *",
            "*/5 starts again with every day, at hours 0, 5, ..., 20. "
            "For an even pace of 5 hours take an interval: every_s 18000.",
        ),
        (
            "17 */48 * * *",
            "*/48 starts again with every day, at hour 0. For an even pace of 48 hours take an interval: every_s 172800.",
        ),
        ("*/20 * * * *", None),
        ("*/60 * * * *", None),
        ("17 */6 * * *", None),
        ("*/45 9-17 * * *", None),
        ("*/999999999 * * * *", None),
    ],
)
def test_a_step_that_starts_again_is_no_pace(text, hint):
    assert about("starts again", text) == hint


def test_an_interval_of_days_is_no_time_of_day():
    said = [
        "This follows elapsed time, not the wall clock: where clocks change, its time of day moves. For a time of day use cron."
    ]
    assert interval_hints(86_400) == said
    assert interval_hints(7 * 86_400.0) == said
    assert interval_hints(90) == interval_hints(3_600) == interval_hints(86_401) == []


@pytest.mark.parametrize("now_ms", [0, -(10**15), 253_402_300_799_999, 10**18])
@pytest.mark.parametrize("text", ["0 2 * * *", "0 0 29 2 *", "@yearly", "0 0 31 * 1"])
def test_no_clock_makes_hints_fail(now_ms, text):
    for zone in ("UTC", "America/New_York", "Pacific/Apia"):
        assert all(given_for(text, zone, now_ms=now_ms, crowd=QUIET))
