"""Schedules: many that fire in the same second of every minute, how fast next runs are computed, and what a million cost at rest."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import aiohttp

from benchmarks.creates import HEADERS, PAYLOAD, _all
from benchmarks.machine import cpu_s, rss_mb
from benchmarks.schedule_worker import MARK
from benchmarks.server import Server
from tocsin.clock import SystemClock, SystemEntropy
from tocsin.config import Settings
from tocsin.model.schedule import Rule, timing_of
from tocsin.model.zones import pinned_zones
from tocsin.roles import build
from tocsin.wire import JobTemplate, ScheduleCreate, TaskTarget

MINUTE_MS = 60_000
QUEUE = "schedules"


def _definition(n: int, cron: str, start_at: int | None) -> dict[str, object]:
    return {
        "name": f"bench {n}",
        "cron": cron,
        "job_template": {
            "queue": QUEUE,
            "target": {"type": "task", "handler": "bench.occurrence"},
            "payload": {**PAYLOAD, "n": n},
        },
        "start_at": None if start_at is None else datetime.fromtimestamp(start_at / 1000, UTC).isoformat(),
    }


async def _create(url: str, count: int, start_at: int) -> float:
    """Create schedules that run every minute from `start_at` on; schedules a second."""
    connector = aiohttp.TCPConnector(limit=64)
    began = time.perf_counter()
    async with aiohttp.ClientSession(headers=HEADERS, connector=connector) as session:

        async def send(n: int) -> None:
            body = json.dumps(_definition(n, "* * * * *", start_at))
            async with session.post(f"{url}/v1/schedules", data=body) as answer:
                text = await answer.read()
                assert answer.status == 201, text[:300]

        await _all([lambda n=n: send(n) for n in range(count)], 64)
    return count / (time.perf_counter() - began)


def every_minute(count: int, minutes: int) -> dict[str, object]:
    """`count` schedules that run every minute, for so many minutes, with one worker process: how late they start."""
    with Server() as server:
        marks = server.data / "starts.bin"
        worker = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.schedule_worker", str(marks), QUEUE], env=server.environ
        )
        try:
            # Creating takes its time: the first minute that counts comes after it (at no less than 400 a second).
            first = (round(time.time() * 1000) // MINUTE_MS + 1 + -(-count // 24_000)) * MINUTE_MS
            created_per_s = asyncio.run(_create(server.url, count, first))
            left_s = first / 1000 - time.time()
            assert left_s > 0, "creating took too long"
            time.sleep(left_s - 0.5)
            cpu_before, worker_before = cpu_s(server.pid), cpu_s(worker.pid)
            time.sleep(minutes * 60 - 1.5)  # up to just before the minute that does not count any more
            cpu_after, worker_after = cpu_s(server.pid), cpu_s(worker.pid)
            time.sleep(1.0)
            memory = rss_mb(server.pid)
            file_mb = (server.data / "tocsin.db").stat().st_size / 1e6
        finally:
            worker.terminate()
            worker.wait(60)
        found = _read(marks, first, first + minutes * MINUTE_MS)
    starts = sum(len(late) for late in found["late"].values())
    wanted = count * minutes
    every = sorted(late for minute in found["late"].values() for late in minute)
    return {
        "case": f"schedules-{count}",
        "schedules": count,
        "minutes": minutes,
        "created_per_s": round(created_per_s),
        "occurrences": wanted,
        "started": starts,
        "missing": wanted - len(found["seen"]),
        "duplicates": starts - len(found["seen"]),
        "p50_s": _at(every, 0.50),
        "p99_s": _at(every, 0.99),
        "max_s": _at(every, 1.0),
        "p99_s_by_minute": [_at(sorted(late), 0.99) for _, late in sorted(found["late"].items())],
        "cpu_us_per_occurrence": round((cpu_after - cpu_before + worker_after - worker_before) / wanted * 1e6, 1),
        "rss_mb": round(memory),
        "file_mb": round(file_mb),
    }


def _read(path: Path, first: int, end: int) -> dict[str, dict]:
    late: dict[int, list[float]] = {}
    seen: set[tuple[int, int]] = set()
    for n, at, started in MARK.iter_unpack(path.read_bytes()):
        if first <= at < end:
            late.setdefault(at, []).append((started - at) / 1000)
            seen.add((n, at))
    return {"late": late, "seen": dict.fromkeys(seen)}


def _at(ordered: list[float], part: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * part))], 3) if ordered else None


EXPRESSIONS = (
    "* * * * *",
    "*/15 * * * *",
    "0 2 * * *",
    "30 9 * * 1-5",
    "0 0 1 * *",
    "17 3 13 * 5",
    "0 0 29 2 *",
    "5 4 * * sun",
)
ZONES = (
    "UTC",
    "Asia/Kolkata",
    "America/New_York",
    "Europe/London",
    "Australia/Lord_Howe",
    "America/Havana",
    "Africa/Casablanca",
)


def compute(calls: int = 300_000) -> dict[str, object]:
    """Next runs a second, one after another for each of many expressions and zones, and the worst single call."""
    zones = pinned_zones()
    timings = [timing_of(Rule(cron=text, time_zone=zone), zones) for text in EXPRESSIONS for zone in ZONES]
    now = 1_796_083_200_000
    places = [now] * len(timings)
    worst, done, began = 0, 0, time.perf_counter_ns()
    while done < calls:
        for at, timing in enumerate(timings):
            before = time.perf_counter_ns()
            run = timing.next(places[at])
            worst = max(worst, time.perf_counter_ns() - before)
            places[at] = now if run is None or run.at > now + 80 * 365 * 86_400_000 else run.at
        done += len(timings)
    took_s = (time.perf_counter_ns() - began) / 1e9
    return {
        "case": "schedules-next",
        "calls": done,
        "next_per_s": round(done / took_s),
        "worst_call_ms": round(worst / 1e6, 3),
        "expressions": len(EXPRESSIONS),
        "zones": len(ZONES),
    }


def at_rest(count: int = 1_000_000, seconds: int = 300) -> dict[str, object]:
    """What so many schedules cost that have nothing to do for months: the server's CPU once it has seen them all."""
    with Server() as server:
        server.stop()
        asyncio.run(_fill(server.data, count))
        server.start()
        started_s = server.started_s
        # The first look at all of them is a part of the start, not of the rest.
        before = cpu_s(server.pid)
        first_look_s = 0.0
        while (spent := cpu_s(server.pid)) - before > 0.5 or first_look_s < 30:
            before = spent
            time.sleep(10)
            first_look_s += 10
        before, began = cpu_s(server.pid), time.monotonic()
        time.sleep(seconds)
        used = (cpu_s(server.pid) - before) / (time.monotonic() - began)
        memory = rss_mb(server.pid)
    return {
        "case": "schedules-at-rest",
        "schedules": count,
        "start_s": round(started_s, 2),
        "first_look_s": first_look_s,
        "seconds": seconds,
        "cores": round(used, 4),
        "rss_mb": round(memory),
    }


async def _fill(data: Path, count: int) -> None:
    """Define schedules without a server between: straight through the flow."""
    process = await build(Settings(data=data), SystemClock(), SystemEntropy())
    try:
        for start in range(0, count, 1_000):
            await asyncio.gather(
                *(
                    process.desk.define.create(
                        "dev",
                        ScheduleCreate(
                            name=f"bench {n}",
                            cron=f"{n % 60} {n % 24} 1 {(datetime.now(UTC).month + 5) % 12 + 1} *",
                            job_template=JobTemplate(queue=QUEUE, target=TaskTarget(handler="bench.occurrence")),
                        ),
                    )
                    for n in range(start, min(start + 1_000, count))
                )
            )
    finally:
        await process.stop()
