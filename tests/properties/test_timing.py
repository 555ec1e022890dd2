"""Timing: what a walk through every minute finds is what is computed, in every zone, in both directions and in any step."""

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise

from cronsim import CronSim
from hypothesis import assume, example, given, reject, settings
from hypothesis import strategies as st

from tests.unit.model.zonefiles import changes, names
from tocsin.model.cron import MINUTES_A_DAY, Cron, CronError
from tocsin.model.timing import CronTiming, IntervalTiming, Run
from tocsin.model.zones import DAY_MS, FIRST_MS, LAST_MS, MINUTE_MS, offsets, pinned_zones

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEAR_MS = 365 * DAY_MS
START, END = 0, 130 * YEAR_MS  # 1970-2100


def read(text):
    try:
        return Cron.parse(text)
    except CronError as error:
        return error


@st.composite
def terms(draw, low, high, words=(), base=0):
    """One term of a field: how it is written, and what it means."""

    def written(value):
        if words and value - base < len(words) and draw(st.booleans()):
            return draw(st.sampled_from([str.lower, str.upper, str.title]))(words[value - base])
        return str(value)

    kind = draw(st.sampled_from(["value", "range", "step", "star step"]))
    first = draw(st.integers(low, high))
    if kind == "value":
        return written(first), {first}
    step = draw(st.integers(1, high + 2))
    if kind == "star step":
        return f"*/{step}", set(range(low, high + 1, step))
    last = draw(st.integers(first, high))
    start, end = written(first), written(last)
    assume(end.lower() != "sun")
    if kind == "range" or first == last:  # cronsim reads `5-5/2` as `5-59/2`
        return f"{start}-{end}", set(range(first, last + 1))
    return f"{start}-{end}/{step}", set(range(first, last + 1, step))


@st.composite
def fields(draw, low, high, words=(), base=0, star=0.5):
    if draw(st.floats(0, 1)) < star:
        return "*", set(range(low, high + 1))
    parts = draw(st.lists(terms(low, high, words, base), min_size=1, max_size=3))
    return ",".join(text for text, _ in parts), set().union(*(values for _, values in parts))


MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


@st.composite
def expressions(draw):
    """A valid expression, and its sets; the hours are often near those at which clocks are changed."""
    hour = st.sampled_from(["0", "1", "2", "3", "23", "0-4", "1,2", "2,3", "*", "*/2", "*/3", "0-23/2", "22-23"]).map(
        lambda text: (text, set(Cron.parse(f"0 {text} * * *").hours))
    )
    parts = [
        draw(fields(0, 59)),
        draw(st.one_of(hour, fields(0, 23))),
        draw(fields(1, 31, star=0.7)),
        draw(fields(1, 12, MONTHS, 1, star=0.8)),
        draw(fields(0, 7, WEEKDAYS, star=0.7)),
    ]
    text = " ".join(text for text, _ in parts)
    cron = read(text)
    if isinstance(cron, CronError):
        assert cron.field == "day of month"  # no month given has such a day
        reject()
    return cron, text.split(" "), [values for _, values in parts]


zone_names = st.sampled_from(names())


@cache
def turns(name):
    """The instants at which a zone's clocks change, 1970-2100, in milliseconds."""
    return [at * 1_000 for at, _, _ in changes(name) if START <= at * 1_000 < END]


@st.composite
def places(draw):
    """A zone, and an instant of 1970-2100, as often as not near a change of clocks."""
    name = draw(zone_names)
    if turns(name) and draw(st.booleans()):
        return name, draw(st.sampled_from(turns(name))) + draw(st.integers(-30 * 3_600_000, 30 * 3_600_000))
    return name, draw(st.integers(START, END))


def fits(local, text, sets):
    """Whether a naive local time matches, by the words of crontab(5)."""
    minutes, hours, days, months, weekdays = sets
    day, weekday = local.day in days, bool({local.isoweekday(), local.isoweekday() % 7} & weekdays)
    both = text[2].startswith("*") or text[4].startswith("*")
    return (
        local.minute in minutes
        and local.hour in hours
        and local.month in months
        and (day and weekday if both else day or weekday)
    )


