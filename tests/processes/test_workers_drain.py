"""An orderly shutdown of a worker loses nothing that a crash would have recovered (F-15)."""

from __future__ import annotations

import signal
import time
from functools import partial

from tests.processes.waiting import succeeded, wait_until


def test_a_draining_worker_ends_quick_jobs_and_hands_long_ones_back_uncharged(
    server, client, queue, programs, journal, tmp_path
):
    until = tmp_path / "release"
    leaving = programs.worker(server, queue, journal.path, GRACE_S="3")
    quick = client.jobs.create(queue=queue, handler="brief", payload={"s": 1.0})
    lengthy = client.jobs.create(queue=queue, handler="hold", payload={"until": str(until)})
    wait_until(lambda: len(journal.entries()) == 2, "both jobs to run")
    leaving.signal(signal.SIGTERM)
    leaving.says("draining")
    late = client.jobs.create(queue=queue, handler="note")
    assert leaving.end() == 0
    assert "Traceback" not in leaving.errors

    assert client.jobs.get(quick.job_id).status == "SUCCEEDED"
    assert client.jobs.get(quick.job_id).attempt == 1
    # Nothing new was begun while it drained. (The claim that was open may have got it; then it came back uncharged.)
    assert journal.entries(job_id=late.job_id) == []
    assert client.jobs.get(late.job_id).tries == 0
    (released,) = client.jobs.attempts(lengthy.job_id)
    assert released.outcome == "released"
    back = client.jobs.get(lengthy.job_id)
    assert (back.attempt, back.tries) == (1, 0)

    other = programs.worker(server, queue, journal.path)
    until.touch()
    done = wait_until(partial(succeeded, client, lengthy), "the long one")
    assert (done.attempt, done.tries) == (2, 1)
    first, second = journal.entries(job_id=lengthy.job_id)
    assert (first.pid, second.pid) == (leaving.pid, other.pid)
    assert first.key == second.key
    wait_until(partial(succeeded, client, late), "the job that came meanwhile")


def test_a_second_sigterm_hands_back_at_once_and_cancels_stay_cancels(
    server, client, queue, programs, journal, tmp_path
):
    until = str(tmp_path / "never")
    leaving = programs.worker(server, queue, journal.path)
    kept, unwanted = (client.jobs.create(queue=queue, handler="hold", payload={"until": until}) for _ in range(2))
    wait_until(lambda: len(journal.entries()) == 2, "both jobs to run")
    leaving.signal(signal.SIGTERM)
    leaving.says("draining")
    assert client.jobs.cancel(unwanted.job_id).status == "CANCEL_REQUESTED"
    asked_at = time.monotonic()
    leaving.signal(signal.SIGTERM)
    assert leaving.end() == 0
    assert time.monotonic() - asked_at < 5
    wait_until(lambda: client.jobs.get(unwanted.job_id).status == "CANCELLED", "the cancel to count")
    assert client.jobs.get(kept.job_id).tries == 0
    (released,) = client.jobs.attempts(kept.job_id)
    assert released.outcome == "released"
