"""A fleet with leases in etcd: etcd dies, and nodes are cut off from etcd, PostgreSQL and Redis in turn, one of them and then all.

Everybody's way to a server leads through one proxy, the way of node `two` through its own. What the counters show is compared with
the store once, in the end, since that takes until the next count.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

import tocsin
from tests.amount import LONG
from tests.processes.fleets import QUEUE, Fleet, Load, check_all, check_jobs, drained, fleet
from tests.processes.journal import Journal
from tests.processes.proxy import Proxy, between
from tests.processes.waiting import succeeded, wait_until
from tocsin.sdk.answers import Job

pytestmark = pytest.mark.timeout(300)

RATE = 50
MANY = ("--concurrency", "200", "--prefetch", "400")
SERVERS = ("etcd", "postgres", "redis")
# A node trusts its session for 5 s without an answer; after 10 s the session is over.
DARK_S = 12.0
# Light again: connections from the dark must run into their time-outs, sessions be opened, partitions claimed and rebuilt.
RECOVERS_WITHIN_S = 80.0
TAKEN_OVER_WITHIN_S = 40.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet"), etcd=True, proxied=SERVERS) as made, ExitStack() as stack:
        assert made.etcd is not None
        ports = {"etcd": made.etcd.port, "postgres": made.postgres.port, "redis": made.redis.port}
        own = {server: stack.enter_context(between(port)) for server, port in ports.items()}
        made.proxies |= {way_of_two(server): proxy for server, proxy in own.items()}
        made.api()
        made.start_nodes("one")
        made.node("two", direct={server: proxy.port for server, proxy in own.items()})
        made.owned()
        made.worker(Journal(made.programs.folder / "journal"), *MANY).says("takes jobs from")
        yield made
        check_all(made, [])


def way_of_two(server: str) -> str:
    """The name of the proxy between node `two` and a server."""
    return f"two to {server}"


@contextmanager
def load(shared: Fleet) -> Iterator[Load]:
    """Jobs all the while; afterwards they drain, all must be so, and every process must still run."""
    under = Load(shared, RATE)
    under.start()
    try:
        wait_until(lambda: under.accepted, "the first jobs", 60)
        yield under
    finally:
        under.stop()
    drained(shared)
    check_jobs(shared, under.accepted)
    assert all(program.running for program in (shared.apis[0].program, *shared.nodes.values()))


def works_again(client: tocsin.Client, within_s: float = RECOVERS_WITHIN_S) -> None:
    """Wait until a new job has been made and run."""

    def made() -> Job | None:
        try:
            return client.jobs.create(queue=QUEUE, handler="note")
        except tocsin.ServerUnavailable:
            return None

    job: Job = wait_until(made, "a job to be accepted", within_s)
    wait_until(partial(seen_succeeded, client, job), "a new job to run", within_s)


def seen_succeeded(client: tocsin.Client, job: Job) -> Job | None:
    try:
        return succeeded(client, job)
    except tocsin.ServerUnavailable:
        return None


@contextmanager
def dark(proxy: Proxy) -> Iterator[None]:
    """Nothing passes there meanwhile, and nobody is told; afterwards new connections work."""
    proxy.black_hole()
    try:
        yield
    finally:
        proxy.allow_new()


def last(seconds: float) -> None:
    began_at = time.monotonic()
    wait_until(lambda: time.monotonic() - began_at > seconds, "the dark to last", seconds + 5)


def test_an_etcd_that_is_killed_and_comes_back_costs_a_pause_and_no_job(shared):
    assert shared.etcd is not None
    with shared.client() as client, load(shared) as under:
        shared.etcd.kill()
        before = len(under.accepted)
        last(DARK_S)
        assert len(under.accepted) > before, "creates need no leases"
        shared.etcd.start()
        works_again(client)
        shared.owned()


def test_a_node_that_is_cut_off_is_replaced_and_comes_back(shared):
    for server in chosen():
        with shared.client() as client, load(shared) as under:
            shared.owned()
            with dark(shared.proxies[way_of_two(server)]):
                if server == "redis":
                    last(DARK_S)  # it keeps its partitions: who cannot reach Redis may still own
                else:
                    shared.owned(but="two", within_s=TAKEN_OVER_WITHIN_S)
                    works_again(client)
            works_again(client)
            assert under.outages == 0, "a node's troubles are not its clients'"


def test_when_everybody_is_cut_off_all_go_on_by_themselves_afterwards(shared):
    for server in chosen():
        with shared.client() as client, load(shared):
            with dark(shared.proxies[server]):
                last(DARK_S)
            works_again(client)
            shared.owned()


def chosen() -> tuple[str, ...]:
    """The servers to be cut off from: each in a long run, one of them in a short one."""
    return SERVERS if LONG else (random.choice(SERVERS),)
