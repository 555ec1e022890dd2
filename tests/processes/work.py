"""Handlers for worker processes, as `tocsin worker tests.processes.work:worker` runs them; each writes into the journal."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import tocsin
from tests.processes import journal

worker = tocsin.Worker(
    "default", grace_s=float(os.environ.get("GRACE_S", "25")), wait_s=float(os.environ.get("WAIT_S", "2"))
)


def note(what: str, payload: Any, ctx: tocsin.Context) -> None:
    journal.write(
        {
            "what": what,
            "job_id": ctx.job.job_id,
            "attempt": ctx.attempt,
            "key": ctx.idempotency_key,
            "payload": payload,
            "pid": os.getpid(),
        }
    )


@worker.task("note")
async def do_note(payload: Any, ctx: tocsin.Context) -> None:
    note("begin", payload, ctx)


@worker.task("hold")
async def hold(payload: Any, ctx: tocsin.Context) -> dict[str, int]:
    """Goes on until the file `payload["until"]` is there; the result says who did it."""
    note("begin", payload, ctx)
    while not Path(payload["until"]).exists():  # noqa: ASYNC110, ASYNC240 - it comes from another process
        await asyncio.sleep(0.02)
    note("end", payload, ctx)
    return {"attempt": ctx.attempt}


@worker.task("brief")
async def brief(payload: Any, ctx: tocsin.Context) -> None:
    note("begin", payload, ctx)
    await asyncio.sleep(payload["s"])
    note("end", payload, ctx)


def spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(10_000))


@worker.task("burn")
async def burn(payload: Any, ctx: tocsin.Context) -> None:
    """Never gives way to the event loop."""
    note("begin", payload, ctx)
    spin(payload["s"])


@worker.task("burn-in-thread")
def burn_in_thread(payload: Any, ctx: tocsin.Context) -> None:
    note("begin", payload, ctx)
    spin(payload["s"])


@worker.task("poison")
async def poison(payload: Any, ctx: tocsin.Context) -> None:
    note("begin", payload, ctx)
    os.kill(os.getpid(), signal.SIGKILL)


def tell_readiness() -> None:
    """Print whether the worker is connected, whenever that changes: what a readiness probe would see."""
    seen, never = None, threading.Event()
    while True:
        now = worker.connected
        if now is not seen:
            print("ready" if now else "not ready", flush=True)
            seen = now
        never.wait(0.02)


if os.environ.get("READINESS"):
    threading.Thread(target=tell_readiness, daemon=True).start()
