"""The worker process of the benchmarks of schedules: notes which schedule's occurrence started when.

    python -m benchmarks.schedule_worker FILE QUEUE

For each start it appends the schedule's number, the occurrence's instant and the wall clock, both in milliseconds.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from datetime import datetime

import tocsin

MARK = struct.Struct("<QqQ")


def work(path: str, queue: str) -> None:
    """Take jobs until SIGTERM."""
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    instants: dict[str, int] = {}
    worker = tocsin.Worker(queue, concurrency=64, prefetch=4_000)

    @worker.task("bench.occurrence")
    async def note(payload: dict[str, int], ctx: tocsin.Context) -> None:
        at = ctx.job.run_at
        if at not in instants:
            instants[at] = round(datetime.fromisoformat(at).timestamp() * 1000)
        os.write(file, MARK.pack(payload["n"], instants[at], time.time_ns() // 1_000_000))

    worker.run()


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2])
