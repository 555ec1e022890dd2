"""When something would run, as the API tells before anything is saved: every vector of the published rule, gaps and repeats."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

VECTORS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "cases" / "cron_vectors.jsonl").read_text(encoding="utf-8").splitlines()
]
PREVIEW = "/v1/schedules:preview"


def refused(vector) -> bool:
    """Extensions are no part of the grammar: refused with a reason, never misread."""
    return vector.get("expect_error", False) or vector["kind"] == "extension"


async def test_every_vector_is_previewed_as_the_rule_says(server):
    wrong = []
    for vector in VECTORS:
        body = {"cron": vector["expr"], "time_zone": vector["tz"], "after": vector["after"]}
        if not refused(vector):
            body["count"] = len(vector["expect"])
        reply = await server.http("POST", PREVIEW, body)
        if refused(vector):
            field = "/time_zone" if vector["kind"] == "zone" else "/cron"
            if reply.status != 422 or reply.pointers != {field} or not reply.json["errors"][0]["detail"]:
                wrong.append((vector["id"], reply.status, reply.body))
        elif reply.status != 200 or [run["at"] for run in reply.json["runs"]] != vector["expect"]:
            wrong.append((vector["id"], reply.status, reply.body))
        elif any(
            datetime.fromisoformat(run["local"]) != datetime.fromisoformat(run["at"]) for run in reply.json["runs"]
        ):
            wrong.append((vector["id"], "local", reply.body))
    assert wrong == []
    assert len(VECTORS) == 238


async def test_a_gap_and_a_repeat_are_marked(server):
    asked = {"cron": "30 2 * * *", "time_zone": "America/New_York", "after": "2026-03-07T08:00:00Z", "count": 2}
    gap, plain = (await server.http("POST", PREVIEW, asked)).json["runs"]
    assert gap == {"at": "2026-03-08T07:00:00Z", "local": "2026-03-08T03:00:00-04:00", "note": "gap"}
    assert plain == {"at": "2026-03-09T06:30:00Z", "local": "2026-03-09T02:30:00-04:00", "note": None}
    asked = {"cron": "30 1 * * *", "time_zone": "America/New_York", "after": "2026-11-01T04:00:00Z", "count": 2}
    repeat, plain = (await server.http("POST", PREVIEW, asked)).json["runs"]
    assert repeat == {"at": "2026-11-01T05:30:00Z", "local": "2026-11-01T01:30:00-04:00", "note": "repeat"}
    assert plain == {"at": "2026-11-02T06:30:00Z", "local": "2026-11-02T01:30:00-05:00", "note": None}


async def test_a_preview_has_five_runs_from_now_unless_told_otherwise(server):
    shown = (await server.http("POST", PREVIEW, {"cron": "0 2 * * *", "time_zone": "Asia/Kolkata"})).json
    assert [run["at"] for run in shown["runs"]] == [f"2030-03-{day}T20:30:00Z" for day in range(17, 22)]
    assert shown["runs"][0]["local"] == "2030-03-18T02:00:00+05:30"
    assert shown["explanation"]
    assert isinstance(shown["hints"], list)
    many = (await server.http("POST", PREVIEW, {"cron": "* * * * *", "count": 100})).json
    assert len({run["at"] for run in many["runs"]}) == 100


async def test_an_interval_is_previewed_too(server):
    asked = {"every_s": 90, "anchor": "2030-01-01T00:00:30Z", "after": "2030-01-01T00:00:30Z", "count": 3}
    reply = await server.http("POST", PREVIEW, asked)
    assert [run["at"] for run in reply.json["runs"]] == [
        "2030-01-01T00:02:00Z",
        "2030-01-01T00:03:30Z",
        "2030-01-01T00:05:00Z",
    ]
    reply = await server.http("POST", PREVIEW, {"every_s": 600, "count": 1})
    assert [run["at"] for run in reply.json["runs"]] == ["2030-03-17T17:56:40Z"]


async def test_a_preview_and_a_schedule_say_the_same(server):
    asked = {"cron": "30 2 * * mon-fri", "time_zone": "Europe/Berlin"}
    template = {"queue": "mail", "target": {"type": "task", "handler": "send"}}
    made = await server.http("POST", "/v1/schedules", {"name": "report", **asked, "job_template": template})
    shown = (await server.http("POST", PREVIEW, asked)).json
    assert made.json["next_runs"] == shown["runs"]
    assert made.json["explanation"] == shown["explanation"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"cron": "* * * * *", "every_s": 60},
        {"time_zone": "UTC"},
        {"cron": "* * * * *", "time_zone": "Mars/Base"},
        {"cron": None, "every_s": None},
    ],
)
async def test_a_preview_of_nothing_is_422(server, body):
    reply = await server.http("POST", PREVIEW, body)
    assert (reply.status, reply.kind) == (422, "invalid")


async def test_a_preview_near_the_end_of_time_has_fewer_runs(server):
    after = datetime(9999, 12, 30, tzinfo=UTC).isoformat()
    reply = await server.http("POST", PREVIEW, {"cron": "0 0 * * *", "after": after, "count": 100})
    assert reply.status == 200
    assert 1 <= len(reply.json["runs"]) <= 2
    reply = await server.http("POST", PREVIEW, {"every_s": 86_400, "after": after, "count": 100})
    assert reply.status == 200
    assert len(reply.json["runs"]) <= 2


async def test_a_preview_of_centuries_lets_others_have_their_turn(server):
    body = {"cron": "0 0 29 2 *", "time_zone": "Europe/Bucharest", "count": 100}
    preview = asyncio.create_task(server.http("POST", "/v1/schedules:preview", body))
    between = 0
    while not preview.done():
        await asyncio.sleep(0)
        between += 1
    reply = preview.result()
    assert (reply.status, len(reply.json["runs"])) == (200, 100)
    assert between >= 100
