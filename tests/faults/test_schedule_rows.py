"""Rows that cannot be computed, or that no program of ours has written, stop nobody else, and are seen (F-14)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import worker_of
from tests.faults.sites import Kept, Site, at, text
from tocsin.store.numbers import number_of

# A minute and a half before the clocks of New York go forward.
BEFORE = at("2026-03-08 06:58:30")
HUGE = 2**62
SPEC_OF = "spec_id = (SELECT spec_id FROM schedules WHERE number = ?)"


def rule(**fields: Any) -> Callable[[dict[str, Any]], Any]:
    """A spec with another rule."""
    return lambda spec: {**spec, "rule": fields}


def but(**fields: Any) -> Callable[[dict[str, Any]], Any]:
    """A spec or state with other fields."""
    return lambda half: {**half, **fields}


BAD_SPECS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a date that never comes": rule(cron="0 0 30 2 *"),
    "an unknown zone": rule(cron="* * * * *", time_zone="Mars/Olympus_Mons"),
    "a zone that is a path": rule(cron="* * * * *", time_zone="../../etc/passwd"),
    "a zone without a name": rule(cron="* * * * *", time_zone=""),
    "an offset for a zone": rule(cron="* * * * *", time_zone="+05:30"),
    "six fields": rule(cron="0 0 0 1 1 *"),
    "no expression": rule(cron=""),
    "no timing": rule(),
    "an interval of nothing": rule(every_ms=0),
    "an interval into the past": rule(every_ms=-60_000),
    "garbage": lambda spec: "}{",
    "nothing": lambda spec: "",
    "another kind of JSON": lambda spec: [1, 2, 3],
    "a number for a text": lambda spec: {**spec, "rule": {"cron": 5}},
    "no template": lambda spec: {"rule": spec["rule"]},
    "a target of an unknown kind": but(job={"queue": "q", "target": {"type": "carrier pigeon"}}),
}
BAD_STATES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "garbage": lambda state: "\x00",
    "null": lambda state: None,
    "a next run that is a text": but(next_at="tomorrow"),
    "an unknown kind of backlog": but(backlogs=[{"kind": "wish"}]),
    "a next run beyond the calendar": but(next_at=HUGE, fire_at=HUGE),
    "a next run before it": but(next_at=-HUGE, fire_at=-HUGE),
    "a cursor beyond the calendar": but(passed_at=HUGE, passed_local=HUGE),
    "a cursor before it": but(passed_at=-HUGE, passed_local=-HUGE),
    "a pause beyond the calendar": but(pause_until=HUGE * 4),
    "a backlog of ages": but(
        backlogs=[
            {"kind": "schedule", "name": "x", "rule": {"cron": "* * * * *"}, "low": -HUGE, "high": HUGE, "left": HUGE}
        ]
    ),
}
# These can be read. Whatever comes of them, they may not stop anything.
ODD_SPECS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "an anchor beyond all numbers": rule(every_ms=60_000, anchor=HUGE),
    "an anchor before all numbers": rule(every_ms=60_000, anchor=-HUGE),
    "an interval of ages": rule(every_ms=HUGE),
    "a start beyond the calendar": but(start_at=HUGE),
    "an end before the start": but(start_at=2, end_at=1),
    "a negative number of runs": but(max_runs=-1),
    "a catch-up of less than nothing": but(missed={"policy": "run_all", "max_catch_up": -5}),
    "a deadline in the past": but(missed={"starting_deadline_s": -1e300}),
    "a window of ages": lambda spec: {
        **spec,
        "job": {**spec["job"], "timing": {"class": "flexible", "window_s": 1e18}},
    },
    "an expiry before the fire": lambda spec: {**spec, "job": {**spec["job"], "expires_after_s": -10.0}},
}
ODD_STATES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a next run off the grid": but(next_at=1_772_953_123_456, fire_at=1_772_953_123_456),
    "a job that is not there": but(job_id="job_00000000000000000000000000"),
    "a name that is no job's": but(job_id="❤"),
    "no next run": but(next_at=None, job_id=None, fire_at=None),
    "a next run without a job": but(job_id=None),
    "an occurrence held that is not there": but(held=[[1, "job_00000000000000000000000000"]]),
    "a backlog that cannot be computed": but(
        backlogs=[{"kind": "backfill", "name": "x", "rule": {"cron": "0 0 30 2 *"}, "low": 0, "high": HUGE, "left": 3}]
    ),
    "runs beyond all numbers": but(runs=HUGE * 4),
    "newer zone data than there can be": but(zone_data="9999z", owing=True),
    "an unknown zone data version": but(zone_data="🌍"),
}


SPEC_OF = "spec_id = (SELECT spec_id FROM schedules WHERE number = ?)"


def spoil(data: Path, kept: Kept, *, spec: Any = None, state: Any = None) -> None:
    """Write into the file what no program of ours would."""
    number = number_of(kept.schedule_id)
    with sqlite3.connect(data / "tocsin.db") as file:
        for table, key, which, change in (
            ("specs", "spec", SPEC_OF, spec),
            ("schedules", "state", "number = ?", state),
        ):
            if change is None:
                continue
            ((text,),) = file.execute(f"SELECT {key} FROM {table} WHERE {which}", (number,))
            after = change(json.loads(text))
            after = after if isinstance(after, str) else json.dumps(after)
            file.execute(f"UPDATE {table} SET {key} = ? WHERE {which}", (after, number))
    file.close()


async def good_ones(site: Site) -> list[Kept]:
    """Twenty schedules that have nothing to do with it; one falls into the gap."""
    plain = [await site.schedule(f"good {number}", cron="* * * * *") for number in range(19)]
    gap = await site.schedule("good in the gap", cron="30 2 * * *", time_zone="America/New_York")
    return [*plain, gap]


async def good_ones_fire(kepts: list[Kept], minutes: int) -> None:
    """All of them have run at each minute, and the one in the gap at its end."""
    expected = [f"2026-03-08T{6 + minute // 60:02d}:{minute % 60:02d}:00Z" for minute in range(59, 59 + minutes)]
    for kept in kepts[:-1]:
        assert await kept.fired() == expected, kept.name
        assert (await kept.get())["status"] == "active"
    assert await kepts[-1].fired() == ["2026-03-08T07:00:00Z"]


async def test_schedules_that_cannot_be_computed_are_broken_and_all_others_go_on(tmp_path):
    async with Site(tmp_path, BEFORE) as site:
        good = await good_ones(site)
        bad = {f"spec: {name}": await site.schedule(f"spec: {name}", cron="* * * * *") for name in BAD_SPECS}
        bad |= {f"state: {name}": await site.schedule(f"state: {name}", cron="* * * * *") for name in BAD_STATES}

        def spoil_all(data: Path) -> None:
            for name, change in BAD_SPECS.items():
                spoil(data, bad[f"spec: {name}"], spec=change)
            for name, change in BAD_STATES.items():
                spoil(data, bad[f"state: {name}"], state=change)

        await site.restart(timedelta(seconds=5), meanwhile=spoil_all)
        await site.advance(minutes=5)
        await good_ones_fire(good, 5)
        shown = {one["name"]: one for one in await site.schedules()}
        assert len(shown) == 20 + len(bad)
        for name in bad:
            assert shown[name]["status"] == "broken", name
            assert len(shown[name]["broken_reason"]) > 10, name
            assert shown[name]["next_run_at"] is None
        # Who looks for trouble finds them, by a filter and by a metric that alerts.
        assert len(await site.schedules("status=broken&limit=200")) == len(bad)
        assert f'tocsin_schedules{{status="broken"}} {len(bad)}.0' in await site.metrics()
        await site.check()
        await beyond_no_help(site, bad)


async def test_rows_of_absurd_numbers_stop_nobody_else(tmp_path):
    async with Site(tmp_path, BEFORE) as site:
        good = await good_ones(site)
        odd = {f"spec: {name}": await site.schedule(f"spec: {name}", cron="* * * * *") for name in ODD_SPECS}
        odd |= {f"state: {name}": await site.schedule(f"state: {name}", cron="* * * * *") for name in ODD_STATES}

        def spoil_all(data: Path) -> None:
            for name, change in ODD_SPECS.items():
                spoil(data, odd[f"spec: {name}"], spec=change)
            for name, change in ODD_STATES.items():
                spoil(data, odd[f"state: {name}"], state=change)

        await site.restart(timedelta(seconds=5), meanwhile=spoil_all)
        await site.advance(minutes=5)
        await good_ones_fire(good, 5)
        for name, kept in odd.items():
            shown = await kept.get()
            assert shown["status"] in ("active", "finished", "broken"), name
            assert (shown["status"] == "broken") == (shown["broken_reason"] is not None), name
            if shown["status"] == "active":
                assert shown["next_run_at"] is not None, name
            fired = await kept.fired()
            assert len(fired) == len(set(fired)), name
        await beyond_no_help(site, odd)


async def beyond_no_help(site: Site, kepts: dict[str, Kept]) -> None:
    """A definition mends each of them: it runs as it says from then on."""
    for name, kept in kepts.items():
        await site.put(kept.name, cron="*/2 * * * *")
        assert (await kept.get())["status"] == "active", name
    async with site.server.running(worker_of(site.server, work=nothing)):
        await site.advance(minutes=4)
    newest = {name: (await kept.fired())[-1:] for name, kept in kepts.items()}
    last = text(site.now.replace(minute=site.now.minute // 2 * 2, second=0))
    assert newest == {name: [last] for name in kepts}


async def nothing(payload: object) -> None:
    """A handler that has nothing to do."""


@pytest.mark.parametrize("name", ["a date that never comes", "an unknown zone", "garbage", "an interval of nothing"])
async def test_a_broken_schedule_can_be_mended_triggered_or_deleted(tmp_path, name):
    async with Site(tmp_path, BEFORE) as site:
        kept = await site.schedule("kept", cron="* * * * *")
        gone = await site.schedule("gone", cron="* * * * *")

        def spoil_both(data: Path) -> None:
            spoil(data, kept, spec=BAD_SPECS[name])
            spoil(data, gone, spec=BAD_SPECS[name])

        await site.restart(timedelta(seconds=5), meanwhile=spoil_both)
        await site.advance(minutes=2)
        assert (await kept.get())["status"] == "broken"
        if name == "garbage":
            await kept.act("trigger", {}, status=409)
        else:
            await kept.trigger()
        await kept.act("skip-next", status=409)
        await gone.delete()
        assert [one["name"] for one in await site.schedules()] == ["kept"]
        before = await kept.fired()
        await site.put("kept", cron="*/2 * * * *")
        shown = await kept.get()
        assert (shown["status"], shown["broken_reason"]) == ("active", None)
        assert await kept.waiting() == [shown["next_run_at"]]
        await site.advance(minutes=4)
        assert len(await kept.fired()) == len(before) + 2
        await site.check(retimed=True)


async def test_a_schedule_whose_row_has_lost_its_definition_is_broken(tmp_path):
    async with Site(tmp_path, BEFORE) as site:
        good = await site.schedule("good", cron="* * * * *")
        kept = await site.schedule("kept", cron="* * * * *")

        def lose(data: Path) -> None:
            with sqlite3.connect(data / "tocsin.db") as file:
                file.execute(f"DELETE FROM specs WHERE {SPEC_OF}", (number_of(kept.schedule_id),))
            file.close()

        await site.restart(timedelta(seconds=5), meanwhile=lose)
        await site.advance(minutes=3)
        assert len(await good.fired()) == 3
        shown = await kept.get()
        assert shown["status"] == "broken"
        assert shown["broken_reason"]
        await kept.delete()
        await site.check()


async def test_a_schedule_of_which_nothing_can_be_written_any_more_keeps_nobody_waiting(tmp_path):
    async with Site(tmp_path, BEFORE) as site:
        kept, other = [await site.schedule(name, cron="* * * * *") for name in ("kept", "other")]

        def use_up(data: Path) -> None:
            with sqlite3.connect(data / "tocsin.db") as file:
                number = number_of(kept.schedule_id)
                file.execute("UPDATE schedules SET serial = ? WHERE number = ?", (2**63 - 1, number))
            file.close()

        await site.restart(timedelta(seconds=5), meanwhile=use_up)
        async with asyncio.timeout(20):
            await site.advance(minutes=5)
        assert len(await other.fired()) == 5
        assert len(await kept.fired()) == 1
