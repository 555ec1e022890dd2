"""The parts that the demonstration starts on this machine: the server, a worker, and a receiver of callbacks.

Only the standard library and the installed package are used. The API is called as any program would call it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

WORKER = """
import json, os, time
from pathlib import Path
import tocsin

folder = Path(os.environ["DEMO_FOLDER"])
worker = tocsin.Worker("demo", "demo-schedules", concurrency=20)

def note(ctx, payload):
    line = json.dumps({"job": ctx.job.job_id, "attempt": ctx.attempt, "key": ctx.idempotency_key, "n": payload.get("n")})
    with open(folder / "ran.jsonl", "a") as file:
        file.write(line + chr(10))

@worker.task("orders.confirm")
async def confirm(payload, ctx):
    note(ctx, payload)
    return {"confirmed": payload.get("order")}

@worker.task("invoices.render")
def render(payload, ctx):
    note(ctx, payload)
    if not (folder / "fixed").exists():
        raise RuntimeError("the template has a missing bracket")
    return {"pages": 2}

@worker.cron("* * * * *", name="every full minute", queue="demo-schedules", job_name="cron: every full minute")
@worker.every(2, name="every 2 seconds", queue="demo-schedules", job_name="interval: every 2 s")
@worker.task("clock.tick")
async def tick(payload, ctx):
    note(ctx, {})
"""


class Unexpected(Exception):
    """Something that had to happen did not."""


@dataclass
class Server:
    """The embedded server as a process that can be killed and started again on the same data and port."""

    folder: Path
    token: str = field(default_factory=lambda: f"tcs_demo_{secrets.token_hex(16)}")
    port: int = 0
    secret: str = ""
    process: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Start it and wait until it says that it is ready; how many seconds that took."""
        began = time.monotonic()
        self.port = self.port or free_port()
        command = [sys.executable, "-m", "tocsin", "dev", "--port", str(self.port), "--data", str(self.folder / "data")]
        with open(self.folder / "server.log", "a") as log:
            self.process = subprocess.Popen(
                [*command, "--token", self.token],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment(),
                cwd=self.folder,
                start_new_session=True,
            )
        lines: list[str] = []
        reader = threading.Thread(target=self._read, args=(self.process, lines), daemon=True)
        reader.start()
        wait_until(lambda: any("Ctrl-C" in line for line in lines) or self._ended(), "the server to be ready", 60)
        if self._ended():
            raise Unexpected(f"the server did not start: {tail(self.folder / 'server.log')}")
        found = re.search(r"signing secret\s+(\S+)", "\n".join(lines))
        self.secret = found[1] if found else ""
        return time.monotonic() - began

    def kill(self) -> None:
        """kill -9: no goodbye, no last write."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Ask it to end."""
        end(self.process)

    def call(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> Any:
        """One request to the API; the answer's JSON. Raises Unexpected for any other than 2xx."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            sent = None if body is None else json.dumps(body).encode()
            auth = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            connection.request(method, path, sent, {**auth, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read().decode()
        except OSError as error:
            raise Unexpected(f"{method} {path}: {error}; {tail(self.folder / 'server.log')}") from error
        finally:
            connection.close()
        if not 200 <= answer.status < 300:
            raise Unexpected(f"{method} {path} answered {answer.status}: {text}")
        return json.loads(text) if text else None

    def _ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: list[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())


class Receiver:
    """An HTTP endpoint as a team would write it: it checks the signature (Standard Webhooks) and answers 204."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.secret = ""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                signed = receiver.signature_is_good(self.headers, body)
                receiver.calls.append({"body": json.loads(body), "signed": signed})
                self.send_response(204 if signed else 401)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/reminders"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def signature_is_good(self, headers: Any, body: bytes) -> bool:
        """Whether one of the signatures is ours, over ID, time and body, and the time is not long ago."""
        key = base64.b64decode(self.secret.removeprefix("whsec_"))
        signed = f"{headers['Webhook-Id']}.{headers['Webhook-Timestamp']}.".encode() + body
        expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        fresh = abs(time.time() - int(headers["Webhook-Timestamp"])) < 300
        return fresh and any(hmac.compare_digest(expected, each) for each in headers["Webhook-Signature"].split())


@contextmanager
def worker(server: Server, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A Python worker in a process of its own."""
    (folder / "demo_worker.py").write_text(WORKER)
    env = environment(TOCSIN_URL=f"http://127.0.0.1:{server.port}", TOCSIN_TOKEN=server.token, DEMO_FOLDER=str(folder))
    with open(folder / "worker.log", "a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tocsin", "worker", "demo_worker:worker"],
            stdout=log,
            stderr=log,
            env=env,
            cwd=folder,
            start_new_session=True,
        )
    try:
        wait_until(lambda: "takes jobs from" in tail(folder / "worker.log"), "the worker to take jobs", 60)
        yield process
    finally:
        end(process)


def environment(**more: str) -> dict[str, str]:
    """This process's environment without settings of another server."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}, **more}


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(held: Callable[[], bool], what: str, within_s: float) -> None:
    """Wait for something, at most so long."""
    until = time.monotonic() + within_s
    while not held():
        if time.monotonic() > until:
            raise Unexpected(f"waited {within_s:g} s in vain for {what}")
        time.sleep(0.05)


def end(process: subprocess.Popen[Any] | None) -> None:
    """Ask a process to end; make it, if it does not."""
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tail(path: Path) -> str:
    """The last lines of a log."""
    lines = path.read_text(errors="replace").splitlines()[-8:] if path.exists() else []
    return "\n".join(lines) or "(nothing in the log)"
