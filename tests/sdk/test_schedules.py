"""`client.schedules`: what is sent for what a program says, and what it is told about wrong arguments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import tocsin
from tests.cli import stand_in as answers
from tests.cli.stand_in import Script, problem
from tests.sdk.test_blocking_client import JOB, QuickClock
from tocsin import wire
from tocsin.clock import SeededEntropy
from tocsin.errors import UsageError

KOLKATA = timezone(timedelta(hours=5, minutes=30))
FIVE = datetime(2026, 12, 5, 5, 0, tzinfo=KOLKATA)


def schedule(**changes: Any) -> dict[str, Any]:
    """A schedule as the API of a later version answers it."""
    return answers.schedule(a_field_of_a_later_version=1, **changes)


@pytest.fixture
def server():
    return Script([(201, schedule())])


@pytest.fixture
def client(server):
    return tocsin.AsyncClient(transport=server, entropy=SeededEntropy(1))


async def test_a_schedule_is_made_of_what_is_said(server, client):
    made = await client.schedules.create(
        "nightly",
        cron="0 2 * * *",
        time_zone="Asia/Kolkata",
        queue="reports",
        handler="settle",
        timeout_s=60,
        payload={"a": [1]},
        job_name="report",
        retry=wire.RetryPolicy(max_attempts=2),
        window=timedelta(minutes=5),
        tags={"k": "v"},
        expires_after=60,
        missed_runs="run_all",
        overlap="forbid",
        start_at=FIVE,
        max_runs=3,
        paused=True,
    )
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/v1/schedules")
    assert asked.body == {
        "name": "nightly",
        "cron": "0 2 * * *",
        "time_zone": "Asia/Kolkata",
        "job_template": {
            "queue": "reports",
            "target": {"type": "task", "handler": "settle", "timeout_s": 60},
            "payload": {"a": [1]},
            "name": "report",
            "retry": {"max_attempts": 2},
            "timing": {"class": "flexible", "window_s": 300.0},
            "tags": {"k": "v"},
            "expires_after_s": 60,
        },
        "missed_runs": {"policy": "run_all"},
        "overlap": "forbid",
        "start_at": "2026-12-05T05:00:00+05:30",
        "max_runs": 3,
        "paused": True,
    }
    assert (made.made, made.schedule_id, made.job_template.payload) == (True, "sch_1", {"a": [1]})
    assert made.job_template.target == wire.TaskTarget(handler="settle")


async def test_an_interval_and_a_callback(server, client):
    server.answers = [(200, schedule())]
    same = await client.schedules.upsert(
        "every/five minutes",
        every=timedelta(minutes=5),
        anchor=FIVE,
        queue="q",
        url="https://example.com/x",
        headers={"X": "y"},
        missed_runs=wire.MissedRuns(policy="skip", starting_deadline_s=30),
        overlap=None,
    )
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("PUT", "/v1/schedules/by-name/every%2Ffive%20minutes")
    assert asked.body == {
        "every_s": 300.0,
        "anchor": "2026-12-05T05:00:00+05:30",
        "job_template": {
            "queue": "q",
            "target": {"type": "http", "url": "https://example.com/x", "headers": {"X": "y"}},
        },
        "missed_runs": {"policy": "skip", "starting_deadline_s": 30.0, "max_catch_up": 100},
    }
    assert not same.made


async def test_an_update_sends_what_is_named_and_none_is_the_default(server, client):
    await client.schedules.update("sch_1", if_match=3, cron=None, every=60, missed_runs=None, max_runs=None)
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.headers) == ("PATCH", "/v1/schedules/sch_1", {"If-Match": '"3"'})
    assert asked.body == {"cron": None, "every_s": 60, "missed_runs": None, "max_runs": None}


async def test_a_pause_has_a_note_and_an_end_and_a_resume_clears_them(server, client):
    await client.schedules.pause("sch_1", note="month end", until=FIVE)
    await client.schedules.resume("sch_1")
    assert [asked.body for asked in server.asked] == [
        {"paused": True, "pause_note": "month end", "pause_until": "2026-12-05T05:00:00+05:30"},
        {"paused": False, "pause_note": None, "pause_until": None},
    ]


async def test_a_schedule_is_found_by_its_name_alone(server, client):
    server.answers = [
        (200, {"items": [schedule(name="nightly-2")], "next_cursor": "more"}),
        (200, {"items": [schedule()], "next_cursor": None}),
        (200, {"items": [], "next_cursor": None}),
    ]
    assert (await client.schedules.get_by_name("nightly")).name == "nightly"
    assert server.asked[1].query == [("name", "nightly"), ("limit", "50"), ("cursor", "more")]
    with pytest.raises(tocsin.Refused, match="no schedule named 'absent'") as refused:
        await client.schedules.get_by_name("absent")
    assert refused.value.status == 404


async def test_schedules_jobs_and_skips_are_lists(server, client):
    server.answers = [(200, {"items": [], "next_cursor": None})]
    skip = {"from": "a", "to": "b", "count": 2, "reason": "paused", "recorded_at": "c", "detail": None}
    assert [each async for each in client.schedules.list(status="paused")] == []
    assert [each async for each in client.schedules.jobs("sch_1")] == []
    server.answers = [(200, {"items": [skip], "next_cursor": None})]
    (found,) = [each async for each in client.schedules.skips("sch_1")]
    assert (found.from_, found.to, found.count, found.reason) == ("a", "b", 2, "paused")
    paths = [(asked.path, asked.query[0]) for asked in server.asked]
    assert paths == [
        ("/v1/schedules", ("status", "paused")),
        ("/v1/schedules/sch_1/jobs", ("limit", "50")),
        ("/v1/schedules/sch_1/skips", ("limit", "50")),
    ]


async def test_a_trigger_has_a_key_so_that_it_can_be_repeated(server, client):
    server.answers = [problem(503, "overloaded", "Overloaded", "busy"), (201, JOB)]
    client = tocsin.AsyncClient(transport=server, entropy=SeededEntropy(1), clock=QuickClock())
    await client.schedules.trigger("sch_1")
    first, second = server.asked
    assert first.path == "/v1/schedules/sch_1:trigger"
    assert first.body is None
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    await client.schedules.trigger("sch_1", payload=None, idempotency_key="mine")
    assert (server.asked[2].body, server.asked[2].headers["Idempotency-Key"]) == ({"payload": None}, "mine")


async def test_skip_next_and_backfill_and_delete(server, client):
    server.answers = [(200, schedule()), (202, {"backfill_id": "b", "count": 7}), (204, None)]
    assert (await client.schedules.skip_next("sch_1")).name == "nightly"
    filled = await client.schedules.backfill(
        "sch_1", FIVE, FIVE + timedelta(days=7), max=10, order="newest_first", concurrency=2
    )
    assert filled.count == 7
    assert await client.schedules.delete("sch_1") is None
    assert [(asked.method, asked.path) for asked in server.asked] == [
        ("POST", "/v1/schedules/sch_1:skip-next"),
        ("POST", "/v1/schedules/sch_1:backfill"),
        ("DELETE", "/v1/schedules/sch_1"),
    ]
    assert server.asked[1].body == {
        "from": "2026-12-05T05:00:00+05:30",
        "to": "2026-12-12T05:00:00+05:30",
        "max": 10,
        "order": "newest_first",
        "concurrency": 2,
    }


async def test_a_preview(server, client):
    runs = [{"at": "a", "local": "b", "note": "gap"}]
    server.answers = [(200, {"runs": runs, "explanation": "e", "hints": ["h"]})]
    seen = await client.schedules.preview(cron="0 2 * * *", time_zone="Europe/Berlin", after=FIVE, count=1)
    assert (seen.runs[0].note, seen.explanation, seen.hints) == ("gap", "e", ["h"])
    (asked,) = server.asked
    assert asked.path == "/v1/schedules:preview"
    assert asked.body == {
        "cron": "0 2 * * *",
        "time_zone": "Europe/Berlin",
        "after": "2026-12-05T05:00:00+05:30",
        "count": 1,
    }


NAIVE = datetime(2026, 12, 5, tzinfo=UTC).replace(tzinfo=None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"cron": "@daily"}, "queue='...' and handler="),
        ({"cron": "@daily", "queue": "q"}, "said as a whole"),
        ({"cron": "@daily", "handler": "h"}, "said as a whole"),
        ({"queue": "q", "handler": "h", "url": "http://x"}, "contradict each other"),
        ({"queue": "q", "handler": "h", "method": "GET"}, "belong to url"),
        ({"queue": "q", "handler": "h", "every_s": 5}, "did you mean every"),
        ({"queue": "q", "handler": "h", "tz": "UTC"}, "did you mean time_zone"),
        ({"queue": "q", "handler": "h", "run_at": FIVE}, "run_at is not an argument of a schedule"),
        ({"queue": "q", "handler": "h", "start_at": NAIVE}, "start_at=.* is not an instant"),
        ({"queue": "q", "handler": "h", "end_at": "2026-12-05T00:00:00Z"}, "end_at=.* is not an instant"),
        ({"queue": "q", "handler": "h", "pause_until": NAIVE}, "pause_until=.* is not an instant"),
    ],
)
async def test_a_wrong_argument_is_told_before_anything_is_sent(server, client, arguments, said):
    with pytest.raises(UsageError, match=said):
        await client.schedules.create("nightly", **arguments)
    assert server.asked == []


async def test_a_part_of_the_template_cannot_be_updated_alone(server, client):
    with pytest.raises(UsageError, match="said as a whole"):
        await client.schedules.update("sch_1", payload=3)
    with pytest.raises(UsageError, match=r"start=.* is not an instant"):
        await client.schedules.backfill("sch_1", NAIVE, datetime.now(UTC))
    assert server.asked == []


def test_the_blocking_client_has_the_same(server):
    server.answers = [(200, {"items": [schedule()], "next_cursor": None})]
    with tocsin.Client(transport=server) as client:
        assert [each.name for each in client.schedules.list()] == ["nightly"]
        assert client.schedules.get_by_name("nightly").next_runs[0].local == "2026-12-06T02:00:00+05:30"


def test_a_schedule_has_every_field_of_the_contract():
    fields = {*answers.schedule(), "made"}
    assert set(tocsin.sdk.answers.Schedule.__struct_fields__) == fields
