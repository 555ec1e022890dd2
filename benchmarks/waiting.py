"""What waits: start-up with a million waiting jobs, and the memory of a million due within five minutes."""

from __future__ import annotations

import asyncio

from benchmarks.creates import fill
from benchmarks.machine import rss_mb
from benchmarks.server import Server


def run(count: int = 1_000_000) -> dict[str, object]:
    """Fill, kill, start again; once spread over a month, once all due within five minutes."""
    out: dict[str, object] = {"case": "start-up", "waiting": count}
    with Server() as server:
        asyncio.run(fill(server.url, count, (60, 30 * 86_400)))
        server.stop()
        out["month_s"] = round(server.start().started_s, 2)
        out["month_rss_mb"] = round(rss_mb(server.pid))
    with Server() as server:
        # Due between three and eight minutes from the first create on: the last ones are within five minutes at the start.
        asyncio.run(fill(server.url, count, (180, 300)))
        out["near_rss_mb_before"] = round(rss_mb(server.pid))
        server.stop()
        out["near_s"] = round(server.start().started_s, 2)
        out["near_rss_mb"] = round(rss_mb(server.pid))
    return out
