"""Changes of schedules by their owners: they move nothing but what they concern (F-25), fire nothing (F-34, F-73), leave one next run
however many come at once (F-35), and are not forgotten (F-78, F-79)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.faults.conftest import NOON, worker_of
from tests.faults.sites import TEMPLATE, Kept, Site, at, text, texts

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
POLICIES = ("run_latest", "run_all", "skip")


async def nothing(payload: object) -> None:
    """A handler that has nothing to do."""


# --- unrelated schedules (F-25)


async def test_changes_of_other_schedules_start_nothing_again(tmp_path):
    """Two that run once, at the same second; one ends at once, the other goes on while all around it is changed."""
    async with Site(tmp_path, NOON) as site:
        fast = await site.schedule("fast", cron="1 12 * * *", max_runs=1)
        slow = await site.schedule("slow", cron="1 12 * * *", max_runs=1)
        once = await site.call("POST", "/v1/jobs", {**TEMPLATE, "delay_s": 60}, status=201)
        site.accepted.append(once["job_id"])
        others = [await site.schedule(f"other {number}", cron="* * * * *") for number in range(4)]
        await site.advance(minutes=1)
        claimed = {job["schedule_id"]: job for job in await site.claim(10)}
        for name in (fast.schedule_id, *(other.schedule_id for other in others)):
            await site.complete(claimed.pop(name))
        for turn in range(20):
            other = others[turn % 4]
            match turn % 5:
                case 0:
                    await other.patch(cron=f"{turn % 3}-59/3 * * * *")
                case 1:
                    await other.pause()
                case 2:
                    await other.resume()
                case 3:
                    await other.patch(end_at=text(site.now + SECOND))
                case _:
                    await other.patch(end_at=None, job_template={**TEMPLATE, "payload": turn})
            await site.advance(seconds=20)
            assert [(await site.beat(job)).status for job in claimed.values()] == [200, 200]
            for job in await site.claim(10):
                assert job["schedule_id"] in {one.schedule_id for one in others}
                await site.complete(job)
            await site.advance(seconds=5)
            assert [(await site.beat(job)).status for job in claimed.values()] == [200, 200]
        for job in claimed.values():
            await site.complete(job)
        assert (await site.call("GET", f"/v1/jobs/{once['job_id']}"))["attempt"] == 1
        for kept in (fast, slow):
            shown = await kept.get()
            assert (shown["status"], shown["runs"], shown["last_status"]) == ("finished", 1, "SUCCEEDED")
            (job,) = await kept.jobs()
            assert (job["attempt"], job["version"]) == (1, 1)
        for other in others:
            assert (await other.get())["runs"] == len(await other.fired())
        await site.check(retimed=True)


# --- pause and resume (F-34)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("restart", [False, True], ids=["running on", "with restarts"])
async def test_two_days_of_pause_fire_nothing_on_resume(tmp_path, policy, restart):
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(cron="0 * * * *", missed_runs={"policy": policy})
        await site.advance(minutes=70)
        await kept.pause(pause_note="the bank is closed")
        if restart:
            await site.restart(timedelta(hours=20))
        await site.advance_to(at("2030-03-19 13:30"))
        if restart:
            await site.restart()
        shown = await kept.resume()
        assert shown["next_run_at"] == "2030-03-19T14:00:00Z"
        await site.advance(minutes=29)
        assert await kept.fired() == ["2030-03-17T13:00:00Z"]
        await site.advance(minutes=1)
        assert await kept.fired() == ["2030-03-17T13:00:00Z", "2030-03-19T14:00:00Z"]
        assert await kept.skips() == [("2030-03-17T14:00:00Z", "2030-03-19T13:00:00Z", 48, "paused")]
        await site.check()


@pytest.mark.parametrize("policy", POLICIES)
async def test_twenty_pauses_and_resumes_within_a_minute_leave_one_next_run(tmp_path, policy):
    async with Site(tmp_path, at("2030-03-17 12:59:30")) as site:
        kept = await site.schedule(cron="0 * * * *", missed_runs={"policy": policy})
        for _ in range(10):
            await kept.pause()
            await site.advance(seconds=1)
            await kept.resume()
            await site.advance(seconds=1)
        assert await kept.waiting() == ["2030-03-17T13:00:00Z"]
        for _ in range(10):
            await kept.pause()
            await site.advance(seconds=1)
            await kept.resume()
            await site.advance(seconds=1)
        # Whichever of the two it was at the full hour, it has come to one thing.
        assert await kept.waiting() == ["2030-03-17T14:00:00Z"]
        assert len(await kept.fired()) + len(await kept.skips()) == 1
        await site.check()


async def test_a_pause_and_a_resume_at_the_very_instant_of_an_occurrence_change_nothing_about_it(tmp_path):
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(cron="* * * * *")
        site.server.clock.advance(60)  # it is due, and nobody has looked yet
        await kept.pause()
        assert await kept.fired() == ["2030-03-17T12:01:00Z"], "it was due before the pause"
        site.server.clock.advance(60)
        await kept.resume()
        await site.advance(minutes=1)
        assert await kept.fired() == ["2030-03-17T12:01:00Z", "2030-03-17T12:03:00Z"]
        assert await kept.skips() == [("2030-03-17T12:02:00Z", "2030-03-17T12:02:00Z", 1, "paused")]
        await site.check()


async def test_a_pause_that_ends_by_itself_ends_once_also_during_an_outage(tmp_path):
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(cron="0 * * * *", missed_runs={"policy": "run_all"})
        await kept.pause(pause_until="2030-03-17T15:30:00Z")
        await site.restart(timedelta(hours=6, minutes=10))
        await site.advance(minutes=5)
        # 16:00 to 18:00 were missed, and nothing of the pause was.
        assert (await kept.skips())[0] == ("2030-03-17T13:00:00Z", "2030-03-17T15:00:00Z", 3, "paused")
        async with site.server.running(worker_of(site.server, work=nothing)):
            await site.advance(minutes=1)
        assert await kept.fired() == texts("2030-03-17 16:00", "2030-03-17 18:00", HOUR)
        await site.check()


# --- many upserts (F-35)


def variant(number: int) -> dict[str, Any]:
    """One of a few definitions."""
    made: list[dict[str, Any]] = [
        {"cron": "* * * * *"},
        {"cron": "*/2 * * * *"},
        {"every_s": 90},
        {"cron": "* * * * *", "max_runs": 50},
    ]
    return made[number % len(made)]


async def test_a_hundred_upserts_at_once_leave_one_schedule_and_one_next_run(tmp_path):
    """Ten clients register the same schedule, some of them another definition, while it runs and a worker works."""
    async with Site(tmp_path, NOON) as site:
        answers: list[dict[str, Any]] = []

        async def client(number: int) -> None:
            for turn in range(10):
                answers.append(await site.put("report", **variant(0 if number % 2 else number + turn)))

        async with site.server.running(worker_of(site.server, work=nothing)):
            for _ in range(3):
                site.server.clock.advance(60)  # something is due in the middle of it
                await asyncio.gather(*(client(number) for number in range(10)), site.advance(seconds=7))
        (shown,) = await site.schedules()
        kept = Kept(site, shown["schedule_id"], "report")
        assert await kept.waiting() == [shown["next_run_at"]]
        # The revisions tell the order: each stands for one definition, and the last is what there is.
        told = {one["revision"]: (one["cron"], one["every_s"], one["max_runs"]) for one in answers}
        assert all(told[one["revision"]] == (one["cron"], one["every_s"], one["max_runs"]) for one in answers)
        assert sorted(told) == list(range(1, shown["revision"] + 1))
        assert told[shown["revision"]] == (shown["cron"], shown["every_s"], shown["max_runs"])
        await site.check(retimed=True)


async def test_a_crash_loop_that_registers_its_schedule_each_time_changes_nothing(tmp_path):
    async with Site(tmp_path, NOON) as site:
        first = await site.put("report", cron="* * * * *")
        for _ in range(20):
            again = await site.put("report", cron="* * * * *")
            assert (again["schedule_id"], again["revision"]) == (first["schedule_id"], 1)
            await site.restart(timedelta(seconds=1))
        kept = Kept(site, first["schedule_id"], "report")
        assert await kept.waiting() == ["2030-03-17T12:01:00Z"]
        await site.advance(minutes=2)
        assert await kept.fired() == texts("2030-03-17 12:01", "2030-03-17 12:02", MINUTE)
        await site.check()


# --- nothing fires because of a definition (F-73)

DAILY = {"cron": "0 8 * * *"}


async def test_only_the_genuine_eight_o_clock_fires(tmp_path):
    async with Site(tmp_path, at("2030-03-17 07:59:30")) as site:
        early = await site.schedule("early", **DAILY)
        await site.advance(minutes=1)
        late = await site.schedule("late", **DAILY)
        await site.advance(minutes=1)
        assert await early.fired() == ["2030-03-17T08:00:00Z"]
        assert await late.fired() == []
        await site.advance_to(at("2030-03-17 15:00"))
        later = await site.schedule("later", **DAILY)
        await site.advance(minutes=1)
        for kept in (early, late, later):
            before = await kept.fired()
            shown = await kept.patch(cron="0 7 * * *")
            assert shown["next_run_at"] == "2030-03-18T07:00:00Z"
            await site.advance(minutes=1)
            assert await kept.fired() == before
            assert await kept.skips() == [], "a change is no miss"
        await site.check(retimed=True)


@pytest.mark.parametrize("start", ["2030-03-17 08:00:00", "2030-03-17 08:00:00.001", "2030-03-17 07:59:59.999"])
async def test_a_schedule_made_at_its_own_instant_begins_with_what_is_after_it(tmp_path, start):
    async with Site(tmp_path, at(start)) as site:
        kept = await site.schedule(**DAILY)
        await site.advance(minutes=1)
        assert await kept.fired() == (["2030-03-17T08:00:00Z"] if start.endswith("999") else [])
        await site.check()


@pytest.mark.parametrize(
    "change",
    [
        {"cron": "30 14 * * *"},
        {"time_zone": "Asia/Kolkata"},
        {"cron": None, "every_s": 60, "anchor": "2030-01-01T00:00:00Z"},
        {"start_at": "2030-01-01T00:00:00Z"},
        {"max_runs": 5},
        {"overlap": "forbid"},
        {"missed_runs": {"policy": "run_all"}},
        {"job_template": {**TEMPLATE, "payload": 2}},
        {"job_template": {**TEMPLATE, "timing": {"class": "flexible", "window_s": 3600}}},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_no_edit_fires_anything(tmp_path, change):
    async with Site(tmp_path, at("2030-03-17 15:00:30")) as site:
        kept = await site.schedule(**DAILY)
        for _ in range(2):
            await kept.patch(**change)
            await site.advance(seconds=10)
            await site.restart(SECOND)
            assert await kept.fired() == []
            assert len(await kept.waiting()) == 1
        assert await kept.skips() == []
        await site.check(retimed=True)


# --- pauses and deletions are remembered (F-78, F-79)


async def test_a_pause_of_a_queue_and_of_a_schedule_outlives_every_restart(tmp_path):
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule("kept", cron="* * * * *")
        held = await site.schedule("held", cron="* * * * *", job_template={**TEMPLATE, "queue": "resting"})
        await site.advance(minutes=1)
        (running,) = await site.claim()
        await kept.pause(pause_note="quiet")
        await site.call("PUT", "/v1/queues/resting", {"paused": True})
        for _ in range(4):
            await site.restart(timedelta(seconds=20))
            await site.advance(seconds=5)
            assert (await site.beat(running)).status == 200, "what has started goes on"
            shown = await kept.get()
            assert (shown["status"], shown["pause_note"], shown["next_run_at"]) == ("paused", "quiet", None)
            triggered = await kept.trigger()
            assert triggered["status"] == "QUEUED", "submissions are accepted"
        assert await site.claim(10, request_id="first") != []
        body = {"worker": "w", "max": 10}
        assert (await site.call("POST", "/v1/queues/resting:claim", body))["jobs"] == []
        assert await kept.fired() == ["2030-03-17T12:01:00Z"]
        assert len(await held.fired()) == 2
        await site.complete(running)
        await kept.resume()
        await site.call("PUT", "/v1/queues/resting", {"paused": False})
        assert len((await site.call("POST", "/v1/queues/resting:claim", body))["jobs"]) == 2
        await site.advance(minutes=1)
        assert await kept.fired() == ["2030-03-17T12:01:00Z", "2030-03-17T12:03:00Z"]
        await site.check()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("restart", [False, True], ids=["same node", "after a restart"])
async def test_a_schedule_made_again_under_its_name_owes_nothing(tmp_path, policy, restart):
    async with Site(tmp_path, NOON) as site:
        missed = {"missed_runs": {"policy": policy}}
        kept = await site.schedule("report", cron="* * * * *", **missed)
        await site.advance(minutes=3)
        await kept.delete()
        await site.advance(minutes=10)
        assert len(await site.call("GET", "/v1/jobs", query="status=CANCELLED")) > 0
        if restart:
            await site.restart()
        again = await site.schedule("report", cron="* * * * *", **missed)
        shown = await again.get()
        assert (shown["runs"], shown["last_run_at"], shown["revision"]) == (0, None, 1)
        assert await again.jobs() == await again.jobs("SCHEDULED")
        await site.advance(minutes=2)
        assert await again.fired() == ["2030-03-17T12:14:00Z", "2030-03-17T12:15:00Z"]
        assert await again.skips() == []
        await site.check()
