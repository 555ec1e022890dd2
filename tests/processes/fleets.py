"""A whole fleet in a test: real servers, real processes of every role, load on them, and what must be so when it has drained.

What clients see is asked over HTTP; what must be so in the end is read from the database itself, since a figure that Tocsin gives
about itself proves nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg

import tocsin
from tests.processes.journal import Journal
from tests.processes.program import Program, Programs
from tests.processes.proxy import Proxy, between
from tests.processes.waiting import wait_until
from tests.servers.etcd import EtcdServer
from tests.servers.postgres import DURABLE, PostgresServer
from tests.servers.redis import RedisServer
from tocsin.clock import rfc3339
from tocsin.sdk.jobs import NewJob
from tocsin.store.codes import STATUS_CODE
from tocsin.wire import Status

TENANT = "acme"
QUEUE = "q"
PARTITIONS = 16
# After the last renewal ten seconds, and what a plan, a claim and the statements take: the promise of DESIGN §1.
TAKEN_OVER_S = 15.0
# Loads on one fleet have keys of their own.
_LOADS = count()
LEFT_OVER = ("SCHEDULED", "QUEUED", "RUNNING", "RETRYING", "CANCEL_REQUESTED")


@dataclass
class Api:
    """A process of role api, and where it answers."""

    program: Program
    url: str


@dataclass
class Fleet:
    """Servers and processes. `proxied` names servers that processes reach through a proxy, which a test can darken."""

    programs: Programs
    postgres: PostgresServer
    redis: RedisServer
    etcd: EtcdServer | None
    proxies: dict[str, Proxy] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)
    standby: PostgresServer | None = None
    token: str = ""
    apis: list[Api] = field(default_factory=list)
    nodes: dict[str, Program] = field(default_factory=dict)

    def port_of(self, server: str) -> int:
        """Where processes reach a server."""
        if server in self.proxies:
            return self.proxies[server].port
        ports = {"postgres": self.postgres.port, "redis": self.redis.port}
        return ports[server] if server in ports else self._etcd_port()

    def settings(self, **direct: int) -> dict[str, str]:
        """A process's settings; `direct` gives other ports than everybody's, such as those of a proxy of its own."""
        port = {name: direct.get(name, 0) or self.port_of(name) for name in ("postgres", "redis")}
        hosts = f"127.0.0.1:{port['postgres']}" + (f",127.0.0.1:{self.standby.port}" if self.standby else "")
        settings = {
            "TOCSIN_STORE": f"postgresql://tocsin@{hosts}/tocsin?target_session_attrs=read-write",
            "TOCSIN_NEAR": f"redis://127.0.0.1:{port['redis']}/0",
            "TOCSIN_PARTITIONS": str(PARTITIONS),
            "TOCSIN_CANARY": "off",
            "TOCSIN_DRAIN_S": "5",
            **self.environ,
        }
        if self.etcd is not None:
            settings["TOCSIN_LEASE"] = f"etcd://127.0.0.1:{direct.get('etcd', 0) or self.port_of('etcd')}"
        return settings

    # processes

    def api(self, *, roles: str = "api", **environ: str) -> Api:
        """Start a process with an API and wait until it answers."""
        program = self._start("api", roles, {"TOCSIN_PORT": "0", **environ})
        url = program.says("Tocsin is ready at").rsplit(" ", 1)[1]
        self.apis.append(Api(program, url))
        return self.apis[-1]

    def node(self, name: str, *, direct: dict[str, int] | None = None, **environ: str) -> Program:
        """Start a node and wait until it runs; its partitions come later, see `owned`."""
        (program,) = self.start_nodes(name, direct=direct, **environ)
        return program

    def start_nodes(self, *names: str, direct: dict[str, int] | None = None, **environ: str) -> list[Program]:
        """Start nodes at once and wait until they run."""
        programs = [self._start(name, "node", environ, direct) for name in names]
        for name, program in zip(names, programs, strict=True):
            program.says("Tocsin is ready: node")
            self.nodes[name] = program
        return programs

    def worker(self, journal: Journal, *options: str, queue: str = QUEUE, api: int = 0) -> Program:
        """Start a worker process on one of the APIs."""
        reach = {"TOCSIN_URL": self.apis[api].url, "TOCSIN_TOKEN": self.token, "JOURNAL": str(journal.path)}
        return self.programs.tocsin("worker", "worker", "tests.processes.work:worker", "-q", queue, *options, **reach)

    def client(self, api: int = 0) -> tocsin.Client:
        """A client of one of the APIs."""
        return tocsin.Client(self.apis[api].url, self.token)

    def get(self, path: str, api: int = 0) -> Any:
        """A list of the API, as it answers."""
        request = urllib.request.Request(
            f"{self.apis[api].url}/v1/{path}?limit=200", headers={"Authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)["items"]

    def admin(self, *arguments: str, api: int = 0) -> str:
        """What `tocsin admin ARGUMENTS` prints."""
        reach = {"TOCSIN_URL": self.apis[api].url, "TOCSIN_TOKEN": self.token}
        return run_tocsin(self.programs.folder, "admin", *arguments, **reach)

    def owners(self, api: int = 0) -> dict[int, str | None]:
        """Which node has which partition."""
        return {one["partition"]: one["node"] for one in self.get("partitions", api)}

    def settled(self, *names: str, within_s: float = 60.0) -> None:
        """Wait until exactly these nodes own all partitions, each about as many as the others."""
        fair = PARTITIONS // len(names)

        def shared() -> bool:
            try:
                counts = Counter(self.owners().values())
            except urllib.error.HTTPError as refused:
                if refused.code != 503:
                    raise
                return False
            return set(counts) == set(names) and min(counts.values()) >= fair

        wait_until(shared, f"{', '.join(names)} to share all partitions", within_s)

    def owned(self, *, but: str = "", within_s: float = 60.0) -> None:
        """Wait until each partition has an owner, and none of them is `but`."""

        def all_owned() -> bool:
            try:
                owners = set(self.owners().values())
            except urllib.error.HTTPError as refused:
                if refused.code != 503:
                    raise
                return False
            return None not in owners and but not in owners

        wait_until(all_owned, "every partition to have an owner", within_s)

    # what must be so

    def query(self, statement: str, *values: object) -> list[Any]:
        """Read from the database itself."""

        async def ask() -> list[Any]:
            conn = await asyncpg.connect(self.postgres.dsn("tocsin"))
            try:
                return list(await conn.fetch(statement, *values))
            finally:
                await conn.close()

        return asyncio.run(ask())

    def doctor(self) -> dict[str, dict[str, str]]:
        """The finding of `tocsin doctor` for each thing it looks at."""
        arguments = ("doctor", "--json", "--config", str(self.programs.folder / "empty.toml"))
        done = ended(self.programs.folder, *arguments, **self.settings())
        assert done.returncode in (0, 1), done.stderr
        return {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}

    def _start(self, name: str, roles: str, environ: dict[str, str], direct: dict[str, int] | None = None) -> Program:
        settings = self.settings(**(direct or {})) | {"TOCSIN_ROLES": roles, "TOCSIN_NODE_NAME": name} | environ
        return self.programs.tocsin(name, "serve", **settings)

    def _etcd_port(self) -> int:
        assert self.etcd is not None, "this fleet keeps its leases in PostgreSQL"
        return self.etcd.port


def run_tocsin(folder: Path, *arguments: str, **environ: str) -> str:
    """Run a command to its end, which must be a good one; what it wrote."""
    done = ended(folder, *arguments, **environ)
    assert done.returncode == 0, f"tocsin {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def ended(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, whatever that is."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TOCSIN_")}
    path = os.pathsep.join(os.path.abspath(each) for each in sys.path if each)
    return subprocess.run(
        [sys.executable, "-m", "tocsin", *arguments],
        env={**kept, "PYTHONPATH": path, **environ},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


@contextmanager
def fleet(
    folder: Path, *, etcd: bool = False, standby: bool = False, proxied: tuple[str, ...] = (), **environ: str
) -> Iterator[Fleet]:
    """Servers with an installation on them and a token, and no process of Tocsin yet. With `standby` PostgreSQL has a synchronous
    one, and processes know both."""
    with ExitStack() as stack:
        programs = Programs(folder)
        stack.callback(programs.end_all)
        postgres = PostgresServer(DURABLE)
        stack.callback(postgres.remove)
        postgres.start()
        redis = RedisServer(maxmemory="256mb", maxmemory_policy="noeviction")
        stack.callback(redis.close)
        redis.start()
        keeper = EtcdServer() if etcd else None
        if keeper is not None:
            stack.callback(keeper.remove)
            keeper.start()
        made = Fleet(programs, postgres, redis, keeper, environ=environ)
        for server in proxied:
            made.proxies[server] = stack.enter_context(between(made.port_of(server)))
        asyncio.run(postgres.execute("CREATE DATABASE tocsin"))
        if standby:
            made.standby = postgres.standby("standby")
            stack.callback(made.standby.remove)
            waits = "ALTER SYSTEM SET synchronous_standby_names = 'standby'"
            asyncio.run(postgres.execute(waits, "SELECT pg_reload_conf()"))
        run_tocsin(folder, "migrate", **made.settings())
        (folder / "empty.toml").write_text("")
        on_store = ("--config", str(folder / "empty.toml"))
        run_tocsin(folder, "admin", "tenants", "create", TENANT, *on_store, **made.settings())
        scopes = [part for scope in ("admin", "work:*", "operator", "executor") for part in ("--scope", scope)]
        token = ("admin", "tokens", "create", TENANT, "--name", "test", *scopes, "--json", *on_store)
        made.token = json.loads(run_tocsin(folder, *token, **made.settings()))["token"]
        yield made


class Load(threading.Thread):
    """Makes `rate` jobs a second, each due a little later, until `stop`; each under a key, repeated until it is accepted.
    They are for workers, or calls of `url`.

    `accepted` are the IDs that were answered with 201 or 200: those that may not be lost. `due_ms` says when each was due.
    """

    def __init__(
        self,
        fleet: Fleet,
        rate: int,
        *,
        ahead_s: float = 2.0,
        queue: str = QUEUE,
        every_s: float = 0.1,
        url: str | None = None,
    ) -> None:
        super().__init__(daemon=True)
        self._fleet, self._rate, self._ahead_s, self._queue, self._every_s = fleet, rate, ahead_s, queue, every_s
        self._url = url
        self._name = f"{queue}-{next(_LOADS)}"
        self._ending = threading.Event()
        self.accepted: dict[str, float] = {}
        self.outages = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.failure = error
            raise

    def stop(self, within_s: float = 90.0) -> None:
        """No more jobs; wait until the last batch is accepted."""
        self._ending.set()
        self.join(within_s)
        assert not self.is_alive(), "the last batch has not been accepted yet"
        assert self.failure is None, repr(self.failure)

    def _run(self) -> None:
        number, began = 0, time.monotonic()
        clients = [self._fleet.client(at) for at in range(len(self._fleet.apis))]
        while not self._ending.is_set():
            wanted = int((time.monotonic() - began) * self._rate)
            if wanted > number:
                batch = range(number, min(wanted, number + 500))
                self._create(clients, batch)
                number = batch.stop
            self._ending.wait(self._every_s)
        for client in clients:
            client.close()

    def _create(self, clients: list[tocsin.Client], numbers: range) -> None:
        due = time.time() + self._ahead_s
        jobs: list[NewJob] = [
            {
                "queue": self._queue,
                "payload": number,
                "run_at": rfc3339(round(due * 1000)),
                "idempotency_key": f"{self._name}-{number}",
            }
            for number in numbers
        ]
        for job in jobs:
            if self._url is None:
                job["handler"] = "note"
            else:
                job["url"] = self._url
        until = time.monotonic() + 60
        for attempt in range(10_000):
            try:
                results = clients[attempt % len(clients)].jobs.create_batch(jobs)
            except tocsin.ServerUnavailable:
                self.outages += 1
                assert time.monotonic() < until, "no API has taken a batch for a minute"
                self._ending.wait(0.2)
                continue
            self.accepted.update({result.job_id: due for result in results if result.job_id is not None})
            return


def drained(fleet: Fleet, within_s: float = 90.0) -> None:
    """Wait until nothing is to be done any more."""

    def left() -> bool:
        (row,) = fleet.query("SELECT count(*) AS n FROM jobs WHERE status = ANY($1::smallint[])", _numbers(LEFT_OVER))
        return row["n"] == 0

    wait_until(left, "all jobs to be done", within_s)


def check_all(fleet: Fleet, accepted: Iterable[str], *, api: int = 0) -> None:
    """After the load has drained: no accepted job is missing, no occurrence fired twice, nothing is RUNNING without a lease that
    lives, and the counters are those of the store."""
    check_jobs(fleet, accepted)
    counters_equal_the_store(fleet, api=api)


def check_jobs(fleet: Fleet, accepted: Iterable[str]) -> None:
    """What is so at once. The counters may take a minute: where tests share a fleet, they are looked at once in the end."""
    ids = list(accepted)
    known = {row["id"] for row in fleet.query("SELECT id FROM finished UNION ALL SELECT id FROM jobs")}
    missing = [job_id for job_id in ids if job_id not in known]
    assert not missing, f"{len(missing)} of {len(ids)} accepted jobs are missing, such as {missing[0]}"
    now_ms = round(time.time() * 1000)
    dead_leases = fleet.query(
        "SELECT id FROM jobs WHERE status = ANY($1::smallint[]) AND lease_until < $2",
        _numbers(("RUNNING", "CANCEL_REQUESTED")),
        now_ms - 5_000,
    )
    assert not dead_leases, f"{len(dead_leases)} jobs are RUNNING without a live lease"
    twice = fleet.query(
        "SELECT id FROM (SELECT id FROM finished UNION ALL SELECT id FROM jobs) AS each GROUP BY id HAVING count(*) > 1"
    )
    assert not twice, f"{len(twice)} jobs stand twice"


def counters_equal_the_store(fleet: Fleet, *, api: int = 0, within_s: float = 90.0) -> None:
    """The figures of the queue are those of the database, once the slow count has been made."""

    def differences() -> dict[str, tuple[int, int]]:
        with fleet.client(api) as client:
            stats = client.queues.get(QUEUE).stats
        counted = Counter(
            {
                row["status"]: row["n"]
                for row in fleet.query("SELECT status, count(*) AS n FROM jobs WHERE queue = $1 GROUP BY 1", QUEUE)
            }
        )
        names = {
            "scheduled": "SCHEDULED",
            "ready": "QUEUED",
            "running": "RUNNING",
            "retrying": "RETRYING",
            "dead": "DEAD",
        }
        shown = {name: getattr(stats, name) for name in names}
        stored = {name: counted[_numbers((status,))[0]] for name, status in names.items()}
        return {name: (shown[name], stored[name]) for name in names if shown[name] != stored[name]}

    found: Callable[[], bool] = lambda: not differences()  # noqa: E731
    with contextlib.suppress(AssertionError):
        wait_until(found, "the figures to be those of the store", 4.0)
        return
    # The count is made once a minute, and at once when the near tier was lost: no test needs to wait for the minute.
    fleet.redis.ask("FLUSHALL")
    try:
        wait_until(found, "the figures to be those of the store", within_s)
    except AssertionError:
        raise AssertionError(f"figures differ from the store (shown, stored): {differences()}") from None


def _numbers(statuses: tuple[str, ...]) -> list[int]:
    """The statuses as the database numbers them."""
    return [STATUS_CODE[Status(status)] for status in statuses]
