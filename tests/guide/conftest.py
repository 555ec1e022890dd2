"""A server whose time stands still until a test lets it pass, and a worker with whatever handlers the test gives it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import pytest

import tocsin
import tocsin.testing
from tocsin.testing import Server

NOON = datetime(2030, 3, 17, 12, 0, tzinfo=UTC)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with tocsin.testing.server(start=NOON) as server:
        yield server


@pytest.fixture
def client(server: Server) -> tocsin.AsyncClient:
    return server.client


@pytest.fixture
def worker_of(server: Server) -> Callable[..., tocsin.Worker]:
    """A worker of the queue `billing`; each keyword names a handler."""

    def make(**handlers: Callable[..., object]) -> tocsin.Worker:
        worker = tocsin.Worker("billing", transport=server.transport())
        for name, handler in handlers.items():
            worker.task(name)(handler)
        return worker

    return make
