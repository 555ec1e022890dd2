"""Outages: what a schedule does about the time in which nobody looked (F-21, F-36), and about being looked at late (F-65)."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from tests.faults.conftest import NOON, worker_of
from tests.faults.sites import TEMPLATE, Site, at, texts

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
THREE_DAYS = timedelta(days=3)
LONG = {**TEMPLATE, "target": {**TEMPLATE["target"], "timeout_s": 4 * 3_600}}
RUN_TEN = {"policy": "run_all", "max_catch_up": 10}


async def work_off(site: Site, minutes: int = 1) -> list[str]:
    """Let a worker do everything that there is for some minutes; the instants it worked for, in order."""
    done: list[str] = []

    async def work(payload, ctx):
        done.append(ctx.job.run_at)

    async with site.server.running(worker_of(site.server, work=work)):
        await site.advance(minutes=minutes)
    return done


# --- three days of an every-minute schedule (F-21)


@pytest.mark.parametrize("policy", ["run_latest", "skip", "run_all"])
async def test_three_days_of_missed_minutes_are_one_skip_and_the_schedule_goes_on(tmp_path, policy):
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(cron="* * * * *", missed_runs={"policy": policy, "max_catch_up": 10})
        await site.advance(seconds=150)
        await site.restart(THREE_DAYS)
        # 12:02:30 and three days: of 12:03 to 12:02 of the third day all were missed, 4,320 of them.
        expected = {
            "run_latest": [("2030-03-17T12:03:00Z", "2030-03-20T12:01:00Z", 4_319, "missed")],
            "skip": [("2030-03-17T12:03:00Z", "2030-03-20T12:02:00Z", 4_320, "missed")],
            "run_all": [("2030-03-17T12:03:00Z", "2030-03-20T11:52:00Z", 4_310, "catch_up_limit")],
        }
        assert await kept.skips() == expected[policy]
        caught_up = {"run_latest": 1, "skip": 0, "run_all": 10}[policy]
        done = await work_off(site)
        late = texts("2030-03-20 11:53", "2030-03-20 12:02", MINUTE)[10 - caught_up :]
        assert done == [*texts("2030-03-17 12:01", "2030-03-17 12:02", MINUTE), *late, "2030-03-20T12:03:00Z"]
        assert await work_off(site, minutes=3) == texts("2030-03-20 12:04", "2030-03-20 12:06", MINUTE)
        assert await kept.skips() == expected[policy]
        assert (await kept.get())["runs"] == 2 + caught_up + 4
        # Not a row for each: three days cost as many as three minutes.
        assert len(await kept.jobs()) < 25
        await site.check()


@pytest.mark.parametrize(
    "missed_runs", [{"policy": "run_latest"}, {"policy": "skip"}, RUN_TEN], ids=lambda one: one["policy"]
)
async def test_three_days_of_pause_are_one_skip_whatever_the_policy(tmp_path, missed_runs):
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(cron="* * * * *", missed_runs=missed_runs)
        await site.advance(seconds=30)
        await kept.pause()
        await site.restart(THREE_DAYS)
        assert await kept.fired() == []
        await kept.resume()
        assert await kept.skips() == [("2030-03-17T12:01:00Z", "2030-03-20T12:00:00Z", 4_320, "paused")]
        assert await kept.next_at() == "2030-03-20T12:01:00Z"
        await site.advance(minutes=2)
        assert await kept.fired() == texts("2030-03-20 12:01", "2030-03-20 12:02", MINUTE)
        await site.check()


async def test_a_run_that_goes_on_for_hours_leaves_one_skip_and_the_schedule_goes_on(tmp_path):
    """Each slot is left out as it comes, and all of them are one record."""
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(cron="* * * * *", overlap="forbid", job_template=LONG)
        await site.advance(minutes=1)
        (claimed,) = await site.claim(lease_s=600)
        for _ in range(15):
            await site.advance(minutes=8)
            assert (await site.beat(claimed)).status == 200
        assert await kept.skips() == [("2030-03-17T12:02:00Z", "2030-03-17T14:01:00Z", 120, "overlap")]
        await site.complete(claimed)
        await site.advance(minutes=2)
        assert await kept.fired() == ["2030-03-17T12:01:00Z", "2030-03-17T14:02:00Z"]
        await site.check()


async def test_ten_thousand_missed_runs_are_caught_up_in_order_without_ten_thousand_jobs_at_once(tmp_path):
    """`run_all` takes its backlog one by one: what is not begun costs nothing but its place in the row."""
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(every_s=60, missed_runs={"policy": "run_all", "max_catch_up": 10_000})
        await site.restart(timedelta(days=30))
        assert await kept.skips() == [("2030-03-17T12:01:00Z", "2030-04-09T13:20:00Z", 33_200, "catch_up_limit")]
        assert [job["status"] for job in await kept.jobs()].count("QUEUED") == 1
        for expected in texts("2030-04-09 13:21", "2030-04-09 13:29", MINUTE):
            (claimed,) = await site.claim()
            assert claimed["run_at"] == expected
            await site.restart()
            assert await site.claim() == [], "the one before it has not ended"
            await site.complete(claimed)
            await site.advance(seconds=1)
        await site.check()


# --- a restart after ten minutes (F-36)


async def test_a_restart_after_ten_minutes_makes_one_run_of_each_schedule_and_then_its_own_pace(tmp_path):
    async with Site(tmp_path, at("2030-03-17 11:56:50")) as site:
        quick = await site.schedule("quick", every_s=15)
        minutely = await site.schedule("minutely", cron="* * * * *")
        hourly = await site.schedule("hourly", cron="0 * * * *")
        late = await site.schedule("late", cron="2 * * * *")
        await site.advance(seconds=40)
        before = {kept.name: len(await kept.fired()) for kept in (quick, minutely, hourly, late)}
        await site.restart(timedelta(minutes=10))
        await site.advance(seconds=0.1)  # what is made up for is spread
        # 12:07:30. Of the hourly one nothing was missed: its only slot is merely late.
        caught_up = {kept.name: (await kept.fired())[before[kept.name] :] for kept in (quick, minutely, hourly, late)}
        assert caught_up == {
            "quick": ["2030-03-17T12:07:20Z"],
            "minutely": ["2030-03-17T12:07:00Z"],
            "hourly": ["2030-03-17T12:00:00Z"],
            "late": ["2030-03-17T12:02:00Z"],
        }
        await site.advance(seconds=60)
        assert len(await quick.fired()) == before["quick"] + 1 + 4
        assert (await quick.fired())[-4:] == texts("2030-03-17 12:07:35", "2030-03-17 12:08:20", 15 * SECOND)
        assert (await minutely.fired())[-1] == "2030-03-17T12:08:00Z"
        assert len(await minutely.fired()) == before["minutely"] + 2
        await site.check()


async def test_a_crash_loop_repeats_nothing(tmp_path):
    """Twenty starts within one minute, each of them just after the last: what was caught up once is done with."""
    async with Site(tmp_path, NOON) as site:
        latest = await site.schedule("latest", every_s=15)
        all_of_it = await site.schedule("all", every_s=15, missed_runs={"policy": "run_all"})
        await site.restart(timedelta(minutes=10, seconds=1))
        for _ in range(20):
            await site.restart(timedelta(milliseconds=200))
        assert await latest.fired() == ["2030-03-17T12:10:00Z"]
        assert await all_of_it.fired() == ["2030-03-17T12:00:15Z"], "the next one waits for the end of this one"
        await work_off(site)
        assert await all_of_it.fired() == texts("2030-03-17 12:00:15", "2030-03-17 12:11:00", 15 * SECOND)
        await site.check()


async def test_catching_up_is_spread_over_schedules(tmp_path):
    """What was missed by many does not stand in the way of what is due now."""
    async with Site(tmp_path, NOON) as site:
        many = [await site.schedule(f"s{number}", cron="* * * * *") for number in range(40)]
        await site.restart(timedelta(minutes=10, seconds=30))
        await site.advance(seconds=2)
        fire_at = [job["fire_at"] for kept in many for job in (await kept.jobs()) if job["queued_at"]]
        assert len(fire_at) == 40
        assert len(set(fire_at)) > 20, "they fire one after another"
        await site.check()


# --- looked at late (F-65)


async def delayed(site: Site, minutes: int, luck: random.Random) -> None:
    """Let time pass in pieces of 1 to 90 s in which nothing of the server runs, as while its process is stopped."""
    end = site.now + timedelta(minutes=minutes)
    while site.now < end:
        site.server.clock.advance(luck.uniform(1, 90))
        await site.advance()


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_slot_is_missed_however_late_each_look_is(tmp_path, seed):
    """What is due follows from what was done last, not from a stretch before now."""
    luck = random.Random(seed)
    async with Site(tmp_path, NOON) as site:
        minutely = await site.schedule("minutely", cron="* * * * *", missed_runs={"policy": "run_all"})
        hourly = await site.schedule("hourly", cron="0 * * * *")
        latest = await site.schedule("latest", cron="* * * * *")
        done: list[str] = []

        async def work(payload, ctx):
            done.append(ctx.job.run_at)

        async with site.server.running(worker_of(site.server, work=work)):
            await delayed(site, 200, luck)
        whole = texts("2030-03-17 12:01", "2030-03-17 15:20", MINUTE)
        assert (await minutely.fired())[:200] == whole, "all in order, none twice"
        assert await minutely.skips() == []
        assert await hourly.fired() == texts("2030-03-17 13:00", "2030-03-17 15:00", HOUR)
        # The newest of a stretch runs, the others are told of.
        skipped = sum(count for _, _, count, _ in await latest.skips())
        assert len(await latest.fired()) + skipped == len(await minutely.fired())
        assert len(done) == len(await minutely.fired()) + 3 + len(await latest.fired())
        await site.check()
