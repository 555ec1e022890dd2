"""How fast jobs are accepted: in batches, in batches with idempotency keys, and one by one over 64 connections."""

from __future__ import annotations

import asyncio
import json
import time

import aiohttp

from benchmarks.server import TOKEN, Server

PAYLOAD = {"text": "x" * 488}
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}


def job(delay_s: float = 86_400.0, queue: str = "bench") -> dict[str, object]:
    """A task job with a payload of 500 bytes, due tomorrow."""
    return {"queue": queue, "target": {"type": "task", "handler": "bench.noop"}, "payload": PAYLOAD, "delay_s": delay_s}


async def fill(
    url: str,
    count: int,
    spread_s: tuple[float, float],
    *,
    batch: int = 1_000,
    parallel: int = 3,
    token: str = TOKEN,
) -> float:
    """Create `count` jobs due evenly between two delays; jobs a second."""
    first, last = spread_s
    began = time.perf_counter()
    async with aiohttp.ClientSession(headers=HEADERS | {"Authorization": f"Bearer {token}"}) as session:

        async def send(start: int) -> None:
            size = min(batch, count - start)
            jobs = [job(first + (last - first) * (start + n) / count) for n in range(size)]
            async with session.post(f"{url}/v1/jobs:batch", data=json.dumps({"jobs": jobs})) as answer:
                body = await answer.json()
                bad = [r for r in body["results"] if "error" in r] if answer.status == 200 else body
                assert not bad, bad

        await _all([lambda s=s: send(s) for s in range(0, count, batch)], parallel)
    return count / (time.perf_counter() - began)


async def batches(url: str, count: int, *, keyed: bool, batch: int = 1_000, parallel: int = 3) -> float:
    """Jobs a second through `POST /v1/jobs:batch`; the bodies are made before the clock starts."""
    run = time.time_ns()
    bodies = []
    for start in range(0, count, batch):
        jobs = [job() for _ in range(batch)]
        if keyed:
            for n, each in enumerate(jobs):
                each["idempotency_key"] = f"{run}-{start + n}"
        bodies.append(json.dumps({"jobs": jobs}).encode())
    async with aiohttp.ClientSession(headers=HEADERS) as session:

        async def send(body: bytes) -> None:
            async with session.post(f"{url}/v1/jobs:batch", data=body) as answer:
                text = await answer.read()
                assert answer.status == 200, text[:300]
                assert b'"error"' not in text, text[:300]

        began = time.perf_counter()
        await _all([lambda b=b: send(b) for b in bodies], parallel)
        return count / (time.perf_counter() - began)


async def singles(url: str, count: int, *, connections: int = 64) -> float:
    """Jobs a second through `POST /v1/jobs`, one request each."""
    body = json.dumps(job()).encode()
    connector = aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(headers=HEADERS, connector=connector) as session:

        async def send() -> None:
            async with session.post(f"{url}/v1/jobs", data=body) as answer:
                await answer.read()
                assert answer.status == 201

        began = time.perf_counter()
        await _all([send] * count, connections)
        return count / (time.perf_counter() - began)


async def _all(calls: list, parallel: int) -> None:
    waiting = iter(calls)

    async def lane() -> None:
        for call in waiting:
            await call()

    await asyncio.gather(*(lane() for _ in range(parallel)))


def run() -> dict[str, object]:
    """All three, each on a server of its own."""
    out: dict[str, object] = {"case": "creates"}
    with Server() as server:
        asyncio.run(batches(server.url, 20_000, keyed=False))
        out["batch_per_s"] = round(asyncio.run(batches(server.url, 200_000, keyed=False)))
    with Server() as server:
        out["batch_keyed_per_s"] = round(asyncio.run(batches(server.url, 200_000, keyed=True)))
    with Server() as server:
        asyncio.run(singles(server.url, 2_000))
        out["single_64_connections_per_s"] = round(asyncio.run(singles(server.url, 30_000)))
    return out
