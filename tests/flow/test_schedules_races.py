"""Two things happen to a schedule at once: one of them in the middle of the other, between what it reads and what it writes."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.flow.ledgers import all_jobs, sound
from tests.flow.recurring import TENANT, change, define, jobs_of, put, skips_of
from tests.life.world import START, World
from tocsin import wire
from tocsin.errors import Refused
from tocsin.wire import Status

MINUTELY = {"cron": "* * * * *"}
Deed = Callable[[World, wire.Schedule, str], Awaitable[object]]


async def _fire(world, made, job_id):
    await world.on.dispatch.step()


async def _pause(world, made, job_id):
    await change(world, made, paused=True)


async def _retime(world, made, job_id):
    await change(world, made, cron="*/2 * * * *")


async def _retemplate(world, made, job_id):
    await change(world, made, job_template={"queue": "other", "target": {"type": "task", "handler": "do"}})


async def _delete(world, made, job_id):
    await world.on.define.delete(TENANT, made.schedule_id)


async def _skip(world, made, job_id):
    await world.on.direct.skip_next(TENANT, made.schedule_id)


async def _upsert(world, made, job_id):
    await put(world, cron="*/3 * * * *")


async def _cancel(world, made, job_id):
    await world.cancel(job_id)


async def _run_now(world, made, job_id):
    await world.run_now(job_id)


async def _trigger(world, made, job_id):
    await world.on.direct.trigger(TENANT, made.schedule_id, wire.Trigger(), None, b"")


async def _backfill(world, made, job_id):
    body = wire.Backfill(from_=START.replace(hour=1), to=START.replace(hour=1, minute=33))
    await world.on.direct.backfill(TENANT, made.schedule_id, body)


async def _sweep(world, made, job_id):
    while (await world.on.sweep.step()).more:
        pass


DEEDS: dict[str, Deed] = {
    "fire": _fire,
    "pause": _pause,
    "retime": _retime,
    "retemplate": _retemplate,
    "delete": _delete,
    "skip": _skip,
    "upsert": _upsert,
    "cancel": _cancel,
    "run now": _run_now,
    "trigger": _trigger,
    "backfill": _backfill,
    "sweep": _sweep,
}


def _in_the_middle(world: World, deed: Callable[[], Awaitable[object]]) -> list[int]:
    """Do something before the next move is written; empty when it was done."""
    schedules, left = world.on.store.schedules, [1]
    move = schedules.move

    async def interrupted(moves):
        if left:
            left.pop()
            await deed()
        return await move(moves)

    schedules.move = interrupted  # type: ignore[method-assign]
    return left


async def _do(name: str, world: World, made: wire.Schedule, job_id: str) -> str | None:
    """A deed, and how it was refused."""
    try:
        await DEEDS[name](world, made, job_id)
    except Refused as refused:
        return refused.kind
    return None


@pytest.mark.parametrize("due", [False, True])
@pytest.mark.parametrize("second", sorted(DEEDS))
@pytest.mark.parametrize("first", sorted(set(DEEDS) - {"trigger"}))
async def test_whatever_happens_in_the_middle_of_whatever(first, second, due):
    world = World()
    await world.start()
    made = await define(world, **MINUTELY)
    await world.advance(60)
    (waiting,) = [job for job in await all_jobs(world, made.schedule_id) if job.status is Status.SCHEDULED]
    world.clock.advance(60 if due else 30)
    left = _in_the_middle(world, lambda: _do(second, world, made, waiting.job_id))
    answer = await _do(first, world, made, waiting.job_id)
    assert answer in (None, "not-found", "wrong-state"), answer
    await sound(world, made.schedule_id)
    assert left == [] or first in ("fire", "sweep") or answer is not None
    for _ in range(3):
        await world.advance(60)
        await sound(world, made.schedule_id)


@pytest.mark.parametrize("first", ["pause", "retime", "skip", "retemplate"])
async def test_an_occurrence_that_was_due_before_an_edit_is_not_swallowed(any_world, first):
    world = any_world
    made = await define(world, **MINUTELY)
    world.clock.advance(60)
    await _do(first, world, made, "")
    fired, *_ = await jobs_of(world, made)
    assert (fired.status, fired.line.queue) == (Status.QUEUED, "q")
    assert [skip for skip in await skips_of(world, made) if skip[0].endswith("03:31:00Z")] == []


@pytest.mark.parametrize("first", ["pause", "retime", "delete", "skip"])
async def test_after_an_edit_the_old_time_never_fires(any_world, first):
    world = any_world
    made = await define(world, **MINUTELY)
    world.clock.advance(59)
    await _do(first, world, made, "")
    world.clock.advance(1)
    await world.settle()
    assert await world.claim(10) == []
    assert await world.claim(10, queue="other") == []


@pytest.mark.parametrize("count", [2, 8])
async def test_concurrent_upserts_leave_one_schedule_with_one_next_occurrence(count):
    world = World(yielding=True)
    await world.start()
    made = await asyncio.gather(*(put(world, cron=f"{number} * * * *") for number in range(count)))
    assert len({one.schedule_id for one in made}) == 1
    page, _ = await world.on.present.page(TENANT, None, None, None, 10)
    assert len(page) == 1
    await sound(world, page[0].schedule_id)
    assert page[0].revision == count
    again = await asyncio.gather(*(put(world, cron=page[0].cron) for _ in range(count)))
    assert {one.revision for one in again} == {count}


async def test_concurrent_creates_make_one(any_world):
    world = any_world

    async def create():
        try:
            return (await define(world, **MINUTELY)).schedule_id
        except Refused as refused:
            return refused

    made = await asyncio.gather(*(create() for _ in range(5)))
    (schedule_id,) = [one for one in made if isinstance(one, str)]
    refused = [one for one in made if isinstance(one, Refused)]
    assert {(one.status, one.kind, one.extra["schedule_id"]) for one in refused} == {
        (409, "schedule-exists", schedule_id)
    }
    await sound(world, schedule_id)


async def test_one_that_is_made_again_remembers_nothing(any_world):
    world = any_world
    made = await define(world, **MINUTELY)
    await world.advance(120)
    await _delete(world, made, "")
    world.clock.advance(600)
    await world.settle()
    again = await define(world, **MINUTELY)
    assert again.schedule_id != made.schedule_id
    assert (again.runs, again.last_run_at, again.next_run_at) == (0, None, "2026-12-05T03:43:00Z")
    await world.advance(60)
    assert await skips_of(world, again) == []
    assert [job.status for job in await jobs_of(world, again)] == [Status.QUEUED, Status.SCHEDULED]


async def test_a_template_and_a_pause_may_be_changed_in_one(any_world):
    world = any_world
    made = await define(world, **MINUTELY)
    template = {"queue": "other", "target": {"type": "task", "handler": "do"}}
    shown = await change(world, made, job_template=template, paused=True)
    assert (shown.status, shown.revision) == ("paused", 2)
    assert [job.status for job in await jobs_of(world, made)] == [Status.SKIPPED]
    shown = await change(world, made, paused=False, job_template=template | {"priority": "high"})
    assert shown.status == "active"
    await sound(world, made.schedule_id)


async def test_a_new_timing_and_a_pause_may_be_changed_in_one(any_world):
    world = any_world
    made = await define(world, **MINUTELY)
    await change(world, made, cron="*/2 * * * *", paused=True)
    assert [job.status for job in await jobs_of(world, made)] == [Status.CANCELLED]
    await change(world, made, cron="*/3 * * * *", paused=False)
    await sound(world, made.schedule_id)
    assert (await jobs_of(world, made))[-1].definition.occurrence_at == 1_796_441_580_000


async def test_skips_of_a_pause_survive_a_restart(any_world):
    world = any_world
    made = await define(world, **MINUTELY)
    await change(world, made, paused=True)
    await world.advance(120)
    await world.restart()
    await world.advance(120)
    assert await world.claim(10) == []
    await world.on.define.patch(TENANT, made.schedule_id, wire.SchedulePatch(paused=False), None)
    assert [(count, reason) for _, _, count, reason in await skips_of(world, made)] == [(4, "paused")]
    await sound(world, made.schedule_id, since=None)
