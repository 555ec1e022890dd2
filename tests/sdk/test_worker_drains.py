"""How a worker ends: nothing is lost, nothing is charged, nothing new is begun."""

from __future__ import annotations

import asyncio
import threading

from tests.sdk.stand_in import wait_until


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def test_what_waits_goes_back_at_once_and_what_runs_may_end(server, make_worker, start):
    worker = make_worker(concurrency=1, prefetch=3)
    go_on = asyncio.Event()

    @worker.task("h")
    async def handle(payload):
        await go_on.wait()

    jobs = [server.add(payload=n) for n in range(4)]
    late = server.add()
    task = start(worker)
    await wait_until(lambda: worker.tally.claimed == 4, "the claims")
    await settle()
    stopped = asyncio.create_task(worker.stop())
    await wait_until(lambda: all(job.status == "RETRYING" for job in jobs[1:]), "the waiting ones to be handed back")
    assert [job.tries for job in jobs[1:]] == [0, 0, 0]
    assert all(job.reports[0]["retry_after_s"] == 0 for job in jobs[1:])
    assert not stopped.done()
    go_on.set()
    await asyncio.wait_for(stopped, 5)
    await task
    assert jobs[0].status == "SUCCEEDED"
    assert (late.status, late.attempt) == ("QUEUED", 0), "no new claims"


async def test_what_still_runs_after_the_grace_is_cancelled_and_handed_back(server, make_worker, start, clock):
    worker = make_worker(concurrency=2, grace_s=25)
    running, cleaned = [], []

    @worker.task("h")
    async def handle(payload, ctx):
        running.append(payload)
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(ctx.cancelled)
            if payload == "fails while it cleans up":
                raise RuntimeError("connection is gone")

    jobs = [server.add(payload=text) for text in ("plain", "fails while it cleans up")]
    task = start(worker)
    await wait_until(lambda: len(running) == 2, "both to run")
    stopped = asyncio.create_task(worker.stop())
    await settle()
    for _ in range(24):
        clock.advance(1)
        await settle()
    assert not cleaned
    clock.advance(1)
    await asyncio.wait_for(stopped, 5)
    await task
    assert [job.status for job in jobs] == ["RETRYING", "RETRYING"]
    assert [job.reports[0]["outcome"] for job in jobs] == ["released", "released"]
    assert [job.tries for job in jobs] == [0, 0]
    assert server.count("attempts:heartbeat") >= 3, "leases are renewed during the drain"


async def test_a_second_stop_hands_back_at_once(server, make_worker, start):
    worker = make_worker()
    running = []

    @worker.task("h")
    async def handle(payload):
        running.append(1)
        await asyncio.Event().wait()

    job = server.add()
    start(worker)
    await wait_until(lambda: running, "the start")
    first = asyncio.create_task(worker.stop())
    await settle()
    assert not first.done()
    await asyncio.wait_for(worker.stop(), 5)
    await first
    assert (job.status, job.tries) == ("RETRYING", 0)


async def test_a_cancellation_asked_for_during_the_drain_stays_one(server, make_worker, start, clock):
    worker = make_worker(grace_s=60)
    running = []

    @worker.task("h")
    async def handle(payload):
        running.append(1)
        await asyncio.Event().wait()

    job = server.add()
    start(worker)
    await wait_until(lambda: running, "the start")
    stopped = asyncio.create_task(worker.stop())
    await settle()
    server.cancel(job)
    for _ in range(16):
        clock.advance(0.5)
        await settle()
    await asyncio.wait_for(stopped, 5)
    assert job.reports[0]["outcome"] == "cancelled"


async def test_a_handler_that_will_not_end_does_not_keep_the_worker(server, make_worker, start, clock):
    worker = make_worker(grace_s=1)
    running: list[object] = []
    let_go = asyncio.Event()

    @worker.task("h")
    async def handle(payload):
        running.append(1)
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                running.append("no")

    job = server.add()
    start(worker)
    await wait_until(lambda: running, "the start")
    stopped = asyncio.create_task(worker.stop())
    for _ in range(8):
        await settle()
        clock.advance(0.5)
    await wait_until(lambda: job.status == "RETRYING", "the job to be handed back")
    let_go.set()
    await asyncio.wait_for(stopped, 5)


async def test_a_claim_on_its_way_is_asked_for_again_and_handed_back(server, make_worker, start):
    worker = make_worker()

    @worker.task("h")
    async def handle(payload):
        raise AssertionError("nothing begins during a drain")

    server.lose_answers_of.add("claim")
    job = server.add()
    start(worker)
    await wait_until(lambda: job.status == "RUNNING", "the claim whose answer is lost")
    await asyncio.wait_for(worker.stop(), 5)
    assert (job.status, job.tries) == ("RETRYING", 0)


async def test_cancelling_the_task_that_serves_hands_back_too(server, make_worker, start):
    worker = make_worker()
    running = []

    @worker.task("h")
    async def handle(payload):
        running.append(1)
        await asyncio.Event().wait()

    job = server.add()
    task = start(worker)
    await wait_until(lambda: running, "the start")
    task.cancel()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()
    assert (job.status, job.tries) == ("RETRYING", 0)


async def test_a_worker_that_is_stopped_before_it_started_ends_at_once(server, make_worker, start):
    worker = make_worker()

    @worker.task("h")
    async def handle(payload):
        pass

    await worker.stop()
    await asyncio.wait_for(start(worker), 5)


async def test_a_worker_in_another_thread_is_asked_to_stop(server, make_worker):
    worker = make_worker()

    @worker.task("h")
    async def handle(payload):
        pass

    job = server.add()
    thread = threading.Thread(target=worker.run)
    thread.start()
    await wait_until(lambda: job.status == "SUCCEEDED", "the job")
    worker.ask_to_stop()
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
    worker.ask_to_stop()
