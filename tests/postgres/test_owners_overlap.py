"""Two nodes that own the same partition for a moment, each with its own connections, on one real PostgreSQL.

The overlap is forced: a third session holds a row until both wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import asyncpg
import pytest

from tests.life.fleetworld import NODES, FleetWorld, Member
from tests.life.serverworld import PostgresFleet
from tests.postgres.waiting import locked_out
from tests.servers.postgres import PostgresServer
from tocsin.store.port import FAR, FIRE, WATCH
from tocsin.wire import Status


@pytest.fixture
async def dsn(postgres: PostgresServer) -> AsyncIterator[str]:
    async with postgres.database(2) as (address,):
        yield address


@pytest.fixture
async def fleet(dsn: str) -> AsyncIterator[FleetWorld]:
    """Node 0 owns everything."""
    world = PostgresFleet(dsn, partitions=2, drift_ms=0)
    await world.start()
    for partition in range(2):
        world.give(partition, 0)
    await world.settle()
    yield world
    for member in world.members:
        await member.store.close()


@pytest.fixture
async def third(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A session that holds rows."""
    conn = await asyncpg.connect(dsn)
    yield conn
    await conn.close()


async def overlapping(fleet: FleetWorld, third: asyncpg.Connection, hold: str, value: object, stage: str) -> list[Any]:
    """Node 0 makes a pass that stops at a row; node 1 takes over and makes the same one; both go on."""
    old, new = fleet.members[:NODES]

    async def takes_over() -> Any:
        for partition in range(2):
            fleet.give(partition, 1, also=True)
        while (await new.custody.step()).more:
            pass
        return await passes(new, stage)

    async with third.transaction():
        await third.execute(hold, value)
        asked: list[Awaitable[Any]] = [asyncio.create_task(passes(old, stage))]
        await locked_out(third, 1)
        asked.append(asyncio.create_task(takes_over()))
        await locked_out(third, 2)
    return list(await asyncio.gather(*asked))


async def passes(member: Member, stage: str) -> None:
    while (await getattr(member, stage).step()).more:
        pass


async def test_a_batch_that_two_owners_fire_is_fired_once_and_pushed(
    fleet: FleetWorld, third: asyncpg.Connection
) -> None:
    ids = [await fleet.create(delay_s=5) for _ in range(6)]
    fleet.clock.advance(5)
    hold = "SELECT FROM jobs WHERE id = $1 FOR UPDATE"
    await overlapping(fleet, third, hold, ids[3], "dispatch")
    jobs = [await fleet.job(job_id) for job_id in ids]
    assert {(job.status, job.version) for job in jobs} == {(Status.QUEUED, 1)}
    assert sorted(job.job_id for job in await fleet.claim(10)) == sorted(ids)
    assert await fleet.claim(10) == []


async def test_a_page_that_two_owners_recheck_leaves_each_job_its_timer(
    fleet: FleetWorld, third: asyncpg.Connection
) -> None:
    ids = [await fleet.create() for _ in range(6)]
    running = await fleet.claim(2)
    fleet.clock.advance(125)
    hold = "SELECT FROM timers WHERE job = $1 FOR UPDATE"
    await overlapping(fleet, third, hold, ids[3], "recheck")
    found = []
    for partition in range(2):
        for kind in (FIRE, WATCH):
            page = await fleet.on.store.jobs.read_timers(partition, kind, FAR, None, 99)
            found += [(timer.job_id, timer.kind) for timer in page.timers]
    assert sorted(found) == sorted((job_id, WATCH) for job_id in ids)
    rest = await fleet.claim(10)
    assert sorted(job.job_id for job in (*running, *rest)) == sorted(ids)


async def test_an_attempt_that_two_owners_rescue_is_lost_once(fleet: FleetWorld, third: asyncpg.Connection) -> None:
    job_id = await fleet.create()
    await fleet.claim(1, lease_s=5)
    for _ in range(10):
        fleet.clock.advance(1)
        for member in fleet.members:
            await member.pulse.step()
    hold = "SELECT FROM jobs WHERE id = $1 FOR UPDATE"
    await overlapping(fleet, third, hold, job_id, "rescue")
    assert await fleet.attempts(job_id) == [(1, "lost")]
    job = await fleet.job(job_id)
    assert (job.status, job.version, job.attempt, job.losses) == (Status.RETRYING, 2, 1, 1)
