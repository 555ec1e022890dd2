"""One server that the tests of a session share, and programs of a test's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tocsin
from tests.processes.journal import Journal
from tests.processes.program import Programs, Server

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.processes)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(120))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for tests that leave it running."""
    shared = Programs(tmp_path_factory.mktemp("shared"))
    try:
        yield shared.server()
    finally:
        shared.end_all()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Starts programs; none outlives the test."""
    made = Programs(tmp_path)
    try:
        yield made
    finally:
        made.end_all()


@pytest.fixture
def client(server: Server) -> Iterator[tocsin.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


@pytest.fixture
def queue(request: pytest.FixtureRequest, client: tocsin.Client) -> str:
    """A queue of the test's own on the shared server, with the shortest lease there is."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:100].strip("-")
    client.queues.put(name, lease_s=5)
    return name
