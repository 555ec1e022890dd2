"""Jobs as answers show them."""

import pytest

from tests.unit.api.stand_ins import NOW_MS
from tocsin.errors import Refused
from tocsin.flow.admit import Admitted
from tocsin.wire import Status

# fmt: off
FIELDS = [
    "job_id", "queue", "name", "status", "version", "run_at", "fire_at", "attempt", "tries", "max_attempts", "priority",
    "timing", "target", "payload", "retry", "tags", "expires_after_s", "idempotency_key", "schedule_id", "occurrence_at",
    "origin", "worker", "lease_until", "progress", "result", "created_at", "queued_at", "started_at", "finished_at",
    "next_attempt_at", "last_error",
]
# fmt: on


async def test_a_job_shows_every_field_and_masks_header_values(desk, http):
    job_id = desk.add_job()
    shown = (await http("GET", f"/v1/jobs/{job_id}")).json
    assert list(shown) == FIELDS
    assert shown["target"] == {
        "type": "http",
        "url": "https://a.example/x",
        "method": "POST",
        "headers": {"X-Key": "***"},
        "timeout_s": 30.0,
    }
    assert shown["timing"] == {"class": "precise", "window_s": None, "may_widen": False}
    assert shown["retry"] == {"max_attempts": 6, "initial_backoff_s": 10.0, "max_backoff_s": 600.0}
    assert shown["idempotency_key"] == f"{job_id}@2030-03-17T17:47:40Z"
    assert (shown["created_at"], shown["run_at"]) == ("2030-03-17T17:46:40Z", "2030-03-17T17:47:40Z")
    assert (shown["payload"], shown["progress"], shown["result"]) == (None, None, None)


async def test_the_next_attempt_is_told_while_it_is_waited_for(desk, http):
    waiting = desk.add_job(status=Status.RETRYING, due_at=NOW_MS + 1_500, progress=b'{"at": 3}', last_error="boom")
    shown = (await http("GET", f"/v1/jobs/{waiting}")).json
    assert (shown["next_attempt_at"], shown["progress"]) == ("2030-03-17T17:46:41.500Z", {"at": 3})
    assert (await http("GET", f"/v1/jobs/{desk.add_job()}")).json["next_attempt_at"] is None


async def test_another_tenants_job_is_not_there(desk, http):
    foreign = desk.add_job("other")
    for method, path in (
        ("GET", f"/v1/jobs/{foreign}"),
        ("DELETE", f"/v1/jobs/{foreign}"),
        ("GET", f"/v1/jobs/{foreign}/attempts"),
        ("POST", f"/v1/jobs/{foreign}:run-now"),
    ):
        assert (await http(method, path)).status == 404


async def test_a_replay_is_200_and_says_so(desk, http):
    job_id = desk.add_job(status=Status.DEAD)
    desk.answers = [Admitted(job_id=job_id, status=Status.DEAD, replayed=True)]
    body = {"queue": "mail", "target": {"type": "task", "handler": "send"}}
    reply = await http("POST", "/v1/jobs", body, headers={"Idempotency-Key": "k"})
    assert (reply.status, reply.headers["idempotency-replayed"]) == (200, "true")
    assert (reply.json["job_id"], reply.json["status"]) == (job_id, "DEAD")


async def test_a_quota_is_429_with_its_name(desk, http):
    desk.answers = [Refused(429, "quota-exceeded", "Over", "x", retry_after_s=1.2, extra={"quota": "creates_per_s"})]
    reply = await http("POST", "/v1/jobs", {"queue": "mail", "target": {"type": "task", "handler": "send"}})
    assert (reply.status, reply.headers["retry-after"], reply.json["quota"]) == (429, "2", "creates_per_s")


@pytest.mark.parametrize(("status", "code"), [(Status.CANCELLED, 200), (Status.CANCEL_REQUESTED, 202)])
async def test_a_cancel_says_whether_it_is_done(desk, http, status, code):
    reply = await http("DELETE", f"/v1/jobs/{desk.add_job(status=status)}")
    assert (reply.status, reply.json["status"]) == (code, status.value)
