"""`tocsin queues` and `tocsin dead`: what is sent, and what is shown."""

import json

import pytest

from tests.cli.stand_in import job, problem

STATS = {
    "scheduled": 1,
    "ready": 2,
    "running": 3,
    "retrying": 4,
    "dead": 5,
    "oldest_ready_s": None,
    "completed_per_s": 1.5,
    "lateness_p50_s": 0.001,
    "lateness_p99_s": 0.25,
}
QUEUE = {
    "queue": "q",
    "paused": True,
    "pause_note": "why",
    "pause_until": None,
    "lease_s": 30.0,
    "retry": {},
    "stats": STATS,
}


def test_queues_are_listed_with_their_figures(tocsin, server):
    server.answers = [(200, {"items": [QUEUE], "next_cursor": None})]
    code, out, _ = tocsin("queues", "list")
    assert code == 0
    assert "paused (why)" in out
    assert "0.25" in out


def test_a_queue_is_paused_with_a_note_and_resumed_without(tocsin, server):
    server.answers = [(200, QUEUE)]
    tocsin("queues", "pause", "q", "--note", "why", "--until", "2026-12-05T03:30:00Z")
    tocsin("queues", "resume", "q")
    assert [asked.body for asked in server.asked] == [
        {"paused": True, "pause_note": "why", "pause_until": "2026-12-05T03:30:00Z"},
        {"paused": False, "pause_note": None, "pause_until": None},
    ]


def test_one_part_of_the_retry_default_is_set_without_losing_the_others(tocsin, server):
    before = {"max_attempts": 6, "initial_backoff_s": 10.0, "max_backoff_s": 600.0}
    server.answers = [(200, {**QUEUE, "retry": before}), (200, QUEUE)]
    tocsin("queues", "set", "q", "--max-attempts", "3", "--lease", "1m")
    assert server.asked[1].body == {"lease_s": 60.0, "retry": {**before, "max_attempts": 3}}


def test_a_queue_that_does_not_exist_yet_can_be_set(tocsin, server):
    server.answers = [problem(404, "not-found", "Not found", "no such queue"), (200, QUEUE)]
    assert tocsin("queues", "set", "q", "--max-attempts", "3")[0] == 0
    assert server.asked[1].body == {"retry": {"max_attempts": 3}}


def test_settings_go_back_to_their_defaults(tocsin, server):
    server.answers = [(200, QUEUE)]
    tocsin("queues", "set", "q", "--default", "lease", "--default", "retry")
    assert server.asked[0].body == {"lease_s": None, "retry": None}


def test_dead_letters_are_listed(tocsin, server):
    dead = job(status="DEAD", attempt=3, finished_at="2026-12-05T03:30:00Z", last_error="boom")
    server.answers = [(200, {"items": [dead], "next_cursor": None})]
    code, out, _ = tocsin("dead", "list", "q")
    assert code == 0
    assert server.asked[0].path == "/v1/queues/q/dead-letters"
    assert "boom" in out


def test_a_redrive_names_what_it_takes(tocsin, server):
    server.answers = [(200, {"matched": 3, "redriven": 2})]
    _, out, _ = tocsin("dead", "redrive", "q", "--error-contains", "boom", "--tag", "a=b", "--rate", "5", "--max", "2")
    asked = server.asked[0]
    assert asked.path == "/v1/queues/q/dead-letters:redrive"
    assert asked.body == {
        "max": 2,
        "dry_run": False,
        "rate_per_s": 5.0,
        "filter": {"error_contains": "boom", "tag": "a:b"},
    }
    assert out == "2 redriven; 1 is left: repeat the command, or raise --max\n"


def test_all_is_said_by_an_empty_filter(tocsin, server):
    server.answers = [(200, {"matched": 3, "discarded": 0})]
    _, out, _ = tocsin("dead", "discard", "q", "--all", "--dry-run")
    assert server.asked[0].body == {"max": 1_000, "dry_run": True, "filter": {}}
    assert out == "3 match; a dry run changes nothing\n"


def test_single_dead_letters_are_named_by_their_ids(tocsin, server):
    server.answers = [(200, {"matched": 1, "redriven": 1})]
    _, out, _ = tocsin("dead", "redrive", "q", "--job", "job_1")
    assert server.asked[0].body == {"max": 1_000, "dry_run": False, "job_ids": ["job_1"]}
    assert out == "1 redriven\n"


def test_all_goes_on_until_everything_is_taken(tocsin, server):
    server.answers = [
        (200, {"matched": 2_500 - 1_000 * n, "redriven": min(1_000, 2_500 - 1_000 * n)}) for n in range(3)
    ]
    _, out, _ = tocsin("dead", "redrive", "q", "--all")
    assert out == "2500 redriven\n"
    assert len(server.asked) == 3


def test_all_ends_although_what_was_redriven_dies_again(tocsin, server):
    server.answers = [(200, {"matched": 2_500, "redriven": 1_000})]
    _, out, _ = tocsin("dead", "redrive", "q", "--all", "--json")
    assert json.loads(out) == {"matched": 2_500, "redriven": 3_000}
    assert len(server.asked) == 3


def test_all_ends_when_a_call_takes_none(tocsin, server):
    server.answers = [(200, {"matched": 3_000, "discarded": 1_000}), (200, {"matched": 2_000, "discarded": 0})]
    _, out, _ = tocsin("dead", "discard", "q", "--all")
    assert out == "1000 discarded; 2000 are left: repeat the command, or raise --max\n"
    assert len(server.asked) == 2


@pytest.mark.parametrize("more", [["--max", "5"], ["--rate", "5"], ["--dry-run"]])
def test_all_asks_once_where_a_number_or_a_pace_is_given(tocsin, server, more):
    server.answers = [(200, {"matched": 20_000, "redriven": 5})]
    tocsin("dead", "redrive", "q", "--all", *more)
    assert len(server.asked) == 1
