"""A steady load for minutes, so that rechecks, bucket deletes and checkpoints are in it; what grows is reported."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time

from benchmarks.machine import rss_mb
from benchmarks.server import Server


def run(rate: int = 3_000, seconds: int = 480) -> dict[str, object]:
    """`tocsin bench steady` with samples of tables, files and memory every half minute."""
    samples: list[dict[str, float]] = []
    with Server() as server:
        # The worker may hold 1,000 jobs beside the running ones: a claim for each 64 would cost more than the jobs themselves.
        command = [sys.executable, "-m", "tocsin", "bench", "steady", "--rate", str(rate), "--seconds", str(seconds)]
        command += ["--prefetch", "1000"]
        load = subprocess.Popen(command, env=server.environ, stdout=subprocess.PIPE, text=True)
        began = time.monotonic()
        while load.poll() is None:
            time.sleep(1)
            if time.monotonic() - began >= 30 * (len(samples) + 1):
                samples.append(_sample(server, time.monotonic() - began))
        out, _ = load.communicate()
        samples.append(_sample(server, time.monotonic() - began))
    result = json.loads(out.strip().splitlines()[-1])
    half = samples[len(samples) // 2]
    grown = (samples[-1]["file_mb"] - half["file_mb"]) * 1e6
    finished = samples[-1]["finished"] - half["finished"]
    return {
        "case": "steady",
        "rate": rate,
        "seconds": seconds,
        **result,
        "file_bytes_per_finished_job": round(grown / max(finished, 1)),
        "samples": samples,
    }


def _sample(server: Server, at_s: float) -> dict[str, float]:
    path = server.data / "tocsin.db"
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        rows = {
            table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("jobs", "timers", "finished")
        }
    finally:
        db.close()
    wal = path.with_name("tocsin.db-wal")
    return {
        "at_s": round(at_s),
        **rows,
        "file_mb": round(path.stat().st_size / 1e6, 1),
        "wal_mb": round(wal.stat().st_size / 1e6, 1) if wal.exists() else 0.0,
        "rss_mb": round(rss_mb(server.pid)),
    }
