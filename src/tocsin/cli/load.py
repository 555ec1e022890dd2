"""Load for a benchmark: numbered jobs made through the API, worker processes, and what they noted.

A job's number is in its payload and decides when it is due and what it is like, so that losses, duplicates and lateness are
counted from the workers' own notes and nothing has to be believed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from tocsin.cli import measures
from tocsin.cli.bench_worker import HANDLER, MARK
from tocsin.clock import Clock, rfc3339
from tocsin.errors import TocsinError

if TYPE_CHECKING:
    from tocsin.sdk.transport import Transport

LOOK_EVERY_S = 0.05
STOP_WITHIN_S = 15.0
# In a mixed load, by the last digit of a job's number.
FAILS_ONCE, HIGH, LOW = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which jobs: `due_ms(n)` is when number n is due."""

    jobs: int
    queue: str
    payload_bytes: int
    due_ms: Callable[[int], int]
    mixed: bool = False
    keys: bool = False

    def starts(self, number: int) -> int:
        """How often the job must start."""
        return 2 if self.mixed and number % 10 == FAILS_ONCE else 1

    def body(self, number: int, *, batched: bool) -> bytes:
        """The JSON of job `number`."""
        kind = number % 10 if self.mixed else -1
        fail = ',"fail":1' if kind == FAILS_ONCE else ""
        head = f'{{"n":{number}{fail},"pad":"'
        pad = "x" * max(0, self.payload_bytes - len(head) - 2)
        more = f',"idempotency_key":"{self.queue}-{number}"' if self.keys and batched else ""
        if kind == FAILS_ONCE:
            more += ',"retry":{"max_attempts":3,"initial_backoff_s":0.1}'
        if kind in (HIGH, LOW):
            more += f',"priority":"{"high" if kind == HIGH else "low"}"'
        return (
            f'{{"queue":"{self.queue}","run_at":"{rfc3339(self.due_ms(number))}",'
            f'"target":{{"type":"task","handler":"{HANDLER}"}},"payload":{head}{pad}"}}{more}}}'
        ).encode()


async def create(
    transport: Transport,
    plan: Plan,
    first: int,
    last: int,
    *,
    batch: int,
    connections: int,
    note: Callable[[int], None],
) -> None:
    """Make jobs [first, last) over so many connections; a job that is not accepted ends it with an error."""
    numbers = iter(range(first, last, batch))

    async def send() -> None:
        for start in numbers:
            end = min(start + batch, last)
            if batch == 1:
                headers = {"Idempotency-Key": f"{plan.queue}-{start}"} if plan.keys else None
                await transport.request("POST", "/v1/jobs", body=plan.body(start, batched=False), headers=headers)
            else:
                jobs = b",".join([plan.body(number, batched=True) for number in range(start, end)])
                answer = await transport.request("POST", "/v1/jobs:batch", body=b'{"jobs":[' + jobs + b"]}")
                if answer.body.count(b'"job_id"') != end - start:
                    raise TocsinError(f"the server did not accept all jobs of a batch: {answer.body[:300].decode()}")
            note(end - start)

    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(send())


@dataclass(slots=True)
class Notes:
    """What the workers noted."""

    starts: list[tuple[int, int]] = field(default_factory=list)
    completed: int = 0
    last_completion_ms: int = 0

    def first_starts(self) -> dict[int, int]:
        """By number, when the job first started (ms)."""
        first: dict[int, int] = {}
        for number, at_ms in self.starts:
            if at_ms < first.get(number, 1 << 62):
                first[number] = at_ms
        return first

    def lost(self, plan: Plan) -> int:
        """How many jobs never started."""
        return plan.jobs - len({number for number, _ in self.starts})

    def duplicates(self, plan: Plan) -> int:
        """How many starts there were beyond those that had to be."""
        counts = Counter(number for number, _ in self.starts)
        return sum(max(0, count - plan.starts(number)) for number, count in counts.items())


class Workers:
    """Worker processes and the folder of their notes."""

    def __init__(self, count: int, queue: str, concurrency: int, prefetch: int, environ: dict[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tocsin-bench-")
        self.path = Path(self._folder.name)
        command = [
            sys.executable,
            "-m",
            "tocsin.cli.bench_worker",
            str(self.path),
            queue,
            str(concurrency),
            str(prefetch),
        ]
        self.processes = [
            subprocess.Popen(
                command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
            )
            for _ in range(count)
        ]

    async def ready(self, clock: Clock, timeout_s: float = 30.0) -> None:
        """Wait until all take jobs."""
        until = clock.elapsed_s() + timeout_s
        while len(list(self.path.glob("*.ready"))) < len(self.processes):
            self.check()
            if clock.elapsed_s() > until:
                raise TocsinError(f"the worker processes were not ready within {timeout_s:g} s")
            await asyncio.sleep(LOOK_EVERY_S)

    def check(self) -> None:
        """Raise if one has ended."""
        for process in self.processes:
            if process.poll() is not None:
                said = process.stderr.read().decode(errors="replace").strip() if process.stderr else ""
                raise TocsinError(
                    f"a worker process ended with {process.returncode}: {said[-300:] or 'it said nothing'}"
                )

    def counts(self) -> tuple[int, int]:
        """How many starts were noted, and how many completions."""
        starts = sum(file.stat().st_size // MARK.size for file in self.path.glob("*.starts"))
        return starts, sum(done for file in self.path.glob("*.done") for done, _ in _marks(file))

    def notes(self) -> Notes:
        """All that was noted."""
        notes = Notes([mark for file in self.path.glob("*.starts") for mark in _marks(file)])
        for file in self.path.glob("*.done"):
            for done, at_ms in _marks(file):
                notes.completed += done
                notes.last_completion_ms = max(notes.last_completion_ms, at_ms)
        return notes

    def cpu_s(self) -> float | None:
        """Their CPU time so far."""
        times = [measures.cpu_s(process.pid) for process in self.processes]
        return None if None in times else sum(time for time in times if time is not None)

    def stop(self) -> None:
        """End them and forget their notes."""
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        began = perf_counter()
        for process in self.processes:
            try:
                process.wait(max(0.1, STOP_WITHIN_S - (perf_counter() - began)))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stderr is not None:
                process.stderr.close()
        self._folder.cleanup()


def _marks(file: Path) -> list[tuple[int, int]]:
    data = file.read_bytes()
    return list(MARK.iter_unpack(data[: len(data) // MARK.size * MARK.size]))


def worker_environ(url: str) -> dict[str, str]:
    """The environment of a worker process: this one's, with the server that the benchmark talks to."""
    return {**os.environ, "TOCSIN_URL": url} if url else dict(os.environ)
