"""Zones: only the pinned database's names, a helpful word about all others, and what the timing relies on in the data."""

from datetime import UTC
from importlib import import_module
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from tests.unit.model.zonefiles import changes, names
from tocsin.model.zones import DAY_MS, FIRST_MS, LAST_MS, RULES_MS, UnknownZone, Zones, offsets, pinned_zones


def test_every_name_of_the_database_is_a_zone():
    zones = pinned_zones()
    assert zones.version == import_module("tzdata").IANA_VERSION
    for name in names():
        assert zones.zone(name) is zones.zone(name)


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("", "Europe/Berlin"),
        ("Europe/Berln", "did you mean Europe/Berlin"),
        ("europe/berlin", "did you mean Europe/Berlin?"),
        ("New York", "did you mean America/New_York?"),
        ("kolkata", "did you mean Asia/Kolkata?"),
        (" Asia/Kolkata", "did you mean Asia/Kolkata?"),
        ("+05:30", "is an offset"),
        ("-0800", "is an offset"),
        ("UTC+5", "Etc/GMT-5"),
        ("GMT-03:00", "Etc/GMT+3"),
        ("UTC+25", "write an IANA name"),
        ("PST", "abbreviations mean several"),
        ("CEST", "abbreviations mean several"),
        ("EST5EDT4", "did you mean EST5EDT?"),
        ("EST5EDT,M3.2.0,M11.1.0", "is not a time zone"),
        ("Factory", "is not a time zone"),
        ("posixrules", "is not a time zone"),
        ("localtime", "is not a time zone"),
        ("../Europe/Berlin", "is not a time zone"),
        ("Europe/../UTC", "is not a time zone"),
        ("Europe", "is not a time zone"),
        ("/etc/localtime", "is not a time zone"),
        ("tzdata.zi", "is not a time zone"),
        ("UTC\0", "is not a time zone"),
        ("x" * 5_000, "is not a time zone"),
    ],
)
def test_anything_else_is_refused_with_a_way_out(name, way_out):
    with pytest.raises(UnknownZone) as caught:
        pinned_zones().zone(name)
    assert way_out in str(caught.value)
    assert len(str(caught.value)) < 200


def test_zones_may_come_from_elsewhere():
    known = {"Here": UTC}
    zones = Zones("test", known.__getitem__)
    assert zones.zone("Here") is UTC
    with pytest.raises(UnknownZone):
        zones.zone("There")


def test_the_processs_own_zone_settings_are_left_alone():
    assert pinned_zones().zone("Europe/Berlin") is not ZoneInfo("Europe/Berlin")


def test_every_zone_keeps_each_offset_for_more_than_two_days():
    for name in names():
        for (earlier, _, _), (later, _, _) in pairwise(changes(name)):
            assert later - earlier > 6 * 86_400, name


def test_no_clock_was_changed_before_1800_or_by_more_than_a_day_and_no_list_goes_beyond_the_rules():
    for name in names():
        for at, before, after in changes(name):
            assert -5_364_662_400 < at < RULES_MS // 1_000, name
            assert abs(after - before) <= 86_400, name


def test_a_zone_keeps_a_bounded_number_of_windows():
    found = offsets(pinned_zones().zone("Europe/Paris"))
    for instant in range(FIRST_MS, LAST_MS, 3_000 * DAY_MS):
        found.at(instant)
    assert len(found._windows) <= 400
