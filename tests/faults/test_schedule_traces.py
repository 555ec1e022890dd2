"""Nothing is left out in silence: each kind of skip is shown with its reason and counted (F-77)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.faults.checks import REASONS, Books
from tests.faults.conftest import NOON
from tests.faults.sites import TEMPLATE, Kept, Site

QUICK = {**TEMPLATE, "expires_after_s": 20}


def counted() -> dict[str, float]:
    """The counters of skips as they stand."""
    return {reason: Books.gauge("tocsin_schedule_skips_total", "reason", reason) for reason in REASONS}


async def pause(site: Site) -> Kept:
    kept = await site.schedule("paused", cron="* * * * *")
    await kept.pause(pause_note="why not")
    await site.advance(minutes=2)
    await kept.resume()
    return kept


async def overlap(site: Site) -> Kept:
    kept = await site.schedule("overlap", cron="* * * * *", overlap="forbid")
    await site.advance(minutes=2)
    return kept


async def replaced(site: Site) -> Kept:
    kept = await site.schedule("replaced", cron="* * * * *", overlap="replace")
    await site.advance(minutes=2)
    return kept


async def deadline(site: Site) -> Kept:
    kept = await site.schedule("deadline", cron="* * * * *", missed_runs={"starting_deadline_s": 5})
    await site.restart(timedelta(seconds=70))
    return kept


async def deadline_of_a_backlog(site: Site) -> Kept:
    kept = await site.schedule(
        "deadline of many", cron="* * * * *", missed_runs={"policy": "run_all", "starting_deadline_s": 100}
    )
    await site.restart(timedelta(minutes=5, seconds=10))
    return kept


async def missed(site: Site) -> Kept:
    kept = await site.schedule("missed", cron="* * * * *")
    await site.restart(timedelta(minutes=2, seconds=10))
    return kept


async def catch_up_limit(site: Site) -> Kept:
    kept = await site.schedule("limit", cron="* * * * *", missed_runs={"policy": "run_all", "max_catch_up": 1})
    await site.restart(timedelta(minutes=3, seconds=10))
    return kept


async def skip_next(site: Site) -> Kept:
    kept = await site.schedule("skipped", cron="* * * * *")
    await kept.act("skip-next")
    return kept


async def cancel(site: Site) -> Kept:
    kept = await site.schedule("cancelled", cron="* * * * *")
    (waiting,) = await kept.jobs("SCHEDULED")
    await site.call("DELETE", f"/v1/jobs/{waiting['job_id']}")
    return kept


async def cancel_after_the_fire(site: Site) -> Kept:
    kept = await site.schedule("cancelled late", cron="* * * * *")
    await site.advance(minutes=1)
    (ready,) = await kept.jobs("QUEUED")
    await site.call("DELETE", f"/v1/jobs/{ready['job_id']}")
    return kept


async def expired_before_the_fire(site: Site) -> Kept:
    kept = await site.schedule("expired", cron="* * * * *", job_template=QUICK)
    await site.restart(timedelta(seconds=90))
    return kept


async def expired_in_the_line(site: Site) -> Kept:
    kept = await site.schedule("expired in the line", cron="* * * * *", job_template=QUICK)
    await site.advance(seconds=85)
    assert await site.claim(10) == []
    return kept


async def expired_unseen(site: Site) -> Kept:
    """Nobody claims: the recheck ends it."""
    kept = await site.schedule("expired unseen", cron="*/10 * * * *", job_template=QUICK)
    await site.advance(minutes=15)
    return kept


async def quota(site: Site) -> Kept:
    kept = await site.schedule("quota", cron="* * * * *")
    await site.call("PATCH", "/v1/tenants/dev", {"quotas": {"waiting_jobs": 1}})
    await site.advance(minutes=4)
    return kept


CAUSES: dict[Any, str] = {
    pause: "paused",
    overlap: "overlap",
    replaced: "overlap",
    deadline: "deadline",
    deadline_of_a_backlog: "deadline",
    missed: "missed",
    catch_up_limit: "catch_up_limit",
    skip_next: "skipped_by_user",
    cancel: "skipped_by_user",
    cancel_after_the_fire: "skipped_by_user",
    expired_before_the_fire: "expired",
    expired_in_the_line: "expired",
    expired_unseen: "expired",
    quota: "quota",
}


def test_every_reason_has_a_cause_here():
    assert set(CAUSES.values()) == set(REASONS)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.__name__)
async def test_what_is_left_out_is_shown_with_its_reason_and_counted(tmp_path, cause):
    async with Site(tmp_path, NOON) as site:
        before = counted()
        kept = await cause(site)
        skips = (await site.call("GET", f"{kept.path}/skips"))["items"]
        assert {skip["reason"] for skip in skips} == {CAUSES[cause]}
        for skip in skips:
            assert skip["from"] <= skip["to"]
            assert skip["count"] >= 1
            assert skip["recorded_at"].startswith("2030-03-17T12:")
            if CAUSES[cause] not in ("expired", "skipped_by_user"):
                assert skip["detail"], "what it says helps to understand it"
        told = {reason: count - before[reason] for reason, count in counted().items()}
        assert told == dict.fromkeys(REASONS, 0) | {CAUSES[cause]: sum(skip["count"] for skip in skips)}
        # A job that was made for it says so, too.
        for job in await kept.jobs("SKIPPED"):
            assert job["last_error"]
        await site.check()


async def test_a_long_history_of_skips_is_read_page_by_page(tmp_path):
    """They are ranges: each run in between begins a new one."""
    async with Site(tmp_path, NOON) as site:
        kept = await site.schedule(cron="* * * * *")
        for _ in range(12):
            await kept.act("skip-next")
            await site.advance(minutes=2)
        seen: list[dict[str, Any]] = []
        cursor = None
        while True:
            query = [("limit", "5"), *([("cursor", cursor)] if cursor else [])]
            page = await site.call("GET", f"{kept.path}/skips", query=query)
            seen += page["items"]
            if (cursor := page["next_cursor"]) is None:
                break
        assert len(seen) == len({skip["from"] for skip in seen})
        assert sum(skip["count"] for skip in seen) == 12
        assert [skip["from"] for skip in seen] == sorted((skip["from"] for skip in seen), reverse=True)
        assert sum(skip["count"] for skip in seen) + len(await kept.fired()) == 24
        await site.check()
