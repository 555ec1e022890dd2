"""Waiting for what another process does, with a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

T = TypeVar("T")

EVERY_S = 0.01


async def until(look: Callable[[], Awaitable[T]], what: str, within_s: float = 20.0) -> T:
    """What `look` finds, as soon as it finds something."""
    try:
        async with asyncio.timeout(within_s):
            while True:
                if found := await look():
                    return found
                await asyncio.sleep(EVERY_S)
    except TimeoutError:
        raise AssertionError(f"waited {within_s:g} s in vain for {what}") from None


async def locked_out(conn: asyncpg.Connection, count: int) -> None:
    """Wait until so many sessions of the server wait for a lock. (Inside a transaction pg_stat_activity shows only what was.)"""

    async def look() -> bool:
        return bool(await conn.fetchval("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted") == count)

    await until(look, f"{count} sessions that wait for a lock", within_s=3.0)
