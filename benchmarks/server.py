"""A server of its own for one measurement: `tocsin dev` on a free port, data in a temporary folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

TOKEN = "tcs_bench_0123456789abcdefghij0123456789"


class Server:
    """Use as a context manager. `start` may be called again after `stop` or `kill`: the data stays."""

    def __init__(
        self, *, roles: str | None = None, data: Path | None = None, env: dict[str, str] | None = None
    ) -> None:
        self.data = data or Path(tempfile.mkdtemp(prefix="tocsin-bench-"))
        self._made = data is None
        self._roles, self._env = roles, env or {}
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.started_s = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "TOCSIN_URL": self.url, "TOCSIN_TOKEN": TOKEN}

    def start(self) -> Server:
        """Start and wait until it is ready; `started_s` is how long that took."""
        env = {**os.environ, **self._env}
        if self._roles is not None:
            env["TOCSIN_ROLES"] = self._roles
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tocsin", "dev"),
                *("--port", str(self.port), "--data", str(self.data), "--token", TOKEN),
            ],
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=(self.data.parent / f"{self.data.name}.log").open("ab"),
        )
        while True:
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended at once; see {self.data}.log")
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as answer:
                    if answer.status == 200:
                        break
            except OSError:
                time.sleep(0.02)
            if time.perf_counter() - began > 120:
                raise SystemExit("the server is not ready after two minutes")
        self.started_s = time.perf_counter() - began
        return self

    def stop(self, sign: int = signal.SIGTERM) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(sign)
            self.process.wait(30)

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._made:
            shutil.rmtree(self.data, ignore_errors=True)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
