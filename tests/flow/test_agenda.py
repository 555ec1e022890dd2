"""What is remembered of schedules, and what decisions about them depend on."""

from datetime import UTC, datetime

import pytest

from tests.flow.recurring import TENANT, change, define, jobs_of, row_of
from tocsin import wire
from tocsin.flow.agenda import Agenda
from tocsin.model.schedule import decode_state
from tocsin.wire import Status


@pytest.fixture
async def agenda_of(any_world):
    def make(**bounds):
        on = any_world.on
        return Agenda(on.store.schedules, on.quotas, on.tally, any_world.zones, any_world.clock, **bounds)

    return any_world, make


async def test_no_more_is_remembered_than_fits(agenda_of):
    world, make = agenda_of
    entries = [
        world.on.agenda.entry(
            await row_of(world, await define(world, name, cron="* * * * *", template={"payload": 100 * "x"}))
        )
        for name in ("one", "two", "three")
    ]
    ahead = [entry.state.job_id for entry in entries]
    size = len(entries[0].row.spec) + len(entries[0].row.state)
    for bounds in ({"most": 2}, {"most_bytes": size * 2 + size // 2}):
        agenda = make(**bounds)
        for entry in (*entries, entries[2]):
            agenda.keep(entry)
        assert [agenda.take(job_id) is not None for job_id in ahead] == [False, True, True]
        agenda.keep(entries[0])
        assert agenda.take(ahead[0]) is entries[0]


async def test_an_occurrence_that_is_ahead_no_more_is_forgotten(any_world):
    world = any_world
    made = await define(world, cron="0 * * * *")
    first = decode_state((await row_of(world, made)).state).job_id
    await world.on.direct.skip_next(TENANT, made.schedule_id)
    second = decode_state((await row_of(world, made)).state).job_id
    await change(world, made, cron="1 * * * *")
    third = decode_state((await row_of(world, made)).state).job_id
    assert [world.on.agenda.take(job_id) is not None for job_id in (first, second, third)] == [False, False, True]
    await world.on.direct.skip_next(TENANT, made.schedule_id)
    fourth = decode_state((await row_of(world, made)).state).job_id
    await world.on.define.delete(TENANT, made.schedule_id)
    assert world.on.agenda.take(fourth) is None


async def test_a_backfill_does_not_look_at_the_jobs_beside_it(any_world, monkeypatch):
    world = any_world
    made = await define(world, cron="* * * * *")
    await world.advance(120)
    begin = datetime(2026, 12, 5, 1, tzinfo=UTC)
    body = wire.Backfill(from_=begin, to=begin.replace(minute=4), concurrency=2)

    async def refused(schedule_ids):
        raise AssertionError("there may be millions of them")

    monkeypatch.setattr(world.on.store.schedules, "going", refused)
    await world.on.direct.backfill(TENANT, made.schedule_id, body)
    backfill = [job for job in await jobs_of(world, made) if job.definition.origin == "backfill"]
    assert len(backfill) == 2
    for job in backfill:
        await world.cancel(job.job_id)
    await world.settle()
    backfill = [job for job in await jobs_of(world, made) if job.definition.origin == "backfill"]
    assert [job.status for job in backfill] == 2 * [Status.CANCELLED] + 2 * [Status.QUEUED]
