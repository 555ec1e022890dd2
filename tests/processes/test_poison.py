"""A job that kills its worker uses up its tries and harms nobody beside it (F-04)."""

from __future__ import annotations

from tests.processes.program import Program, Programs
from tests.processes.waiting import wait_until
from tocsin.wire import RetryPolicy

GOOD = 50
LOST = "worker lost: its lease ended without a result"
# The shortest lease is 5 s, and a rescue waits 2 s more: three lost attempts take at least 21 s.
THREE_LOSSES_S = 40


class Supervisor:
    """Starts a worker again whenever it is gone, as a service manager would."""

    def __init__(self, programs: Programs, *start) -> None:
        self._programs, self._start = programs, start
        self.started: list[Program] = []
        self.tend()

    def tend(self) -> None:
        if not self.started or not self.started[-1].running:
            self.started.append(self._programs.worker(*self._start))


def test_a_poison_job_is_dead_after_three_claims_and_the_others_complete(server, client, queue, programs, journal):
    bad = client.jobs.create(
        queue=queue, handler="poison", retry=RetryPolicy(max_attempts=3, initial_backoff_s=0.1, max_backoff_s=0.1)
    )
    good = client.jobs.create_batch([{"queue": queue, "handler": "note", "payload": n} for n in range(GOOD)])
    workers = Supervisor(programs, server, queue, journal.path, "--concurrency", "10")

    def dead() -> bool:
        workers.tend()
        return client.jobs.get(bad.job_id).status == "DEAD"

    wait_until(dead, "the poison job to be given up", THREE_LOSSES_S)
    over = client.jobs.get(bad.job_id)
    assert (over.attempt, over.tries, over.last_error) == (3, 3, LOST)
    assert [each.outcome for each in client.jobs.attempts(bad.job_id)] == ["lost"] * 3
    assert [each.attempt for each in journal.entries(job_id=bad.job_id)] == [1, 2, 3]
    assert len({each.key for each in journal.entries(job_id=bad.job_id)}) == 1

    def all_done() -> bool:
        workers.tend()
        return client.queues.get(queue).stats.running == 0

    wait_until(all_done, "the good jobs to end")
    jobs = [client.jobs.get(made.job_id or "") for made in good]
    assert {job.status for job in jobs} == {"SUCCEEDED"}
    assert sorted({entry.payload for entry in journal.entries() if entry.job_id != bad.job_id}) == list(range(GOOD))
    # The first claim may have had companions; after a loss the job is handed out alone.
    assert max(job.tries for job in jobs) <= 2
    assert len(workers.started) <= 4
    assert [dead.job_id for dead in client.dead.list(queue)] == [bad.job_id]


def test_a_poison_job_is_cancelled_during_its_second_attempt(server, client, queue, programs, journal):
    bad = client.jobs.create(queue=queue, handler="poison")
    workers = Supervisor(programs, server, queue, journal.path)

    def second() -> bool:
        workers.tend()
        return len(journal.entries(job_id=bad.job_id)) == 2

    wait_until(second, "the second attempt", THREE_LOSSES_S)
    assert client.jobs.cancel(bad.job_id).status == "CANCEL_REQUESTED"
    assert client.jobs.cancel(bad.job_id).status == "CANCEL_REQUESTED"

    def cancelled() -> bool:
        workers.tend()
        return client.jobs.get(bad.job_id).status == "CANCELLED"

    wait_until(cancelled, "the loss of the lease to end it", THREE_LOSSES_S)
    assert len(journal.entries(job_id=bad.job_id)) == 2
    assert [each.outcome for each in client.jobs.attempts(bad.job_id)] == ["lost", "lost"]
