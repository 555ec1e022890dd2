"""Outages: a worker asks for ever, repeats what may be repeated, and gives up only what it may not keep."""

from __future__ import annotations

import asyncio
import logging

import pytest

import tocsin
from tests.sdk.stand_in import wait_until


@pytest.fixture
def succeed_with():
    def register(worker, result=None):
        @worker.task("h")
        async def handle(payload):
            return result

    return register


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_worker_started_before_its_server_waits_for_it(server, make_worker, start, clock, succeed_with, caplog):
    caplog.set_level(logging.WARNING)
    server.fault["claim"] = "proxy"
    worker = make_worker()
    succeed_with(worker)
    job = server.add()
    start(worker)
    for _ in range(300):
        clock.advance(1)
        await settle()
    assert not worker.connected
    assert 20 <= server.count(":claim") <= 150, "pauses grow, but not beyond 15 s"
    assert "until it answers" in caplog.text
    server.fault.clear()
    for _ in range(16):
        clock.advance(1)
        await settle()
    await wait_until(lambda: job.status == "SUCCEEDED", "the work to go on")
    assert worker.connected


async def test_a_claim_whose_answer_is_lost_gets_the_same_jobs(server, make_worker, start, clock, succeed_with):
    worker = make_worker()
    succeed_with(worker)
    server.lose_answers_of.add("claim")
    job = server.add()
    start(worker)
    await wait_until(lambda: job.status == "RUNNING", "the claim")
    clock.advance(1)
    await wait_until(lambda: job.status == "SUCCEEDED", "the job")
    assert job.attempt == 1


@pytest.mark.parametrize("fault", ["proxy", "busy", "forbidden"])
async def test_a_report_is_repeated_while_the_lease_is_trusted(server, make_worker, start, clock, succeed_with, fault):
    worker = make_worker()
    succeed_with(worker, "done")
    server.fault["complete"] = fault
    job = server.add()
    start(worker)
    await wait_until(lambda: server.count("attempts:complete") >= 1, "the first report")
    for _ in range(300):
        clock.advance(1)
        await settle()
    server.fault.clear()
    for _ in range(20):
        clock.advance(0.5)
        await settle()
    await wait_until(lambda: job.status == "SUCCEEDED", "the report, five minutes later")
    assert job.attempt == 1
    assert server.count("attempts:heartbeat") > 30, "the lease was kept meanwhile"


async def test_a_lost_answer_to_a_report_does_no_harm(server, make_worker, start, clock, succeed_with):
    worker = make_worker()
    succeed_with(worker, "done")
    server.lose_answers_of.add("complete")
    job = server.add()
    start(worker)
    await wait_until(lambda: server.count("attempts:complete") == 1, "the first report")
    clock.advance(1)
    await wait_until(lambda: server.count("attempts:complete") == 2, "its repetition")
    await settle()
    assert job.status == "SUCCEEDED"
    assert worker.tally.lost == 0


async def test_a_report_is_dropped_once_the_lease_is_not_trusted(server, make_worker, start, clock, succeed_with):
    worker = make_worker()
    succeed_with(worker, "done")
    server.fault.update(complete="proxy", heartbeat="proxy")
    job = server.add()
    start(worker)
    await wait_until(lambda: server.count("attempts:complete") >= 1, "the first report")
    for _ in range(50):
        clock.advance(0.5)
        await settle()
    server.fault.clear()
    for _ in range(10):
        clock.advance(0.5)
        await settle()
    assert worker.tally.lost == 1
    assert job.reports == []


async def test_a_worker_that_may_not_claim_says_so_at_its_start(server, make_worker, start, succeed_with):
    server.fault["claim"] = "forbidden"
    worker = make_worker()
    succeed_with(worker)
    with pytest.raises(tocsin.Refused) as refused:
        await asyncio.wait_for(start(worker), 5)
    assert refused.value.status == 403


async def test_a_refusal_later_on_is_not_the_end(server, make_worker, start, clock, succeed_with):
    worker = make_worker()
    succeed_with(worker)
    first = server.add()
    task = start(worker)
    await wait_until(lambda: first.status == "SUCCEEDED", "the first job")
    server.fault["claim"] = "forbidden"
    clock.advance(16)  # the long poll that is open ends
    for _ in range(60):
        clock.advance(1)
        await settle()
    assert not task.done()
    server.fault.clear()
    second = server.add()
    for _ in range(20):
        clock.advance(1)
        await settle()
    await wait_until(lambda: second.status == "SUCCEEDED", "the second job")


async def test_a_worker_without_handlers_or_queues_is_refused_with_words(make_worker):
    with pytest.raises(tocsin.TocsinError, match="no handlers"):
        await make_worker().serve()
    with pytest.raises(tocsin.TocsinError, match="name the queues"):
        tocsin.Worker()
    with pytest.raises(tocsin.TocsinError, match="each once"):
        tocsin.Worker("q", "q")
