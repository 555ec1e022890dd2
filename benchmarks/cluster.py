"""The cluster shape: bursts beside the peer, what one node fires, a steady load, bursts beside waiting jobs, and the soak.

All servers and processes are on this machine. CPU per job is that of everything: PostgreSQL, Valkey, API, node and worker.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime

from benchmarks import peers
from benchmarks.burst import once
from benchmarks.creates import fill
from benchmarks.fleet import Fleet
from benchmarks.machine import rss_mb
from benchmarks.server import free_port


def burst(jobs: int = 50_000, rounds: int = 3) -> dict[str, object]:
    """Bursts of the fleet and of graphile-worker in turn; the ratio of each pair."""
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    cpu: list[float] = []
    with peers.Graphile() as graphile:
        for _ in range(rounds):
            theirs.append(graphile.burst(jobs))
            with Fleet() as fleet:
                once(
                    fleet, 2_000
                )  # connections, statements and programs are there from then on, as in any running fleet
                before_s = fleet.cpu_s()
                ours.append(once(fleet, jobs, lead_s=jobs / 4_000 + 4))
                cpu.append(round((fleet.cpu_s() - before_s) / jobs * 1e6, 1))
    ratios = [a["drain_per_s"] / b["drain_per_s"] for a, b in zip(ours, theirs, strict=True)]
    return {
        "case": "fleet burst",
        "jobs": jobs,
        "tocsin": ours,
        "graphile_worker": theirs,
        "drain_per_s": round(statistics.median(a["drain_per_s"] for a in ours)),
        "peer_drain_per_s": round(statistics.median(b["drain_per_s"] for b in theirs)),
        "ratio": round(statistics.median(ratios), 2),
        "cpu_us_per_job_without_worker": cpu,
    }


def fires(jobs: int = 50_000, rounds: int = 3) -> dict[str, object]:
    """What one node fires a second when nobody claims: from the second at which all are due until the last is in its line."""
    rates = []
    for _ in range(rounds):
        metrics = free_port()
        with Fleet() as fleet:
            node = fleet.start("node", env={"TOCSIN_METRICS_PORT": str(metrics)}, name="measured")
            fleet.stop("node")
            fleet.wait_for_owners({"measured"})
            due = time.time() + jobs / 4_000 + 6
            at = datetime.fromtimestamp(int(due), UTC).isoformat()
            asyncio.run(_create(fleet, jobs, at))
            assert time.time() < int(due), "creating took longer than the lead"
            while time.time() < int(due):
                time.sleep(0.01)
            seen = [(float(int(due)), _fired(metrics))]
            while seen[-1][1] < jobs and time.time() < due + 60:
                time.sleep(0.02)
                seen.append((time.time(), _fired(metrics)))
            rates.append(round(jobs / (seen[-1][0] - int(due))))
            assert node.poll() is None, "the node has ended"
    return {"case": "fleet fires", "jobs": jobs, "fires_per_s": statistics.median(rates), "runs": rates}


def steady(rate: int = 2_000, seconds: int = 480) -> dict[str, object]:
    """So many jobs a second; samples of tables, memory and Redis every half minute."""
    with Fleet() as fleet:
        once(fleet, 2_000)
        return {"case": "fleet steady", "rate": rate, "seconds": seconds, **_flow(fleet, rate, seconds)}


def soak(rate: int = 2_000, seconds: int = 1_800) -> dict[str, object]:
    """The same for half an hour and across the change of the day (UTC): begun so that midnight falls into its middle."""
    now = datetime.now(UTC)
    to_midnight_s = 86_400 - (now.hour * 3_600 + now.minute * 60 + now.second)
    wait_s = max(to_midnight_s - seconds / 2, 0)
    print(
        f"… midnight (UTC) is {to_midnight_s / 3_600:.1f} h away; waiting {wait_s / 3_600:.1f} h",
        file=sys.stderr,
        flush=True,
    )
    time.sleep(wait_s)
    return {**steady(rate, seconds), "case": "fleet soak", "crossed_midnight": datetime.now(UTC).date() != now.date()}


def with_waiting(jobs: int = 50_000, waiting: int = 5_000_000, rounds: int = 7) -> dict[str, object]:
    """What so many other waiting jobs cost a burst, in CPU microseconds a job of everything; the two interleaved."""
    empty: list[float] = []
    full: list[float] = []
    with Fleet() as crowded, Fleet() as quiet:
        asyncio.run(fill(crowded.url, waiting, (86_400, 30 * 86_400), token=crowded.token))
        for fleet in (crowded, quiet):
            once(fleet, 2_000)
        for _ in range(rounds):
            for fleet, kept in ((quiet, empty), (crowded, full)):
                before_s = fleet.cpu_s()
                once(fleet, jobs, lead_s=jobs / 4_000 + 4)
                kept.append((fleet.cpu_s() - before_s) / jobs * 1e6)
    ratios = [b / a for a, b in zip(empty, full, strict=True)]
    return {
        "case": "fleet burst beside waiting jobs",
        "waiting": waiting,
        "cpu_us_per_job_empty": round(statistics.median(empty), 1),
        "cpu_us_per_job": round(statistics.median(full), 1),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(r, 3) for r in ratios],
    }


def _flow(fleet: Fleet, rate: int, seconds: int) -> dict[str, object]:
    samples: list[dict[str, float]] = []
    command = [sys.executable, "-m", "tocsin", "bench", "steady", "--rate", str(rate), "--seconds", str(seconds)]
    command += ["--prefetch", "1000"]
    load = subprocess.Popen(command, env=fleet.environ, stdout=subprocess.PIPE, text=True)
    began = time.monotonic()
    while load.poll() is None:
        time.sleep(1)
        if time.monotonic() - began >= 30 * (len(samples) + 1):
            samples.append(_sample(fleet, time.monotonic() - began))
    out, _ = load.communicate()
    samples.append(_sample(fleet, time.monotonic() - began))
    return {**json.loads(out.strip().splitlines()[-1]), "samples": samples}


def _sample(fleet: Fleet, at_s: float) -> dict[str, float]:
    import asyncpg

    async def look() -> dict[str, float]:
        conn = await asyncpg.connect(fleet.settings["TOCSIN_STORE"])
        try:
            rows = {table: await conn.fetchval(f"SELECT count(*) FROM {table}") for table in ("jobs", "timers")}
            sizes = await conn.fetch(
                "SELECT relname, pg_total_relation_size(oid) AS size FROM pg_class WHERE relname IN ('jobs', 'timers')"
            )
            return {**rows, **{f"{row['relname']}_mb": round(row["size"] / 1e6, 1) for row in sizes}}
        finally:
            await conn.close()

    assert fleet.valkey.process is not None
    memory = {f"{name}_rss_mb": round(rss_mb(process.pid)) for name, process in fleet.named.items()}
    return {
        "at_s": round(at_s),
        **asyncio.run(look()),
        **memory,
        "valkey_rss_mb": round(rss_mb(fleet.valkey.process.pid)),
    }


def _fired(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith('tocsin_jobs_total{event="fired"}'):
                return int(float(line.rsplit(" ", 1)[1]))
    return 0


async def _create(fleet: Fleet, jobs: int, at: str) -> None:
    import tocsin

    async with tocsin.AsyncClient(fleet.url, fleet.token) as client:
        for start in range(0, jobs, 1_000):
            batch = [
                {"queue": "nobody", "handler": "nothing", "payload": {"n": n, "pad": "x" * 480}, "run_at": at}
                for n in range(start, start + 1_000)
            ]
            await client.jobs.create_batch(batch)  # type: ignore[arg-type]
