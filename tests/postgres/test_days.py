"""The tables of days: made ahead, made on the spot, dropped whole."""

from typing import Any

import asyncpg
import pytest

from tests.conformance.yard import Yard
from tests.postgres.sessions import session
from tocsin.clock import ManualClock
from tocsin.store.port import Success
from tocsin.store.postgres import PostgresStore
from tocsin.store.postgres.days import DAY_MS

DAY_S = 86_400


@pytest.fixture
def yard(store: PostgresStore, clock: ManualClock) -> Yard:
    return Yard(store, clock)


async def days(store: PostgresStore, parent: str = "finished") -> list[int]:
    found = await store.databases.home.days.found()
    return [table.day for table in found if table.parent == parent and table.attached]


async def finish(yard: Yard, **wanted: Any) -> str:
    (job,) = await yard.running(**wanted)
    assert await yard.jobs.succeed([Success(job_id=job.job_id, attempt=1)]) == [True]
    return job.job_id


async def test_a_finish_on_a_day_without_a_table_makes_it(store: PostgresStore, yard: Yard) -> None:
    yard.clock.advance(90 * DAY_S)
    today = yard.now // DAY_MS
    assert today not in await days(store)
    job_id = await finish(yard)
    assert (await yard.state(job_id)).finished_at == yard.now
    assert today in await days(store)


async def test_a_job_is_found_whatever_day_it_finished_on(yard: Yard) -> None:
    late = await yard.running(1)
    yard.clock.advance(50 * DAY_S)
    await yard.jobs.succeed([Success(job_id=late[0].job_id, attempt=1)])
    early = await yard.running(1)
    yard.clock.step_wall(-45 * DAY_S)
    await yard.jobs.succeed([Success(job_id=early[0].job_id, attempt=1)])
    ids = [early[0].job_id, late[0].job_id]
    assert [job and job.job_id for job in await yard.jobs.states(ids)] == ids


async def test_a_table_that_somebody_else_has_dropped_is_made_again(dsn: str, store: PostgresStore, yard: Yard) -> None:
    yard.clock.advance(91 * DAY_S)
    await finish(yard)
    async with session(dsn) as third:
        for table in await store.databases.home.days.found():
            if table.day == yard.now // DAY_MS:
                await third.execute(f"DROP TABLE {table.name}")
    await finish(yard)
    await yard.retrying()


async def test_upkeep_makes_seven_days_ahead(store: PostgresStore, yard: Yard) -> None:
    yard.clock.advance(200 * DAY_S)
    await yard.jobs.archive(yard.now - 30 * DAY_MS, 10)
    today = yard.now // DAY_MS
    for parent in ("finished", "attempts"):
        assert set(range(today, today + 8)) <= set(await days(store, parent))


async def test_a_day_that_is_over_is_dropped_whole(store: PostgresStore, yard: Yard) -> None:
    yard.clock.advance(300 * DAY_S)
    day = yard.now // DAY_MS
    old = [await finish(yard, schedule_id=f"sch_{number}") for number in range(3)]
    yard.clock.advance(2 * DAY_S)
    fresh = await finish(yard)
    assert await yard.jobs.archive(yard.now - DAY_MS, 100) == 3
    assert await yard.jobs.states([*old, fresh]) == [None, None, None, await yard.state(fresh)]
    assert day not in await days(store)
    assert await store.databases.home.bulk.fetch("SELECT * FROM occurrences") == []
    assert await yard.jobs.archive(yard.now - DAY_MS, 100) == 0


async def test_a_detach_that_was_cut_off_is_ended(dsn: str, store: PostgresStore, yard: Yard) -> None:
    yard.clock.advance(400 * DAY_S)
    await finish(yard)
    day = yard.now // DAY_MS
    (name,) = [table.name for table in await store.databases.home.days.found() if table.day == day][1:]
    async with session(dsn) as third, session(dsn) as reader, reader.transaction():
        await reader.fetch("SELECT count(*) FROM finished")
        await third.execute("SET lock_timeout = '30ms'")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await third.execute(f"ALTER TABLE finished DETACH PARTITION {name} CONCURRENTLY")
    yard.clock.advance(3 * DAY_S)
    await yard.jobs.archive(yard.now - DAY_MS, 100)
    assert name not in [table.name for table in await store.databases.home.days.found()]


async def test_a_day_that_no_calendar_has_is_refused_for_its_job_alone(store: PostgresStore) -> None:
    with pytest.raises(ValueError, match="between 1970 and 9999"):
        await store.databases.home.days.need([2**62])
