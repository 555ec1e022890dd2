"""Two processes move the same schedules at the same time: each move is whole or nothing, and one of two wins.

The races are forced: a third session holds a row until both wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import asyncpg
import pytest
from msgspec import structs

from tests.conformance.yard import PARTITIONS, Yard, fired, skip, step
from tests.postgres.waiting import locked_out
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.store.numbers import number_of
from tocsin.store.port import FIRE, Change
from tocsin.store.postgres import PostgresStore, open_store
from tocsin.store.schedules import Move, Moved, ScheduleRow
from tocsin.wire import Status

MINUTE_MS = 60_000


@pytest.fixture
def yard(store: PostgresStore, clock: ManualClock) -> Yard:
    """The one process."""
    return Yard(store, clock)


@pytest.fixture
async def other(dsn: str, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    """The other process."""
    opened = await open_store(dsn, clock, partitions=PARTITIONS, entropy=SeededEntropy(2))
    yield opened
    await opened.close()


@pytest.fixture
async def third(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A session that holds rows."""
    conn = await asyncpg.connect(dsn)
    yield conn
    await conn.close()


async def at_once(
    third: asyncpg.Connection, hold: str, value: object, *moves: tuple[Yard | PostgresStore, Move]
) -> list[Moved]:
    """Let each of the stores begin its move while `hold` keeps a row from them, then let them go."""
    async with third.transaction():
        await third.execute(hold, value)
        asked = []
        for count, (store, one) in enumerate(moves, start=1):
            asked.append(asyncio.create_task(store.schedules.move([one])))
            await locked_out(third, count)
    return [moved for (moved,) in await asyncio.gather(*asked)]


HOLD = "SELECT FROM schedules WHERE number = $1 FOR UPDATE"
HOLD_JOB = "SELECT FROM jobs WHERE id = $1 FOR UPDATE"


async def test_of_two_that_fire_one_occurrence_one_wins_and_nothing_of_the_other_is_written(
    yard: Yard, other: PostgresStore, third: asyncpg.Connection
) -> None:
    row, job = await yard.begun()
    nexts = [yard.occurrence(row, MINUTE_MS), yard.occurrence(row, 2 * MINUTE_MS)]
    moves = [
        structs.replace(fired(row, job, following, state=f"{at}"), skips=(skip(row, at),))
        for at, following in enumerate(nexts)
    ]
    answers = await at_once(third, HOLD, number_of(row.schedule_id), (yard, moves[0]), (other, moves[1]))
    assert sorted(moved.value for moved in answers) == ["lost", "won"]
    won = answers.index(Moved.WON)
    assert await yard.row(row.schedule_id) == moves[won].after
    assert await yard.status(job.job_id) is Status.QUEUED
    assert [state is not None for state in await yard.jobs.states([one.job_id for one in nexts])] == [
        won == 0,
        won == 1,
    ]
    assert {timer.job_id for timer in await yard.timers(FIRE)} == {job.job_id, nexts[won].job_id}
    assert [one.first for one in await yard.schedules.skips(row.schedule_id, None, 9)] == [won]


async def test_of_two_that_take_one_name_one_makes_its_schedule(
    yard: Yard, other: PostgresStore, third: asyncpg.Connection
) -> None:
    held, _ = await yard.begun("held")
    rows = [yard.schedule("same"), yard.schedule("same")]
    jobs = [yard.occurrence(row) for row in rows]
    moves = [
        Move(schedule_id=row.schedule_id, serial=0, after=row, jobs=(job,)) for row, job in zip(rows, jobs, strict=True)
    ]
    take = "UPDATE schedules SET name = 'same' WHERE number = $1"
    transaction = third.transaction()
    await transaction.start()
    await third.execute(take, number_of(held.schedule_id))
    asked = [
        asyncio.create_task(yard.schedules.move([moves[0]])),
        asyncio.create_task(other.schedules.move([moves[1]])),
    ]
    await locked_out(third, 2)
    await transaction.rollback()
    answers = [moved for (moved,) in await asyncio.gather(*asked)]
    assert sorted(moved.value for moved in answers) == ["lost", "won"]
    won = answers.index(Moved.WON)
    assert await yard.schedules.named("acme", ["same"]) == [rows[won]]
    assert [state is not None for state in await yard.jobs.states([one.job_id for one in jobs])] == [won == 0, won == 1]
    assert await third.fetchval("SELECT count(*) FROM specs") == 2


