"""The sentences about schedules: a table of them, and a reader that gets the fields back from the sentence alone."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.amount import examples
from tocsin.clock import ms_of
from tocsin.model.cron import Cron, CronError
from tocsin.model.explain import MONTHS, WEEK, days_of, explain, explain_interval

SENTENCES = [
    ("* * * * *", "Every minute"),
    ("*/1 * * * *", "Every minute"),
    ("0-59 */1 1-31 * *", "Every minute"),
    ("*/15 * * * *", "Every 15 minutes, in UTC"),
    ("*/2 * * * *", "Every 2 minutes, in UTC"),
    ("0,30 * * * *", "Every 30 minutes, in UTC"),
    ("*/7 * * * *", "At minutes 0, 7, ..., 56 of every hour, in UTC"),
    ("*/45 * * * *", "At minutes 0 and 45 of every hour, in UTC"),
    ("*/59 * * * *", "At minutes 0 and 59 of every hour, in UTC"),
    ("*/25 * * * *", "At minutes 0, 25 and 50 of every hour, in UTC"),
    ("*/90 * * * *", "Every hour at minute 0, in UTC"),
    ("5-59/15 * * * *", "At minutes 5, 20, 35 and 50 of every hour, in UTC"),
    ("2-59/4 * * * *", "At minutes 2, 6, ..., 58 of every hour, in UTC"),
    ("0-14 * * * *", "At minutes 0 to 14 of every hour, in UTC"),
    ("0-4,10,30-32 * * * *", "At minutes 0 to 4, 10 and 30 to 32 of every hour, in UTC"),
    ("*/20,5 * * * *", "At minutes 0, 5, 20 and 40 of every hour, in UTC"),
    ("17 * * * *", "Every hour at minute 17, in UTC"),
    ("@hourly", "Every hour at minute 0, in UTC"),
    ("0 0-23 * * *", "Every hour from 00:00 to 23:00, every day, in UTC"),
    ("* 0-23 * * *", "Every minute from 00:00 to 23:59, every day, in UTC"),
    ("*/15 0-23 * * *", "Every 15 minutes from 00:00 to 23:45, every day, in UTC"),
    ("@daily", "At 00:00 every day, in UTC"),
    ("@midnight", "At 00:00 every day, in UTC"),
    ("@weekly", "At 00:00 every Sunday, in UTC"),
    ("@monthly", "At 00:00 on day 1 of the month, in UTC"),
    ("@yearly", "At 00:00 on 1 January, in UTC"),
    ("@annually", "At 00:00 on 1 January, in UTC"),
    ("0 2 * * *", "At 02:00 every day, in UTC"),
    ("0 2 * * 1-5", "At 02:00, Monday to Friday, in UTC"),
    ("05 08 * * *", "At 08:05 every day, in UTC"),
    ("0 9,17 * * *", "At 09:00 and 17:00 every day, in UTC"),
    ("0,30 9,17 * * *", "At 09:00, 09:30, 17:00 and 17:30 every day, in UTC"),
    ("0 */6 * * *", "At 00:00, 06:00, 12:00 and 18:00 every day, in UTC"),
    ("0 */2 * * *", "Every 2 hours from 00:00 to 22:00, every day, in UTC"),
    ("23 0-23/2 * * *", "Every 2 hours from 00:23 to 22:23, every day, in UTC"),
    ("0 */5 * * *", "Every 5 hours from 00:00 to 20:00, every day, in UTC"),
    ("30 9-17 * * 1-5", "Every hour from 09:30 to 17:30, Monday to Friday, in UTC"),
    ("0 1,2,5,8,9 * * *", "At 01:00, 02:00, 05:00, 08:00 and 09:00 every day, in UTC"),
    (
        "0 1-4,6-9,20 * * *",
        "At minute 0 of the hours 01 to 04, 06 to 09 and 20, every day, in UTC",
    ),
    ("*/15 9-17 * * *", "Every 15 minutes from 09:00 to 17:45, every day, in UTC"),
    ("*/30 9-17 * * mon-fri", "Every 30 minutes from 09:00 to 17:30, Monday to Friday, in UTC"),
    ("* 9-17 * * *", "Every minute from 09:00 to 17:59, every day, in UTC"),
    ("* 9 * * *", "Every minute from 09:00 to 09:59, every day, in UTC"),
    (
        "*/10 8-11,14-16 * * *",
        "Every 10 minutes from 08:00 to 11:50 and from 14:00 to 16:50, every day, in UTC",
    ),
    ("* */2 * * *", "Every minute of the hours 00, 02, ..., 22, every day, in UTC"),
    ("*/15 1-23/2 * * *", "At minutes 0, 15, 30 and 45 of the hours 01, 03, ..., 23, every day, in UTC"),
    ("*/7 9 * * *", "Every 7 minutes from 09:00 to 09:56, every day, in UTC"),
    ("*/7 9-10 * * *", "At minutes 0, 7, ..., 56 of the hours 09 and 10, every day, in UTC"),
    ("0-4 9 * * *", "Every minute from 09:00 to 09:04, every day, in UTC"),
    ("1,2,4,8,16,32,33,34,35 9 * * *", "At minutes 1, 2, 4, 8, 16 and 32 to 35 of hour 09, every day, in UTC"),
    ("0 0 * * 0", "At 00:00 every Sunday, in UTC"),
    ("0 0 * * 7", "At 00:00 every Sunday, in UTC"),
    ("0 9 * * mon,wed,fri", "At 09:00 every Monday, Wednesday and Friday, in UTC"),
    ("0 9 * * 6,0", "At 09:00 every Saturday and Sunday, in UTC"),
    ("0 9 * * 5-7", "At 09:00, Friday to Sunday, in UTC"),
    ("0 9 * * 0-4,6", "At 09:00 every day except Friday, in UTC"),
    ("*/5 * * * 1", "Every 5 minutes, every Monday, in UTC"),
    ("* * * * sat,sun", "Every minute, every Saturday and Sunday, in UTC"),
    ("0 0 * * 0-7", "At 00:00 every day, in UTC"),
    ("0 0 * * */2", "At 00:00 every Tuesday, Thursday, Saturday and Sunday, in UTC"),
    ("0 0 1,15 * *", "At 00:00 on days 1 and 15 of the month, in UTC"),
    ("0 0 1-7 * *", "At 00:00 on days 1 to 7 of the month, in UTC"),
    ("0 0 */2 * *", "At 00:00 on days 1, 3, ..., 31 of the month, in UTC"),
    ("0 0 31 * *", "At 00:00 on day 31 of the month, in UTC"),
    ("0 0 1 JAN *", "At 00:00 on 1 January, in UTC"),
    ("0 0 29 2 *", "At 00:00 on 29 February, in UTC"),
    ("0 0 1 1,4,7,10 *", "At 00:00 on day 1 of January, April, July and October, in UTC"),
    ("0 0 1,15 mar-may *", "At 00:00 on days 1 and 15 of March to May, in UTC"),
    ("0 0 * 12 *", "At 00:00 every day in December, in UTC"),
    ("0 0 * */2 *", "At 00:00 every day in January, March, May, July, September and November, in UTC"),
    ("0 0 * 6-8 1-5", "At 00:00, Monday to Friday in June to August, in UTC"),
    ("*/15 * * 3 *", "Every 15 minutes in March, in UTC"),
    ("* * * 3 *", "Every minute in March, in UTC"),
    ("0 0 13 * 5", "At 00:00 on day 13 of the month or on a Friday, in UTC"),
    ("30 4 1,15 * 5", "At 04:30 on days 1 and 15 of the month or on a Friday, in UTC"),
    ("0 0 1-7 * 1,3", "At 00:00 on days 1 to 7 of the month or on a Monday or Wednesday, in UTC"),
    ("0 0 1 * 1-5", "At 00:00 on day 1 of the month or on a day from Monday to Friday, in UTC"),
    ("0 0 1 * 1-6,0", "At 00:00 on day 1 of the month or on any day of the week, so every day, in UTC"),
    ("0 0 1-31 * 1", "At 00:00 on any day of the month or on a Monday, so every day, in UTC"),
    ("0 0 13 3,6 5", "At 00:00 in March and June, on day 13 of the month or on a Friday, in UTC"),
    ("0 0 */2 * 1", "At 00:00 on days 1, 3, ..., 31 of the month that are a Monday, in UTC"),
    ("0 0 13 * */7", "At 00:00 on day 13 of the month if that is a Sunday, in UTC"),
    ("0 0 29 2 */7", "At 00:00 on 29 February if that is a Sunday, in UTC"),
    ("1 1 */100,1-7 * MON", "At 01:01 on days 1 to 7 of the month that are a Monday, in UTC"),
    ("0 0 */5 10 1", "At 00:00 on days 1, 6, ..., 31 of October that are a Monday, in UTC"),
    ("0 0 1-31 * *", "At 00:00 every day, in UTC"),
]


@pytest.mark.parametrize(("text", "sentence"), SENTENCES)
def test_a_schedule_is_said_in_plain_english(text, sentence):
    assert explain(Cron.parse(text), "UTC") == sentence


def test_the_zone_is_named():
    assert explain(Cron.parse("0 2 * * 1-5"), "Asia/Kolkata") == "At 02:00, Monday to Friday, in Asia/Kolkata"


def test_the_days_alone_can_be_said():
    assert days_of(Cron.parse("0 0 13 * 5")) == "on day 13 of the month or on a Friday"
    assert days_of(Cron.parse("0 0 * * *")) == ""


@pytest.mark.parametrize(
    ("every_s", "said"),
    [
        (1, "second"),
        (1.5, "1.5 seconds"),
        (2.005, "2.005 seconds"),
        (60, "minute"),
        (90, "90 seconds"),
        (900, "15 minutes"),
        (3600, "hour"),
        (5400, "90 minutes"),
        (86_400, "24 hours"),
        (90_061, "90,061 seconds"),
        (3_660 * 86_400.0, "87,840 hours"),
    ],
)
def test_an_interval_is_said_in_its_own_unit(every_s, said):
    anchor = ms_of(datetime(2026, 12, 5, 3, 30, tzinfo=UTC))
    assert explain_interval(every_s, anchor) == f"Every {said}, counted from 2026-12-05T03:30:00Z"


def test_an_interval_without_an_anchor_counts_from_its_creation():
    assert explain_interval(60, None) == "Every minute, counted from its creation"


def terms(low: int, high: int):
    """What a field may hold between two commas."""
    value = st.integers(low, high)
    spans = st.tuples(value, value).map(lambda ends: f"{min(ends)}-{max(ends)}")
    return st.one_of(
        value.map(str),
        spans,
        st.tuples(spans, st.integers(1, high)).map(lambda both: f"{both[0]}/{both[1]}"),
        st.integers(1, high).map(lambda step: f"*/{step}"),
    )


def fields(low: int, high: int):
    return st.one_of(st.just("*"), terms(low, high), st.lists(terms(low, high), min_size=2, max_size=5).map(",".join))


RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


@st.composite
def crons(draw):
    return parsed(draw(fields(*ends)) for ends in RANGES)


def parsed(parts) -> Cron:
    try:
        return Cron.parse(" ".join(parts))
    except CronError:
        assume(False)
        raise


def meaning(cron: Cron):
    """The times of day, the months, the days in them, and whether all 24 hours pass as elapsed time."""
    times = frozenset((hour, minute) for hour in cron.hours for minute in cron.minutes)
    either = cron.day_restricted and cron.weekday_restricted
    weekdays = {(weekday + 6) % 7 for weekday in cron.weekdays}
    days = days_that_match(set(cron.days), weekdays, any if either else all)
    return times, (frozenset(cron.months), days), len(cron.hours) == 24 and cron.follows_elapsed_time


def days_that_match(days, weekdays, rule):
    return frozenset(
        (day, weekday) for day in range(1, 32) for weekday in range(7) if rule((day in days, weekday in weekdays))
    )


@settings(max_examples=examples(150))
@given(crons())
def test_a_sentence_says_exactly_what_the_fields_mean(cron):
    assert read(explain(cron, "Europe/London")) == meaning(cron)


@settings(max_examples=examples(150))
@given(crons(), st.integers(0, 4), st.data())
def test_schedules_that_differ_in_a_field_get_different_sentences(cron, which, data):
    parts = cron.text.split()
    parts[which] = data.draw(fields(*RANGES[which]))
    other = parsed(parts)
    assume(meaning(other) != meaning(cron))
    assert explain(other, "UTC") != explain(cron, "UTC")


def test_no_two_sets_of_times_share_a_sentence():
    """All pairs of a few hundred minute and hour fields, whatever their form."""
    starts = [
        f"{low}-{high}/{step}" for low, high in ((0, 59), (0, 58), (1, 59), (10, 40)) for step in (1, 2, 7, 15, 29)
    ]
    minutes = ["*", "0", "59", "0,1", "0,30", "0-2", "0,2,4,6,8", "0,2,4,6,9", "1,3,5,7", *starts]
    hours = [
        "*",
        "*/2",
        "0",
        "9",
        "0-23",
        "0-22",
        "9-17",
        "9,17",
        "0,12,13",
        "1-3,5-7,9-11",
        "1-3,5-7,9-11,13",
        "0-23/5",
    ]
    said: dict[str, object] = {}
    for minute in minutes:
        for hour in hours:
            cron = Cron.parse(f"{minute} {hour} * * *")
            assert said.setdefault(explain(cron, "UTC"), meaning(cron)) == meaning(cron)


# A reader of the sentences. It shares nothing with what writes them but the names of months and weekdays.

CLOCK = r"\d\d:\d\d"
LIST = r"\d+(?:, \.\.\.|, \d+| and \d+| to \d+)*"
MONTH = "|".join(MONTHS)
NAMES = rf"(?:{MONTH})(?:(?:, | and | to )(?:{MONTH}))*"
SPAN = rf"from {CLOCK} to {CLOCK}"


def read(sentence: str):
    """(times, days, elapsed) of a sentence, as `meaning` has them."""
    if sentence != "Every minute":
        sentence, zone = sentence.rsplit(", in ", 1)
        assert zone == "Europe/London"
    for pattern, reader in READERS:
        if found := re.match(pattern + r"(?=[ ,]|\Z)", sentence):
            times, elapsed = reader(*found.groups())
            rest = sentence[found.end() :]
            return frozenset(times), read_days(rest.removeprefix(",").strip()), elapsed
    raise AssertionError(f"cannot be read: {sentence}")


def read_spans(step, spans):
    times = [
        (at // 60, at % 60)
        for first, last in re.findall(rf"from ({CLOCK}) to ({CLOCK})", spans)
        for at in range(minute_of(first), minute_of(last) + 1, int(step or 1))
    ]
    return times, False


def read_hourly(step, first, last):
    return [(at // 60, at % 60) for at in range(minute_of(first), minute_of(last) + 1, 60 * int(step or 1))], False


def read_minutes(minutes, of):
    hours = range(24) if of == "every hour" else read_list(of.rpartition("hours " if "hours" in of else "hour ")[2])
    return [(hour, minute) for hour in hours for minute in read_list(minutes)], of == "every hour"


READERS = (
    (rf"Every (?:(\d+) )?minutes? ({SPAN}(?:, {SPAN})*(?: and {SPAN})?)", read_spans),
    (rf"Every (?:(\d+) )?hours? from ({CLOCK}) to ({CLOCK})", read_hourly),
    (rf"Every minute of (the hours {LIST})", lambda of: read_minutes("0 to 59", of)),
    (r"Every hour at minute (\d+)", lambda minute: read_minutes(minute, "every hour")),
    (
        r"Every (?:(\d+) )?minutes?(?! from| of)",
        lambda step: ([(at // 60, at % 60) for at in range(0, 1440, int(step or 1))], True),
    ),
    (rf"At minutes? ({LIST}) of (every hour|hour \d\d|the hours {LIST})", read_minutes),
    (
        rf"At ({CLOCK}(?:(?:, | and ){CLOCK})*)",
        lambda times: ([divmod(minute_of(one), 60) for one in re.findall(CLOCK, times)], False),
    ),
)


def read_days(text: str):
    if text.endswith(", so every day"):
        text = text.removesuffix(", so every day")
        assert " or on " in text
    if " or on " in text:
        found = re.fullmatch(rf"(?:in ({NAMES}), )?on (.*?) or on (.*)", text)
        assert found
        months, days, weekdays = found.groups()
        return chosen(months, read_month_days(days), read_weekdays(weekdays), any)
    if text.startswith("on "):
        found = re.fullmatch(r"on (.*?)(?: (?:that are|if that is) (.*))?", text)
        assert found
        dates, weekdays = found[1], read_weekdays(found[2] or "any day of the week")
        if single := re.fullmatch(rf"(\d+) ({MONTH})", dates):
            return chosen(single[2], {int(single[1])}, weekdays, all)
        among = re.fullmatch(rf"(.*) of (the month|{NAMES})", dates)
        assert among
        months = None if among[2] == "the month" else among[2]
        return chosen(months, read_month_days(f"{among[1]} of the month"), weekdays, all)
    found = re.fullmatch(rf"(.*?) ?(?:in ({NAMES}))?", text)
    assert found
    return chosen(found[2], set(range(1, 32)), read_every(found[1]), all)


def read_month_days(text: str):
    if text == "any day of the month":
        return set(range(1, 32))
    found = re.fullmatch(rf"days? ({LIST}) of the month", text)
    assert found
    return read_list(found[1])


def read_every(text: str):
    if text in ("", "every day"):
        return set(range(7))
    if text.startswith("every day except "):
        return set(range(7)) - {WEEK.index(text.removeprefix("every day except "))}
    return read_list(text.removeprefix("every "), WEEK)


def read_weekdays(text: str):
    if text == "any day of the week":
        return set(range(7))
    if text.startswith("a day other than "):
        return set(range(7)) - {WEEK.index(text.removeprefix("a day other than "))}
    return read_list(text.removeprefix("a day from ").removeprefix("a ").replace(" or ", " and "), WEEK)


def read_list(text: str, names: tuple[str, ...] = ()):
    def number(word: str) -> int:
        return names.index(word) if names else int(word)

    parts = re.split(", | and ", text)
    if "..." in parts:
        first, second, _, last = parts
        assert len(parts) == 4
        return set(range(number(first), number(last) + 1, number(second) - number(first)))
    read_back: list[int] = []
    for part in parts:
        first, to, last = part.partition(" to ")
        read_back += range(number(first), number(last if to else first) + 1)
    assert read_back == sorted(set(read_back))
    return set(read_back)


def chosen(months, days, weekdays, rule):
    among = read_list(months, MONTHS) if months else range(12)
    return frozenset(month + 1 for month in among), days_that_match(days, weekdays, rule)


def minute_of(clock: str) -> int:
    return int(clock[:2]) * 60 + int(clock[3:])
