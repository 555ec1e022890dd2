"""A fleet whose PostgreSQL restarts, fails over, is busy with others' work or holds an old snapshot (F-17, F-27, F-38, F-62).

The tests share a fleet with a synchronous standby, in any order: after the failover the others go on with what was the standby.
What its counters show is compared with the store once, in the end, since that takes until the next count.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import asyncpg
import pytest

import tocsin
from tests.amount import LONG
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
# Seconds of load behind the back of an open transaction.
CHURN = 30 if LONG else 4
# More than there are connections for lists.
LOOKERS = 8
KEPT, DOOMED = "kept", "doomed"
MANY = ("--concurrency", "200", "--prefetch", "400")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet"), standby=True) as made:
        made.api()
        made.start_nodes("one", "two")
        made.owned()
        with made.client() as client:
            client.queues.put(KEPT, lease_s=LEASE_S)
            client.queues.put(DOOMED, lease_s=LEASE_S)
        made.worker(journal_of(made), "-q", KEPT, *MANY).says("takes jobs from")
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
        for _ in range(20):  # more than there are connections for reads
            job = client.jobs.create(queue=QUEUE, handler="note")
            assert client.jobs.get(job.job_id).job_id == job.job_id
        wait_until(partial(succeeded, client, job), "a new job to run", RECOVERS_WITHIN_S)
        wait_until(lambda: not connections_of_ours(old), "the last connection to the old primary to end", 30)


def test_while_all_connections_for_lists_hang_heartbeats_fires_and_completions_go_on(shared, tmp_path):
    with shared.client() as client, load(shared) as under:
        kept = client.jobs.create(queue=KEPT, handler="hold", payload={"until": str(tmp_path / "release")})
        wait_until(lambda: journal_of(shared).entries(job_id=kept.job_id), "the long job to run")
        stuck = threading.Event()
        lookers = [Looker(shared, stuck) for _ in range(LOOKERS)]
        # What every list over all queues reads first, and nothing else while no queue is new.
        with locked(shared.postgres, "queue_names"):
            for looker in lookers:
                looker.start()
            began_at, before, done = time.monotonic(), len(under.accepted), finished(shared)
            wait_until(lambda: time.monotonic() - began_at > OUTAGE_S, "the lease to be over twice", OUTAGE_S + 5)
            assert finished(shared) > done
            assert len(under.accepted) > before
            stuck.set()
        for looker in lookers:
            looker.join(30)
        assert not any(looker.answered for looker in lookers), "their reads were to hang"
        (tmp_path / "release").touch()
        kept = wait_until(partial(succeeded, client, kept), "the long job's success", 60)
        assert (kept.attempt, kept.tries) == (1, 1)
    assert under.outages == 0


def test_claims_go_on_while_an_old_snapshot_is_held_and_doctor_points_at_it(shared):
    with load(shared) as under, asyncio.Runner() as runner:
        conn = runner.run(asyncpg.connect(shared.postgres.dsn("tocsin")))
        try:
            runner.run(conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ"))
            runner.run(conn.fetch("SELECT count(*) FROM jobs"))
            before, done = len(under.accepted), finished(shared)
            wait_until(lambda: len(under.accepted) > before + CHURN * RATE, "some churn", 60)
            wait_until(lambda: finished(shared) > done + CHURN * RATE, "it to be done", 60)
            said = re.search(r"the oldest is (\d+) s old", shared.doctor()["open transactions"]["found"])
            assert said is not None
            assert int(said[1]) >= CHURN - 1
        finally:
            runner.run(conn.close())


def test_payloads_of_any_size_and_a_full_batch_are_accepted_and_run(shared):
    texts = ["x" * (size - 2) for size in (2, 7_900, 8_100, 65_536)]  # with its quotes each is of that size
    with shared.client() as client:
        jobs = [client.jobs.create(queue=QUEUE, handler="note", payload=payload) for payload in (1, *texts)]
        results = client.jobs.create_batch([{"queue": QUEUE, "handler": "note"}] * 5_000)
        ids = [result.job_id for result in results if result.job_id is not None]
        assert len(ids) == 5_000
        drained(shared)
        check_jobs(shared, [*ids, *(job.job_id for job in jobs)])
        entries = [journal_of(shared).entries(job_id=job.job_id) for job in jobs]
        assert [[entry.payload for entry in each] for each in entries] == [[1], *([text] for text in texts)]


class Looker(threading.Thread):
    """Lists jobs again and again until `ending`; counts the answers that came."""

    def __init__(self, shared: Fleet, ending: threading.Event) -> None:
        super().__init__(daemon=True)
        self._shared, self._ending = shared, ending
        self.answered = 0

    def run(self) -> None:
        with self._shared.client() as client:
            while not self._ending.is_set():
                with suppress(tocsin.ServerUnavailable):
                    next(iter(client.jobs.list()), None)
                    self.answered += not self._ending.is_set()


@contextmanager
def locked(server: PostgresServer, table: str) -> Iterator[None]:
    """Nobody else can read the table meanwhile."""
    with asyncio.Runner() as runner:
        conn = runner.run(asyncpg.connect(server.dsn("tocsin")))
        runner.run(conn.execute(f"BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
        try:
            yield
        finally:
            runner.run(conn.close())


def finished(shared: Fleet) -> int:
    return int(shared.query("SELECT count(*) AS n FROM finished")[0]["n"])


def connections_of_ours(server: PostgresServer) -> list[str]:
    rows = asyncio.run(
        server.execute("SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'tocsin%'")
    )
    return [row[0] for row in rows]
