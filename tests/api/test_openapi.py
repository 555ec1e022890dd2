"""The OpenAPI document is the truth: whatever it allows or forbids, the server answers as it says and never with a 500.

schemathesis draws requests from the document, right ones and wrong ones, and holds every answer against it. The server is the
real one behind a real socket, in a thread with an event loop of its own.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import contextmanager

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from tests.amount import LONG
from tests.api.conftest import start
from tocsin import roles
from tocsin.api.openapi import description
from tocsin.store.settings import TenantRow
from tocsin.wire import HORIZON_S

TOKEN = "tcs_all_secret"
SCOPES = ("admin", "work:*", "operator", "executor")


@contextmanager
def serving(folder):
    """The address of a server that runs until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    ready, loops = threading.Event(), []

    async def main() -> None:
        process = await start(folder)
        await process.store.settings.put_tenant(TenantRow(name="shop"), create=True)
        await process.store.settings.add_token(roles.token_row(TOKEN, "shop", "all", SCOPES, process.clock.now_ms()))
        server = uvicorn.Server(uvicorn.Config(process.app, lifespan="off", log_level="critical"))
        stop = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stop))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        ready.set()
        await stop.wait()
        server.should_exit = True
        await serving
        await process.stop()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert ready.wait(20)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        loop, stop = loops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("served")) as url:
        yield url


def _hurry(body) -> None:
    """Nobody waits in a test: neither for jobs that do not come nor for a year that goes by."""
    for name, most, allowed in (("wait_s", 0, 30), ("seconds", 60, HORIZON_S)):
        given = body.get(name) if isinstance(body, dict) else None
        if isinstance(given, int | float) and most < given <= allowed:
            body[name] = most


SCHEMA = schemathesis.openapi.from_dict(description(dev=True))


OPERATIONS = [one.ok() for one in SCHEMA.get_all_operations() if isinstance(one, Ok)]
# What is right by the document may still be wrong by what it cannot say, such as two fields that exclude each other.
UNSAID = [positive_data_acceptance]
# A bad item of a batch has its own problem inside of a good answer.
BY_ITEM = {"POST /v1/jobs:batch", "POST /v1/attempts:complete", "POST /v1/attempts:heartbeat"}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.label)
def test_requests_by_the_document_are_answered_by_the_document(address, operation):
    _check(address, operation, GenerationMode.POSITIVE, UNSAID)


@pytest.mark.parametrize(
    "operation", [one for one in OPERATIONS if one.body or one.query or one.path_parameters], ids=lambda one: one.label
)
def test_requests_against_the_document_are_refused(address, operation):
    unsaid = [*UNSAID, negative_data_rejection] if operation.label in BY_ITEM else UNSAID
    _check(address, operation, GenerationMode.NEGATIVE, unsaid)


def _check(address, operation, mode, excluded) -> None:
    @settings(max_examples=5 if LONG else 3, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy(generation_mode=mode))
    def answers(case):
        _hurry(case.body)
        case.call_and_validate(
            base_url=address, timeout=10, headers={"Authorization": f"Bearer {TOKEN}"}, excluded_checks=excluded
        )

    answers()
