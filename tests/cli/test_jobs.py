"""`tocsin jobs`: what is sent, and what is shown of the answer."""

import json

import pytest

from tests.cli.stand_in import job, problem


def test_a_task_is_created_with_all_that_was_said(tocsin, server):
    server.answers = [(201, job())]
    code, out, _ = tocsin(
        *["jobs", "create", "-q", "billing", "--handler", "billing.run", "-p", '{"a": 1e400}', "--delay", "1.5h"],
        *["--window", "10m", "--name", "n", "--priority", "high", "--timeout", "500ms", "--max-attempts", "3"],
        *["--initial-backoff", "0", "--max-backoff", "2m", "--expires-after", "1d", "--tag", "a=b=c"],
        *["--idempotency-key", "k 1"],
    )
    assert code == 0
    assert "job_1  SCHEDULED" in out
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.headers) == ("POST", "/v1/jobs", {"Idempotency-Key": "k 1"})
    assert asked.body == {
        "queue": "billing",
        "target": {"type": "task", "handler": "billing.run", "timeout_s": 0.5},
        "payload": {"a": float("inf")},
        "delay_s": 5400.0,
        "timing": {"class": "flexible", "window_s": 600.0},
        "name": "n",
        "priority": "high",
        "retry": {"max_attempts": 3, "initial_backoff_s": 0.0, "max_backoff_s": 120.0},
        "expires_after_s": 86400.0,
        "tags": {"a": "b=c"},
    }


def test_a_callback_is_created_with_only_what_was_said(tocsin, server):
    server.answers = [(201, job())]
    tocsin(
        "jobs", "create", "-q", "q", "--url", "http://x/y", "--header", "X-A: b:c", "--method", "put", "--at", "later"
    )
    assert server.asked[0].body == {
        "queue": "q",
        "target": {"type": "http", "url": "http://x/y", "method": "PUT", "headers": {"X-A": "b:c"}},
        "run_at": "later",
    }


def test_a_payload_can_come_from_a_file(tocsin, server, tmp_path):
    server.answers = [(201, job())]
    (tmp_path / "p.json").write_text('["ü"]')
    tocsin("jobs", "create", "-q", "q", "--handler", "h", "-p", f"@{tmp_path / 'p.json'}")
    assert server.asked[0].body["payload"] == ["ü"]


def test_json_prints_the_answer_as_it_came(tocsin, server):
    answer = job(payload={"z": 1, "a": "ü"})
    server.answers = [(201, answer)]
    code, out, err = tocsin("jobs", "create", "-q", "q", "--handler", "h", "--json")
    assert (code, out, err) == (0, json.dumps(answer) + "\n", "")


def test_a_replayed_create_is_said_so(tocsin, server):
    server.answers = [(200, job(status="SUCCEEDED"))]
    _, out, _ = tocsin("jobs", "create", "-q", "q", "--handler", "h", "--idempotency-key", "k")
    assert "(it existed already)" in out


def test_a_list_is_filled_over_short_pages(tocsin, server):
    pages = [
        (200, {"items": [job(job_id="job_1")], "next_cursor": "c1"}),
        (200, {"items": [], "next_cursor": "c2"}),
        (200, {"items": [job(job_id="job_2"), job(job_id="job_3")], "next_cursor": "c3"}),
    ]
    server.answers = list(pages)
    code, out, _ = tocsin("jobs", "list", "-q", "q", "--status", "dead", "--tag", "a=b", "--limit", "3")
    assert code == 0
    assert [asked.query[3:] for asked in server.asked] == [
        [("limit", "3")],
        [("limit", "2"), ("cursor", "c1")],
        [("limit", "2"), ("cursor", "c2")],
    ]
    assert server.asked[0].query[:3] == [("queue", "q"), ("status", "DEAD"), ("tag", "a:b")]
    assert all(f"job_{number}" in out for number in (1, 2, 3))
    assert "--cursor c3" in out


def test_an_empty_list_is_said_in_words_for_people_alone(tocsin, server):
    server.answers = [(200, {"items": [], "next_cursor": None})]
    assert tocsin("jobs", "list")[1] == "no jobs\n"
    assert json.loads(tocsin("jobs", "list", "--json")[1]) == {"items": [], "next_cursor": None}


def test_a_table_shows_text_of_others_as_text(tocsin, server):
    nasty = job(name="[red]x[/red]", last_error="line one\nline two \x1b[31m \u202e")
    server.answers = [(200, {"items": [nasty], "next_cursor": None})]
    _, out, _ = tocsin("jobs", "list")
    assert "[red]x[/red]" in out
    assert "line one line two  [31m" in out
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize(
    ("command", "method", "path"),
    [
        ("get", "GET", "/v1/jobs/job_1"),
        ("cancel", "DELETE", "/v1/jobs/job_1"),
        ("run-now", "POST", "/v1/jobs/job_1:run-now"),
    ],
)
def test_a_command_about_one_job_is_one_call(tocsin, server, command, method, path):
    server.answers = [(200, job())]
    assert tocsin("jobs", command, "job_1")[0] == 0
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.body) == (method, path, None)


def test_a_job_that_is_refused_stops_no_other(tocsin, server):
    server.answers = [
        (200, job(job_id="job_1")),
        problem(404, "not-found", "Not found", "no such job"),
        (200, job(job_id="job_3")),
    ]
    code, out, err = tocsin("jobs", "cancel", "job_1", "job_2", "job_3")
    assert code == 1
    assert out == "job_1  SCHEDULED\njob_3  SCHEDULED\n"
    assert "job_2: no such job" in err


def test_attempts_are_shown_with_their_lateness(tocsin, server):
    attempt = {
        "attempt": 1,
        "worker": "w",
        "claimed_at": "2026-12-05T03:30:00Z",
        "finished_at": None,
        "outcome": None,
        "error": None,
        "lateness_s": 0.0125,
    }
    server.answers = [(200, {"items": [attempt], "next_cursor": None})]
    _, out, _ = tocsin("jobs", "attempts", "job_1")
    assert "0.013" in out or "0.012" in out


def test_a_job_that_is_retried_is_listed_with_its_next_try(tocsin, server):
    retrying = job(status="RETRYING", next_attempt_at="2026-12-05T04:44:44Z")
    server.answers = [(200, {"items": [retrying], "next_cursor": None})]
    _, out, _ = tocsin("jobs", "list")
    assert "2026-12-05T04:44:44Z" in out
    assert "2026-12-05T03:30:00Z" not in out
