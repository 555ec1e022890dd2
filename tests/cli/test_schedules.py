"""`tocsin schedules`: what is sent, and what is shown of the answer."""

from __future__ import annotations

import json

import pytest

from tests.cli.stand_in import job, problem, schedule

RUNS = [
    {"at": "2027-03-28T01:00:00Z", "local": "2027-03-28T03:00:00+02:00", "note": "gap"},
    {"at": "2027-10-31T00:30:00.25Z", "local": "2027-10-31T02:30:00.25+02:00", "note": "repeat"},
]


def page(*items, more=None):
    return 200, {"items": list(items), "next_cursor": more}


NONE = page()


def test_a_schedule_is_created_with_all_that_was_said(tocsin, server):
    server.answers = [(201, schedule(hints=["it is a crowded minute"]))]
    code, out, _ = tocsin(
        *["schedules", "create", "nightly", "--cron", "0 2 * * *", "--time-zone", "Asia/Kolkata", "-q", "reports"],
        *["--handler", "settle", "-p", '{"a": [1]}', "--missed-runs", "run_all", "--starting-deadline", "5m"],
        *["--max-catch-up", "7", "--overlap", "forbid", "--start", "s", "--end", "e", "--max-runs", "3", "--paused"],
        *["--job-name", "report", "--window", "10m", "--priority", "low", "--timeout", "1h", "--max-attempts", "2"],
        *["--initial-backoff", "1s", "--max-backoff", "2m", "--expires-after", "1d", "--tag", "a=b"],
    )
    assert code == 0
    assert [line.rstrip() for line in out.splitlines()] == [
        "nightly  sch_1  made",
        "At 02:00 every day (active)",
        "local time                     UTC                   note",
        "Sun 2026-12-06 02:00:00+05:30  2026-12-05T20:30:00Z",
        "Note: it is a crowded minute",
    ]
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/v1/schedules")
    assert asked.body == {
        "name": "nightly",
        "cron": "0 2 * * *",
        "time_zone": "Asia/Kolkata",
        "overlap": "forbid",
        "start_at": "s",
        "end_at": "e",
        "max_runs": 3,
        "paused": True,
        "missed_runs": {"policy": "run_all", "starting_deadline_s": 300.0, "max_catch_up": 7},
        "job_template": {
            "queue": "reports",
            "target": {"type": "task", "handler": "settle", "timeout_s": 3600.0},
            "payload": {"a": [1]},
            "name": "report",
            "timing": {"class": "flexible", "window_s": 600.0},
            "priority": "low",
            "retry": {"max_attempts": 2, "initial_backoff_s": 1.0, "max_backoff_s": 120.0},
            "expires_after_s": 86400.0,
            "tags": {"a": "b"},
        },
    }


def test_an_upsert_of_a_callback_at_an_interval(tocsin, server):
    server.answers = [(200, schedule())]
    code, out, _ = tocsin(
        *["schedules", "create", "every 5/min", "--every", "5m", "-q", "q", "--url", "http://x", "--header", "A: b"],
        *["--method", "put", "--upsert"],
    )
    assert code == 0
    assert "it existed already" in out
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("PUT", "/v1/schedules/by-name/every%205%2Fmin")
    assert asked.body == {
        "every_s": 300.0,
        "job_template": {
            "queue": "q",
            "target": {"type": "http", "url": "http://x", "method": "PUT", "headers": {"A": "b"}},
        },
    }


def test_a_name_that_is_taken_is_told_with_what_to_do(tocsin, server):
    server.answers = [problem(409, "schedule-exists", "The name is taken", "PUT it", schedule_id="sch_1")]
    code, out, err = tocsin("schedules", "create", "nightly", "--cron", "@daily", "-q", "q", "--handler", "h")
    assert (code, out) == (1, "")
    assert "there is a schedule 'nightly'; change it with tocsin schedules update, or add --upsert" in err


def test_a_schedule_is_named_by_its_name(tocsin, server):
    server.answers = [page(schedule(name="nightly 2"), schedule()), (200, schedule())]
    code, out, _ = tocsin("schedules", "get", "nightly")
    assert code == 0
    assert [(asked.path, asked.query) for asked in server.asked] == [
        ("/v1/schedules", [("name", "nightly"), ("limit", "10")]),
        ("/v1/schedules/sch_1", []),
    ]
    assert "cron          0 2 * * *" in out
    assert '"settle", "timeout_s": 3600.0}, "payload": {"a": [1]}}\n' in out, (
        "what the template leaves open is left out"
    )
    assert "Sun 2026-12-06 02:00:00+05:30" in out