@pytest.mark.parametrize("deletes_first", [True, False])
async def test_a_deletion_and_a_fire_are_one_after_the_other(
    yard: Yard, other: PostgresStore, third: asyncpg.Connection, deletes_first: bool
) -> None:
    row, job = await yard.begun()
    following = yard.occurrence(row, MINUTE_MS)
    moves = [
        (yard, Move(schedule_id=row.schedule_id, serial=1, after=None)),
        (other, fired(row, job, following)),
    ]
    answers = await at_once(third, HOLD, number_of(row.schedule_id), *(moves if deletes_first else reversed(moves)))
    assert sorted(moved.value for moved in answers) == ["lost", "won"]
    deleted = answers.index(Moved.WON) == (0 if deletes_first else 1)
    assert (await yard.schedules.get([row.schedule_id]) == [None]) == deleted
    assert await yard.jobs.states([following.job_id]) == [None] or not deleted
    assert await yard.status(job.job_id) is (Status.SCHEDULED if deleted else Status.QUEUED)


async def test_a_job_that_changes_while_its_move_waits_makes_the_move_stale(
    yard: Yard, other: PostgresStore, third: asyncpg.Connection
) -> None:
    row, job = await yard.begun()
    following = yard.occurrence(row, MINUTE_MS)
    before = await yard.state(job.job_id)
    cancel = Change(before=before, after=replace(before, status=Status.CANCELLED, finished_at=yard.now))
    async with third.transaction():
        await third.execute(HOLD_JOB, job.job_id)
        cancelling = asyncio.create_task(other.jobs.change([cancel]))
        await locked_out(third, 1)
        moving = asyncio.create_task(yard.schedules.move([fired(row, job, following)]))
        await locked_out(third, 2)
    assert (await cancelling, await moving) == ([True], [Moved.STALE])
    assert await yard.row(row.schedule_id) == row
    assert await yard.jobs.states([following.job_id]) == [None]


@pytest.mark.parametrize("deletes_first", [True, False])
async def test_no_skip_outlives_its_schedule(
    yard: Yard, other: PostgresStore, third: asyncpg.Connection, deletes_first: bool
) -> None:
    row, _ = await yard.begun()
    kept, _ = await yard.begun("kept")
    delete = Move(schedule_id=row.schedule_id, serial=1, after=None)
    begin = [lambda: yard.schedules.move([delete]), lambda: other.schedules.add_skips([skip(row, 1), skip(kept, 1)])]
    async with third.transaction():
        await third.execute(HOLD, number_of(row.schedule_id))
        asked = []
        for count, one in enumerate(begin if deletes_first else begin[::-1], start=1):
            asked.append(asyncio.create_task(one()))
            await locked_out(third, count)
    await asyncio.gather(*asked)
    assert [one["schedule"] for one in await third.fetch("SELECT schedule FROM skips")] == [number_of(kept.schedule_id)]


async def test_an_occurrence_that_expires_while_its_schedule_is_deleted_leaves_no_skip(
    yard: Yard, other: PostgresStore, third: asyncpg.Connection
) -> None:
    row = yard.schedule()
    job = yard.occurrence(row, expires_in_ms=1_000, queued=True)
    await yard.move(Move(schedule_id=row.schedule_id, serial=0, after=row, jobs=(job,)))
    yard.clock.advance(2)
    async with third.transaction():
        await third.execute("DELETE FROM schedules WHERE number = $1", number_of(row.schedule_id))
        claiming = asyncio.create_task(other.jobs.claim([job.job_id], "w", 30_000))
        await locked_out(third, 1)
    assert await claiming == [None]
    assert await yard.status(job.job_id) is Status.SKIPPED
    assert await third.fetchval("SELECT count(*) FROM skips") == 0


async def test_batches_that_share_schedules_in_opposite_order_end_each_move_once(
    yard: Yard, other: PostgresStore
) -> None:
    begun = [await yard.begun(f"s{number}") for number in range(40)]
    moves = [fired(row, job, yard.occurrence(row, MINUTE_MS)) for row, job in begun]
    here, there = await asyncio.gather(yard.schedules.move(moves), other.schedules.move(moves[::-1]))
    for one, another in zip(here, there[::-1], strict=True):
        assert {one, another} == {Moved.WON, Moved.LOST}
    rows: list[ScheduleRow | None] = await yard.schedules.get([row.schedule_id for row, _ in begun])
    assert rows == [step(row) for row, _ in begun]
    assert {one.job_id for one in await yard.dues()} == {move.jobs[0].job_id for move in moves}
