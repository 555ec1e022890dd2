"""How late a single job starts on an idle machine."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from benchmarks.server import Server


def run(jobs: int = 60) -> dict[str, object]:
    """A few jobs a second, each alone."""
    with Server() as server:
        command = [sys.executable, "-m", "tocsin", "bench", "steady", "--rate", "2", "--seconds", str(jobs // 2)]
        done = subprocess.run(command, env=server.environ, capture_output=True, text=True, timeout=300, check=True)
    result = json.loads(done.stdout.strip().splitlines()[-1])
    return {"case": "idle", "jobs": result["jobs"], "p50_s": result["p50"], "p99_s": result["p99"]}


def median(values: list[float]) -> float:
    """The median, rounded to milliseconds."""
    return round(statistics.median(values), 3)
