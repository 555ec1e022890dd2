"""What a process owns is in the near tier, also after that was lost, and also what it came to own later."""

from __future__ import annotations

from typing import Any

import pytest

from tests.life.world import World
from tocsin.errors import NearUnavailable
from tocsin.flow.custody import EVERY_MS, Custodian
from tocsin.model.partition import partition_of
from tocsin.near.memory import MemoryNearTier


class Losable:
    """The near tier in memory, which can be lost as a server's content can, and be away."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.begun: list[int] = []
        self.away = False
        self.lose()

    def lose(self) -> None:
        self._near = MemoryNearTier(self._world.clock, self._world.partitions)
        self._name = object()

    async def generation(self) -> str:
        if self.away:
            raise NearUnavailable("away")
        return str(id(self._name))

    async def begin(self, partitions: Any) -> None:
        self.begun += partitions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._near, name)


class Mine:
    """Leases that the test gives and takes."""

    def __init__(self, *partitions: int) -> None:
        self.partitions = partitions

    def owned(self) -> tuple[int, ...]:
        return self.partitions

    async def acquire(self) -> None: ...

    async def release(self) -> None: ...


class Place:
    def __init__(self, world: World, near: Losable, leases: Mine) -> None:
        self.world, self.near, self.leases = world, near, leases
        process = world.on
        self.custodian = Custodian(near, leases, process.recover, world.clock)
        # What the recovery tells, and what fires, is this tier and these leases.
        for stage in (process.recover, process.parker, process.unpark, process.dispatch, process.load, process.recheck):
            stage._near = near
            if hasattr(stage, "_leases"):
                stage._leases = leases

    async def keep(self) -> int:
        rebuilt = 0
        while True:
            kept = await self.custodian.step()
            rebuilt += kept.rebuilt
            if not kept.more:
                return rebuilt


@pytest.fixture
async def place() -> Place:
    world = World(partitions=8)
    await world.boot()
    return Place(world, Losable(world), Mine(*range(8)))


async def test_all_that_is_owned_is_rebuilt_once(place: Place) -> None:
    await place.world.create()
    assert await place.keep() == 8
    assert (await place.near.figures(range(8))).ready == 1
    assert await place.keep() == 0
    assert sorted(place.near.begun) == list(range(8))


async def test_a_lost_near_tier_is_filled_again_within_a_second(place: Place) -> None:
    await place.keep()
    job_id = await place.world.create(delay_s=30)
    place.near.lose()
    assert (await place.near.figures(range(8))).due == 0
    place.world.clock.advance(EVERY_MS / 1000)
    assert await place.keep() == 8
    while (await place.world.on.load.step()).more:
        pass
    assert [due.job_id for due in await place.near.take(range(8), place.world.clock.now_ms() + 30_000, 10)] == [job_id]


async def test_only_partitions_that_came_are_rebuilt_and_those_that_went_are_forgotten(place: Place) -> None:
    place.leases.partitions = (0, 1)
    assert await place.keep() == 2
    place.leases.partitions = (1, 2)
    assert await place.keep() == 1
    assert place.custodian.behind() == []
    place.leases.partitions = (0, 1, 2)
    assert place.custodian.behind() == [0], "what was lost meanwhile is read again"


async def test_what_was_somebody_elses_for_a_moment_is_rebuilt_again(place: Place) -> None:
    assert await place.keep() == 8
    place.custodian.gained((2, 5))
    assert place.custodian.behind() == [2, 5]
    assert await place.keep() == 2


async def test_what_was_somebody_elses_while_it_was_rebuilt_is_rebuilt_again(place: Place) -> None:
    place.leases.partitions = (0, 1)
    begin = place.near.begin

    async def interrupted(partitions: Any) -> None:
        await begin(partitions)
        if place.near.begun == [0, 1]:
            place.custodian.gained((1,))

    place.near.begin = interrupted  # type: ignore[method-assign]
    assert await place.keep() == 3
    assert place.near.begun == [0, 1, 1]
    assert place.custodian.behind() == []


async def test_a_job_of_a_partition_that_came_later_fires(place: Place) -> None:
    job_id = await place.world.create()
    there = partition_of(job_id, 8)
    place.near.lose()
    place.leases.partitions = tuple(p for p in range(8) if p != there)
    await place.keep()
    assert (await place.near.figures(range(8))).ready == 0
    place.leases.partitions = tuple(range(8))
    await place.keep()
    assert (await place.near.figures(range(8))).ready == 1


async def test_a_near_tier_that_is_away_is_tried_again(place: Place) -> None:
    place.near.away = True
    with pytest.raises(NearUnavailable):
        await place.custodian.step()
    place.near.away = False
    assert await place.keep() == 8
