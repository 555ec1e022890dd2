"""Schedules at the ends of what can be written (F-61): refused with the field's name, or taken, but nothing breaks."""

import json
from datetime import datetime, timedelta

import pytest

from tests.api.schedules import HOURLY, schedule
from tests.api.test_extremes import NUMBERS, TIMES

NUMBERED = {
    "/every_s": '{"cron": null, "every_s": %s}',
    "/max_runs": '{"max_runs": %s}',
    "/missed_runs/max_catch_up": '{"missed_runs": {"max_catch_up": %s}}',
    "/missed_runs/starting_deadline_s": '{"missed_runs": {"starting_deadline_s": %s}}',
    "/job_template/expires_after_s": '{"job_template": {"queue": "q", "target": {"type": "task", "handler": "h"}, "expires_after_s": %s}}',
}
TIMED = {
    "/start_at": '{"start_at": %s}',
    "/end_at": '{"end_at": %s}',
    "/pause_until": '{"paused": true, "pause_until": %s}',
    "/anchor": '{"cron": null, "every_s": 86400, "anchor": %s}',
}
MOMENTS = [json.dumps(moment) for moment in TIMES]
CASES = [(pointer, text % value) for pointer, text in NUMBERED.items() for value in NUMBERS]
CASES += [(pointer, text % value) for pointer, text in TIMED.items() for value in MOMENTS]


async def test_extreme_values_are_refused_by_name_or_taken(server):
    taken = 0
    for number, (pointer, changes) in enumerate(CASES):
        base = json.dumps(
            {"name": f"s{number}", **{name: value for name, value in HOURLY.items() if f'"{name}"' not in changes}}
        )
        reply = await server.http("POST", "/v1/schedules", f"{base[:-1]}, {changes[1:]}".encode())
        assert reply.status in (201, 422), (changes, reply.body)
        if reply.status == 422:
            assert pointer in reply.pointers, changes
        else:
            taken += 1
            shown = await server.http("GET", f"/v1/schedules/{reply.json['schedule_id']}")
            assert (shown.status, shown.json["status"] != "broken") == (200, True), changes
    assert taken >= 10
    await server.advance(2 * 3600)
    assert (await server.http("GET", "/v1/schedules", query="limit=200")).status == 200
    assert len(await server.claim("mail", max=1000)) >= 10
    assert (await server.http("GET", "/readyz", token=None)).status == 200


@pytest.mark.parametrize(
    "timing", ['"cron": "* * * * *"', '"cron": "0 0 29 2 *", "time_zone": "Asia/Kolkata"', '"every_s": 1']
)
async def test_a_preview_may_begin_at_any_time(server, timing):
    for moment in MOMENTS:
        body = f'{{{timing}, "after": {moment}, "count": 100}}'
        reply = await server.http("POST", "/v1/schedules:preview", body.encode())
        assert reply.status in (200, 422), (body, reply.body)
        if reply.status == 200:
            runs = [run["at"] for run in reply.json["runs"]]
            assert runs == sorted(set(runs)), body


@pytest.mark.parametrize(
    "timing", [{"cron": "* * * * *"}, {"cron": None, "every_s": 1, "anchor": "0001-01-01T00:00:00Z"}]
)
async def test_a_backfill_of_all_of_history_is_refused_at_once(server, timing):
    kept = await schedule(server, **timing)
    for first in TIMES:
        reply = await kept.act("backfill", {"from": first, "to": "2030-03-17T17:46:40Z", "max": 10_000})
        assert (reply.status, len(reply.pointers)) == (422, 1), first
    assert await server.stored() == 1
    span = {"from": "0001-01-01T00:00:00Z", "to": "0001-01-01T00:02:00Z", "concurrency": 1000}
    reply = await kept.act("backfill", span)
    assert reply.status in (202, 422), reply.body
    await server.advance(5)
    assert (await kept.get())["status"] == "active"


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "Pacific/Kiritimati", "America/New_York"])
@pytest.mark.parametrize("start", ["0001-01-01T00:00:00Z", "9999-12-31T20:00:00Z"])
async def test_an_interval_at_the_ends_of_the_calendar_is_shown_in_any_zone(server, zone, start):
    timing = {"cron": None, "every_s": 600, "time_zone": zone, "start_at": start}
    shown = await (await schedule(server, **timing)).get()
    assert shown["status"] == "active"
    timing = {"every_s": 600, "time_zone": zone, "after": start, "count": 100}
    reply = await server.http("POST", "/v1/schedules:preview", timing)
    assert reply.status == 200
    for run in reply.json["runs"]:
        # Local mean time has seconds, which an offset of RFC 3339 has not.
        apart = datetime.fromisoformat(run["local"]) - datetime.fromisoformat(run["at"])
        assert abs(apart) <= timedelta(seconds=30)
