"""What the benchmark counts with: bodies that the API takes, notes of workers, quantiles, this process's own figures."""

import os
import socket

import msgspec
import pytest

from tocsin import wire
from tocsin.cli import measures
from tocsin.cli.load import Notes, Plan

PLAN = Plan(jobs=20, queue="q", payload_bytes=500, due_ms=lambda number: 1_000_000 + number, mixed=True, keys=True)


@pytest.mark.parametrize("number", range(20))
def test_a_planned_job_is_one_that_the_api_takes(number):
    job = msgspec.json.decode(PLAN.body(number, batched=True), type=wire.BatchedJob)
    assert job.idempotency_key == f"q-{number}"
    assert len(job.payload) == 500
    assert msgspec.json.decode(job.payload)["n"] == number
    assert (job.priority or "normal") == {1: "high", 2: "low"}.get(number % 10, "normal")
    single = msgspec.json.decode(PLAN.body(number, batched=False), type=wire.JobCreate)
    assert single.run_at == job.run_at


def test_losses_and_duplicates_are_counted_from_the_notes():
    starts = [(number, 5) for number in range(20) if number != 7]
    notes = Notes(starts=[*starts, (0, 9), (10, 9), (3, 9), (3, 8)])
    assert notes.lost(PLAN) == 1
    # 0 and 10 had to start twice.
    assert notes.duplicates(PLAN) == 2
    assert notes.first_starts()[3] == 5


def test_quantiles():
    assert measures.quantile([], 0.5) is None
    assert measures.quantile([3.0], 0.99) == 3.0
    assert measures.quantile(list(range(100)), 0.5) == 50
    assert measures.quantile(list(range(100)), 0.99) == 99


def test_this_process_can_be_measured(tmp_path):
    assert measures.machine().cores >= 1
    assert measures.fsync_ms(tmp_path, rounds=3) >= 0
    if os.path.exists("/proc/self/stat"):
        assert (measures.cpu_s(os.getpid()) or 0) > 0
        assert (measures.memory_bytes(os.getpid()) or 0) > 1_000_000
    assert measures.cpu_s(2**22 + 1) is None


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="only Linux says who listens")
def test_who_listens_on_a_port_is_found():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert measures.listener(listener.getsockname()[1]) == os.getpid()
