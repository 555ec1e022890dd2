"""Cron expressions: what is read, and what an error tells its reader to write instead."""

import pytest

from tocsin.model.cron import MINUTES_A_DAY, Cron, CronError


def reason(text: str) -> tuple[str, str]:
    with pytest.raises(CronError) as caught:
        Cron.parse(text)
    return caught.value.field, caught.value.reason


def test_the_fields_become_sets():
    cron = Cron.parse("*/20,5 9-17/4 1,15 jan-MAR 7")
    assert cron.minutes == (0, 5, 20, 40)
    assert cron.hours == (9, 13, 17)
    assert (cron.days, cron.months, cron.weekdays) == ((1, 15), (1, 2, 3), (0,))
    assert (cron.day_restricted, cron.weekday_restricted, cron.follows_elapsed_time) == (True, True, False)


def test_the_text_is_kept_as_written():
    assert Cron.parse("  0  9\t* * * ").text == "  0  9\t* * * "
    assert Cron.parse("@daily").text == "@daily"


def test_equal_text_is_read_once():
    assert Cron.parse("1 2 3 4 5") is Cron.parse("1 2 3 4 5")


@pytest.mark.parametrize("hours", ["*", "*/1", "*/2", "*/24"])
def test_an_hour_field_of_a_star_follows_elapsed_time(hours):
    assert Cron.parse(f"0 {hours} 1 * *").follows_elapsed_time


@pytest.mark.parametrize("hours", ["0-23", "0-23/2", "*/2,3", "*,3", "0"])
def test_any_other_hour_field_follows_the_clock_on_the_wall(hours):
    assert not Cron.parse(f"* {hours} * * *").follows_elapsed_time


@pytest.mark.parametrize(
    ("text", "days"), [("fri-sun", (0, 5, 6)), ("sat-SUN", (0, 6)), ("sun-sun", (0,)), ("sun-tue", (0, 1, 2))]
)
def test_sunday_by_name_opens_the_week_and_closes_it(text, days):
    assert Cron.parse(f"0 0 * * {text}").weekdays == days


@pytest.mark.parametrize(
    ("text", "field", "way_out"),
    [
        ("", "expression", "`0 9 * * mon-fri`"),
        ("* * * *", "expression", "it has 4"),
        ("0 */5 * * * *", "expression", "seconds and years are not supported"),
        ("@every 90s", "expression", "`every_s`"),
        ("@reboot", "expression", "`@daily`"),
        ("@DAILY", "expression", "write `@daily`"),
        ("@daily 5", "expression", "alone"),
        ("@weekdays", "expression", "@weekly"),
        ("CRON_TZ=Asia/Kolkata 0 9 * * *", "expression", "`time_zone`"),
        ("0 9 * * *\n", "expression", "a line break"),
        ("0 9\u2003* * * *", "expression", "U+2003"),
        ("0 9 * * *\u200b", "expression", "U+200B"),
        ("5/15 * * * *", "minute", "`5-59/15`"),
        ("0 9 ? * *", "day of month", "write `*`"),
        ("0 9 L * *", "day of month", "`28-31`"),
        ("0 9 15W * *", "day of month", "nearest weekday"),
        ("0 9 * * 5L", "day of week", "look at the date itself"),
        ("0 9 * * mon#1", "day of week", "`0 9 */100,1-7 * mon`"),
        ("H(0-29)/10 * * * *", "minute", "by hash"),
        ("0 9 * * friday", "day of week", "write `fri`"),
        ("0 9 * January *", "month", "write `jan`"),
        ("0 9 * nov-feb *", "month", "`nov-12,1-feb`"),
        ("0 9 * * fri-mon", "day of week", "`fri-7,0-mon`"),
        ("0 25 * * *", "hour", "0-23"),
        ("60 9 * * *", "minute", "0-59"),
        ("0 9 32 * *", "day of month", "1-31"),
        ("0 9 * 13 *", "month", "1-12 or jan-dec"),
        ("*/-5 * * * *", "minute", "`*/5`"),
        ("*/ * * * *", "minute", "`*/5`"),
        ("/5 * * * *", "minute", "0-59"),
        ("*-5 * * * *", "minute", "stands alone"),
        ("5-* * * * *", "minute", "0-59"),
        ("0 0 30 feb *", "day of month", "never comes"),
        ("0 0 31 4-4,6 */2", "day of month", "never comes"),
    ],
)
def test_what_cannot_be_read_names_the_field_and_the_way_out(text, field, way_out):
    where, why = reason(text)
    assert where == field
    assert way_out in why


def test_the_ways_out_can_be_taken():
    for text in (
        "0 9 */100,1-7 * mon",
        "5-59/15 * * * *",
        "0 9 * nov-12,1-feb *",
        "0 9 * * fri-7,0-mon",
        "0 9 28-31 * *",
    ):
        Cron.parse(text)


def test_a_message_shows_no_more_of_the_text_than_it_needs():
    _, why = reason("9" * 10_000 + " * * * *")
    assert len(why) < 120


def test_a_date_that_comes_by_its_weekday_is_not_impossible():
    assert Cron.parse("0 0 30 2 1").first(0) is not None
    assert reason("0 0 30 2 *")[0] == "day of month"


def test_days_are_counted_as_fast_over_the_whole_calendar_as_over_a_year():
    cron = Cron.parse("* * 29 2 *")
    assert cron.count(-(1 << 60), 1 << 60) == 2_424 * MINUTES_A_DAY
    assert cron.count(0, 8 * 365 * MINUTES_A_DAY) == 2 * MINUTES_A_DAY  # 1972 and 1976


def test_the_calendar_ends():
    cron = Cron.parse("59 23 31 12 *")
    last = cron.last(1 << 60)
    assert last is not None
    assert cron.first(last) == last
    assert cron.first(last + 1) is None
    first = cron.first(-(1 << 60))
    assert first is not None
    assert cron.last(first - 1) is None