def walk(text, sets, zone, after, until):
    """The runs of (after, until] with their notes, found by looking at every minute."""
    elapsed = text[1] == "*" or (text[1].startswith("*/") and "," not in text[1])
    runs = []
    minute = timedelta(minutes=1)
    at = after // MINUTE_MS * MINUTE_MS
    before = datetime.fromtimestamp(at // 1_000 - 60, zone).replace(tzinfo=None)
    while at <= until:
        aware = datetime.fromtimestamp(at // 1_000, zone)
        local = aware.replace(tzinfo=None)
        twice = aware.utcoffset() != aware.replace(fold=1 - aware.fold).utcoffset()
        note = "repeat" if twice else None
        run = fits(local, text, sets) and (elapsed or not aware.fold)
        if not elapsed:
            while (before := before + minute) < local:
                if fits(before, text, sets):
                    run, note = True, "gap"
        if run and at > after:
            runs.append((at, note))
        before, at = local, at + MINUTE_MS
    return runs


def forward(timing, after, until):
    runs = []
    run = timing.next(after)
    while run is not None and run.at <= until:
        runs.append((run.at, run.note))
        run = timing.next(run.at)
    return runs


def backward(timing, after, before):
    runs = []
    run = timing.last(before)
    while run is not None and run.at > after:
        runs.append((run.at, run.note))
        run = timing.last(run.at)
    return runs[::-1]


@given(expressions(), places(), st.integers(0, 30 * 60))
def test_a_walk_through_every_minute_finds_the_same_runs(expression, place, minutes):
    cron, text, sets = expression
    name, after = place
    assume(name != "Africa/Monrovia" or after > 3 * YEAR_MS)  # until 1972 its minutes were not UTC's
    until = after + minutes * MINUTE_MS
    zone = pinned_zones().zone(name)
    timing = CronTiming(cron, zone)
    expected = walk(text, sets, zone, after, until)
    assert forward(timing, after, until) == expected
    assert backward(timing, after, until + 1) == expected
    assert timing.count(after, until) == len(expected)


@given(expressions(), zone_names, st.integers(FIRST_MS - 10, LAST_MS + 10))
@example((Cron.parse("0 0 29 2 */7"), [], []), "Europe/Berlin", 4_000_000_000_000)
@example((Cron.parse("* * * * *"), [], []), "America/Juneau", -3_225_200_000_000)  # the day that came twice, in seconds
def test_a_run_is_later_fits_and_is_found_from_everywhere(expression, name, after):
    cron = expression[0]
    zone = pinned_zones().zone(name)
    timing = CronTiming(cron, zone)
    seen: list[Run] = []
    for _ in range(6):
        run = timing.next(seen[-1].at if seen else after)
        if run is None:
            break
        assert run.at > (seen[-1].at if seen else after)
        seen.append(run)
        local = run.at + offsets(zone).at(run.at).offset
        assert local % MINUTE_MS == 0
        if run.note == "gap":
            assert not cron.follows_elapsed_time
        else:
            assert cron.matches(local // MINUTE_MS)
        if FIRST_MS + DAY_MS < run.at < LAST_MS - DAY_MS:
            aware = datetime.fromtimestamp(run.at // 1_000, zone)
            assert aware.utcoffset() == timedelta(seconds=run.offset_s)
    for earlier, later in pairwise(seen):
        assert timing.last(later.at) == earlier
        assert timing.last(earlier.at + 1) == earlier
        assert timing.next(later.at - 1) == later
        middle = (earlier.at + later.at) // 2
        assert timing.next(middle) == later
        assert timing.last(middle + 1) == earlier
    if seen:
        assert timing.count(after, seen[-1].at) == len(seen)
        assert timing.count(after, seen[-1].at - 1) == len(seen) - 1
    else:
        assert timing.count(after, LAST_MS) == 0


@given(expressions(), zone_names, st.lists(st.integers(START, END), min_size=3, max_size=6))
@settings(max_examples=40)
def test_counts_of_parts_add_up(expression, name, instants):
    timing = CronTiming(expression[0], pinned_zones().zone(name))
    instants.sort()
    parts = [timing.count(low, high) for low, high in pairwise(instants)]
    assert sum(parts) == timing.count(instants[0], instants[-1])


@given(
    expressions(),
    zone_names,
    st.integers(LAST_MS - 3 * YEAR_MS, LAST_MS),
    st.integers(FIRST_MS, FIRST_MS + 3 * YEAR_MS),
)
@settings(max_examples=30)
def test_at_the_ends_of_the_calendar_there_is_nothing_more(expression, name, late, early):
    timing = CronTiming(expression[0], pinned_zones().zone(name))
    last, first = timing.last(1 << 70), timing.next(-(1 << 70))
    assert last is not None
    assert first is not None
    assert (timing.next(last.at), timing.next(LAST_MS), timing.next(1 << 70)) == (None, None, None)
    assert (timing.last(first.at), timing.last(FIRST_MS), timing.last(-(1 << 70))) == (None, None, None)
    assert timing.count(last.at, 1 << 70) == timing.count(-(1 << 70), first.at - 1) == 0
    datetime.fromtimestamp(last.at // 1_000, UTC)
    for instant in (late, early):
        run = timing.next(instant)
        assert run is None or run.at > instant
        run = timing.last(instant)
        assert run is None or run.at < instant


@given(expressions(), st.integers(START, END))
def test_where_no_clock_is_changed_cronsim_finds_the_same(expression, after):
    cron, text, _ = expression
    timing = CronTiming(cron, UTC)
    at = after
    for expected in map(next, [CronSim(" ".join(text), EPOCH + timedelta(milliseconds=after // 1_000 * 1_000))] * 4):
        run = timing.next(at)
        assert run is not None
        assert EPOCH + timedelta(milliseconds=run.at) == expected
        at = run.at


@given(zone_names, st.integers(FIRST_MS + DAY_MS, LAST_MS - DAY_MS))
def test_the_offset_is_the_zones_own_at_any_time(name, instant):
    zone = pinned_zones().zone(name)
    stretch = offsets(zone).at(instant)
    assert stretch.start <= instant < stretch.end
    assert timedelta(milliseconds=stretch.offset) == datetime.fromtimestamp(instant // 1_000, zone).utcoffset()


@given(st.lists(zone_names, min_size=1, max_size=3), st.data())
def test_the_clocks_change_where_the_file_says(zones, data):
    for name in zones:
        known = changes(name)
        if not known:
            continue
        at, before, after = data.draw(st.sampled_from(known))
        found = offsets(pinned_zones().zone(name))
        assert found.at(at * 1_000 - 1).offset == before * 1_000
        assert found.at(at * 1_000).offset == after * 1_000


@given(
    expressions(), st.integers(-719_162 * MINUTES_A_DAY, 2_932_896 * MINUTES_A_DAY), st.integers(0, 3 * MINUTES_A_DAY)
)
def test_an_expression_counts_what_it_matches(expression, low, length):
    cron = expression[0]
    expected, minute = 0, cron.first(low)
    while minute is not None and minute < low + length:
        expected += 1
        minute = cron.first(minute + 1)
    assert cron.count(low, low + length) == expected
    assert cron.count(low, low) == cron.count(low, low - 5) == 0


@given(expressions())
@settings(max_examples=30)
def test_an_expressions_sets_are_what_was_written(expression):
    cron, text, sets = expression
    assert cron.text == " ".join(text)
    assert [set(cron.minutes), set(cron.hours), set(cron.days), set(cron.months)] == sets[:4]
    assert set(cron.weekdays) == {day % 7 for day in sets[4]}


@given(st.one_of(st.text(), st.text("0123456789*/-,@?LWH#~ \tjanmonsu", max_size=30)))
def test_any_text_is_read_or_refused_with_a_reason(text):
    cron = read(text)
    if isinstance(cron, CronError):
        assert 20 < len(cron.reason) < 200
        assert str(cron) == f"{cron.field}: {cron.reason}"
    else:
        assert CronTiming(cron, UTC).next(0) is not None


@given(
    st.integers(1, 3_660 * DAY_MS), st.integers(FIRST_MS, LAST_MS), st.integers(FIRST_MS, LAST_MS), st.integers(0, 20)
)
def test_an_interval_keeps_its_grid(every, anchor, after, steps):
    timing = IntervalTiming(every, anchor)
    at = after
    for _ in range(steps):
        run = timing.next(at)
        if run is None:
            assert at + every > LAST_MS
            break
        assert at < run.at <= at + every
        assert (run.at - anchor) % every == 0
        if run.at - every >= FIRST_MS:
            newest = timing.last(run.at)
            assert newest is not None
            assert newest.at == run.at - every
        at = run.at
    assert timing.count(after, at) == len(forward(timing, after, at))
    assert timing.count(at, after - 1) == 0
    assert timing.next(LAST_MS) is None
    assert timing.last(FIRST_MS) is None