def test_or_by_its_id(tocsin, server):
    server.answers = [(200, schedule())]
    code, out, _ = tocsin("schedules", "get", "sch_1", "--json")
    assert (code, json.loads(out)) == (0, schedule())
    assert [asked.path for asked in server.asked] == ["/v1/schedules/sch_1"]


def test_or_by_a_name_that_looks_like_an_id(tocsin, server):
    looks = schedule(name="sch_edule")
    server.answers = [
        problem(404, "not-found", "Not found", "no such schedule"),
        page(looks),
        (200, looks),
    ]
    assert tocsin("schedules", "get", "sch_edule")[0] == 0
    assert server.asked[-1].path == "/v1/schedules/sch_1"


def test_one_that_is_not_there_is_told(tocsin, server):
    server.answers = [NONE]
    code, out, err = tocsin("schedules", "pause", "absent")
    assert (code, out) == (1, "")
    assert "there is no schedule 'absent'; tocsin schedules list shows all (404)" in err


def test_schedules_are_listed(tocsin, server):
    server.answers = [
        page(
            schedule(status="paused", paused=True, pause_note="month end"),
            schedule(status="paused", paused=True, pause_note="year end", pause_until="2027-01-04T00:00:00Z"),
            schedule(name="quick", cron=None, time_zone=None, every_s=90.0, status="broken", broken_reason="no zone"),
        )
    ]
    code, out, _ = tocsin("schedules", "list", "--status", "paused")
    assert code == 0
    assert server.asked[0].query == [("status", "paused"), ("limit", "50")]
    assert "paused (month end)" in out
    assert "paused (until 2027-01-04T00:00:00Z, year end)" in out
    assert "broken (no zone)" in out
    assert "every 90 s" in out
    server.answers = [NONE]
    assert tocsin("schedules", "list")[1] == "no schedules\n"
    assert json.loads(tocsin("schedules", "list", "--json")[1]) == {"items": [], "next_cursor": None}


def test_what_is_not_named_stays_when_a_schedule_is_changed(tocsin, server):
    server.answers = [(200, schedule()), (200, schedule(revision=2))]
    code, out, _ = tocsin(
        *["schedules", "update", "sch_1", "--every", "1h", "--missed-runs", "skip", "--max-runs", "5"],
        *["--default", "end"],
    )
    assert code == 0
    assert "changed" in out
    _, asked = server.asked
    assert (asked.method, asked.path, asked.headers) == ("PATCH", "/v1/schedules/sch_1", {"If-Match": '"1"'})
    assert asked.body == {
        "every_s": 3600.0,
        "cron": None,
        "time_zone": None,
        "max_runs": 5,
        "end_at": None,
        "missed_runs": {"policy": "skip", "starting_deadline_s": None, "max_catch_up": 100},
    }


def test_a_part_of_the_template_is_changed_in_the_whole_of_it(tocsin, server):
    before = schedule()
    before["job_template"] |= {"retry": {"max_attempts": 9}, "tags": {"a": "b"}}
    server.answers = [(200, before), (200, before)]
    code, out, _ = tocsin(
        *["schedules", "update", "sch_1", "-q", "other", "--timeout", "5s", "--max-backoff", "1m", "--default", "tag"]
    )
    assert code == 0
    assert "unchanged" in out
    assert server.asked[1].body == {
        "job_template": {
            **before["job_template"],
            "queue": "other",
            "target": {"type": "task", "handler": "settle", "timeout_s": 5.0},
            "retry": {"max_attempts": 9, "max_backoff_s": 60.0},
            "tags": None,
        }
    }


def test_a_masked_header_is_not_sent_back(tocsin, server):
    before = schedule()
    before["job_template"]["target"] = {"type": "http", "url": "http://x", "method": "POST", "headers": {"A": "***"}}
    server.answers = [(200, before), (200, before)]
    code, _, err = tocsin("schedules", "update", "sch_1", "--url", "http://y")
    assert code == 2
    assert "give them all anew with --header" in err
    server.asked.clear()
    server.answers = [(200, before), (200, before)]
    assert tocsin("schedules", "update", "sch_1", "--url", "http://y", "--header", "A: b")[0] == 0
    assert server.asked[1].body["job_template"]["target"] == {
        "type": "http",
        "url": "http://y",
        "method": "POST",
        "headers": {"A": "b"},
    }


