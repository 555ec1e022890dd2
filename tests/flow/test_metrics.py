"""Metrics that operators act on say what is so, above all when something is wrong."""

import pytest

from tests.life.world import World
from tocsin.flow.figures import Gauger
from tocsin.telemetry import REGISTRY


async def test_the_floors_age_is_measured_while_the_recheck_is_behind():
    world = World(partitions=1)
    await world.start()
    await world.advance(121)
    world.clock.advance(1_800)
    assert (await world.on.recheck.step()).more
    assert REGISTRY.get_sample_value("tocsin_floor_age_seconds") == pytest.approx(1_800, abs=60)


async def test_the_near_tiers_gauges_show_what_it_holds(any_world):
    await any_world.create()
    await any_world.create(delay_s=60)
    await Gauger(any_world.on.store, any_world.on.near, any_world.on.leases, any_world.clock).step()
    held = {
        what: REGISTRY.get_sample_value("tocsin_near", {"what": what}) for what in ("due", "ready", "in_hand", "leases")
    }
    assert held == {"due": 1, "ready": 1, "in_hand": 0, "leases": 0}


async def test_no_partition_waits_for_another_ones_newer_buckets():
    """Whatever one partition still has to do, the next piece is of the one that is furthest behind."""
    world = World(partitions=4)
    await world.start()
    await world.advance(300)
    world.clock.advance(60)
    world.on.recheck.begin(3, 0)  # taken over, with nothing rechecked yet
    asked = []
    sweep = world.on.store.jobs.sweep_void

    async def swept(partition, *args):
        asked.append(partition)
        return await sweep(partition, *args)

    world.on.store.jobs.sweep_void = swept  # type: ignore[method-assign]
    await world.on.recheck.step()
    assert asked == [3]
