"""A worker that is busy is alive (F-09)."""

from __future__ import annotations

from functools import partial

import pytest

from tests.processes.waiting import succeeded, wait_until


@pytest.mark.parametrize("handler", ["burn", "burn-in-thread"])
def test_a_handler_that_burns_its_processor_keeps_its_lease(server, client, queue, programs, journal, handler):
    """Longer than the lease, without ever giving way to the worker's event loop; another worker would take it gladly."""
    busy = programs.worker(server, queue, journal.path)
    job = client.jobs.create(queue=queue, handler=handler, payload={"s": 8.0})
    wait_until(lambda: journal.entries(job_id=job.job_id), "the job to run")
    programs.worker(server, queue, journal.path).says("takes jobs from")
    done = wait_until(partial(succeeded, client, job), "the job to end")
    (entry,) = journal.entries(job_id=job.job_id)
    assert (entry.pid, entry.attempt, done.attempt) == (busy.pid, 1, 1)
