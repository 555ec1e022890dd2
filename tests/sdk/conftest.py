"""A worker against the stand-in, on a clock that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

import tocsin
from tests.sdk.stand_in import StandIn
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.sdk.asgi import AsgiTransport


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> StandIn:
    return StandIn(clock)


@pytest.fixture
def make_worker(server: StandIn, clock: ManualClock) -> Callable[..., tocsin.Worker]:
    def make(*queues: str, **options) -> tocsin.Worker:
        transport = options.pop("transport", None) or AsgiTransport(server.app)
        return tocsin.Worker(
            *(queues or ("q",)), transport=transport, clock=clock, entropy=SeededEntropy(1), name="w", **options
        )

    return make


@pytest.fixture
async def start() -> AsyncIterator[Callable[[tocsin.Worker], asyncio.Task[None]]]:
    """Serves workers; those that still run at the end of the test are stopped at once."""
    running: list[tuple[tocsin.Worker, asyncio.Task[None]]] = []

    def serve(worker: tocsin.Worker) -> asyncio.Task[None]:
        task = asyncio.create_task(worker.serve())
        running.append((worker, task))
        return task

    yield serve
    for worker, task in running:
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=5)
            assert task.done(), f"the worker did not end: {worker.tally}"
