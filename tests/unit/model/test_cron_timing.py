"""Timing: the notes of gaps and repeats, odd offsets, intervals, and counting over years."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tocsin.model.cron import Cron
from tocsin.model.timing import CronTiming, IntervalTiming, Run
from tocsin.model.zones import DAY_MS, FIRST_MS, LAST_MS, pinned_zones


def timing(expression: str, zone: str = "UTC") -> CronTiming:
    return CronTiming(Cron.parse(expression), pinned_zones().zone(zone))


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


def runs(expression: str, zone: str, after: str, count: int = 3) -> list[tuple[str, str | None]]:
    """Local times, with their notes."""
    found: list[tuple[str, str | None]] = []
    at = ms(after)
    for _ in range(count):
        run = timing(expression, zone).next(at)
        assert run is not None
        at = run.at
        local = datetime.fromtimestamp(at / 1_000, timezone(timedelta(seconds=run.offset_s)))
        found.append((local.strftime("%d %H:%M:%S %z"), run.note))
    return found


def test_a_skipped_time_is_made_up_for_and_says_so():
    assert runs("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00Z") == [
        ("28 02:30:00 +0100", None),
        ("29 03:00:00 +0200", "gap"),
        ("30 02:30:00 +0200", None),
    ]


def test_a_make_up_run_and_the_run_that_is_there_anyway_are_one_and_say_so():
    assert runs("0 2,3,4 * * *", "Europe/Berlin", "2026-03-28T12:00Z") == [
        ("29 03:00:00 +0200", "gap"),
        ("29 04:00:00 +0200", None),
        ("30 02:00:00 +0200", None),
    ]


def test_a_repeated_time_runs_once_and_says_so():
    assert runs("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", 2) == [
        ("25 02:30:00 +0200", "repeat"),
        ("26 02:30:00 +0100", None),
    ]


def test_elapsed_time_goes_through_both_passes_and_makes_up_for_nothing():
    assert runs("30 * * * *", "Europe/Berlin", "2026-10-25T00:00Z", 3) == [
        ("25 02:30:00 +0200", "repeat"),
        ("25 02:30:00 +0100", "repeat"),
        ("25 03:30:00 +0100", None),
    ]
    assert runs("30 */2 * * *", "Europe/Berlin", "2026-03-29T00:00Z", 2) == [
        ("29 04:30:00 +0200", None),
        ("29 06:30:00 +0200", None),
    ]


def test_an_offset_of_odd_seconds_still_gives_whole_minutes():
    # Until 7 January 1972 Monrovia was 44 min 30 s behind UTC; then its clocks went to UTC at once, from 00:00:00 to 00:44:30.
    assert runs("30 0 * * *", "Africa/Monrovia", "1972-01-06T00:00Z") == [
        ("06 00:30:00 -004430", None),
        ("07 00:45:00 +0000", "gap"),
        ("08 00:30:00 +0000", None),
    ]
    run = timing("* * * * *", "America/New_York").next(ms("1850-01-01T00:00:00Z"))
    assert run == Run(ms("1850-01-01T00:00:02Z"), -17_762, None)


def test_the_day_that_was_skipped_is_made_up_for_by_one_run():
    assert runs("0 0,12,18 * * *", "Pacific/Apia", "2011-12-30T00:00Z", 3) == [
        ("29 18:00:00 -1000", None),
        ("31 00:00:00 +1400", "gap"),
        ("31 12:00:00 +1400", None),
    ]


def test_the_day_that_came_twice_runs_once():
    # In 1867 Alaska changed sides of the date line: 24 hours came again.
    assert runs("0 12 * * *", "America/Juneau", "1867-10-17T12:00Z") == [
        ("18 12:00:00 +150219", None),
        ("19 12:00:00 +150219", "repeat"),
        ("20 12:00:00 -085741", None),
    ]


def test_three_years_of_every_minute_are_counted():
    assert timing("* * * * *", "Europe/Berlin").count(ms("2024-01-01T00:00Z"), ms("2027-01-01T00:00Z")) == 1_096 * 1_440
    assert (
        timing("*/5 0-23 * * *", "Europe/Berlin").count(ms("2025-12-31T22:59Z"), ms("2026-12-31T22:59Z"))
        == 365 * 288 - 12
    )


def test_a_thousand_years_are_counted():
    every_day = timing("30 2 * * *", "America/New_York")
    assert every_day.count(ms("2000-01-01T00:00Z"), ms("3000-01-01T00:00Z")) == 365_243
    assert every_day.count(-(1 << 80), 1 << 80) == (LAST_MS - FIRST_MS + 1) // DAY_MS


def test_counting_backwards_finds_nothing():
    assert timing("* * * * *").count(10**12, 0) == 0
    assert IntervalTiming(1_000, 0).count(10**12, 0) == 0


def test_a_zone_without_a_name_will_do():
    cron = Cron.parse("0 9 * * *")
    assert CronTiming(cron, timezone(timedelta(hours=5, minutes=30))).next(0) == Run(
        ms("1970-01-01T03:30Z"), 19_800, None
    )
    assert CronTiming(cron, UTC).last(0) == Run(ms("1969-12-31T09:00Z"), 0, None)


def test_an_interval_runs_on_its_grid_on_both_sides_of_the_anchor():
    every = IntervalTiming(1_500, 10_000)
    assert [every.next(at) for at in (9_999, 10_000, 0)] == [
        Run(10_000, 0, None),
        Run(11_500, 0, None),
        Run(1_000, 0, None),
    ]
    assert [every.last(at) for at in (10_001, 10_000)] == [Run(10_000, 0, None), Run(8_500, 0, None)]
    assert every.count(8_500, 11_500) == 2
    assert every.next(LAST_MS) is None
    assert every.next(1 << 80) is None
    assert every.last(-(1 << 80)) is None
    with pytest.raises(ValueError, match="at least a millisecond"):
        IntervalTiming(0, 0)
