"""A worker that was only paused can never write over a newer attempt (F-16)."""

from __future__ import annotations

import signal
from functools import partial

from tests.processes.waiting import succeeded, wait_until

REFUSED = ["heartbeat 409", "success 409", "failure 409", "fatal 409"]
LOST = "worker lost: its lease ended without a result"
PAYLOAD = {"text": "ünïcode ☂ \u0001", "deep": [{"n": 1e-7}, None, True]}


def test_late_reports_are_refused_before_and_after_the_newer_attempt_ends(
    server, client, queue, programs, journal, tmp_path
):
    until = str(tmp_path / "release")
    payload = {**PAYLOAD, "until": until}
    paused = programs.start("bare", "tests.processes.bare", queue, str(tmp_path), **server.environ)
    job = client.jobs.create(queue=queue, handler="hold", payload=payload)
    paused.says(f"claimed {job.job_id}")
    paused.signal(signal.SIGSTOP)

    programs.worker(server, queue, journal.path)
    wait_until(lambda: journal.entries(job_id=job.job_id), "the newer attempt")
    (tmp_path / "report-1").touch()
    paused.signal(signal.SIGCONT)
    paused.says("done report-1")
    now = client.jobs.get(job.job_id)
    assert (now.status, now.attempt, now.result, now.last_error) == ("RUNNING", 2, None, LOST)
    assert now.progress is None

    (tmp_path / "release").touch()
    wait_until(partial(succeeded, client, job), "the newer attempt to end")
    (tmp_path / "report-2").touch()
    paused.says("done report-2")

    answers = [line for line in paused.output.splitlines() if " 409 " in line or "accepted" in line]
    assert answers == [f"{each} attempt-superseded" for each in REFUSED * 2]
    done = client.jobs.get(job.job_id)
    assert (done.status, done.attempt, done.result) == ("SUCCEEDED", 2, {"attempt": 2})
    assert done.payload == payload
    assert done.idempotency_key == job.idempotency_key
    (entry,) = journal.entries(job_id=job.job_id)
    assert (entry.payload, entry.key) == (payload, job.idempotency_key)
    assert [each.outcome for each in client.jobs.attempts(job.job_id)] == ["lost", "succeeded"]


def test_a_paused_worker_of_the_sdk_drops_the_attempt_by_itself(server, client, queue, programs, journal, tmp_path):
    first_until, second_until = tmp_path / "first", tmp_path / "second"
    paused = programs.worker(server, queue, journal.path, "--concurrency", "1")
    job = client.jobs.create(queue=queue, handler="hold", payload={"until": str(second_until)})
    wait_until(lambda: journal.entries(job_id=job.job_id), "the first attempt")
    paused.signal(signal.SIGSTOP)
    other = programs.worker(server, queue, journal.path, "--concurrency", "1")
    wait_until(lambda: len(journal.entries(job_id=job.job_id)) == 2, "the newer attempt")

    # What the paused one waits for has come long ago when it wakes up; it would report at once.
    second_until.touch()
    wait_until(partial(succeeded, client, job), "the newer attempt to end")
    paused.signal(signal.SIGCONT)
    paused.says(f"dropped attempt 1 of job {job.job_id}")
    done = client.jobs.get(job.job_id)
    assert (done.attempt, done.result) == (2, {"attempt": 2})

    # It is as good as new: it takes the next job.
    other.signal(signal.SIGTERM)
    other.end()
    after = client.jobs.create(queue=queue, handler="hold", payload={"until": str(first_until)})
    first_until.touch()
    wait_until(partial(succeeded, client, after), "the job after it")
    assert journal.entries(job_id=after.job_id)[0].pid == paused.pid
