"""The worker on a real connection: its heartbeats have a thread of their own, dead connections are noticed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import tocsin
from tests.sdk.over_http import served
from tests.sdk.stand_in import StandIn, wait_until
from tocsin.clock import SystemClock

ROOT = Path(__file__).parents[2]


@pytest.fixture
def lease_s() -> float:
    return 2.0


@pytest.fixture
def stand_in(lease_s):
    made = []

    def make():
        made.append(StandIn(SystemClock(), lease_s))
        return made[0].app

    with served(make) as url:
        made[0].url = url
        yield made[0]


def burn(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


@pytest.mark.parametrize("blocks", [burn, time.sleep], ids=["burns the processor", "sleeps"])
async def test_a_handler_that_blocks_the_event_loop_keeps_its_lease(stand_in, blocks):
    worker = tocsin.Worker("q", url=stand_in.url, token="t", wait_s=1)
    job = stand_in.add()

    @worker.task("h")
    async def handle(payload):
        blocks(4)

    task = asyncio.create_task(worker.serve())
    await wait_until(lambda: job.status == "SUCCEEDED", "the job", 20)
    assert job.attempt == 1
    assert worker.tally.lost == 0
    assert stand_in.count("attempts:heartbeat") >= 4
    await worker.stop()
    await task


async def test_a_black_holed_connection_is_noticed_and_work_resumes_by_itself(stand_in):
    async with _proxied(stand_in.url) as (url, holes):
        worker = tocsin.Worker("q", url=url, token="t", wait_s=0)

        @worker.task("h")
        async def handle(payload):
            pass

        first = stand_in.add()
        task = asyncio.create_task(worker.serve())
        await wait_until(lambda: first.status == "SUCCEEDED" and worker.tally.succeeded == 1, "the first job")
        for hole in holes:
            hole.set()
        second = stand_in.add()
        await wait_until(lambda: second.status == "SUCCEEDED", "the second job, on a new connection", 20)
        await worker.stop()
        await task


@contextlib.asynccontextmanager
async def _proxied(url: str) -> AsyncIterator[tuple[str, list[asyncio.Event]]]:
    """A proxy in front of `url`; a connection whose hole is set swallows everything from then on and says nothing."""
    host, port = url.removeprefix("http://").split(":")
    holes: list[asyncio.Event] = []
    pumps: list[asyncio.Task[None]] = []

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, hole: asyncio.Event) -> None:
        try:
            while data := await source.read(65536):
                if not hole.is_set():
                    target.write(data)
        except OSError:
            pass
        finally:
            target.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        holes.append(hole := asyncio.Event())
        upstream_reader, upstream_writer = await asyncio.open_connection(host, int(port))
        pumps.append(asyncio.create_task(pump(reader, upstream_writer, hole)))
        pumps.append(asyncio.create_task(pump(upstream_reader, writer, hole)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", holes
    server.close()
    for task in pumps:
        task.cancel()
    await asyncio.gather(*pumps, return_exceptions=True)


PROGRAM = """
    import asyncio, sys, tocsin
    worker = tocsin.Worker("q", url=sys.argv[1], token="t", grace_s=float(sys.argv[2]), concurrency=4, wait_s=20)

    @worker.task("h")
    async def handle(payload):
        await asyncio.sleep(payload)

    @worker.task("thread")
    def in_a_thread(payload):
        import time
        time.sleep(payload)

    worker.run()
"""


@contextlib.contextmanager
def _program(stand_in, grace_s: float) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), stand_in.url, str(grace_s)]
    with subprocess.Popen(command, env=environment) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.processes
async def test_sigterm_lets_short_jobs_end_and_hands_long_ones_back_within_the_grace(stand_in):
    jobs = [stand_in.add(payload=2), stand_in.add(payload=600), stand_in.add("thread", payload=600)]
    with _program(stand_in, grace_s=4) as process:
        await wait_until(lambda: all(job.status == "RUNNING" for job in jobs), "all to be claimed", 20)
        await wait_until(lambda: stand_in.open_claims == 1, "the next claim: by then they run", 20)
        process.send_signal(signal.SIGTERM)
        started = time.perf_counter()
        await wait_until(lambda: process.poll() is not None, "the end", 15)
        assert time.perf_counter() - started < 4 + 5
    assert process.returncode == 0
    assert [job.status for job in jobs] == ["SUCCEEDED", "RETRYING", "RETRYING"]
    assert [job.tries for job in jobs] == [1, 0, 0]


@pytest.mark.processes
async def test_a_second_sigterm_hands_back_at_once(stand_in):
    job = stand_in.add(payload=600)
    with _program(stand_in, grace_s=60) as process:
        await wait_until(lambda: job.status == "RUNNING", "it to run", 20)
        process.send_signal(signal.SIGTERM)
        await wait_until(
            lambda: stand_in.count(":claim") >= 2, "the drain, which asks for the open claim once more", 10
        )
        process.send_signal(signal.SIGTERM)
        await wait_until(lambda: process.poll() is not None, "the end", 10)
    assert (job.status, job.tries) == ("RETRYING", 0)


@pytest.mark.processes
async def test_an_idle_worker_ends_at_once(stand_in):
    with _program(stand_in, grace_s=60) as process:
        await wait_until(lambda: stand_in.open_claims == 1, "the long poll", 20)
        process.send_signal(signal.SIGINT)
        await wait_until(lambda: process.poll() is not None, "the end", 10)
    assert process.returncode == 0


def test_the_package_is_imported_without_its_clients():
    code = "import sys, tocsin; print(*(m for m in sys.modules if m.startswith(('aiohttp', 'asyncio', 'msgspec'))))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == ""
