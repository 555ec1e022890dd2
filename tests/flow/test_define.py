"""Schedules are changed while their occurrences fall due."""

from typing import Any

import pytest

from tests.flow.recurring import TENANT, change, define, jobs_of, put, skips_of
from tocsin.model.zones import LAST_MS
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


async def test_the_window_of_the_last_occurrence_that_there_can_be_ends_with_the_calendar(any_world):
    flexible = {"timing": {"class": "flexible", "window_s": 86_400}}
    made = await define(any_world, cron="59 23 31 12 *", start_at="9999-12-31T00:00:00Z", template=flexible)
    assert (made.status, made.next_run_at) == ("active", "9999-12-31T23:59:00Z")
    (job,) = await jobs_of(any_world, made)
    assert job.fire_at <= LAST_MS


async def test_an_interval_without_an_anchor_begins_at_its_start_also_when_that_is_moved(any_world):
    hourly: dict[str, Any] = {"every_s": 3_600}
    made = await define(any_world, **hourly, start_at="2026-12-05T04:10:00Z")
    assert made.next_run_at == "2026-12-05T04:10:00Z"
    moved = await put(any_world, **hourly, start_at="2026-12-05T05:20:00Z")
    assert (moved.next_run_at, moved.anchor) == ("2026-12-05T05:20:00Z", "2026-12-05T05:20:00Z")
    again = await put(any_world, **hourly, start_at="2026-12-05T05:20:00Z")
    assert again.revision == moved.revision


async def test_an_interval_without_anchor_and_start_keeps_its_rhythm_through_edits(any_world):
    made = await define(any_world, every_s=3_600)
    await any_world.advance(600)
    same = await put(any_world, every_s=3_600, overlap="forbid")
    assert (same.anchor, same.next_run_at) == (made.anchor, made.next_run_at)
    other = await put(any_world, every_s=1_800)
    assert other.next_run_at == "2026-12-05T04:10:00Z"
