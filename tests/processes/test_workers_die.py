"""A worker that is gone is noticed by its lease, whatever its jobs were doing (F-01, F-30)."""

from __future__ import annotations

import time
from functools import partial

from tests.processes.waiting import succeeded, wait_until

LEASE_S = 5


def test_a_killed_workers_jobs_are_attempted_again_within_the_lease_and_five_seconds(
    server, client, queue, programs, journal, tmp_path
):
    until = str(tmp_path / "release")
    client.queues.put(queue, lease_s=LEASE_S)
    doomed = programs.worker(server, queue, journal.path)
    quick = client.jobs.create(queue=queue, handler="hold", payload={"until": until}, timeout_s=20)
    lengthy = client.jobs.create(queue=queue, handler="hold", payload={"until": until}, timeout_s=3600)
    wait_until(lambda: len(journal.entries()) == 2, "both jobs to run")
    other = programs.worker(server, queue, journal.path)
    other.says("takes jobs from")

    doomed.kill()
    killed_at = time.monotonic()
    wait_until(lambda: len(journal.entries()) == 4, "both to be attempted again", LEASE_S + 10)
    assert time.monotonic() - killed_at < LEASE_S + 5
    (tmp_path / "release").touch()

    for job in (quick, lengthy):
        done = wait_until(partial(succeeded, client, job), "success")
        first, second = journal.entries(job_id=job.job_id)
        assert (first.attempt, first.pid) == (1, doomed.pid)
        assert (second.attempt, second.pid) == (2, other.pid)
        assert first.key == second.key == job.idempotency_key
        assert first.payload == second.payload == job.payload
        assert (done.attempt, done.tries) == (2, 2)
        lost, last = client.jobs.attempts(job.job_id)
        assert (lost.outcome, last.outcome) == ("lost", "succeeded")
        assert "worker lost" in (lost.error or "")


def test_a_worker_that_dies_between_claim_and_start_strands_nothing(server, client, queue, programs, journal):
    job = client.jobs.create(queue=queue, handler="note")
    # Nobody will ever heartbeat or report this claim: as if the process had died with the answer in its socket.
    (claimed,) = client.queues.claim(queue, worker="short-lived", lease_s=LEASE_S)
    claimed_at = time.monotonic()
    assert client.jobs.get(job.job_id).lease_until == claimed.lease_until
    programs.worker(server, queue, journal.path)
    wait_until(lambda: journal.entries(job_id=job.job_id), "the second attempt", LEASE_S + 10)
    assert time.monotonic() - claimed_at < LEASE_S + 5
    (entry,) = journal.entries(job_id=job.job_id)
    assert (entry.attempt, entry.key) == (2, claimed.idempotency_key)
