"""What happens to a job in a worker's hands when nothing breaks."""

from __future__ import annotations

import asyncio
import threading

import pytest

import tocsin
from tests.sdk.stand_in import wait_until
from tocsin.clock import ms_of


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def test_an_async_handler_gets_the_payload_and_its_result_is_reported(server, make_worker, start):
    worker = make_worker()
    job = server.add(payload={"region": "IN"})

    @worker.task("h")
    async def handle(payload):
        return {"seen": payload}

    start(worker)
    await wait_until(lambda: job.status == "SUCCEEDED", "the job to succeed")
    assert job.reports == [{"outcome": "succeeded", "result": {"seen": {"region": "IN"}}, "token": "job_0.1"}]
    assert worker.tally.succeeded == 1


async def test_a_sync_handler_runs_in_a_thread_with_its_context(server, make_worker, start):
    worker = make_worker()
    job = server.add(payload=7)
    seen = []

    @worker.task("h")
    def handle(payload, ctx):
        seen.append(
            (payload, ctx.attempt, ctx.idempotency_key, ctx.job.job_id, ctx.cancelled, threading.current_thread())
        )

    start(worker)
    await wait_until(lambda: job.status == "SUCCEEDED", "the job to succeed")
    assert seen[0][:5] == (7, 1, "job_0@x", "job_0", False)
    assert seen[0][5] is not threading.main_thread()


@pytest.mark.parametrize(
    ("raised", "report"),
    [
        (tocsin.Retry(after=30), {"outcome": "retryable_failure", "retry_after_s": 30}),
        (tocsin.Fatal("no such invoice"), {"outcome": "fatal_failure", "error": "no such invoice"}),
        (ValueError("bad"), {"outcome": "retryable_failure", "error": "ValueError: bad"}),
        (StopIteration(), {"outcome": "retryable_failure"}),
        (SystemExit(3), {"outcome": "retryable_failure", "error": "SystemExit: 3"}),
        (asyncio.CancelledError(), {"outcome": "retryable_failure"}),
        (Broken(), {"outcome": "retryable_failure", "error": "Broken: (its text cannot be shown)"}),
        (tocsin.Retry(after=-3), {"outcome": "retryable_failure"}),
        (ValueError("x" * 20_000), {"outcome": "retryable_failure", "error": "ValueError: " + "x" * 8171 + "… (cut)"}),
        (ValueError("\ud800 \0"), {"outcome": "retryable_failure", "error": "ValueError: \\ud800 \\x00"}),
    ],
    ids=[
        "retry",
        "fatal",
        "any other",
        "StopIteration",
        "SystemExit",
        "its own CancelledError",
        "broken",
        "back in time",
        "long",
        "not text",
    ],
)
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_what_a_handler_raises_becomes_the_report_and_never_ends_the_worker(
    server, make_worker, start, raised, report, kind
):
    worker = make_worker(concurrency=1)
    job, after = server.add(), server.add("after")

    async def on_the_loop(payload):
        raise raised

    def in_a_thread(payload):
        raise raised

    worker.task("h")(on_the_loop if kind == "async" else in_a_thread)

    @worker.task("after")
    async def handle_after(payload):
        pass

    start(worker)
    await wait_until(lambda: after.status == "SUCCEEDED", "the job after it")
    assert job.reports[0] | report == job.reports[0]


@pytest.mark.parametrize(
    ("result", "says"),
    [(object(), "cannot be written as JSON"), ("x" * 16_384, "16386 bytes of JSON, at most 16384"), ("\ud800", "JSON")],
)
async def test_a_result_that_cannot_be_kept_makes_the_job_a_dead_letter_that_says_so(
    server, make_worker, start, result, says
):
    worker = make_worker()
    job = server.add()

    @worker.task("h")
    async def handle(payload):
        return result

    start(worker)
    await wait_until(lambda: job.status == "DEAD", "the dead letter")
    assert says in job.reports[0]["error"]


async def test_a_result_that_only_this_server_refuses_makes_a_dead_letter_too(server, make_worker, start):
    worker = make_worker()
    job = server.add()

    @worker.task("h")
    async def handle(payload):
        return "too large for this server"

    start(worker)
    await wait_until(lambda: job.status == "DEAD", "the dead letter")
    assert "report was refused" in job.reports[0]["error"]


async def test_a_payload_with_numbers_beyond_a_double_spoils_no_other_job_of_the_claim(server, make_worker, start):
    worker = make_worker(concurrency=3)
    jobs = [server.add(payload=1), server.add(payload=10**400), server.add(payload=3)]
    seen = []

    @worker.task("h")
    async def handle(payload):
        seen.append(payload)

    start(worker)
    await wait_until(lambda: all(job.status == "SUCCEEDED" for job in jobs), "all three")
    assert sorted(seen) == [1, 3, 10**400]


