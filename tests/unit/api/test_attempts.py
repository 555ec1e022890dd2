"""Workers' calls: whose attempt it is, and what a report may hold."""

import pytest

from tocsin.errors import Refused
from tocsin.store.port import NotYours
from tocsin.wire import Status


@pytest.mark.parametrize("action", ["heartbeat", "complete"])
async def test_a_token_that_speaks_for_nothing_of_ours_is_404(desk, http, action):
    body = {"outcome": "succeeded"} if action == "complete" else {}
    good = desk.lease()
    for token in ("x", good[:-1], good[:-1] + ("0" if good[-1] != "0" else "1"), desk.lease("other"), "a:b", "%00"):
        assert (await http("POST", f"/v1/attempts/{token}:{action}", body)).status == 404, token
    assert not desk.asked


async def test_a_worker_of_another_queue_is_403(desk, http):
    worker = desk.give("tcs_w_secret", "work:letters")
    reply = await http("POST", f"/v1/attempts/{desk.lease()}:complete", {"outcome": "succeeded"}, token=worker)
    assert reply.status == 403
    assert (await http("POST", "/v1/queues/mail:claim", {"worker": "w"}, token=worker)).status == 403
    assert (await http("POST", "/v1/queues/letters:claim", {"worker": "w"}, token=worker)).status == 200


async def test_admin_and_operator_do_not_work(desk, http):
    boss = desk.give("tcs_boss_secret", "admin", "operator")
    assert (await http("POST", "/v1/queues/mail:claim", {"worker": "w"}, token=boss)).status == 403
    assert (await http("POST", f"/v1/attempts/{desk.lease()}:heartbeat", token=boss)).status == 403


@pytest.mark.parametrize(
    ("why", "status", "kind"),
    [
        (NotYours.SUPERSEDED, 409, "attempt-superseded"),
        (NotYours.TIMED_OUT, 409, "attempt-timed-out"),
        (NotYours.UNKNOWN, 404, "not-found"),
    ],
)
async def test_why_a_heartbeat_is_refused(desk, http, why, status, kind):
    desk.answers = [why]
    reply = await http("POST", f"/v1/attempts/{desk.lease()}:heartbeat")
    assert (reply.status, reply.kind) == (status, kind)


async def test_progress_is_any_json_of_4_kib(desk, http):
    path = f"/v1/attempts/{desk.lease()}:heartbeat"
    assert (await http("POST", path, {"progress": {"done": 5}})).status == 200
    assert desk.asked[-1][1][1] == b'{"done": 5}'
    assert (await http("POST", path, {"progress": None})).status == 200
    assert desk.asked[-1][1][1] == b"null"
    assert (await http("POST", path, {})).status == 200
    assert desk.asked[-1][1][1] is None
    assert (await http("POST", path, {"progress": "x" * 4_095})).status == 413
    assert (await http("POST", path, {"progress": "\0"})).status == 422


async def test_a_result_beyond_16_kib_is_413_and_the_attempt_stays_open(desk, http):
    path = f"/v1/attempts/{desk.lease()}:complete"
    reply = await http("POST", path, {"outcome": "succeeded", "result": "x" * 16_383})
    assert (reply.status, reply.pointers) == (413, {"/result"})
    assert not desk.asked
    assert (await http("POST", path, {"outcome": "succeeded", "result": "x" * 16_382})).status == 200


async def test_a_long_error_is_taken_for_the_flow_to_cut(desk, http):
    path = f"/v1/attempts/{desk.lease()}:complete"
    reply = await http("POST", path, {"outcome": "retryable_failure", "error": "x" * 2_000_000})
    assert (reply.status, reply.json) == (200, {"status": "SUCCEEDED"})


async def test_only_an_executor_reports_what_a_target_answered(desk, http):
    path = f"/v1/attempts/{desk.lease('other')}:complete"
    response = {"headers": {"x": "y"}, "body": "hello"}
    body = {"outcome": "succeeded", "status_code": 200, "response": response}
    executor = desk.give("tcs_exec_secret", "executor")
    assert (await http("POST", path, body, token=executor)).status == 200
    own = f"/v1/attempts/{desk.lease()}:complete"
    assert (await http("POST", own, body)).pointers == {"/status_code", "/response"}
    response["body"] = "x" * 4_097
    assert (await http("POST", path, body, token=executor)).status == 413
    assert (await http("POST", "/v1/executor:claim", {"worker": "e"}, token=executor)).json == {"jobs": []}
    assert (await http("POST", "/v1/executor:claim", {"worker": "e"})).status == 403


async def test_what_the_flow_refuses_is_the_answer(desk, http):
    desk.answers = [Refused(422, "invalid", "Invalid", "no", errors=(("/outcome", "no request"),))]
    reply = await http("POST", f"/v1/attempts/{desk.lease()}:complete", {"outcome": "cancelled"})
    assert (reply.status, reply.pointers) == (422, {"/outcome"})
    desk.answers = [Status.CANCELLED]
    assert (await http("POST", f"/v1/attempts/{desk.lease()}:complete", {"outcome": "cancelled"})).json == {
        "status": "CANCELLED"
    }


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"worker": ""},
        {"worker": "w", "max": 0},
        {"worker": "w", "max": 1_001},
        {"worker": "w", "max": 1.5},
        {"worker": "w", "lease_s": 4.9},
        {"worker": "w", "lease_s": 601},
        {"worker": "w", "wait_s": -1},
        {"worker": "w", "wait_s": 31},
        {"worker": "w", "wait_s": True},
        {"worker": "w", "handlers": ["a b"]},
        {"worker": "w", "x": 1},
        {"worker": "w\n"},
    ],
)
async def test_a_claim_that_is_not_right_is_422(desk, http, body):
    assert (await http("POST", "/v1/queues/mail:claim", body)).status == 422
    assert not desk.asked
