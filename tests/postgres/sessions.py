"""Another session in the same database, to hold what a test wants to be held, and waiting for others to run into it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

WITHIN_S = 20.0


@asynccontextmanager
async def session(dsn: str) -> AsyncIterator[Any]:
    """A connection of the test's own."""
    conn = await asyncpg.connect(dsn)
    try:
        yield conn
    finally:
        await conn.close()


async def until_waiting(conn: Any, count: int) -> None:
    """Wait until so many sessions of the server wait for a lock."""
    until = time.monotonic() + WITHIN_S
    while time.monotonic() < until:
        if await conn.fetchval("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted") >= count:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"not {count} sessions came to wait for a lock within {WITHIN_S:g} s")
