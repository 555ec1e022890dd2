"""The published rule in numbers: every vector of tests/cases/cron_vectors.jsonl.

Where cron programs disagree (`contested`) this is what is decided here:

- Refused, though others take them: `L`, `W`, `#`, `@reboot`, `@every`, `@Daily`, ranges that wrap, a no-break space, zone prefixes, `H`
  and `~`; and dates that never come.
- Taken, though others refuse them: steps longer than the field (`*/90`: the first value only) and `fri-sun`.
- `5-5/2` is 5; a day field that begins with `*` is not restricted; only an hour field `*` or `*/n` follows elapsed time; a skipped
  time is made up for after a gap of any length, at its end. The zone data is the newest.

So only the extensions, which are no part of the grammar, take an `alt` of their vector instead of its `expect`.
"""

import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from tocsin.model.cron import Cron, CronError
from tocsin.model.timing import CronTiming
from tocsin.model.zones import UnknownZone, pinned_zones

VECTORS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "cases" / "cron_vectors.jsonl").read_text(encoding="utf-8").splitlines()
]
FIELDS = {
    "cv-131": "day of month",
    "cv-135": "day of week",
    "cv-166": "day of week",
    "cv-168": "day of week",
    "cv-170": "month",
    "cv-171": "day of week",
    "cv-175": "hour",
    "cv-176": "hour",
    "cv-183": "minute",
    "cv-185": "day of week",
    "cv-189": "month",
    "cv-190": "day of week",
    "cv-198": "day of month",
    "cv-375": "day of week",
    "cv-376": "day of week",
    "cv-377": "day of week",
    "cv-379": "day of week",
    **dict.fromkeys(["cv-102", "cv-103", "cv-105"], "day of month"),
    **dict.fromkeys(["cv-079", "cv-080", "cv-081", "cv-082", "cv-083", "cv-124", "cv-128"], "expression"),
    **dict.fromkeys(["cv-186", "cv-192", "cv-194", "cv-196"], "expression"),
}


def refused(vector) -> bool:
    return vector.get("expect_error", False) or vector["kind"] == "extension"


def instant(text: str) -> int:
    """Milliseconds of an instant that may be given in microseconds: those that are cut off are over."""
    return int((datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000 // 1)


def named(vectors):
    return [pytest.param(vector, id=vector["id"]) for vector in vectors]


@pytest.mark.parametrize("vector", named(vector for vector in VECTORS if not refused(vector)))
def test_the_runs_are_those_of_the_vector(vector):
    timing = CronTiming(Cron.parse(vector["expr"]), pinned_zones().zone(vector["tz"]))
    after = instant(vector["after"])
    expected = [instant(text) for text in vector["expect"]]
    found: list[int] = []
    for _ in expected:
        run = timing.next(found[-1] if found else after)
        assert run is not None
        found.append(run.at)
    assert found == expected
    assert timing.count(after, expected[-1]) == len(expected)
    for earlier, later in pairwise(found):
        newest = timing.last(later)
        assert newest is not None
        assert newest.at == earlier


@pytest.mark.parametrize("vector", named(vector for vector in VECTORS if refused(vector) and vector["kind"] != "zone"))
def test_what_is_not_cron_is_refused_with_field_and_reason(vector):
    with pytest.raises(CronError) as caught:
        Cron.parse(vector["expr"])
    expected = FIELDS.get(vector["id"], "minute" if vector["kind"] == "invalid" else caught.value.field)
    assert caught.value.field == expected
    assert len(caught.value.reason) > 20


@pytest.mark.parametrize("vector", named(vector for vector in VECTORS if refused(vector) and vector["kind"] == "zone"))
def test_what_is_not_a_zone_is_refused(vector):
    with pytest.raises(UnknownZone):
        pinned_zones().zone(vector["tz"])


def test_all_vectors_are_there():
    assert len({vector["id"] for vector in VECTORS}) == len(VECTORS) == 238
    assert all(refused(vector) or vector.get("expect") for vector in VECTORS)
