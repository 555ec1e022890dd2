"""A worker that is busy is alive (F-09)."""

from __future__ import annotations

from functools import partial

from tests.processes.waiting import succeeded, wait_until


def test_handlers_that_burn_their_processor_keep_their_leases(server, client, queue, programs, journal):
    """Longer than the lease, one without ever giving way to the worker's event loop; another worker would take them gladly."""
    busy = programs.worker(server, queue, journal.path)
    jobs = []
    for handler in ("burn-in-thread", "burn"):
        job = client.jobs.create(queue=queue, handler=handler, payload={"s": 8.0})
        wait_until(partial(journal.entries, "begin", job.job_id), f"{handler} to run")
        jobs.append(job)
    programs.worker(server, queue, journal.path).says("takes jobs from")
    for job in jobs:
        done = wait_until(partial(succeeded, client, job), "the job to end")
        (entry,) = journal.entries(job_id=job.job_id)
        assert (entry.pid, entry.attempt, done.attempt) == (busy.pid, 1, 1)
