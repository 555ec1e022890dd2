"""What is said about an attempt that has ended, byte by byte."""

from __future__ import annotations

import json
import math
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin import wire
from tocsin.errors import Fatal
from tocsin.sdk import report as reports

TOKEN = "a-token.of_the-server"


@pytest.mark.parametrize(
    ("report", "body"),
    [
        (reports.succeeded(), {"outcome": "succeeded"}),
        (reports.succeeded([1, "x"]), {"outcome": "succeeded", "result": [1, "x"]}),
        (reports.succeeded(False), {"outcome": "succeeded", "result": False}),
        (reports.failed("no", retry_after_s=3), {"outcome": "retryable_failure", "error": "no", "retry_after_s": 3}),
        (reports.fatal("no"), {"outcome": "fatal_failure", "error": "no"}),
        (reports.cancelled(), {"outcome": "cancelled"}),
        (reports.released(0), {"outcome": "released", "retry_after_s": 0}),
        (reports.Report("succeeded", status_code=204), {"outcome": "succeeded", "status_code": 204}),
    ],
)
def test_only_what_says_something_travels(report, body):
    assert json.loads(report.body(TOKEN)) == {**body, "token": TOKEN}
    msgspec.json.decode(report.body(TOKEN), type=wire.TokenCompletion)


@pytest.mark.parametrize(
    ("after", "sent"),
    [(timedelta(minutes=1), 60), (0, 0), (1.5, 1.5), (-1, None), (math.nan, None), (math.inf, None), ("5", None)],
)
def test_a_pause_that_makes_no_sense_does_not_spoil_the_report(after, sent):
    assert reports.failed("no", retry_after_s=after).retry_after_s == sent


def test_a_shared_report_does_not_remember_a_token():
    assert b"first" in reports.succeeded().body("first")
    assert b"first" not in reports.succeeded().body("second")


@given(st.text(alphabet=st.characters(codec=None), max_size=50), st.integers(0, 3000))
def test_any_error_becomes_text_that_the_server_takes(text, times):
    cut = reports.cut(text * times)
    assert len(cut.encode()) <= wire.MAX_ERROR_BYTES
    assert "\0" not in cut


def test_what_was_cut_is_marked():
    assert reports.cut("é" * 5000).endswith("é" + wire.ERROR_CUT_MARK)
    assert reports.cut("x" * wire.MAX_ERROR_BYTES) == "x" * wire.MAX_ERROR_BYTES


def test_a_result_of_exactly_the_limit_is_taken():
    assert reports.succeeded("x" * (wire.MAX_RESULT_BYTES - 2)).outcome == "succeeded"
    with pytest.raises(Fatal, match="at most 16384"):
        reports.succeeded("x" * (wire.MAX_RESULT_BYTES - 1))


def test_a_result_that_contains_itself_is_refused_with_words():
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(Fatal, match="JSON"):
        reports.succeeded(loop)
