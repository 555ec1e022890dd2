"""Overlap: what happens when an occurrence is due while an earlier one goes on (F-10), again and again (F-60), or with nobody to do
the work (F-71)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import tocsin
from tests.faults.conftest import NOON, worker_of
from tests.faults.sites import TEMPLATE, Kept, Site, texts

MINUTE = timedelta(minutes=1)
GOING = ("QUEUED", "RUNNING", "RETRYING", "CANCEL_REQUESTED")


async def going(kept: Kept) -> list[str]:
    """The instants of its jobs under way."""
    return [job["occurrence_at"] for job in await kept.jobs(*GOING)]


async def beating(site: Site, claimed: dict[str, Any], minutes: int) -> None:
    """Let time pass while a worker that holds a job says that it is alive."""
    for _ in range(minutes * 3):
        await site.advance(seconds=20)
        assert (await site.beat(claimed)).status == 200


# --- restarts while a run goes on (F-10)


async def test_no_restart_starts_a_second_run_beside_a_live_one(tmp_path):
    """The server dies right before, at and after an occurrence is due, and more than once; the worker goes on."""
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(cron="* * * * *", overlap="forbid")
        await site.advance(minutes=1)
        (claimed,) = await site.claim()
        for down_s in (0.2, 1, 5, 20):
            await beating(site, claimed, 1)
            await site.restart(timedelta(seconds=down_s))
            assert (await site.beat(claimed)).status == 200
            await site.advance(seconds=5)
            assert await going(kept) == ["2030-03-17T12:01:00Z"]
            assert await site.claim() == []
        assert (await site.complete(claimed)).status == 200
        assert {reason for *_, reason in await kept.skips()} == {"overlap"}
        await site.advance(minutes=1)
        (following,) = await site.claim()
        assert following["attempt"] == 1
        await site.complete(following)
        assert len(await kept.fired()) == 2
        await site.check()


async def test_an_occurrence_that_was_due_during_an_outage_does_not_overlap_either(tmp_path):
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(cron="* * * * *", overlap="forbid", missed_runs={"policy": "run_latest"})
        await site.advance(minutes=1)
        (claimed,) = await site.claim(lease_s=600)
        await site.restart(timedelta(minutes=5))
        await site.advance(seconds=1)
        assert await going(kept) == ["2030-03-17T12:01:00Z"]
        # Four were missed, the fifth was not to overlap: all of that is told.
        assert sum(count for _, _, count, _ in await kept.skips()) == 5
        await site.complete(claimed)
        await site.advance(minutes=1)
        assert (await kept.fired())[-1] == "2030-03-17T12:07:00Z"
        await site.check()


async def test_a_run_whose_worker_died_goes_on_under_its_own_name(tmp_path):
    """The other attempt is of the same run. Meanwhile nothing else starts, whichever host is started again."""
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(cron="* * * * *", overlap="forbid")
        await site.advance(minutes=1)
        (lost,) = await site.claim(worker="host-1")
        await beating(site, lost, 1)
        await site.advance(seconds=40)  # host-1 dies
        (again,) = await site.claim(worker="host-2")
        assert (again["job_id"], again["attempt"]) == (lost["job_id"], 2)
        assert (await site.complete(lost)).status == 409
        await beating(site, again, 2)
        assert await going(kept) == ["2030-03-17T12:01:00Z"]
        await site.complete(again)
        await site.advance(minutes=1)
        assert len(await going(kept)) == 1
        await site.check()


async def test_a_redriven_and_a_triggered_run_count_as_going_on(tmp_path):
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(cron="* * * * *", overlap="forbid")
        await site.advance(minutes=1)
        (claimed,) = await site.claim()
        await site.complete(claimed, "fatal_failure", error="no")
        dead = claimed["job_id"]
        await site.call("POST", "/v1/queues/q/dead-letters:redrive", {"job_ids": [dead]})
        await site.advance(seconds=5)
        (redriven,) = await site.claim()
        await beating(site, redriven, 2)
        assert await kept.fired() == ["2030-03-17T12:01:00Z"]
        await site.complete(redriven)
        made = await kept.trigger()
        (manual,) = await site.claim()
        assert manual["job_id"] == made["job_id"]
        await beating(site, manual, 2)
        assert await kept.fired() == ["2030-03-17T12:01:00Z"]
        await site.complete(manual)
        await site.advance(minutes=1)
        assert len(await kept.fired()) == 2
        await site.check()


@pytest.mark.parametrize("down_s", [0, 70])
async def test_what_replaces_a_run_starts_when_that_has_ended_also_after_a_restart(tmp_path, down_s):
    async with Site(tmp_path, NOON) as site:
        await site.schedule(cron="*/2 * * * *", overlap="replace")
        await site.advance(minutes=2)
        (first,) = await site.claim(lease_s=120)
        await site.advance(minutes=2)
        assert (await site.beat(first)).json["cancel_requested"] is True
        await site.restart(timedelta(seconds=down_s))
        assert await site.claim() == [], "the old one has not ended"
        await site.complete(first, "cancelled")
        await site.advance(seconds=1)
        (second,) = await site.claim()
        assert second["run_at"] == "2030-03-17T12:04:00Z"
        await site.complete(second)
        await site.check()


async def test_what_replaces_a_run_starts_at_the_latest_when_its_lease_is_over(tmp_path):
    async with Site(tmp_path, NOON) as site:
        await site.schedule(cron="* * * * *", overlap="replace")
        await site.advance(minutes=1)
        await site.claim(lease_s=30)
        await site.advance(seconds=50)
        await site.advance(seconds=50)
        (second,) = await site.claim()
        assert second["run_at"] == "2030-03-17T12:02:00Z"
        await site.complete(second)
        await site.check()


# --- collisions do not end the chain (F-60)


async def test_occurrences_that_collide_again_and_again_are_told_of_and_the_next_ones_come(tmp_path):
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(cron="* * * * *", overlap="forbid")
        for round_ in range(3):
            await site.advance(minutes=1)
            (claimed,) = await site.claim()
            await beating(site, claimed, 5)
            assert (await kept.get())["next_run_at"] > claimed["run_at"]
            await site.complete(claimed)
            collided = [(count, reason) for _, _, count, reason in await kept.skips()]
            assert collided == [(5, "overlap")] * (round_ + 1)
        assert await kept.fired() == ["2030-03-17T12:01:00Z", "2030-03-17T12:07:00Z", "2030-03-17T12:13:00Z"]
        await site.check()


async def test_a_repeated_trigger_is_one_job_and_does_not_touch_the_chain(tmp_path):
    """The key binds the trigger; the occurrences around it have their own names."""
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(cron="* * * * *")
        made = {(await kept.trigger("k"))["job_id"] for _ in range(5)}
        assert len(made) == 1
        for minute in range(1, 6):
            await site.advance(minutes=1)
            assert (await kept.trigger("k"))["job_id"] in made
            assert len(await kept.fired()) == minute
            assert await kept.waiting() == [f"2030-03-17T12:0{minute + 1}:00Z"]
        await site.check()


async def test_a_job_that_is_there_already_does_not_end_the_chain(tmp_path):
    """Run now, back and forth between two timings, and a backfill of instants that have run: names meet, and occurrences go on."""
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(cron="* * * * *")
        for _ in range(5):
            (waiting,) = await kept.jobs("SCHEDULED")
            await site.call("POST", f"/v1/jobs/{waiting['job_id']}:run-now")
            await kept.patch(cron="*/2 * * * *")
            await kept.patch(cron="* * * * *")
        # An occurrence that was run before its time has had its run.
        early = texts("2030-03-17 12:01", "2030-03-17 12:05", MINUTE)
        assert await kept.fired() == early
        assert await kept.waiting() == ["2030-03-17T12:06:00Z"]
        await site.advance(minutes=3)
        span = {"from": "2030-03-17T12:00:00Z", "to": "2030-03-17T12:03:00Z", "concurrency": 10}
        await kept.act("backfill", span, status=202)
        assert len(await kept.jobs("QUEUED")) == 5 + 3
        await site.advance(minutes=5)
        assert await kept.fired() == texts("2030-03-17 12:01", "2030-03-17 12:08", MINUTE)
        assert await kept.waiting() == ["2030-03-17T12:09:00Z"]
        await site.check(retimed=True)


# --- nobody does the work, or it fails for long (F-71)


@pytest.mark.parametrize("overlap", ["forbid", "replace"])
async def test_half_an_hour_without_workers_leaves_one_job_outstanding(tmp_path, overlap):
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(cron="* * * * *", overlap=overlap)
        for _ in range(6):
            await site.advance(minutes=5)
            assert len(await going(kept)) == 1
        newest = "2030-03-17T12:30:00Z" if overlap == "replace" else "2030-03-17T12:01:00Z"
        assert await going(kept) == [newest]
        left_out = sum(count for _, _, count, reason in await kept.skips() if reason == "overlap")
        assert left_out == 29
        (claimed,) = await site.claim(10)
        assert claimed["run_at"] == newest
        await site.complete(claimed)
        await site.advance(minutes=1)
        assert await going(kept) == ["2030-03-17T12:31:00Z"]
        await site.check()


async def test_with_overlap_allowed_the_tenants_quota_is_the_cap(tmp_path):
    async with Site(tmp_path, NOON) as site:
        await site.call("PATCH", "/v1/tenants/dev", {"quotas": {"waiting_jobs": 10}})
        kept = await site.schedule(cron="* * * * *", overlap="allow")
        await site.advance(minutes=30)
        outstanding = await going(kept)
        assert 8 <= len(outstanding) <= 11
        (skip,) = await kept.skips()
        assert skip[2:] == (30 - len(outstanding), "quota")
        async with site.server.running(worker_of(site.server, work=nothing)):
            await site.advance(minutes=3)
        assert await kept.fired() == [*outstanding, *texts("2030-03-17 12:31", "2030-03-17 12:33", MINUTE)]
        await site.check()


async def nothing(payload: object) -> None:
    """A handler that has nothing to do."""


@pytest.mark.parametrize("overlap", ["forbid", "replace"])
async def test_a_run_between_two_tries_is_going_on(tmp_path, overlap):
    """A failing handler with a long backoff: a retry is outstanding as much as a first try."""
    template = {**TEMPLATE, "retry": {"max_attempts": 50, "initial_backoff_s": 600, "max_backoff_s": 600}}
    most = 0

    async def fail(payload: object) -> None:
        raise tocsin.Retry(after=240)

    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(cron="* * * * *", overlap=overlap, job_template=template)
        async with site.server.running(worker_of(site.server, work=fail)):
            for _ in range(30):
                await site.advance(minutes=1)
                most = max(most, len(await going(kept)))
        assert most == 1
        fired = await kept.fired()
        assert len(fired) == (1 if overlap == "forbid" else 30)
        assert sum(count for *_, count, _ in await kept.skips()) == 30 - len(fired)
        await site.check()
