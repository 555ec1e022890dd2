"""Nights on which clocks change, with a restart in the middle of them (F-11), and zones that are not forgotten by one (F-81).

What fires is compared with the pure model, and with the published vectors, which do not come from here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.faults.conftest import worker_of
from tests.faults.sites import Kept, Site, at, text
from tocsin.clock import ms_of
from tocsin.model.cron import Cron
from tocsin.model.timing import CronTiming
from tocsin.model.zones import pinned_zones

EXPRESSIONS = ("* * * * *", "*/30 * * * *", "30 * * * *", "30 1 * * *", "30 2 * * *", "30 1,2 * * *", "30 0 * * *")
# The instant of the change, the zones that make it about then, and the hours that are looked at before and after.
NIGHTS = {
    "spring in America": ("2026-03-08 06:00", ["America/New_York", "America/Havana"], 2, 3),
    "autumn in America": ("2026-11-01 05:30", ["America/New_York", "America/Havana"], 2, 3),
    "spring in London": ("2026-03-29 01:00", ["Europe/London"], 1, 2),
    "autumn in London": ("2026-10-25 01:00", ["Europe/London"], 1.5, 2),
    "spring in Lord Howe": ("2026-10-03 15:30", ["Australia/Lord_Howe"], 1, 2),
    "autumn in Lord Howe": ("2026-04-04 15:00", ["Australia/Lord_Howe"], 1, 2),
}
MOST_PASSES_A_MINUTE = 100
CASES = Path(__file__).parents[1] / "cases" / "cron_vectors.jsonl"
MINUTE = timedelta(minutes=1)
FOUR = {"America/New_York", "Europe/London", "Australia/Lord_Howe", "America/Havana"}


def of_the_model(expression: str, zone: str, after: datetime, until: datetime) -> list[str]:
    """When the pure model says that it runs."""
    timing, found = CronTiming(Cron.parse(expression), pinned_zones().zone(zone)), []
    run = timing.next(ms_of(after))
    while run is not None and run.at <= ms_of(until):
        found.append(text(datetime.fromtimestamp(run.at / 1000, UTC)))
        run = timing.next(run.at)
    return found


async def nothing(payload: object) -> None:
    """A handler that has nothing to do."""


def counted(site: Site) -> list[int]:
    """Counts the passes of the server's stages from now on."""
    passes = [0]

    def count(stage: Any) -> None:
        step = stage.step

        async def counting() -> Any:
            passes[0] += 1
            return await step()

        stage.step = counting

    for stage in site.server.process.stages:
        count(stage)
    return passes


@pytest.mark.parametrize("night", NIGHTS)
async def test_on_the_night_of_a_change_what_fires_is_what_the_rule_says(tmp_path, night):
    moment_of_change, zones, before_h, after_h = NIGHTS[night]
    change = at(moment_of_change)
    start, end = change - timedelta(hours=before_h), change + timedelta(hours=after_h)
    async with Site(tmp_path, start) as site:
        kepts = {
            (expression, zone): await site.schedule(f"{zone} {expression}", cron=expression, time_zone=zone)
            for zone in zones
            for expression in EXPRESSIONS
        }
        # Restarts in the first and in the second pass of a repeated hour.
        for moment in (change - 13 * MINUTE, change + 17 * MINUTE, change + 47 * MINUTE, end):
            passes, since = counted(site), site.now
            async with site.server.running(worker_of(site.server, work=nothing)):
                while site.now < moment:
                    await site.advance_to(min(moment, site.now + timedelta(hours=1)))
                    await goes_on(kepts.values(), site.now)
            assert passes[0] < MOST_PASSES_A_MINUTE * (site.now - since) / MINUTE, "it spins"
            if moment != end:
                await site.restart()
        for (expression, zone), kept in kepts.items():
            assert await kept.fired() == of_the_model(expression, zone, start, end), f"{expression} in {zone}"
            assert await kept.skips() == []
        await site.check()


async def goes_on(kepts: Any, now: datetime) -> None:
    """Each next run is later than now and than all before it."""
    for kept in kepts:
        next_at, fired = await kept.next_at(), await kept.fired()
        assert next_at > text(now), kept.name
        assert all(one < other for one, other in pairwise([*fired, next_at])), kept.name


