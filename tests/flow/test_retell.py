"""What the near tier could not be told while it was away is told as soon as it answers again, not by the recheck."""

from __future__ import annotations

from typing import Any

import pytest

from tests.life.world import World
from tocsin.errors import NearUnavailable
from tocsin.flow.retell import MOST_OWED, Owed, Reteller
from tocsin.store.port import Due


class Away:
    """A near tier that refuses what adds to it while it is `away`."""

    def __init__(self, near: Any) -> None:
        self._near, self.away = near, False

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._near, name)

        async def asked(*args: Any, **kwargs: Any) -> Any:
            if self.away:
                raise NearUnavailable("away")
            return await call(*args, **kwargs)

        return asked


class Place:
    def __init__(self, world: World) -> None:
        on = world.on
        self.world, self.near, self.owed = world, Away(on.near), Owed()
        for stage in (on.admit, on.change, on.ender):
            stage._owed = self.owed
            stage._horizon._near = self.near
        on.parker._near = self.near
        on.change._near = self.near
        self.retell = Reteller(on.store.jobs, self.near, on.parker, self.owed, world.clock)

    async def held(self) -> tuple[int, int]:
        """How many members wait for their time, and how many jobs are in line."""
        figures = await self.world.on.near.figures(self.world.on.leases.owned())
        return figures.due, figures.ready


@pytest.fixture
async def place() -> Place:
    world = World(partitions=2)
    await world.start()
    return Place(world)


async def test_jobs_made_while_it_was_away_are_in_line_once_it_is_back(place: Place) -> None:
    place.near.away = True
    await place.world.create()
    await place.world.create(delay_s=30)
    with pytest.raises(NearUnavailable):
        await place.retell.step()
    assert await place.held() == (0, 0)
    place.near.away = False
    assert (await place.retell.step()).jobs == 2
    assert await place.held() == (1, 1)
    assert (await place.retell.step()).jobs == 0


async def test_a_job_that_was_cancelled_meanwhile_is_not_told(place: Place) -> None:
    place.near.away = True
    job_id = await place.world.create()
    await place.world.cancel(job_id)
    place.near.away = False
    await place.retell.step()
    assert await place.held() == (0, 0)


async def test_a_job_that_was_changed_is_told_as_it_is_now(place: Place) -> None:
    job_id = await place.world.create(delay_s=200)
    place.near.away = True
    await place.world.run_now(job_id)
    place.near.away = False
    await place.retell.step()
    assert (await place.held())[1] == 1


async def test_a_list_that_is_full_leaves_the_rest_to_the_recheck() -> None:
    owed = Owed()
    due = Due(0, "job", 1, None, 0)  # type: ignore[arg-type]
    owed.add([due._replace(job_id=f"job {n}") for n in range(MOST_OWED)])
    owed.add([due])
    assert len(owed.first(MOST_OWED + 1)) == MOST_OWED