async def test_no_more_jobs_are_taken_than_there_are_free_slots(server, make_worker, start):
    worker = make_worker(concurrency=3)
    jobs = [server.add() for _ in range(10)]
    go_on = asyncio.Event()

    @worker.task("h")
    async def handle(payload):
        await go_on.wait()

    start(worker)
    await wait_until(lambda: worker.tally.claimed == 3, "three claims")
    for _ in range(20):
        await asyncio.sleep(0)
    assert sum(job.status == "RUNNING" for job in jobs) == 3
    go_on.set()
    await wait_until(lambda: all(job.status == "SUCCEEDED" for job in jobs), "all of them")


async def test_prefetched_jobs_wait_here_and_all_are_done_in_few_requests(server, make_worker, start):
    worker = make_worker(concurrency=8, prefetch=2000)
    jobs = [server.add(payload=n) for n in range(3000)]

    @worker.task("h")
    async def handle(payload):
        pass

    start(worker)
    await wait_until(lambda: all(job.status == "SUCCEEDED" for job in jobs), "all of them")
    assert server.count(":claim") < 20
    assert server.count("attempts:complete") < 60


async def test_a_worker_of_two_queues_serves_both_also_with_one_slot(server, make_worker, start):
    worker = make_worker("q", "r", concurrency=1)

    @worker.task("h")
    async def handle(payload):
        pass

    start(worker)
    await wait_until(lambda: server.open_claims == 2, "a long poll on each queue")
    jobs = [server.add(queue="qr"[n % 2]) for n in range(6)]

    def hand_out_what_came_back() -> bool:
        for job in jobs:
            if job.status == "RETRYING":
                server._push(job)
        return all(job.status == "SUCCEEDED" for job in jobs)

    await wait_until(hand_out_what_came_back, "all of them")
    assert all(job.tries == 1 for job in jobs)


async def test_unknown_handlers_are_never_asked_for(server, make_worker, start):
    worker = make_worker()
    new, known = server.add("of a newer version"), server.add()

    @worker.task("h")
    async def handle(payload):
        pass

    start(worker)
    await wait_until(lambda: known.status == "SUCCEEDED", "the known one")
    assert (new.status, new.attempt) == ("QUEUED", 0)


async def test_an_unknown_handler_that_comes_all_the_same_goes_back_untouched(server, make_worker, start):
    server.ignore_handlers = True
    worker = make_worker()
    job = server.add("of a newer version")

    @worker.task("h")
    async def handle(payload):
        pass

    start(worker)
    await wait_until(lambda: job.status == "RETRYING", "the job to be released")
    assert job.tries == 0
    assert job.reports[0]["outcome"] == "released"
    assert worker.tally.unknown_handlers == 1


async def test_a_handler_that_never_waits_does_not_keep_the_others_from_their_turn(server, make_worker, start):
    worker = make_worker(concurrency=2, prefetch=500)
    jobs = [server.add("busy") for _ in range(400)] + [server.add("h")]
    turns = []

    @worker.task("busy")
    async def busy(payload):
        turns.append("busy")

    @worker.task("h")
    async def handle(payload):
        await asyncio.sleep(0)
        turns.append("h")

    start(worker)
    await wait_until(lambda: all(job.status == "SUCCEEDED" for job in jobs), "all of them")


async def test_a_handler_knows_how_much_time_it_has(server, make_worker, start, clock):
    worker = make_worker()
    server.add(timeout_s=60)
    seen = []

    @worker.task("h")
    async def handle(payload, ctx):
        clock.advance(20)
        seen.append((ctx.time_left_s, ms_of(ctx.deadline) - clock.now_ms()))

    start(worker)
    await wait_until(lambda: seen, "the handler")
    assert seen == [(40, 40_000)]


def test_a_handler_is_checked_when_it_is_registered():
    worker = tocsin.Worker("q", token="t")

    @worker.task("fine")
    async def fine(payload, ctx, extra=None):
        pass

    for name, wrong in {
        "no payload": lambda: None,
        "too many": lambda payload, ctx, more: None,
        "keyword": eval("lambda payload, *, more: None"),
        "generator": eval("lambda payload: (yield)"),
    }.items():
        with pytest.raises(tocsin.TocsinError, match="handler"):
            worker.task(name.replace(" ", "-"))(wrong)
    with pytest.raises(tocsin.TocsinError, match="twice"):
        worker.task("fine")(fine)
    with pytest.raises(tocsin.TocsinError, match="name"):
        worker.task("not a name")(fine)
