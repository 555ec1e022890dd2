"""Several nodes over one store: clocks that differ (F-20), jobs that end before the next node looks (F-26), and what one node remembers
and another has changed (F-35, F-78, F-79).

The store has no transactions here and lets others in between any two of its row writes. Every node owns everything, which no
installation does for long: what holds here holds for two that overlap.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from tests.amount import one_in
from tests.faults.checks import sound
from tests.life.disk import Crashed
from tests.life.world import START, World
from tocsin import wire
from tocsin.clock import ManualClock, datetime_of, ms_of, rfc3339
from tocsin.errors import Refused
from tocsin.store.port import JobFilter

TENANT = "acme"
TEMPLATE = {"queue": "q", "target": {"type": "task", "handler": "do"}}
MINUTE_MS = 60_000
BEGIN_S = 10.0  # a moment after the minute, for clocks that are behind


class Fleet:
    """Nodes over one store, whose clocks may be off by some seconds."""

    def __init__(self, worlds: list[World]) -> None:
        self.worlds = worlds
        self.done: Counter[str] = Counter()

    @classmethod
    async def of(cls, *off_s: float) -> Fleet:
        """A node for each of these offsets from the true time."""
        worlds: list[World] = []
        for number, seconds in enumerate(off_s):
            world = World(seed=number, yielding=True)
            if worlds:
                world.disk = worlds[0].disk
            world.clock = ManualClock(START)
            world.clock.step_wall(BEGIN_S + seconds)
            await world.start()
            worlds.append(world)
        return cls(worlds)

    @property
    def now_ms(self) -> int:
        return max(world.clock.now_ms() for world in self.worlds)

    async def pass_time(self, seconds: float, step_s: float = 5.0, *, working: bool = True) -> None:
        """Let time pass on all nodes, which work at once; what they fire is done at once, through any of them."""
        for _ in range(round(seconds / step_s)):
            for world in self.worlds:
                world.clock.advance(step_s)
            await asyncio.gather(*(world.settle() for world in self.worlds))
            if working:
                await asyncio.gather(*(self.work(world) for world in self.worlds))

    async def work(self, world: World) -> None:
        """Do what is ready at a node."""
        for job in await world.claim(50):
            self.done[job.run_at] += 1
            await world.complete(job.lease_token)

    async def fired(self, schedule_id: str) -> list[str]:
        """The instants of the occurrences that have fired, oldest first."""
        page = await self.worlds[0].on.store.jobs.list_jobs(
            JobFilter(tenant=TENANT, schedule_id=schedule_id), None, 5_000
        )
        return sorted(
            rfc3339(job.definition.occurrence_at or 0)
            for job in page.jobs
            if job.queued_at is not None and job.definition.origin == "schedule"
        )

    async def check(self, *, retimed: bool = False) -> None:
        """The list of what must be true after every scenario."""
        await self.pass_time(70)
        await sound(self.worlds[0].on.store, self.now_ms - 6_000, TENANT, retimed=retimed)


async def put(world: World, name: str = "report", **fields: Any) -> wire.Schedule:
    """Upsert a schedule through a node."""
    body = msgspec.json.encode({"job_template": TEMPLATE, **fields})
    return (await world.on.define.upsert(TENANT, name, msgspec.json.decode(body, type=wire.SchedulePut)))[0]


async def patch(world: World, schedule_id: str, **fields: Any) -> wire.Schedule:
    """Change a schedule through a node."""
    body = msgspec.json.decode(msgspec.json.encode(fields), type=wire.SchedulePatch)
    return await world.on.define.patch(TENANT, schedule_id, body, None)


def minutes(first: int, last: int) -> list[str]:
    """The instants of the minutes after the beginning, both included."""
    return [rfc3339(ms_of(START) + number * MINUTE_MS) for number in range(first, last + 1)]


# --- clocks that differ (F-20)


@pytest.mark.parametrize("off_s", [(-5,), (5,), (-5, 0), (0, 5), (-5, 0, 5)], ids=str)
@pytest.mark.parametrize("missed", ["run_latest", "run_all"])
async def test_nodes_with_other_clocks_make_each_occurrence_once(off_s, missed):
    fleet = await Fleet.of(*off_s)
    kept = await put(fleet.worlds[0], cron="* * * * *", missed_runs={"policy": missed})
    await fleet.pass_time(10 * 60 + 10, step_s=2.5)
    fired = await fleet.fired(kept.schedule_id)
    assert fired == minutes(1, len(fired))
    assert len(fired) in (10, 11)
    assert set(fleet.done.values()) == {1}
    await fleet.check()


@pytest.mark.parametrize("step_s", [-5, -59, -61, -3_600])
async def test_a_clock_that_steps_back_after_a_fire_fires_nothing_again(step_s):
    fleet = await Fleet.of(0)
    kept = await put(fleet.worlds[0], cron="* * * * *")
    await fleet.pass_time(185)
    before = await fleet.fired(kept.schedule_id)
    assert before == minutes(1, 3)
    fleet.worlds[0].clock.step_wall(step_s)
    await fleet.pass_time(-step_s + 120)
    assert set(fleet.done.values()) == {1}
    assert await fleet.fired(kept.schedule_id) == minutes(1, 5)
    await fleet.check()


async def test_a_node_that_comes_up_with_a_slower_clock_goes_on_from_what_was_done():
    """The cursor says what is next, not the clock of who computes."""
    fleet = await Fleet.of(5)
    kept = await put(fleet.worlds[0], cron="* * * * *")
    for _ in range(4):
        await fleet.pass_time(60)
        world = fleet.worlds[0]
        world.clock.step_wall(-5)
        await world.restart()
        await fleet.pass_time(30)
        world.clock.step_wall(5)
        await world.restart()
        await fleet.pass_time(30)
    fired = await fleet.fired(kept.schedule_id)
    assert fired == minutes(1, len(fired))
    assert set(fleet.done.values()) == {1}
    await fleet.check()


# --- jobs that end at once (F-26)


async def test_four_nodes_make_a_hundred_runs_of_a_hundred_occurrences():
    """Each job has ended, and left the table of jobs, before the others look; its occurrence is known all the same."""
    fleet = await Fleet.of(0, 0, 0, 0)
    kept = await put(fleet.worlds[0], cron="* * * * *")
    await fleet.pass_time(100 * 60, step_s=20)
    assert await fleet.fired(kept.schedule_id) == minutes(1, 100)
    assert len(fleet.done) == 100
    assert set(fleet.done.values()) == {1}
    await fleet.check()


async def test_a_node_that_dies_between_any_two_writes_of_a_fire_neither_repeats_nor_loses_it():
    struck = 0
    for points in one_in(4):
        fleet = await Fleet.of(0, 0)
        first, other = fleet.worlds
        kept = await put(first, cron="* * * * *")
        await fleet.pass_time(45)
        first.clock.advance(10)
        first.fault.clear()
        first.fault.after(points)
        with suppress(Crashed):
            await first.settle()
            await fleet.work(first)
        died = not first.fault.planned
        other.clock.advance(10)
        await fleet.work(other)
        await first.restart()
        other.clock.advance(0.2)
        await fleet.pass_time(130)
        assert await fleet.fired(kept.schedule_id) == minutes(1, 3)
        assert sorted(fleet.done) == minutes(1, 3)
        await fleet.check()
        if not died:
            break
        struck = points
    assert struck > 19, "there are many such points"


@pytest.mark.parametrize("overlap", ["forbid", "replace"])
async def test_a_node_that_dies_while_a_run_goes_on_starts_no_second_one_beside_it(overlap):
    """The same for an occurrence that is left out or has to wait: the run before it is still going on (F-10)."""
    struck = 0
    for points in one_in(3):
        fleet = await Fleet.of(0, 0)
        first, other = fleet.worlds
        kept = await put(first, cron="* * * * *", overlap=overlap)
        await fleet.pass_time(55, working=False)
        live = await other.claim_one(lease_s=300)
        await fleet.pass_time(50, working=False)
        first.clock.advance(10)
        first.fault.clear()
        first.fault.after(points)
        with suppress(Crashed):
            await first.settle()
        died = not first.fault.planned
        other.clock.advance(10)
        await first.restart()
        other.clock.advance(0.2)
        await fleet.pass_time(90)
        assert not fleet.done, "nothing starts beside the one that is live"
        await other.complete(live.lease_token)
        await fleet.pass_time(70)
        assert len(fleet.done) >= 1
        assert set(fleet.done.values()) == {1}
        left_out = await first.on.store.schedules.skips(kept.schedule_id, None, 50)
        assert {skip.reason for skip in left_out} == {"overlap"}
        await fleet.check()
        if not died:
            break
        struck = points
    assert struck > 9, "there are many such points"


# --- what others have changed (F-35, F-78, F-79)


async def test_upserts_through_all_nodes_leave_one_schedule_and_one_next_run():
    fleet = await Fleet.of(0, 0, 0)
    first = await put(fleet.worlds[0], cron="* * * * *")
    shown: list[wire.Schedule] = []

    async def register(world: World, number: int) -> None:
        for turn in range(8):
            minute = (number * 8 + turn) % 5
            with suppress(Refused):  # too many at once: it is told so, and nothing was changed
                shown.append(await put(world, cron=f"{minute}-59/5 * * * *" if turn % 2 else "* * * * *"))

    for _ in range(3):
        await asyncio.gather(
            *(register(world, number) for number, world in enumerate(fleet.worlds)), fleet.pass_time(60, step_s=7)
        )
        now = (await fleet.worlds[1].on.present.page(TENANT, None, None, None, 10))[0]
        assert [one.schedule_id for one in now] == [first.schedule_id]
        waiting = await fleet.worlds[0].on.store.schedules.waiting(first.schedule_id)
        assert [rfc3339(job.definition.occurrence_at or 0) for job in waiting] == [now[0].next_run_at]
    # Each revision stands for one definition: whoever was told a number was told what it stands for.
    told = {(one.revision, one.cron) for one in shown}
    assert len(told) == len({revision for revision, _ in told})
    newest = max(shown, key=lambda one: one.revision)
    assert (now[0].revision, now[0].cron) == (newest.revision, newest.cron)
    assert set(fleet.done.values()) == {1}
    await fleet.check(retimed=True)


async def test_a_pause_holds_on_every_node_and_after_each_restart():
    fleet = await Fleet.of(0, 0)
    first, other = fleet.worlds
    kept = await put(first, cron="* * * * *")
    await fleet.pass_time(125)
    await patch(first, kept.schedule_id, paused=True, pause_note="quiet")
    for world in (first, other, first):
        await fleet.pass_time(120)
        await world.restart()
    for world in fleet.worlds:
        (seen,) = (await world.on.present.page(TENANT, None, None, None, 10))[0]
        assert (seen.status, seen.pause_note, seen.next_run_at) == ("paused", "quiet", None)
    assert await fleet.fired(kept.schedule_id) == minutes(1, 2)
    await patch(other, kept.schedule_id, paused=False)
    await fleet.pass_time(125)
    fired = await fleet.fired(kept.schedule_id)
    assert len(fired) == 4
    assert fired[2] > rfc3339(ms_of(START) + 8 * MINUTE_MS)
    await fleet.check()


@pytest.mark.parametrize("again", [0, 1], ids=["on the same node", "on another node"])
async def test_a_schedule_that_is_made_again_owes_nothing_for_the_time_between(again):
    """Nobody's memory of the first one says anything about the second."""
    fleet = await Fleet.of(0, 0)
    first, other = fleet.worlds
    kept = await put(first, cron="* * * * *", missed_runs={"policy": "run_all"})
    await fleet.pass_time(185)
    await first.on.define.delete(TENANT, kept.schedule_id)
    await fleet.pass_time(600)
    assert await fleet.fired(kept.schedule_id) == minutes(1, 3)
    made = await put(fleet.worlds[again], cron="* * * * *", missed_runs={"policy": "run_all"})
    assert made.schedule_id != kept.schedule_id
    assert (made.revision, made.runs, made.last_run_at) == (1, 0, None)
    assert datetime_of(fleet.now_ms).isoformat() < (made.next_run_at or "")
    await fleet.pass_time(120)
    assert len(await fleet.fired(made.schedule_id)) == 2
    assert await other.on.store.schedules.skips(made.schedule_id, None, 10) == []
    assert set(fleet.done.values()) == {1}
    await fleet.check()