def vectors() -> Iterator[Any]:
    """Those of the four zones that take a few days at most."""
    for line in CASES.read_text(encoding="utf-8").splitlines():
        vector = json.loads(line)
        if vector.get("tz") in FOUR and vector["kind"] == "dst":
            first, last = datetime.fromisoformat(vector["after"]), datetime.fromisoformat(vector["expect"][-1])
            if last - first < timedelta(days=5):
                yield pytest.param(vector, id=vector["id"])


@pytest.mark.parametrize("vector", list(vectors()))
async def test_what_fires_is_the_published_vector(tmp_path, vector):
    """With a restart after each run, so within the repeated hour too."""
    async with Site(tmp_path, datetime.fromisoformat(vector["after"])) as site:
        kept = await site.schedule(cron=vector["expr"], time_zone=vector["tz"])
        for number, expected in enumerate(vector["expect"], 1):
            await site.advance_to(datetime.fromisoformat(expected))
            assert await kept.fired() == vector["expect"][:number]
            await site.restart(timedelta(seconds=1))
        await site.check()


async def test_a_whole_outage_over_a_change_is_judged_by_the_same_rule(tmp_path):
    """Down before, up after: what was missed in the repeated hour is counted in both passes, a gap's make-up once."""
    async with Site(tmp_path, at("2026-11-01 04:50")) as site:
        hourly = await site.schedule("hourly", cron="30 * * * *", time_zone="America/New_York")
        fixed = await site.schedule("fixed", cron="30 1 * * *", time_zone="America/New_York")
        await site.restart(timedelta(hours=3))
        assert await fixed.fired() == ["2026-11-01T05:30:00Z"]
        assert await fixed.next_at() == "2026-11-02T06:30:00Z"
        assert await hourly.fired() == ["2026-11-01T07:30:00Z"]
        assert await hourly.skips() == [("2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", 2, "missed")]
        await site.check()
    async with Site(tmp_path / "spring", at("2026-03-08 06:50")) as site:
        gone = await site.schedule("gone", cron="*/10 2 * * *", time_zone="America/New_York")
        await site.restart(timedelta(hours=3))
        assert await gone.fired() == ["2026-03-08T07:00:00Z"]
        assert await gone.next_at() == "2026-03-09T06:00:00Z"
        await site.check()


# --- the zone after a restart (F-81)

PLACES = ("America/Los_Angeles", "America/St_Johns", "Europe/London", "Asia/Kolkata", "Pacific/Chatham")
TEMPO = {"missed_runs": {"policy": "run_latest"}}


async def test_a_restart_at_any_hour_of_the_day_starts_nothing_but_at_half_past_nine(tmp_path):
    """Twelve restarts a day for two days."""
    async with Site(tmp_path, at("2026-06-01 00:10")) as site:
        kepts = [await site.schedule(place, cron="30 9 * * *", time_zone=place) for place in PLACES]
        for _ in range(24):
            await site.advance(hours=2)
            await site.restart(timedelta(seconds=2))
        for kept in kepts:
            assert [local(one, kept) for one in await kept.fired()] == ["09:30"] * 2
            assert local(await kept.next_at() or "", kept) == "09:30"
            assert await kept.skips() == []
        await site.check()


async def test_an_outage_beyond_half_past_nine_is_made_up_for_once_and_as_that_days(tmp_path):
    async with Site(tmp_path, at("2026-06-01 00:10")) as site:
        kepts = [await site.schedule(place, cron="30 9 * * *", time_zone=place, **TEMPO) for place in PLACES]
        for _ in range(5):
            await site.restart(timedelta(hours=19))
            await site.advance(minutes=1)
        for kept in kepts:
            fired = await kept.fired()
            assert [local(one, kept) for one in fired] == ["09:30"] * len(fired)
            assert len(set(fired)) == len(fired)
            assert len(fired) + sum(count for _, _, count, _ in await kept.skips()) in (3, 4, 5)
        await site.check()


def local(instant: str, kept: Kept) -> str:
    """The time of day of an instant on the clocks of a schedule's zone (which is its name here)."""
    return datetime.fromisoformat(instant).astimezone(ZoneInfo(kept.name)).strftime("%H:%M")
