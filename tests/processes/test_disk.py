"""A disk without room: 503, nothing is accepted that is not durable, and all goes on by itself once there is room.

Without root no disk of our own can be filled; a limit on the size of files (man 2 setrlimit) makes the same writes fail, and
Linux lets us set it on a running process, and lift it again.
"""

from __future__ import annotations

import resource
import urllib.error
import urllib.request
from functools import partial

import pytest

import tocsin
from tests.processes.program import Server
from tests.processes.waiting import succeeded, wait_until

prlimit = getattr(resource, "prlimit", None)
ROOM = 64 * 1024


@pytest.mark.skipif(prlimit is None, reason="this system cannot limit the files of a running process (no prlimit)")
def test_a_full_disk_refuses_and_recovers_by_itself(programs, journal, tmp_path):
    assert prlimit is not None
    server = programs.server()
    pid = server.program.pid
    worker = programs.worker(server, "q", journal.path)
    until = tmp_path / "release"
    accepted: list[str] = []
    refused: list[tocsin.ServerUnavailable] = []

    with server.client() as client:
        running = client.jobs.create(queue="q", handler="hold", payload={"until": str(until)})
        wait_until(lambda: journal.entries(job_id=running.job_id), "a job to run")
        _, hard = prlimit(pid, resource.RLIMIT_FSIZE)
        biggest = max(file.stat().st_size for file in server.data.iterdir())
        prlimit(pid, resource.RLIMIT_FSIZE, (biggest + ROOM, hard))

        def full() -> bool:
            try:
                made = client.jobs.create(queue="elsewhere", handler="note", payload="x" * 20_000)
                accepted.append(made.job_id)
            except tocsin.ServerUnavailable as error:
                refused.append(error)
            return bool(refused)

        wait_until(full, "the disk to be full")
        assert "503" in str(refused[0])
        assert accepted, "there was some room first"
        wait_until(lambda: not ready(server), "the server to say that it is not ready")
        # Reading needs no room.
        assert client.jobs.get(accepted[-1]).status == "QUEUED"
        until.touch()
        wait_until(lambda: journal.entries("end", running.job_id), "the handler to end, with nowhere to report to")
        assert client.jobs.get(running.job_id).status == "RUNNING"

        prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        wait_until(lambda: ready(server), "the server to be ready again by itself")
        wait_until(partial(succeeded, client, running), "the report to get through")
        assert len(client.jobs.attempts(running.job_id)) == 1
        later = client.jobs.create(queue="q", handler="note")
        wait_until(partial(succeeded, client, later), "a job after that")
    assert server.program.running
    assert worker.running
    server.program.kill()

    # Exactly what was answered with 201 is there, also after a crash.
    again = programs.server(server.data)
    with again.client() as client:
        assert sorted(job.job_id for job in client.jobs.list(queue="elsewhere")) == sorted(accepted)


def ready(server: Server) -> bool:
    """Whether the server says that it is."""
    try:
        with urllib.request.urlopen(f"{server.url}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code != 503
