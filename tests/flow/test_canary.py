"""A canary a minute goes through each partition, and one that does not come back is noticed."""

from __future__ import annotations

import pytest

from tests.life.world import World
from tocsin import telemetry
from tocsin.flow.canary import FORGET_MS, TENANT, Canary
from tocsin.telemetry import REGISTRY


@pytest.fixture
async def world() -> World:
    world = World(partitions=4)
    await world.start()
    return world


@pytest.fixture
def canary(world: World) -> Canary:
    on = world.on
    made = Canary(
        on.store.jobs, on.near, on.leases, on.claim, on.complete, on.tokens, on.tally, world.clock, world.entropy
    )
    on.stages.append(made)
    return made


def overdue() -> float:
    return REGISTRY.get_sample_value("tocsin_canary_overdue_seconds") or 0.0


def came_back() -> float:
    return REGISTRY.get_sample_value("tocsin_canary_lateness_seconds_count", {"lane": "precise"}) or 0.0


async def test_each_partition_has_one_canary_a_minute_and_all_come_back(world: World, canary: Canary) -> None:
    before = came_back()
    await world.advance(180 - world.clock.now_ms() / 1000 % 60)
    assert came_back() - before >= 8, "two whole minutes of four partitions"
    assert overdue() < 1
    finished = [row.job for row in world.disk.finished.values() if row.job.line.tenant == TENANT]
    assert {job.status.value for job in finished} == {"SUCCEEDED"}


async def test_a_path_that_is_stuck_is_noticed(world: World, canary: Canary) -> None:
    world.on.stages.remove(world.on.dispatch)
    await world.advance(120)
    assert overdue() > 30
    world.on.stages.insert(0, world.on.dispatch)
    await world.advance(1)
    assert overdue() < 1


async def test_a_canary_that_never_comes_back_is_counted_and_ends(world: World, canary: Canary) -> None:
    lost = telemetry.CANARIES_LOST._value.get()
    world.on.stages.remove(world.on.dispatch)
    await world.advance(FORGET_MS / 1000 + 121)
    assert telemetry.CANARIES_LOST._value.get() > lost
    assert FORGET_MS / 1000 - 60 < overdue() <= FORGET_MS / 1000 + 1, "the next ones are overdue too"


async def test_canaries_of_a_node_that_died_end_by_themselves(world: World, canary: Canary) -> None:
    await world.advance(10)
    waiting = [row for row in world.disk.jobs.values() if row.job.line.tenant == TENANT]
    assert len(waiting) == 4
    await world.restart()
    await world.advance(900)
    assert not [row for row in world.disk.jobs.values() if row.job.line.tenant == TENANT]