def test_a_schedule_is_paused_resumed_and_deleted(tocsin, server):
    server.answers = [(200, schedule())]
    assert tocsin("schedules", "pause", "sch_1", "--note", "n", "--until", "u")[0] == 0
    assert tocsin("schedules", "resume", "sch_1")[0] == 0
    assert tocsin("schedules", "skip-next", "sch_1")[0] == 0
    server.answers = [(200, schedule()), (204, None)]
    assert tocsin("schedules", "delete", "sch_1")[:2] == (0, "nightly  deleted\n")
    assert [(asked.method, asked.path, asked.body) for asked in server.asked if asked.method != "GET"] == [
        ("PATCH", "/v1/schedules/sch_1", {"paused": True, "pause_note": "n", "pause_until": "u"}),
        ("PATCH", "/v1/schedules/sch_1", {"paused": False, "pause_note": None, "pause_until": None}),
        ("POST", "/v1/schedules/sch_1:skip-next", None),
        ("DELETE", "/v1/schedules/sch_1", None),
    ]


def test_a_pause_says_until_when_and_hints_are_not_repeated(tocsin, server):
    hinted = schedule(hints=["it is a crowded minute"])
    paused = {**hinted, "paused": True, "status": "paused", "pause_until": "2027-01-04T00:00:00Z"}
    server.answers = [(200, hinted), (200, paused)]
    out = tocsin("schedules", "pause", "sch_1", "--until", "2027-01-04T00:00:00Z")[1]
    assert "At 02:00 every day (paused until 2027-01-04T00:00:00Z)\n" in out
    assert "Note:" not in out
    server.answers = [(200, paused), (200, hinted)]
    assert tocsin("schedules", "resume", "sch_1")[1].startswith("nightly  sch_1  resumed\n")
    server.answers = [(200, hinted), (200, hinted)]
    assert tocsin("schedules", "resume", "sch_1")[1].startswith("nightly  sch_1  it was not paused\n")


def test_a_schedule_is_triggered_and_backfilled(tocsin, server):
    server.answers = [(200, schedule()), (201, job())]
    assert tocsin("schedules", "trigger", "sch_1", "-p", "[1]", "--idempotency-key", "k")[1] == "job_1  SCHEDULED\n"
    server.answers = [(200, schedule()), (202, {"backfill_id": "b", "count": 1})]
    code, out, _ = tocsin("schedules", "backfill", "sch_1", "--from", "f", "--to", "t", "--concurrency", "2")
    assert (code, out) == (0, "1 run; look at it with: tocsin schedules jobs nightly\n")
    server.answers = [(200, schedule(name="a b")), (202, {"backfill_id": "b", "count": 3})]
    out = tocsin("schedules", "backfill", "sch_1", "--from", "f", "--to", "t", "--concurrency", "2")[1]
    assert out == "3 runs, 2 at once; look at them with: tocsin schedules jobs 'a b'\n"
    trigger, backfill, _ = (asked for asked in server.asked if asked.method == "POST")
    assert (trigger.path, trigger.body, trigger.headers) == (
        "/v1/schedules/sch_1:trigger",
        {"payload": [1]},
        {"Idempotency-Key": "k"},
    )
    assert backfill.path == "/v1/schedules/sch_1:backfill"
    assert backfill.body == {"from": "f", "to": "t", "max": 1000, "order": "oldest_first", "concurrency": 2}


def test_its_jobs_and_skips_are_listed(tocsin, server):
    server.answers = [(200, schedule()), page(job(occurrence_at="2026-12-05T20:30:00Z", origin="schedule"), more="c")]
    code, out, _ = tocsin("schedules", "jobs", "sch_1", "--limit", "1")
    assert code == 0
    assert out.splitlines()[0].split("  ")[0] == "occurrence at"
    assert "2026-12-05T20:30:00Z  schedule" in out
    assert "reports" not in out, "the queue is the schedule's"
    assert "--cursor c" in out
    skip = {"from": "a", "to": "b", "count": 3, "reason": "paused", "recorded_at": "r", "detail": None}
    server.answers = [(200, schedule()), page(skip)]
    code, out, _ = tocsin("schedules", "skips", "sch_1")
    assert (code, out.splitlines()[1].split()) == (0, ["a", "b", "3", "paused", "r", "-"])
    assert [asked.path for asked in server.asked if asked.path.count("/") == 4] == [
        "/v1/schedules/sch_1/jobs",
        "/v1/schedules/sch_1/skips",
    ]


