"""What holds for every test: files lie in memory; hypothesis has no deadline of its own, since tests share the cores; and the
servers that tests share are each started when the first test asks for it."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.amount import PROFILE
from tests.place import keep_in_memory
from tests.servers.etcd import EtcdServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

keep_in_memory()

settings.register_profile("short", deadline=None, print_blob=True, max_examples=40)
settings.register_profile("long", deadline=None, print_blob=True)
settings.register_profile("thorough", deadline=None, print_blob=True, max_examples=2_000)
settings.load_profile(PROFILE)


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
