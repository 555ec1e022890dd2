"""A process dies in the middle of what is done to a schedule, at each point in turn; the next one finds it whole or not at all."""

import pytest

from tests.flow.ledgers import all_jobs, sound, state_of
from tests.flow.recurring import TENANT, define, row_of, skips_of
from tests.flow.test_schedules_races import DEEDS
from tests.life.disk import Crashed
from tests.life.world import World
from tocsin.errors import Refused
from tocsin.wire import Status

MINUTELY = {"cron": "* * * * *"}


async def _crashes(deed, **fields):
    """Worlds in which the deed has been cut off, one for each point that it passes, restarted."""
    strikes = 0
    while True:
        world = World()
        await world.start()
        made = await define(world, **MINUTELY, **fields)
        await world.advance(90)
        (waiting,) = [job for job in await all_jobs(world, made.schedule_id) if job.status is Status.SCHEDULED]
        world.fault.after(strikes)
        try:
            await deed(world, made, waiting.job_id)
        except Crashed:
            await world.restart()
        else:
            return
        await world.settle()
        yield world, made
        strikes += 1


@pytest.mark.parametrize("name", sorted(set(DEEDS) - {"fire", "sweep", "trigger"}))
async def test_an_edit_that_is_cut_off_is_whole_or_has_not_happened(name):
    seen = 0
    async for world, made in _crashes(DEEDS[name]):
        seen += 1
        await sound(world, made.schedule_id)
        await world.advance(120)
        await sound(world, made.schedule_id)
    assert seen >= 4


@pytest.mark.parametrize("name", ["retime", "pause", "delete", "skip", "upsert", "retemplate"])
async def test_an_edit_that_was_cut_off_can_be_made_again(name):
    async for world, made in _crashes(DEEDS[name]):
        try:
            await DEEDS[name](world, made, "")
        except Refused:
            assert name == "delete"
        await sound(world, made.schedule_id)


async def test_a_pause_that_is_cut_off_leaves_the_waiting_job_with_its_schedule():
    async for world, made in _crashes(DEEDS["pause"]):
        row = await row_of(world, made)
        jobs = await all_jobs(world, made.schedule_id)
        assert jobs[-1].status is (Status.SKIPPED if row.status == "paused" else Status.SCHEDULED)


async def test_a_create_that_is_cut_off_leaves_a_schedule_with_its_occurrence_or_none():
    strikes = 0
    while True:
        world = World()
        await world.start()
        world.fault.after(strikes)
        try:
            await define(world, **MINUTELY)
        except Crashed:
            await world.restart()
        else:
            break
        (row,) = await world.on.store.schedules.named(TENANT, ["s"])
        if row is None:
            assert (await define(world, **MINUTELY)).revision == 1
        else:
            await sound(world, row.schedule_id)
            with pytest.raises(Refused, match="there is a schedule named"):
                await define(world, **MINUTELY)
        strikes += 1
    assert strikes > 4


async def test_a_trigger_that_is_cut_off_leaves_one_job_or_none_and_moves_nothing():
    async for world, made in _crashes(DEEDS["trigger"]):
        manual = [job for job in await all_jobs(world, made.schedule_id) if job.definition.origin == "manual"]
        assert len(manual) <= 1
        assert len(await world.claim(10)) == 1 + len(manual)
        await sound(world, made.schedule_id)


async def test_a_start_of_the_next_of_a_backlog_that_is_cut_off_starts_it_once():
    strikes = 0
    while True:
        world = World()
        await world.start()
        made = await define(world, **MINUTELY, missed_runs={"policy": "run_all"})
        world.clock.advance(250)
        await world.settle()
        first = await world.claim_one()
        await world.complete(first.lease_token)
        world.fault.after(strikes)
        try:
            await world.on.follow.step()
        except Crashed:
            await world.restart()
        else:
            break
        await world.advance(150)
        second = await world.claim_one()
        assert second.run_at > first.run_at
        assert await world.claim(10) == []
        await sound(world, made.schedule_id)
        strikes += 1
    assert strikes > 4


async def test_a_sweep_that_is_cut_off_is_made_again():
    strikes = 0
    while True:
        world = World()
        await world.start()
        made, since = await define(world, **MINUTELY), world.clock.now_ms()
        _, state = await state_of(world, made.schedule_id)
        assert state.job_id is not None
        del world.disk.jobs[state.job_id]
        await world.on.near.remove([state.job_id])
        row = await row_of(world, made)
        world.fault.after(strikes)
        try:
            await world.on.sweep._look([row])
        except Crashed:
            await world.restart()
        else:
            break
        await world.settle()
        await sound(world, made.schedule_id)
        await world.advance(
            200
        )  # what is owed may be written after the loader has read its bucket: the recheck finds it
        await sound(world, made.schedule_id, since=since)
        assert len(await world.claim(10)) + sum(skip[2] for skip in await skips_of(world, made)) == 3
        strikes += 1
    assert strikes > 3
