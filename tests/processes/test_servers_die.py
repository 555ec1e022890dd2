"""A server that is killed or stopped and started again on the same data has lost nothing and fires nothing twice."""

from __future__ import annotations

import contextlib
import http.server
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import pytest

import tocsin
from tests.processes.program import Programs, Server
from tests.processes.waiting import succeeded, wait_until

JOBS, FIRST, BATCH, SMALL_BATCH = 10_000, 8_000, 500, 50


class Creator(threading.Thread):
    """Makes jobs batch after batch, each repeated under its keys until the server has answered.

    After the first 8,000 it waits for `go_on`, so that some are still to be made when the others are being done.
    """

    def __init__(self, server: Server, queue: str) -> None:
        super().__init__(daemon=True)
        self._server, self._queue = server, queue
        self.accepted: list[str] = []
        self.outages = 0
        self.go_on = threading.Event()

    def run(self) -> None:
        starts = [*range(0, FIRST, BATCH), *range(FIRST, JOBS, SMALL_BATCH)]
        with self._server.client() as client:
            for start, end in pairwise([*starts, JOBS]):
                if start == FIRST:
                    self.go_on.wait(60)
                jobs = [
                    {
                        "queue": self._queue,
                        "handler": "note",
                        "payload": number,
                        "delay": 1.5 * (number % 2),
                        "idempotency_key": f"{self._queue}-{number}",
                    }
                    for number in range(start, end)
                ]
                self.accepted += wait_until(partial(self._create, client, jobs), "an answer", 60)

    def _create(self, client: tocsin.Client, jobs) -> list[str]:
        try:
            return [result.job_id or "" for result in client.jobs.create_batch(jobs)]
        except tocsin.ServerUnavailable:
            self.outages += 1
            return []


def test_a_kill_in_the_middle_of_ten_thousand_jobs_loses_none_and_fires_none_twice(programs: Programs, journal):
    server = programs.server()
    with server.client() as client:
        client.queues.put("q", lease_s=5)
    worker = programs.worker(server, "q", journal.path, "--concurrency", "50", "--prefetch", "100")
    creator = Creator(server, "q")
    creator.start()
    wait_until(lambda: journal.path.stat().st_size, "work to begin")
    creator.go_on.set()
    # Creates are under way, delayed ones fire, others are claimed and completed, all at once.
    wait_until(lambda: len(creator.accepted) > FIRST, "more to be made meanwhile")
    server.program.kill()
    assert len(creator.accepted) < JOBS, "the kill was to come while jobs were being made"
    assert 0 < len(journal.entries()) < JOBS, "the kill was to come while jobs were being done"

    # Its calls are repeated for some seconds; a server that is back sooner would go unnoticed.
    wait_until(lambda: creator.outages, "whoever makes the jobs to hear of it")
    again = programs.server(server.data, port=server.port)
    creator.join(60)
    assert not creator.is_alive()
    assert len(creator.accepted) == len(set(creator.accepted)) == JOBS
    with again.client() as client:
        # What was claimed by a request whose answer the kill swallowed waits for its lease and the rescue.
        wait_until(lambda: idle(client), "every job to end", 45)
        jobs = {job.job_id: job for job in client.jobs.list(queue="q", page=200)}
    assert worker.running

    assert set(jobs) == set(creator.accepted)
    assert Counter(job.status for job in jobs.values()) == {"SUCCEEDED": JOBS}
    # Every attempt has a version of its own: no version has been fired, and then claimed, twice.
    assert [job.job_id for job in jobs.values() if job.attempt != job.version] == []
    done = Counter(entry.job_id for entry in journal.entries())
    assert set(done) == set(jobs)
    assert {job_id: count for job_id, count in done.items() if count > jobs[job_id].attempt} == {}
    # An outage of the server is not the jobs' fault: nobody lost a try beyond the first.
    assert {job.tries for job in jobs.values()} == {1}
    for entry in journal.entries():
        assert (entry.payload, entry.key) == (jobs[entry.job_id].payload, jobs[entry.job_id].idempotency_key)
    assert sorted(job.payload for job in jobs.values()) == list(range(JOBS))


def idle(client: tocsin.Client) -> bool:
    """Whether every job has ended. (A queue's figures are estimates for a while after a start.)"""
    unfinished = ("SCHEDULED", "QUEUED", "RUNNING", "RETRYING")
    return all(next(client.jobs.list(queue="q", status=status), None) is None for status in unfinished)


def test_a_stop_and_a_start_go_unnoticed_by_jobs_and_worker(programs: Programs, journal, tmp_path):
    until = tmp_path / "release"
    server = programs.server()
    worker = programs.worker(server, "q", journal.path)
    with server.client() as client:
        running = client.jobs.create(queue="q", handler="hold", payload={"until": str(until)})
        delayed = client.jobs.create(queue="q", handler="note", delay=3)
        distant = client.jobs.create(queue="q", handler="note", delay=3600)
        client.queues.put("resting", paused=True)
        waiting = client.jobs.create(queue="resting", handler="note")
        wait_until(lambda: journal.entries(job_id=running.job_id), "the long job to run")
    server.program.signal(signal.SIGTERM)
    assert server.program.end() == 0
    assert "Traceback" not in server.program.errors
    assert not (server.data / "tocsin.db-wal").exists(), "an orderly end leaves one whole file"

    again = programs.server(server.data, port=server.port)
    until.touch()
    with again.client() as client:
        for job in (running, delayed):
            wait_until(partial(succeeded, client, job), "what was under way", 40)
        assert client.jobs.get(distant.job_id).status == "SCHEDULED"
        # A pause is not forgotten either.
        assert client.queues.get("resting").paused
        assert client.jobs.get(waiting.job_id).status == "QUEUED"
        done = client.jobs.get(running.job_id)
        assert (done.attempt, done.result) == (1, {"attempt": 1})
        assert [len(journal.entries(job_id=job.job_id)) for job in (running, delayed)] == [1, 1]
    assert worker.running


def test_a_killed_server_leaves_no_lock_behind_and_works_as_before(programs: Programs):
    """Started again as a person would: with the token that it prints, and callbacks from its own executor."""
    first = programs.server(token=None)
    with receiving() as received:
        with first.client() as client:
            waiting = client.jobs.create(queue="q", url=received.url, payload=1, delay=2, idempotency_key="k")
            first.program.kill()
        again = programs.server(first.data, token=None)
        assert again.token != first.token
        with again.client() as client:
            # The client repeats what may have been lost, and finds the job of the first time.
            repeated = client.jobs.create(queue="q", url=received.url, payload=1, delay=2, idempotency_key="k")
            assert (repeated.job_id, repeated.replayed) == (waiting.job_id, True)
            wait_until(partial(succeeded, client, waiting), "the callback")
            with pytest.raises(tocsin.Refused), tocsin.Client(again.url, first.token) as old:
                old.me()
    assert received.keys == [waiting.idempotency_key]


class Received(http.server.BaseHTTPRequestHandler):
    """Notes the idempotency key of every callback."""

    def do_POST(self) -> None:
        self.server.keys.append(self.headers["Idempotency-Key"])  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Receiver(http.server.ThreadingHTTPServer):
    """A receiver of callbacks on this machine."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Received)
        self.keys: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            thread.join(10)
