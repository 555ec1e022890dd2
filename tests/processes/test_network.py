"""A network that fails without a word between a worker and its server (F-02)."""

from __future__ import annotations

import time
from functools import partial

from tests.processes.proxy import Proxy, between
from tests.processes.waiting import succeeded, wait_until

WAIT_S = 2.0
# A claim's answer may be this much later than its wait before the connection counts as dead (sdk/worker.py).
ANSWER_S = 5.0
# Then the next try after at most the first pauses of the backoff.
AGAIN_S = 3.0


def test_a_black_hole_is_noticed_and_work_resumes_by_itself_within_the_stated_time(
    server, client, queue, programs, journal
):
    with between(server.port) as proxy:
        worker = programs.worker(server, queue, journal.path, TOCSIN_URL=proxy.url, WAIT_S=str(WAIT_S), READINESS="yes")
        first = client.jobs.create(queue=queue, handler="note")
        wait_until(partial(succeeded, client, first), "the first job")
        wait_until(lambda: states(worker.output)[-1:] == ["ready"], "the worker to be ready")

        proxy.black_hole()
        dark_at = time.monotonic()
        second = client.jobs.create(queue=queue, handler="note")
        wait_until(lambda: states(worker.output)[-1:] == ["not ready"], "the worker to notice", WAIT_S + ANSWER_S + 5)
        assert time.monotonic() - dark_at < WAIT_S + ANSWER_S + 2
        assert worker.running

        proxy.allow_new()
        light_at = time.monotonic()
        wait_until(partial(succeeded, client, second), "work to resume by itself", 30)
        # At worst a try had just begun in the dark; it must run into its own time-out first. (The lease of what the
        # lost answer carried may have to run out too: the shortest is 5 s, and the rescue waits 2 s more.)
        assert time.monotonic() - light_at < ANSWER_S + AGAIN_S + 7
        assert states(worker.output)[-1] == "ready"
        third = client.jobs.create(queue=queue, handler="note")
        wait_until(partial(succeeded, client, third), "the next job", WAIT_S)
        assert [len(journal.entries(job_id=job.job_id)) for job in (first, second, third)] == [1, 1, 1]


def test_five_resets_within_three_seconds_cost_nothing(server, client, queue, programs, journal, tmp_path):
    until = tmp_path / "release"
    with between(server.port) as proxy:
        worker = programs.worker(server, queue, journal.path, TOCSIN_URL=proxy.url)
        lengthy = client.jobs.create(queue=queue, handler="hold", payload={"until": str(until)})
        wait_until(lambda: journal.entries(job_id=lengthy.job_id), "the long job to run")
        jobs = [lengthy]
        began_at = time.monotonic()
        for _ in range(5):
            seen = proxy.connections
            proxy.reset()
            jobs.append(client.jobs.create(queue=queue, handler="note"))
            wait_until(partial(more_than, proxy, seen), "a new connection")
        assert time.monotonic() - began_at < 10, "the resets were to come quickly one after another"
        until.touch()
        for job in jobs:
            wait_until(partial(succeeded, client, job), "every job")
        assert worker.running
        assert [client.jobs.get(job.job_id).attempt for job in jobs if job is lengthy] == [1]
        assert {len(journal.entries(job_id=job.job_id)) for job in jobs} == {1}


def states(output: str) -> list[str]:
    return [line for line in output.splitlines() if line in ("ready", "not ready")]


def more_than(proxy: Proxy, connections: int) -> bool:
    return proxy.connections > connections
