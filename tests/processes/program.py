"""Real processes of Tocsin for a test: started, paused, killed, and none left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import tocsin
from tests.processes.waiting import wait_until

TOKEN = "tcs_dev_processes"


class Program:
    """A running program; what it says is kept in two files."""

    def __init__(self, folder: Path, name: str, arguments: list[str], environ: dict[str, str]) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("TOCSIN_")}
        path = os.pathsep.join(os.path.abspath(each) for each in sys.path if each)
        self.name = name
        self._output, self._errors = folder / f"{name}.out", folder / f"{name}.err"
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=folder,
                env={**kept, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **environ},
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        """What it has written to standard output so far."""
        return self._output.read_text(errors="replace")

    @property
    def errors(self) -> str:
        """What it has written to standard error so far: its log."""
        return self._errors.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def says(self, text: str, within_s: float = 60.0) -> str:
        """Wait until it has said `text`, on either stream; the line."""

        def line() -> str | None:
            said = self.output + self.errors
            found = next((each for each in said.splitlines() if text in each), None)
            assert found or self.running, f"{self.name} ended with {self.process.returncode}: {said[-3000:]}"
            return found

        found = wait_until(line, f"{self.name} to say {text!r}", within_s)
        assert found is not None
        return found

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.process.kill()
        self.process.wait(10)

    def end(self, within_s: float = 60.0) -> int:
        """Wait for its own end; the exit code."""
        return self.process.wait(within_s)


@dataclass
class Server:
    """A `tocsin dev` that answers."""

    program: Program
    url: str
    data: Path
    token: str

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    @property
    def environ(self) -> dict[str, str]:
        """What points the SDK and the command line at it."""
        return {"TOCSIN_URL": self.url, "TOCSIN_TOKEN": self.token}

    def client(self) -> tocsin.Client:
        return tocsin.Client(self.url, self.token)


class Programs:
    """Starts programs in one folder and ends those that are left, each by its own process ID."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[Program] = []

    def start(self, name: str, *arguments: str, **environ: str) -> Program:
        """Start `python -m ARGUMENTS`."""
        program = Program(self.folder, f"{len(self._started)}-{name}", list(arguments), environ)
        self._started.append(program)
        return program

    def tocsin(self, name: str, *arguments: str, **environ: str) -> Program:
        """Start `tocsin ARGUMENTS`."""
        return self.start(name, "tocsin", *arguments, **environ)

    def server(self, data: Path | None = None, *, port: int = 0, token: str | None = TOKEN, **environ: str) -> Server:
        """Start `tocsin dev` and wait until it can be used. Without a token it makes one."""
        data = data or self.folder / "data"
        given = () if token is None else ("--token", token)
        program = self.tocsin("server", "dev", "--port", str(port), "--data", str(data), *given, **environ)
        program.says("Ctrl-C stops the server")
        found = re.search(r"TOCSIN_URL=(\S+) TOCSIN_TOKEN=(\S+)", program.output)
        assert found is not None
        return Server(program, found[1], data, found[2])

    def worker(self, server: Server, queue: str, journal: Path, *options: str, **environ: str) -> Program:
        """Start `tocsin worker` on the handlers of `tests.processes.work`."""
        reach = {**server.environ, "JOURNAL": str(journal), **environ}
        return self.tocsin("worker", "worker", "tests.processes.work:worker", "-q", queue, *options, **reach)

    def end_all(self) -> None:
        for program in self._started:
            if program.running:
                # A stopped process takes its SIGKILL all the same, but let its children see the end of their pipes.
                program.signal(signal.SIGCONT)
                program.kill()
