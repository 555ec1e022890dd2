"""A whole server in virtual time, what works for it, and real endpoints that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

import tocsin
import tocsin.testing
from tests.executor.conftest import endpoints as endpoints
from tocsin import roles
from tocsin.executor.guard import Guard
from tocsin.executor.worker import Executor
from tocsin.testing import Server

NOON = datetime(2030, 3, 17, 12, 0, tzinfo=UTC)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with tocsin.testing.server(start=NOON) as server:
        yield server


@pytest.fixture
def client(server: Server) -> tocsin.AsyncClient:
    return server.client


def worker_of(server: Server, *, queue: str = "q", **handlers: Any) -> tocsin.Worker:
    """A worker of one queue; each keyword names a handler."""
    worker = tocsin.Worker(queue, transport=server.transport())
    for name, handler in handlers.items():
        worker.task(name)(handler)
    return worker


@contextlib.asynccontextmanager
async def executing(server: Server, guard: Guard, **options: Any) -> AsyncIterator[Executor]:
    """An executor with a guard of the test's own takes part in every `advance`."""
    token = await roles.executor_token(server.process)
    executor = Executor(server.transport(token), guard, wait_s=1.0, **options)
    async with server._attached([(executor, asyncio.create_task(executor.serve()))]):
        yield executor
