"""A burst: many jobs due at the same second, drained by one worker process; beside a peer in the same run."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
from typing import Protocol

from benchmarks import peers
from benchmarks.creates import fill
from benchmarks.server import Server


class Reached(Protocol):
    """What `tocsin bench` is pointed at."""

    @property
    def environ(self) -> dict[str, str]: ...


def once(server: Reached, jobs: int, *, lead_s: float = 8.0, extra: tuple[str, ...] = ()) -> dict[str, float]:
    """One burst through `tocsin bench burst` against a running server."""
    command = [sys.executable, "-m", "tocsin", "bench", "burst", "--jobs", str(jobs), "--lead", str(lead_s), *extra]
    done = subprocess.run(command, env=server.environ, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def against_peer(jobs: int = 50_000, rounds: int = 3) -> dict[str, object]:
    """Bursts of Tocsin and of graphile-worker in turn; the ratio of each pair."""
    ours, theirs = [], []
    with peers.Graphile() as graphile:
        for _ in range(rounds):
            theirs.append(graphile.burst(jobs))
            with Server() as server:
                ours.append(once(server, jobs))
    ratios = [a["drain_per_s"] / b["drain_per_s"] for a, b in zip(ours, theirs, strict=True)]
    return {
        "case": "burst",
        "jobs": jobs,
        "tocsin": ours,
        "graphile_worker": theirs,
        "drain_per_s": round(statistics.median(a["drain_per_s"] for a in ours)),
        "peer_drain_per_s": round(statistics.median(b["drain_per_s"] for b in theirs)),
        "ratio": round(statistics.median(ratios), 2),
    }


def alone(jobs: int, rounds: int = 3) -> dict[str, object]:
    """Bursts of Tocsin only."""
    results = []
    for _ in range(rounds):
        with Server() as server:
            results.append(once(server, jobs))
    return {"case": "burst", "jobs": jobs, "runs": results, "p99": statistics.median(r["p99"] for r in results)}


def with_waiting(jobs: int = 50_000, waiting: int = 1_000_000, rounds: int = 7) -> dict[str, object]:
    """What a million other waiting jobs cost the burst, in CPU microseconds a job; the two interleaved."""
    empty, full = [], []
    with Server() as crowded, Server() as quiet:
        asyncio.run(fill(crowded.url, waiting, (86_400, 30 * 86_400)))
        for _ in range(rounds):
            empty.append(once(quiet, jobs)["cpu_us_per_job"])
            full.append(once(crowded, jobs)["cpu_us_per_job"])
    ratios = [b / a for a, b in zip(empty, full, strict=True)]
    return {
        "case": "burst beside waiting jobs",
        "waiting": waiting,
        "cpu_us_per_job_empty": statistics.median(empty),
        "cpu_us_per_job": statistics.median(full),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(r, 3) for r in ratios],
    }
