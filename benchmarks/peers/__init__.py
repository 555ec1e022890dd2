"""The peer that Tocsin is measured beside: graphile-worker on a PostgreSQL of its own, the fastest that we know of.

Needs Node.js with npm and PostgreSQL's server programs. The database runs as an unprivileged user when started by root.
"""

from __future__ import annotations

import glob
import json
import os
import pwd
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.server import free_port

HERE = Path(__file__).parent
VERSION = "0.17.3"


def postgres_programs() -> Path | None:
    """The folder of PostgreSQL's server programs, the newest first."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True)
    if found:
        return Path(found[0]).parent
    initdb = shutil.which("initdb")
    return Path(initdb).parent if initdb else None


class Postgres:
    """A PostgreSQL server in a temporary folder; use as a context manager."""

    def __init__(self) -> None:
        programs = postgres_programs()
        if programs is None:
            raise SystemExit("the peer needs PostgreSQL's server programs (initdb, postgres)")
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="tocsin-peer-", dir="/tmp"))
        self.port = free_port()
        self._user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name

    def __enter__(self) -> Postgres:
        data = self._folder / "data"
        if os.geteuid() == 0:
            shutil.chown(self._folder, self._user)
        self._run(self._programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync")
        options = (
            f"-p {self.port} -k {self._folder} -c shared_buffers=2GB -c max_wal_size=4GB -c listen_addresses=127.0.0.1"
        )
        self._run(self._programs / "pg_ctl", "-D", data, "-w", "-l", self._folder / "log", "-o", options, "start")
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._programs / "pg_ctl", "-D", self._folder / "data", "-m", "fast", "-w", "stop")
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}"

    def pid(self) -> int:
        """The first process of the server."""
        return int((self._folder / "data" / "postmaster.pid").read_text().split()[0])

    def _run(self, *command: object) -> None:
        user = self._user if os.geteuid() == 0 else None
        subprocess.run([str(c) for c in command], check=True, user=user, cwd=self._folder, stdout=subprocess.DEVNULL)


class Graphile:
    """graphile-worker with its local queue and batched completions, as its documentation advises for speed."""

    def __init__(self) -> None:
        self._postgres = Postgres()
        self._folder = Path(tempfile.mkdtemp(prefix="tocsin-peer-node-"))

    def __enter__(self) -> Graphile:
        shutil.copy(HERE / "graphile.js", self._folder)
        (self._folder / "package.json").write_text('{"private": true}')
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", f"graphile-worker@{VERSION}", "pg@8"]
        subprocess.run(command, cwd=self._folder, check=True, timeout=300)
        self._postgres.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._postgres.__exit__()
        shutil.rmtree(self._folder, ignore_errors=True)

    def burst(self, jobs: int, lead_s: float = 8.0) -> dict[str, float]:
        """`jobs` no-op jobs due at one second, drained by one process; the same figures as `tocsin bench burst`."""
        marks = Path(tempfile.mkdtemp(prefix="marks-", dir=self._folder))
        env = {**os.environ, "MARKS": str(marks), "PEER_URL": self._postgres.url}
        self._node(env, "setup")
        due = float(int(time.time() + lead_s))
        rate = float(self._node(env, "enqueue", due, jobs).strip().splitlines()[-1])
        worker = subprocess.Popen(
            ["node", "graphile.js", "work"],
            env=env,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        give_up = due + 60
        while time.time() < give_up and sum(f.stat().st_size // 8 for f in marks.glob("*.bin")) < jobs:
            time.sleep(0.1)
        worker.send_signal(signal.SIGTERM)
        try:
            worker.wait(5)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait(5)
        starts: list[float] = []
        for file in marks.glob("*.bin"):
            data = file.read_bytes()
            starts += struct.unpack(f"<{len(data) // 8}d", data)
        starts.sort()
        late = [start - due for start in starts]
        return {
            "jobs": jobs,
            "done": len(starts),
            "enqueue_per_s": round(rate),
            "drain_per_s": round(len(starts) / max(starts[-1] - due, 1e-3)),
            "p50": round(late[len(late) // 2], 3),
            "p99": round(late[len(late) * 99 // 100], 3),
        }

    def _node(self, env: dict[str, str], *args: object) -> str:
        command = ["node", "graphile.js", *map(str, args)]
        done = subprocess.run(
            command, env=env, cwd=self._folder, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")
        return done.stdout


def main() -> None:
    """One burst, for a look."""
    with Graphile() as graphile:
        print(json.dumps(graphile.burst(50_000)))
