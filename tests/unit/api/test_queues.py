"""Queues: settings are merged, and dead letters are chosen in exactly one way."""

import pytest

from tests.unit.api.stand_ins import NOW_MS
from tocsin.clock import rfc3339


async def test_settings_are_merged_and_null_is_the_default(desk, http):
    assert (await http("GET", "/v1/queues/mail")).status == 404
    body = {"paused": True, "pause_note": "mend", "lease_s": 60, "retry": {"max_attempts": 3}}
    reply = await http("PUT", "/v1/queues/mail", body)
    assert reply.status == 200
    assert (await http("GET", "/v1/queues/mail")).json == reply.json
    assert reply.json["retry"] == {"max_attempts": 3, "initial_backoff_s": 10.0, "max_backoff_s": 600.0}
    assert (reply.json["paused"], reply.json["pause_note"], reply.json["lease_s"]) == (True, "mend", 60.0)
    again = (await http("PUT", "/v1/queues/mail", {"lease_s": None, "retry": {"initial_backoff_s": 1}})).json
    assert (again["paused"], again["lease_s"]) == (True, 30.0)
    assert again["retry"] == {"max_attempts": 6, "initial_backoff_s": 1.0, "max_backoff_s": 600.0}
    assert (await http("PUT", "/v1/queues/mail", {})).json == again


async def test_a_queue_that_goes_on_forgets_why_it_was_paused(desk, http):
    until = rfc3339(NOW_MS + 60_000)
    paused = (await http("PUT", "/v1/queues/mail", {"paused": True, "pause_note": "x", "pause_until": until})).json
    assert (paused["pause_note"], paused["pause_until"]) == ("x", until)
    resumed = (await http("PUT", "/v1/queues/mail", {"paused": None})).json
    assert (resumed["paused"], resumed["pause_note"], resumed["pause_until"]) == (False, None, None)


async def test_a_pause_that_has_run_out_is_not_shown(desk, http):
    body = {"paused": True, "pause_until": rfc3339(NOW_MS + 60_000)}
    await http("PUT", "/v1/queues/mail", body)
    desk.clock.advance(60)
    assert (await http("GET", "/v1/queues/mail")).json["paused"] is False


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"lease_s": 4}, "/lease_s"),
        ({"lease_s": 601}, "/lease_s"),
        ({"paused": "yes"}, "/paused"),
        ({"pause_until": "2026-01-01"}, "/pause_until"),
        ({"pause_until": "9999-12-31T23:59:59-10:00"}, "/pause_until"),
        ({"retry": {"initial_backoff_s": 601}}, "/retry/initial_backoff_s"),
        ({"retry": {"max_backoff_s": 9}}, "/retry/initial_backoff_s"),
        ({"max_concurrency": 5}, "/max_concurrency"),
        ({"alert": {}}, "/alert"),
    ],
)
async def test_settings_that_are_not_right_are_422(desk, http, body, pointer):
    assert (await http("PUT", "/v1/queues/mail", body)).pointers == {pointer}
    assert not desk.queue_rows


@pytest.mark.parametrize("name", ["a b", "-a", "ä", "a\0", "x" * 129])
async def test_a_name_that_is_none_is_422(http, name):
    assert (await http("PUT", f"/v1/queues/{name}", {})).pointers == {"/queue"}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        (b"", ""),
        ({"job_ids": [], "filter": {}}, ""),
        ({"filter": {"tag": "novalue"}}, "/filter/tag"),
        ({"filter": {"x": 1}}, "/filter/x"),
        ({"filter": {"dead_after": "2026-01-01T00:00:00"}}, "/filter/dead_after"),
        ({"filter": {}, "max": 10_001}, "/max"),
        ({"filter": {}, "max": 0}, "/max"),
        ({"job_ids": [5]}, "/job_ids/0"),
    ],
)
@pytest.mark.parametrize("action", ["redrive", "discard"])
async def test_a_selection_that_is_none_is_422(desk, http, action, body, pointer):
    reply = await http("POST", f"/v1/queues/mail/dead-letters:{action}", body)
    assert (reply.status, reply.pointers) == (422, {pointer})
    assert not desk.asked


async def test_an_empty_filter_is_all_of_them(desk, http):
    reply = await http("POST", "/v1/queues/mail/dead-letters:redrive", {"filter": {}, "rate_per_s": 5})
    assert reply.json == {"matched": 1, "redriven": 1}
    assert (await http("POST", "/v1/queues/mail/dead-letters:discard", {"filter": {}})).json == {
        "matched": 1,
        "discarded": 1,
    }
    assert (await http("POST", "/v1/queues/mail/dead-letters:discard", {"filter": {}, "rate_per_s": 1})).status == 422
