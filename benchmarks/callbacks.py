"""HTTP callbacks through an executor in a process of its own, to a receiver that does nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import aiohttp

from benchmarks.creates import HEADERS, PAYLOAD
from benchmarks.server import Server, free_port

RECEIVER = """
import asyncio, sys, uvloop
seen = 0
class P(asyncio.Protocol):
    def connection_made(self, t): self.t = t; self.b = b""
    def data_received(self, d):
        global seen
        self.b += d
        while True:
            h, s, rest = self.b.partition(b"\\r\\n\\r\\n")
            if not s: return
            low = h.lower(); n = 0
            i = low.find(b"content-length:")
            if i >= 0: n = int(low[i + 15:].split(b"\\r\\n", 1)[0])
            if len(rest) < n: return
            self.b = rest[n:]
            if h.startswith(b"GET"): out = str(seen).encode()
            else: seen += 1; out = b"ok"
            self.t.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%s" % (len(out), out))
async def main():
    s = await asyncio.get_running_loop().create_server(P, "127.0.0.1", int(sys.argv[1]), backlog=4096)
    await s.serve_forever()
uvloop.run(main())
"""


def run(jobs: int = 40_000) -> dict[str, object]:
    """Callbacks a second from the instant they fall due to the last call."""
    port = free_port()
    receiver = subprocess.Popen([sys.executable, "-c", RECEIVER, str(port)])
    try:
        with Server(roles="api,node") as server:
            token = _executor_token(server)
            executor = subprocess.Popen(
                [sys.executable, "-m", "tocsin", "serve", "--role", "executor"],
                env={
                    **os.environ,
                    "TOCSIN_URL": server.url,
                    "TOCSIN_TOKEN": token,
                    "TOCSIN_CALLBACK_ALLOW": "127.0.0.0/8:*",
                },
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                rate = asyncio.run(_burst(server.url, f"http://127.0.0.1:{port}/hook", jobs))
            finally:
                executor.send_signal(signal.SIGTERM)
                executor.wait(40)
    finally:
        receiver.terminate()
        receiver.wait(10)
    return {"case": "callbacks", "jobs": jobs, "callbacks_per_s": round(rate)}


def _executor_token(server: Server) -> str:
    """A token of scope `executor`, made offline while the server is stopped."""
    server.stop()
    command = [
        sys.executable,
        "-m",
        "tocsin",
        "admin",
        "tokens",
        "create",
        "dev",
        "--name",
        "bench",
        "--scope",
        "executor",
    ]
    done = subprocess.run(
        [*command, "--json", "--data", str(server.data)], capture_output=True, text=True, check=True, timeout=60
    )
    server.start()
    import json

    return str(json.loads(done.stdout)["token"])


async def _burst(url: str, hook: str, jobs: int, lead_s: float = 6.0) -> float:
    import json

    due = time.time() + lead_s
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(due))
    due = float(int(due))
    each = {"queue": "hooks", "target": {"type": "http", "url": hook}, "payload": PAYLOAD, "run_at": when}
    async with aiohttp.ClientSession(headers=HEADERS) as session:
        body = json.dumps({"jobs": [each] * 1_000}).encode()
        for _ in range(jobs // 1_000):
            async with session.post(f"{url}/v1/jobs:batch", data=body) as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()
        base = hook.rsplit("/", 1)[0]
        while True:
            async with session.get(f"{base}/count") as answer:
                seen = int(await answer.text())
            if seen >= jobs:
                return jobs / (time.time() - due)
            assert time.time() < due + 120, f"only {seen} of {jobs} calls after two minutes"
            await asyncio.sleep(0.05)
