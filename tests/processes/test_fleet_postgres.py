"""A fleet whose PostgreSQL restarts, fails over, is busy with others' work or holds an old snapshot (F-17, F-27, F-38, F-62).

The tests share a fleet with a synchronous standby, in any order: after the failover the others go on with what was the standby.
What its counters show is compared with the store once, in the end, since that takes until the next count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.processes.fleets import QUEUE, Fleet, Load, check_all, check_jobs, drained, fleet
from tests.processes.journal import Journal
from tests.processes.waiting import succeeded, wait_until
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.timeout(240)

LEASE_S = 5
RATE = 100
# Longer than the gap from which on leases count anew (5 s), than the lease, and than what the rescue waits beyond it (2 s).
OUTAGE_S = 8.0
# PostgreSQL is there again: what remains is a retry's pause and, on a crowded machine, patience.
RECOVERS_WITHIN_S = 15.0
KEPT, DOOMED = "kept", "doomed"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet"), standby=True) as made:
        made.api()
        made.start_nodes("one", "two")
        made.owned()
        with made.client() as client:
            client.queues.put(KEPT, lease_s=LEASE_S)
            client.queues.put(DOOMED, lease_s=LEASE_S)
        made.worker(journal_of(made), "-q", KEPT).says("takes jobs from")
        yield made
        check_all(made, [])


def journal_of(shared: Fleet) -> Journal:
    return Journal(shared.programs.folder / "journal")


@contextmanager
def load(shared: Fleet) -> Iterator[Load]:
    """Jobs all the while; afterwards they drain, all must be so, and every process must still run."""
    under = Load(shared, RATE)
    under.start()
    try:
        wait_until(lambda: under.accepted, "the first jobs")
        yield under
    finally:
        under.stop()
    drained(shared)
    check_jobs(shared, under.accepted)
    assert all(program.running for program in (shared.apis[0].program, *shared.nodes.values()))


def accepts_again(under: Load) -> float:
    """Wait until a job more is accepted; how long that took."""
    before, began_at = len(under.accepted), time.monotonic()
    wait_until(lambda: len(under.accepted) > before, "a job to be accepted", 60)
    return time.monotonic() - began_at


def test_a_restart_under_load_loses_nothing_and_charges_no_attempt_that_was_running(shared, tmp_path):
    with shared.client() as client, load(shared) as under:
        kept = client.jobs.create(queue=KEPT, handler="hold", payload={"until": str(tmp_path / "release")})
        lost = client.jobs.create(queue=DOOMED, handler="note")
        wait_until(lambda: journal_of(shared).entries(job_id=kept.job_id), "the long job to run")
        # A worker that dies during the outage, and one that lives through it.
        wait_until(lambda: client.queues.claim(DOOMED, worker="doomed", lease_s=LEASE_S), "the other job")

        shared.postgres.kill()
        down_at = time.monotonic()
        wait_until(lambda: time.monotonic() - down_at > OUTAGE_S, "every lease to be over", OUTAGE_S + 5)
        shared.postgres.start()
        assert accepts_again(under) < RECOVERS_WITHIN_S

        claim = partial(client.queues.claim, DOOMED, worker="next", lease_s=LEASE_S, wait_s=5)
        (again,) = wait_until(claim, "the job whose worker died", 60)
        client.attempts.complete(again.lease_token, "succeeded")
        (tmp_path / "release").touch()
        kept = wait_until(partial(succeeded, client, kept), "the long job's success", 60)
        lost = wait_until(partial(succeeded, client, lost), "the other's success", 60)
        assert (kept.attempt, kept.tries) == (1, 1)
        assert (lost.attempt, lost.tries) == (2, 1)
        assert [attempt.outcome for attempt in client.jobs.attempts(lost.job_id)] == ["lost", "succeeded"]
    assert under.outages > 0


def test_after_a_failover_writes_and_reads_go_to_the_new_primary_and_nobody_is_restarted(shared):
    old, new = shared.postgres, shared.standby
    assert new is not None
    with shared.client() as client, load(shared) as under:
        # As when a primary is demoted: it stays up, its connections too, and it answers reads. Nobody tells the clients.
        asyncio.run(old.execute("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"))
        new.promote()
        shared.postgres = new
        assert accepts_again(under) < RECOVERS_WITHIN_S
        for _ in range(20):  # as many as there are connections for reads, and more
            job = client.jobs.create(queue=QUEUE, handler="note")
            assert client.jobs.get(job.job_id).job_id == job.job_id
        wait_until(partial(succeeded, client, job), "a new job to run", RECOVERS_WITHIN_S)
        wait_until(lambda: not connections_of_ours(old), "the last connection to the old primary to end", 30)


def connections_of_ours(server: PostgresServer) -> list[str]:
    rows = asyncio.run(
        server.execute("SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'tocsin%'")
    )
    return [row[0] for row in rows]
