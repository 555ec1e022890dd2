"""What `docs/schedules.md` promises, against the model: its table of nights, its preview and its bodies."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from tocsin import wire
from tocsin.clock import ms_of, rfc3339
from tocsin.model.cron import Cron
from tocsin.model.explain import explain
from tocsin.model.timing import CronTiming
from tocsin.model.zones import pinned_zones

PAGE = (Path(__file__).parents[3] / "docs" / "schedules.md").read_text(encoding="utf-8")
NIGHTS = re.findall(
    r"^\| (\w+/\w+) \| `(.*?)` \| (\d{4}-\d\d-\d\d), (\d\d:\d\d) to (\d\d:\d\d) \| (.*) \|$", PAGE, re.M
)


@pytest.mark.parametrize(("zone_name", "expression", "day", "old", "new", "what"), NIGHTS)
def test_a_night_of_the_table_is_as_it_says(zone_name, expression, day, old, new, what):
    zone = pinned_zones().zone(zone_name)
    timing = CronTiming(Cron.parse(expression), zone)
    begins = ms_of(datetime.fromisoformat(day).replace(tzinfo=zone))
    runs: list[datetime] = []
    run = timing.next(begins - 1)
    while run is not None and len(runs) < 30:
        runs.append(datetime.fromtimestamp(run.at / 1000, zone))
        run = timing.next(run.at)
    promised = re.findall(r"(\d\d:\d\d) \((\d\d:\d\d)Z\)", what)
    told = [(f"{at:%H:%M}", rfc3339(ms_of(at))[11:16]) for at in runs if f"{at:%Y-%m-%d}" == day]
    assert promised
    start = told.index(promised[0])
    assert told[start : start + len(promised)] == promised
    if "instead" in what or "once" in what or "again" in what:
        assert len(told) == 1
    before, after = (f"{at.astimezone(zone):%H:%M}" for at in border(zone, runs[0]))
    assert (before, after) == (old, new)


def border(zone, near: datetime):
    """The wall clock just before a change, as it would have gone on, and at it."""
    minutes = (datetime.fromtimestamp(near.timestamp() + 60 * n, zone) for n in range(-720, 720))
    for one, other in pairwise(minutes):
        if one.utcoffset() != other.utcoffset():
            return one + timedelta(minutes=1), other
    raise AssertionError("no change near")


def test_there_are_nights_of_each_zone():
    assert len(NIGHTS) == 10
    assert {night[0] for night in NIGHTS} == {"America/New_York", "Europe/London", "Australia/Lord_Howe"}


def test_the_preview_is_what_the_model_answers():
    found = re.search(r"preview\".*? -d '(.*?)'\n```\n\n```json\n(.*?)```", PAGE, re.S)
    assert found
    asked, answered = (json.loads(text) for text in found.groups())
    zone = pinned_zones().zone(asked["time_zone"])
    cron, at = Cron.parse(asked["cron"]), ms_of(datetime.fromisoformat(asked["after"]))
    for shown in answered["runs"]:
        run = CronTiming(cron, zone).next(at)
        assert run
        at = run.at
        assert (rfc3339(at), run.note) == (shown["at"], shown["note"])
        local = datetime.fromisoformat(shown["local"])
        assert (ms_of(local), local.utcoffset()) == (at, timedelta(seconds=run.offset_s))
    assert len(answered["runs"]) == asked["count"]
    assert answered["explanation"] == explain(cron, asked["time_zone"])


def test_each_body_is_one_that_the_api_reads():
    bodies = re.findall(r"v1/schedules(/sch_…)?(:[a-z-]+)?\"(?:(?!curl).)*? -d '(.*?)'\n```", PAGE, re.S)
    kinds = {":preview": wire.Preview, ":trigger": wire.Trigger, ":backfill": wire.Backfill}
    for schedule, action, body in bodies:
        kind = kinds.get(action) or (wire.SchedulePatch if schedule else wire.ScheduleCreate)
        msgspec.json.decode(body, type=kind)
    assert len(bodies) == 5
    (missed,) = re.findall(r'^\{"missed_runs": (.*)\}$', PAGE, re.M)
    msgspec.json.decode(missed, type=wire.MissedRuns)


def test_each_reason_of_a_skip_is_explained():
    explained = re.findall(r"^\| `([a-z_]+)` \|", PAGE.partition("| `reason` |")[2], re.M)
    assert sorted(explained) == sorted(get_args(wire.SkipReason))
