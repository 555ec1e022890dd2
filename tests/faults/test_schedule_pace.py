"""Schedules keep their pace: each run is for an instant of the grid, however slow everything is, and a new one is not slept past (F-64)."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

import msgspec

from tests.faults.checks import sound
from tests.faults.conftest import NOON
from tests.faults.sites import Site, text
from tests.life.world import START, World
from tocsin import wire
from tocsin.clock import ms_of
from tocsin.model.schedule import decode_spec, plan_of
from tocsin.model.zones import pinned_zones
from tocsin.store.schedules import ScheduleRow

TENANT = "acme"
DAY_MS = 86_400_000
WEEKS_MS = 8 * 7 * DAY_MS
ZONES = ("UTC", "Europe/Berlin", "Pacific/Chatham")
SLOW_S = 2.0


def mixed(number: int) -> dict[str, Any]:
    """One of many: most weekly, some twice a month, daily, or at odd intervals."""
    zone, minute, hour = ZONES[number % len(ZONES)], 20 * (number % 3), 6 * (number % 4)
    if number % 20 == 0:
        return {"cron": f"{minute} {hour} * * *", "time_zone": zone}
    if number % 20 == 1:
        return {"every_s": 200_000 + 977 * number}
    if number % 20 == 2:
        return {"cron": f"{minute} 10 1,15 * *", "time_zone": zone}
    return {"cron": f"{minute} {hour} * * {number % 7}", "time_zone": zone}


class Slow(World):
    """A world in which each push into the lines takes two seconds."""

    async def boot(self) -> Any:
        process = await super().boot()
        push = process.parker.push

        async def slowly(dues: Any) -> Any:
            if dues:
                self.clock.advance(SLOW_S)
            return await push(dues)

        process.parker.push = slowly  # type: ignore[method-assign]
        return process


async def test_eight_weeks_of_slow_sends_move_no_run_off_its_grid():
    world, luck = Slow(partitions=1), random.Random(8)
    await world.start()
    for number in range(100):
        body = msgspec.json.encode(
            {"job_template": {"queue": "q", "target": {"type": "task", "handler": "do"}}, **mixed(number)}
        )
        await world.on.define.upsert(TENANT, f"s{number}", msgspec.json.decode(body, type=wire.SchedulePut))
    end, done = ms_of(START) + WEEKS_MS, defaultdict(list)
    while (due := min(row.look_at or end for row in rows_of(world))) < end:
        # Whoever looks is late by up to three seconds; each send takes two more.
        world.clock.advance_to(due)
        world.clock.advance(luck.uniform(0, 3))
        await world.settle()
        for job in await world.claim(50):
            done[job.schedule_id].append(ms_of(datetime.fromisoformat(job.run_at)))
            assert world.clock.now_ms() - done[job.schedule_id][-1] < 60_000
            await world.complete(job.lease_token)
    for row in rows_of(world):
        plan = plan_of(decode_spec(row.spec), pinned_zones())
        expected, run = [], plan.next(ms_of(START))
        while run is not None and run.at < end:
            expected.append(run.at)
            run = plan.next(run.at)
        assert done[row.schedule_id] == expected, row.name
    await sound(world.on.store, world.clock.now_ms(), TENANT, since=world.clock.now_ms() - 20 * DAY_MS)


def rows_of(world: World) -> list[ScheduleRow]:
    return [one.row for one in world.disk.schedules.values() if one.row is not None]


async def test_a_new_schedule_is_not_slept_past(tmp_path):
    """All that there is is far away. One that is due in 13 s fires then, and so do those that are made between."""
    async with Site(tmp_path, NOON + timedelta(seconds=47)) as site:
        for number in range(20):
            await site.schedule(f"far {number}", cron=f"0 {number} 1 1 *")
        await site.advance(minutes=0)
        soon = await site.schedule("soon", cron="* * * * *")
        assert await soon.next_at() == "2030-03-17T12:01:00Z"
        sooner = await site.schedule("sooner", every_s=2)
        await site.advance(seconds=13)
        assert await soon.fired() == ["2030-03-17T12:01:00Z"]
        assert await sooner.fired() == [text(NOON + timedelta(seconds=second)) for second in range(49, 61, 2)]
        first = (await soon.jobs("QUEUED"))[0]
        assert first["queued_at"] == "2030-03-17T12:01:00Z"
        await site.check()


async def test_an_interval_keeps_to_its_anchor_whatever_happens_to_its_runs(tmp_path):
    """Late looks, restarts, a pause, runs at its owner's wish and an edit of the template: the grid stays."""
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(every_s=77, anchor="2030-03-17T12:00:00Z", missed_runs={"policy": "run_all"})
        for turn in range(12):
            site.server.clock.advance(29 + 3 * turn)
            await site.advance()
            match turn % 4:
                case 0:
                    await site.restart(timedelta(seconds=5))
                case 1:
                    await kept.trigger()
                case 2:
                    await kept.patch(missed_runs={"policy": "run_all", "max_catch_up": 90 + turn})
                case _:
                    await kept.pause()
                    await kept.resume()
        fired = await kept.fired()
        grid = [text(NOON + timedelta(seconds=77 * number)) for number in range(1, 20)]
        assert set(fired) <= set(grid)
        assert len(fired) == len(set(fired))
        assert await kept.next_at() in grid
        await site.check()
