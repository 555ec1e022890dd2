"""The command line as processes: a server that is started, used, refused its port or folder, and stopped."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]


class Command:
    """A running `tocsin …`; its lines as they come."""

    def __init__(self, folder, *arguments, **environ):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
        self.folder = folder
        self.lines: list[str] = []
        self.errors: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tocsin", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**kept, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path), **environ},
        )
        pipes = ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        self._readers = [threading.Thread(target=self._read, args=pipe, daemon=True) for pipe in pipes]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(pipe, lines):
        with pipe:
            for line in pipe:
                lines.append(line.rstrip("\n"))

    def wait_for(self, text, lines=None, within_s=60):
        """Wait until a line contains `text`; that line."""
        lines = self.lines if lines is None else lines
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            for line in list(lines):
                if text in line:
                    return line
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.lines} {self.errors}"
            time.sleep(0.02)
        raise AssertionError(f"waited in vain for {text!r}: {self.lines} {self.errors}")

    def end(self, within_s=60):
        """Wait for its end; the exit code."""
        code = self.process.wait(within_s)
        for reader in self._readers:
            reader.join(10)
        return code


@contextmanager
def starting(folder):
    """Starts commands in a folder; none outlives the block."""
    started = []

    def run(*arguments, **environ):
        started.append(Command(folder, *arguments, **environ))
        return started[-1]

    try:
        yield run
    finally:
        for command in started:
            if command.process.poll() is None:
                command.process.kill()
            command.end()


@pytest.fixture
def start(tmp_path):
    """Starts commands in a folder of the test's own."""
    with starting(tmp_path) as run:
        yield run


@pytest.fixture(scope="module")
def dev(tmp_path_factory):
    """A running `tocsin dev` and the environment that reaches it, shared by tests that leave it running."""
    with starting(tmp_path_factory.mktemp("dev")) as run:
        server = run("dev", "--port", "0", "--data", "data")
        server.wait_for("Ctrl-C stops the server")
        found = re.search(r"TOCSIN_URL=(\S+) TOCSIN_TOKEN=(\S+)", server.wait_for("export TOCSIN_URL="))
        assert found is not None
        yield server, {"TOCSIN_URL": found[1], "TOCSIN_TOKEN": found[2]}


def test_dev_says_where_it_is_and_with_what(dev):
    server, environ = dev
    assert environ["TOCSIN_URL"] in server.wait_for("address")
    assert environ["TOCSIN_TOKEN"] in server.wait_for("  token")
    assert re.search(r"whsec_[A-Za-z0-9+/=]{32,}", server.wait_for("signing secret"))
    assert "http://127.0.0.1:9000/" in server.wait_for('"queue": "hello"')


def test_dev_ends_in_order_when_it_is_told_to(start):
    server = start("dev", "--port", "0", "--data", "data")
    server.wait_for("Ctrl-C stops the server")
    server.process.send_signal(signal.SIGTERM)
    assert server.end() == 0
    assert not [line for line in server.errors if "Traceback" in line]


def test_a_job_goes_from_the_command_line_to_a_worker(dev, start, tmp_path):
    _, environ = dev
    (tmp_path / "app.py").write_text(
        "import tocsin\nworker = tocsin.Worker('q')\n\n"
        "@worker.task('hello')\nasync def hello(payload, ctx):\n    print('hello', payload['who'], flush=True)\n"
    )
    worker = start("worker", "app:worker", **environ)
    created = start("jobs", "create", "-q", "q", "--handler", "hello", "-p", '{"who": "world"}', "--json", **environ)
    assert created.end() == 0
    job_id = json.loads(created.lines[0])["job_id"]
    worker.wait_for("hello world")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.end() == 0
    shown = start("jobs", "get", job_id, "--json", **environ)
    assert shown.end() == 0
    assert json.loads(shown.lines[0])["status"] == "SUCCEEDED"
    queues = start("queues", "list", "--json", **environ)
    assert queues.end() == 0
    assert "q" in [each["queue"] for each in json.loads(queues.lines[0])["items"]]


def test_a_small_burst_is_measured_without_loss(dev, start):
    _, environ = dev
    bench = start("bench", "burst", "--jobs", "200", "--lead", "2", **environ)
    assert bench.end() == 0, bench.errors
    result = json.loads(bench.lines[-1])
    assert (result["jobs"], result["done"], result["lost"], result["duplicates"]) == (200, 200, 0, 0)
    assert result["p99"] >= result["p50"] >= 0
    assert {"enqueue_per_s", "drain_per_s", "cpu_us_per_job"} <= set(result)


def test_a_port_in_use_is_said_so(start):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = start("dev", "--port", str(port), "--data", "data")
        assert refused.end() == 1
    assert refused.lines == []
    (said,) = refused.errors
    assert f"port {port} is in use by another process" in said


def test_a_folder_in_use_is_said_so_with_the_process(dev, start):
    server, _ = dev
    refused = start("dev", "--port", "0", "--data", str(server.folder / "data"))
    assert refused.end() == 1
    assert refused.lines == []
    assert f"is in use by process {server.process.pid}" in refused.errors[-1]
    assert not [line for line in refused.errors if "Traceback" in line]


def test_serve_takes_its_settings_from_file_and_environment(start, tmp_path):
    (tmp_path / "tocsin.toml").write_text('data = "kept"\nport = 1\n')
    server = start("serve", TOCSIN_PORT="0")
    assert "Tocsin is ready at http://127.0.0.1:" in server.wait_for("is ready")
    assert (tmp_path / "kept" / "tocsin.db").exists()


def test_a_settings_file_that_is_wrong_is_refused_at_the_start(start, tmp_path):
    (tmp_path / "tocsin.toml").write_text("prot = 1\n")
    refused = start("serve")
    assert refused.end() == 2
    assert refused.errors[-1].startswith("tocsin: prot is not a setting")


def test_output_into_a_closed_pipe_is_no_accident(start, tmp_path):
    done = subprocess.run(
        f"{sys.executable} -m tocsin --help | head -1",
        shell=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path)},
        check=False,
    )
    assert done.stderr == ""
