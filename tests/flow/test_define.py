"""Schedules are changed while their occurrences fall due."""

import pytest

from tests.flow.recurring import TENANT, change, define, jobs_of, skips_of
from tocsin.wire import Status


@pytest.fixture
async def late(any_world, monkeypatch):
    """A world in which time passes while something is looked at, once."""
    world = any_world
    looks, left = world.on.agenda.looks, [1]

    async def slow(entries):
        if left:
            world.clock.advance(left.pop())
        return await looks(entries)

    monkeypatch.setattr(world.on.agenda, "looks", slow)
    return world


@pytest.mark.parametrize("edit", ["pause", "retime", "replace", "skip"])
async def test_an_occurrence_that_falls_due_while_an_edit_is_decided_fires_as_it_was(late, edit):
    made = await define(late, cron="* * * * *")
    late.clock.advance(59.5)
    match edit:
        case "pause":
            await change(late, made, paused=True)
        case "retime":
            await change(late, made, cron="30 * * * *")
        case "replace":
            await change(late, made, overlap="replace")
        case "skip":
            await late.on.direct.skip_next(TENANT, made.schedule_id)
    first = (await jobs_of(late, made))[0]
    assert (first.status, first.definition.occurrence_at) == (Status.QUEUED, 1_796_441_460_000)
    assert all("03:31:00" not in skip[0] for skip in await skips_of(late, made))
