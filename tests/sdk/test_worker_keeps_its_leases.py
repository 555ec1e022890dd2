"""Heartbeats, self-fencing, cancellation and time-outs: who owns an attempt, and who is told."""

from __future__ import annotations

import asyncio
import threading

import pytest

import tocsin
from tests.sdk.stand_in import wait_until


@pytest.fixture
def pass_time(clock):
    """Lets time pass in small steps, so that everybody looks at the clock on the way."""

    async def advance(seconds: float, step_s: float = 0.5) -> None:
        for _ in range(round(seconds / step_s)):
            clock.advance(step_s)
            for _ in range(10):
                await asyncio.sleep(0)

    return advance


def endless(worker, name="h"):
    """A handler that runs until it is stopped; the list of what happened to it."""
    seen: list[object] = []

    @worker.task(name)
    async def handle(payload, ctx):
        seen.append("started")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(("stopped", ctx.cancelled))
            raise

    return seen


async def test_a_long_job_keeps_its_lease_with_a_heartbeat_every_quarter(server, make_worker, start, pass_time):
    worker = make_worker()
    seen = endless(worker)
    job = server.add()
    start(worker)
    await wait_until(lambda: seen, "the start")
    await pass_time(180)
    server.rescue()
    assert (job.status, job.attempt) == ("RUNNING", 1)
    assert seen == ["started"]
    assert 20 <= server.count("attempts:heartbeat") <= 26


async def test_one_request_renews_all_attempts_that_are_due(server, make_worker, start, pass_time):
    worker = make_worker(concurrency=20, prefetch=30)
    seen = endless(worker)
    jobs = [server.add() for _ in range(50)]
    start(worker)
    await wait_until(lambda: len(seen) == 20, "all slots to be taken")
    await pass_time(100)
    server.rescue()
    assert all(job.status == "RUNNING" and job.attempt == 1 for job in jobs), "those in the local line keep theirs too"
    assert server.count("attempts:heartbeat") <= 2 * 100 / 7.5


async def test_without_an_accepted_heartbeat_it_lets_go_at_four_fifths_of_the_lease(
    server, make_worker, start, pass_time
):
    worker = make_worker()
    seen = endless(worker)
    job = server.add()
    start(worker)
    await wait_until(lambda: seen, "the start")
    server.fault["heartbeat"] = "proxy"
    await pass_time(23.5)
    assert seen == ["started"]
    await pass_time(1)
    assert seen == ["started", ("stopped", True)]
    assert worker.tally.lost == 1
    server.fault.clear()
    await pass_time(60)
    assert job.reports == []


async def test_time_that_passed_while_the_process_was_stopped_counts(server, make_worker, start, clock):
    worker = make_worker(concurrency=1)
    go_on = asyncio.Event()
    job = server.add()

    @worker.task("h")
    async def handle(payload):
        await go_on.wait()
        return "too late"

    start(worker)
    await wait_until(lambda: job.status == "RUNNING", "the start")
    clock.advance(40)
    server.rescue()
    go_on.set()  # the handler ends in the very pass of the event loop in which the worker wakes up
    await wait_until(lambda: job.status == "SUCCEEDED", "the second attempt to succeed")
    assert [report["token"] for report in job.reports] == ["job_0.2"]
    assert worker.tally.lost == 1


async def test_an_attempt_that_was_superseded_is_dropped_at_the_next_heartbeat(server, make_worker, start, pass_time):
    worker = make_worker()
    seen = endless(worker)
    job = server.add()
    start(worker)
    await wait_until(lambda: seen, "the start")
    job.token, job.attempt = "another worker's", 2
    await pass_time(8)
    assert seen == ["started", ("stopped", True)]
    assert job.reports == []


async def test_a_busy_server_that_says_so_keeps_the_leases(server, make_worker, start, pass_time):
    worker = make_worker()
    seen = endless(worker)
    server.add()
    start(worker)
    await wait_until(lambda: seen, "the start")
    server.fault["heartbeat"] = "busy"
    await pass_time(120)
    assert seen == ["started"]
    assert worker.tally.lost == 0


async def test_jobs_in_the_local_line_whose_lease_is_lost_never_start(server, make_worker, start, pass_time):
    worker = make_worker(concurrency=1, prefetch=5)
    go_on, seen = asyncio.Event(), []

    @worker.task("h")
    async def handle(payload):
        seen.append(payload)
        await go_on.wait()

    jobs = [server.add(payload=n) for n in range(4)]
    start(worker)
    await wait_until(lambda: worker.tally.claimed == 4, "the claim")
    await wait_until(lambda: seen, "the start of the first")
    for job in jobs[1:]:
        job.token = "another worker's"
    await pass_time(8)
    go_on.set()
    await wait_until(lambda: jobs[0].status == "SUCCEEDED", "the first to end")
    assert seen == [0]
    assert worker.tally.lost == 3


async def test_a_claim_that_waited_on_the_server_is_confirmed_by_a_heartbeat_at_once(
    server, make_worker, start, clock, pass_time
):
    server.lease_s = 5.0
    worker = make_worker(wait_s=15)
    seen = endless(worker)
    start(worker)
    await wait_until(lambda: server.open_claims == 1, "the long poll")
    await pass_time(10)
    server.add()
    await wait_until(lambda: seen, "the start, though the claim was sent longer ago than a lease")
    await pass_time(0.5, 0.1)
    assert server.count("attempts:heartbeat") == 1
    await pass_time(30)
    assert seen == ["started"]


