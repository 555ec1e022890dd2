"""Clients of the shared server, and servers of a test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from tests.servers.etcd import EtcdServer
from tocsin.lease.etcd import address
from tocsin.lease.etcd.client import EtcdClient


@pytest.fixture
def own_etcd() -> Iterator[Callable[..., EtcdServer]]:
    """Starts servers of the test's own; none outlives it."""
    started: list[EtcdServer] = []

    def start(*options: str, scheme: str = "http") -> EtcdServer:
        started.append(EtcdServer(*options, scheme=scheme))
        return started[-1].start()

    yield start
    for server in started:
        server.remove()


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., EtcdClient]]:
    """Makes clients of an address; all are closed at the end."""
    made: list[EtcdClient] = []

    def make(text: str, **limits: float) -> EtcdClient:
        made.append(EtcdClient(address.parse(text), **limits))
        return made[-1]

    yield make
    for client in made:
        await client.close()


@pytest.fixture
async def client(etcd: EtcdServer, connect: Callable[[str], EtcdClient]) -> EtcdClient:
    """A client of the shared server."""
    return connect(f"etcd://{etcd.hostport}")


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """Where the test's keys stand on the shared server."""
    return f"/{request.node.name}/"
