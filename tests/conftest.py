"""What holds for every test: hypothesis draws without a deadline of its own, since tests share the machine's cores; and the
servers that tests share, each started when the first test asks for it."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.servers.etcd import EtcdServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

settings.register_profile("tocsin", deadline=None, print_blob=True)
settings.register_profile("thorough", deadline=None, print_blob=True, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tocsin"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Handlers may raise what is no text; a report that shows it must still get from a process of tests to its parent."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL for this process of tests."""
    server = PostgresServer()
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One server for all tests of this process; each test takes an installation's name of its own."""
    server = RedisServer().start()
    yield server
    server.close()


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServer]:
    """An etcd for this process of tests."""
    server = EtcdServer()
    try:
        yield server.start()
    finally:
        server.remove()