async def test_a_cancellation_reaches_the_handler_with_the_next_heartbeat(server, make_worker, start, pass_time):
    worker = make_worker(concurrency=1)
    seen = endless(worker)
    job, after = server.add(), server.add("after")

    @worker.task("after")
    async def handle_after(payload):
        pass

    start(worker)
    await wait_until(lambda: seen, "the start")
    server.cancel(job)
    await pass_time(8)
    await wait_until(lambda: job.status == "CANCELLED", "the report")
    assert seen == ["started", ("stopped", True)]
    assert job.reports[0]["outcome"] == "cancelled"
    await wait_until(lambda: after.status == "SUCCEEDED", "the slot to go on with the next job")


async def test_a_thread_is_told_of_the_cancellation_and_may_still_succeed(server, make_worker, start, pass_time):
    worker = make_worker(concurrency=2)
    gates = {"finishes": threading.Event(), "gives up": threading.Event()}

    @worker.task("h")
    def handle(payload, ctx):
        gates[payload].wait(10)
        if ctx.cancelled and payload == "gives up":
            raise RuntimeError("stopped half way")

    jobs = {name: server.add(payload=name) for name in gates}
    start(worker)
    await wait_until(lambda: worker.tally.claimed == 2, "the claims")
    for job in jobs.values():
        server.cancel(job)
    await pass_time(8)
    for gate in gates.values():
        gate.set()
    await wait_until(lambda: jobs["finishes"].status == "SUCCEEDED", "one to succeed")
    await wait_until(lambda: jobs["gives up"].status == "CANCELLED", "the other to be cancelled")
    assert jobs["gives up"].reports[0]["error"] == "RuntimeError: stopped half way"


async def test_a_job_that_runs_too_long_is_stopped_and_tried_again(server, make_worker, start, pass_time):
    worker = make_worker(concurrency=1)
    seen = endless(worker)
    job, after = server.add(timeout_s=60), server.add("after")

    @worker.task("after")
    async def handle_after(payload):
        pass

    start(worker)
    await wait_until(lambda: seen, "the start")
    await pass_time(59)
    assert job.status == "RUNNING"
    await pass_time(2)
    await wait_until(lambda: after.status == "SUCCEEDED", "the next job")
    assert job.reports == [{"outcome": "retryable_failure", "error": "timed out after 60 s", "token": "job_0.1"}]


async def test_a_thread_that_runs_too_long_is_reported_and_keeps_its_slot(server, make_worker, start, pass_time):
    worker = make_worker(concurrency=1)
    gate = threading.Event()

    @worker.task("h")
    def handle(payload):
        gate.wait(10)

    job, after = server.add(timeout_s=10), server.add()
    start(worker)
    await wait_until(lambda: job.status == "RUNNING", "the start")
    await pass_time(11)
    await wait_until(lambda: job.status == "RETRYING", "the report")
    await pass_time(5)
    assert after.status == "QUEUED"
    gate.set()
    await wait_until(lambda: after.status == "SUCCEEDED", "the next job, in the slot that is free again")


async def test_progress_travels_with_the_heartbeat_and_the_next_attempt_finds_it(server, make_worker, start, pass_time):
    worker = make_worker()
    found, step = [], asyncio.Event()

    @worker.task("h")
    async def handle(payload, ctx):
        found.append(ctx.last_progress)
        ctx.progress({"page": len(found) * 10})
        await step.wait()
        ctx.progress({"page": len(found) * 10 + 5})
        raise RuntimeError("half way")

    job = server.add()
    start(worker)
    await wait_until(lambda: found, "the start")
    await pass_time(8)
    assert job.progress == {"page": 10}
    step.set()
    await wait_until(lambda: job.status == "RETRYING", "the failure")
    assert job.progress == {"page": 15}, "what was said last is kept although no heartbeat was due"
    server._push(job)
    await wait_until(lambda: len(found) == 2, "the second attempt")
    assert found[1] == {"page": 15}


async def test_progress_that_cannot_be_kept_is_the_handlers_error(server, make_worker, start):
    worker = make_worker()
    errors = []

    @worker.task("h")
    async def handle(payload, ctx):
        for wrong in ("x" * 4096, object()):
            try:
                ctx.progress(wrong)
            except tocsin.TocsinError as exc:
                errors.append(str(exc))

    job = server.add()
    start(worker)
    await wait_until(lambda: job.status == "SUCCEEDED", "the end")
    assert "4098 bytes of JSON, at most 4096" in errors[0]
    assert "cannot be written as JSON" in errors[1]


async def test_a_handler_can_shield_a_part_and_wait_for_its_cancellation(server, make_worker, start, pass_time):
    worker = make_worker()
    seen = []

    @worker.task("h")
    async def handle(payload, ctx):
        seen.append("started")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await ctx.wait_cancelled()
            seen.append("tidied up")

    job = server.add()
    start(worker)
    await wait_until(lambda: seen, "the start")
    server.cancel(job)
    await pass_time(8)
    await wait_until(lambda: job.status == "SUCCEEDED", "the handler's own end, which counts")
    assert seen == ["started", "tidied up"]
