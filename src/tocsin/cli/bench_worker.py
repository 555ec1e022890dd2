"""The worker process of `tocsin bench`: an ordinary SDK worker whose handler notes when it started.

    python -m tocsin.cli.bench_worker FOLDER QUEUE CONCURRENCY PREFETCH

In FOLDER it writes, named by its process: `.ready` when it begins to take jobs, `.starts` (for each start the job's number
and the time in ms) and `.done` (for each accepted report of many jobs their count and the time). They are appended with
one write each, so what a killed worker leaves is whole.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

from tocsin.clock import Clock, SystemClock
from tocsin.errors import Retry
from tocsin.sdk.context import Context
from tocsin.sdk.http import HttpTransport
from tocsin.sdk.transport import DEFAULT_TIMEOUT_S, Answer, Transport
from tocsin.sdk.worker import Worker

HANDLER = "bench.note"
# The number of a job and the wall clock in milliseconds; how many were completed and the wall clock.
MARK = struct.Struct("<Qq")
FLAGS = os.O_CREAT | os.O_WRONLY | os.O_APPEND


class Noting:
    """A transport that notes how many reports each answer accepted."""

    def __init__(self, inner: Transport, descriptor: int, clock: Clock) -> None:
        self._inner, self._descriptor, self._clock = inner, descriptor, clock

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Answer:
        answer = await self._inner.request(method, path, query=query, body=body, headers=headers, timeout_s=timeout_s)
        if path == "/v1/attempts:complete":
            done = answer.body.count(b'"SUCCEEDED"')
            if done:
                os.write(self._descriptor, MARK.pack(done, self._clock.now_ms()))
        return answer

    def fresh(self) -> Transport | None:
        return self._inner.fresh()

    async def close(self) -> None:
        await self._inner.close()


def work(folder: Path, queue: str, concurrency: int, prefetch: int) -> None:
    """Take jobs of `queue` until SIGTERM."""
    clock = SystemClock()
    own = str(folder / str(os.getpid()))
    starts, done = os.open(own + ".starts", FLAGS, 0o600), os.open(own + ".done", FLAGS, 0o600)
    write, pack, now_ms = os.write, MARK.pack, clock.now_ms
    transport = Noting(HttpTransport(), done, clock)
    worker = Worker(queue, concurrency=concurrency, prefetch=prefetch, transport=transport, clock=clock)

    @worker.task(HANDLER)
    async def note(payload: dict[str, int], ctx: Context) -> None:
        write(starts, pack(payload["n"], now_ms()))
        if payload.get("fail") and ctx.attempt == 1:
            raise Retry("the benchmark wants its first attempt to fail", after=0)

    os.close(os.open(own + ".ready", FLAGS, 0o600))
    worker.run()


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
