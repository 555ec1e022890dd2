"""What an answer of any kind becomes: a value, a refusal, or "the server is not there"."""

from __future__ import annotations

import json

import pytest

from tocsin import wire
from tocsin.clock import SeededEntropy
from tocsin.errors import Overloaded, Refused, ServerUnavailable
from tocsin.sdk.answers import Job
from tocsin.sdk.backoff import Backoff
from tocsin.sdk.transport import accept, decode, json_value

PROBLEM = {"content-type": "application/problem+json"}


def problem(status: int, **more: object) -> bytes:
    return json.dumps({"type": "/problems/some-kind", "title": "T", "status": status, "detail": "D", **more}).encode()


def test_a_problem_becomes_a_refusal_with_all_its_fields():
    body = problem(422, errors=[{"pointer": "/queue", "detail": "bad"}], schedule_id="sch_1", later=1)
    with pytest.raises(Refused) as refused:
        accept(422, PROBLEM, body)
    why = refused.value
    assert (why.status, why.kind, why.title, why.detail) == (422, "some-kind", "T", "D")
    assert why.errors == (("/queue", "bad"),)
    assert why.extra == {"schedule_id": "sch_1", "later": 1}


def test_a_quota_says_when_to_come_back():
    with pytest.raises(Refused) as refused:
        accept(429, {**PROBLEM, "retry-after": "7"}, problem(429, quota="creates_per_s"))
    assert (refused.value.retry_after_s, refused.value.extra) == (7, {"quota": "creates_per_s"})


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind"),
    [
        (503, PROBLEM, problem(503), Overloaded),
        (503, {}, b"<html>", ServerUnavailable),
        (503, PROBLEM, b"{", ServerUnavailable),
        (502, PROBLEM, problem(502), ServerUnavailable),
        (504, {}, b"", ServerUnavailable),
    ],
)
def test_only_the_api_itself_can_say_that_it_is_alive_but_cannot_now(status, headers, body, kind):
    with pytest.raises(ServerUnavailable) as unavailable:
        accept(status, headers, body)
    assert type(unavailable.value) is kind


@pytest.mark.parametrize(
    ("header", "pause_s"),
    [
        ("3", 3),
        ("0", 0),
        ("9999", 60),
        ("-1", 1),
        ("nan", 1),
        ("soon", 1),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 1),
        ("٣", 1),
    ],
)
def test_the_pause_a_server_asks_for_is_read_with_care(header, pause_s):
    with pytest.raises(Overloaded) as overloaded:
        accept(503, {**PROBLEM, "retry-after": header}, problem(503))
    assert overloaded.value.retry_after_s == pause_s


@pytest.mark.parametrize("status", [301, 302, 307, 404, 500])
def test_an_answer_that_is_not_tocsins_points_to_the_address(status):
    with pytest.raises(Refused, match="TOCSIN_URL"):
        accept(status, {"location": "http://elsewhere/"}, b"hello")


def test_an_answer_cut_short_is_not_an_answer():
    with pytest.raises(ServerUnavailable, match="cut short"):
        decode(b'{"jobs": [', wire.ClaimAnswer)


def test_numbers_that_no_double_holds_are_read_all_the_same():
    assert json_value(b"1e999") == float("inf")
    assert json_value(b"[" + b"9" * 400 + b"]") == [int("9" * 400)]
    body = {
        "job_id": "job_1", "queue": "q", "name": None, "status": "QUEUED", "version": 1, "run_at": "x", "fire_at": "x",
        "attempt": 0, "tries": 0, "max_attempts": 6, "priority": "normal", "timing": {"class": "precise"},
        "target": {"type": "task", "handler": "h"}, "payload": "HERE", "retry": {}, "tags": {}, "expires_after_s": None,
        "idempotency_key": "k", "schedule_id": None, "occurrence_at": None, "origin": "api", "worker": None,
        "lease_until": None, "progress": None, "result": None, "created_at": "x", "queued_at": None, "started_at": None,
        "finished_at": None, "next_attempt_at": None, "last_error": None, "a_field_of_a_later_version": 1,
    }  # fmt: skip
    assert decode(json.dumps(body).replace('"HERE"', "1e999").encode(), Job).payload == float("inf")


def test_pauses_grow_under_a_cap_and_are_never_quite_zero():
    backoff = Backoff(SeededEntropy(1), first_s=1, cap_s=10)
    pauses = [backoff.next_s() for _ in range(200)]
    assert all(0.02 <= pause <= min(10, 2**n) for n, pause in enumerate(pauses))
    assert max(pauses) > 8
    assert backoff.next_s(30) == 30
    backoff.reset()
    assert backoff.next_s() <= 1