def test_a_preview_shows_local_time_and_utc_and_what_the_clocks_do(tocsin, server):
    answer = {"runs": RUNS, "explanation": "At 02:30 every day", "hints": ["the clocks change"]}
    server.answers = [(200, answer)]
    arguments = ["schedules", "preview", "30 2 * * *", "--time-zone", "Europe/Berlin", "--count", "2", "--after", "t"]
    code, out, _ = tocsin(*arguments)
    assert code == 0
    assert [line.rstrip() for line in out.splitlines()] == [
        "At 02:30 every day",
        "local time                         UTC                      note",
        "Sun 2027-03-28 03:00:00+02:00      2027-03-28T01:00:00Z     makes up for a time that the clocks skip",
        "Sun 2027-10-31 02:30:00.250+02:00  2027-10-31T00:30:00.25Z  a time that the clocks go through twice",
        "Note: the clocks change",
    ]
    (asked,) = server.asked
    assert asked.path == "/v1/schedules:preview"
    assert asked.body == {"cron": "30 2 * * *", "time_zone": "Europe/Berlin", "count": 2, "after": "t"}
    assert json.loads(tocsin(*arguments, "--json")[1]) == answer


def test_a_fault_is_told_by_the_option_that_has_it(tocsin, server):
    errors = [
        {"pointer": "/cron", "detail": "hour: 25 is above 23"},
        {"pointer": "/job_template/queue", "detail": "not a name"},
        {"pointer": "/start_at", "detail": "Invalid RFC3339 encoded datetime"},
    ]
    server.answers = [
        problem(422, "invalid", "Invalid request", "/cron: hour: 25 is above 23 (and 2 more)", errors=errors)
    ]
    code, out, err = tocsin(
        "schedules", "create", "n", "--cron", "0 25 * * *", "-q", "a b", "--handler", "h", "--start", "soon"
    )
    assert (code, out) == (1, "")
    assert err == (
        "tocsin: Invalid request: --cron: hour: 25 is above 23; --queue: not a name; "
        "--start must be RFC 3339 with an offset, such as 2026-12-05T09:00:00+05:30 (422)\n"
    )


def test_a_preview_calls_its_expression_by_its_place(tocsin, server):
    fault = {"pointer": "/cron", "detail": "hour: 25 is above 23"}
    server.answers = [problem(422, "invalid", "Invalid request", "/cron: hour: 25 is above 23", errors=[fault])]
    assert tocsin("schedules", "preview", "0 25 * * *")[2] == (
        "tocsin: Invalid request: EXPR: hour: 25 is above 23 (422)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "n", "-q", "q", "--handler", "h"], "give --cron EXPR or --every DURATION"),
        (["create", "n", "--cron", "x", "--every", "5", "-q", "q", "--handler", "h"], "one of them"),
        (["create", "n", "--cron", "x"], "give --queue QUEUE, and --handler"),
        (["create", "n", "--cron", "x", "-q", "q", "--handler", "h", "--url", "u"], "one of them"),
        (["create", "n", "--cron", "x", "-q", "q", "--handler", "h", "--header", "a:b"], "belong to a callback"),
        (["create", "n", "--cron", "x", "-q", "q", "--handler", "h", "--overlap", "maybe"], "'maybe'"),
        (["create", "n", "--every", "often", "-q", "q", "--handler", "h"], "--every 'often' is not a duration"),
        (["update", "sch_1"], "name what to change"),
        (["update", "sch_1", "--default", "name"], "--default 'name' must be one of anchor, end"),
        (["update", "sch_1", "--cron", "x", "--every", "5"], "not both"),
        (["update", "sch_1", "--handler", "x", "--method", "GET"], "belong to a callback"),
        (["list", "--status", "DEAD"], "'DEAD'"),
        (["preview"], "give an expression in quotes"),
        (["preview", "0", "2", "*", "*", "*"], "a cron expression goes in quotes, '0 2 * * *'"),
        (["preview", "x", "--count", "101"], "--count"),
        (["backfill", "sch_1", "--from", "x"], "Missing option '--to'"),
        (["import-crontab", "-q", "q", "--handler", "h", "/no/such/crontab"], "/no/such/crontab cannot be read"),
        (["import-crontab", "-", "-q", "q"], "Missing option '--handler'"),
    ],
)
def test_a_wrong_use_ends_with_two(tocsin, server, arguments, said):
    code, out, err = tocsin("schedules", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert server.asked == []
