"""Every process goes by the store's clock, and fires nothing where its own is far off. F-25's kind, across machines."""

from __future__ import annotations

from typing import cast

import pytest

from tests.flow.stand_ins import ClockedStore
from tocsin.clock import CorrectedClock, ManualClock
from tocsin.errors import StoreUnavailable
from tocsin.flow.timekeeper import EVERY_MS, LARGEST_OFFSET_MS, Timekeeper
from tocsin.store.port import Store


class Place:
    """A process's clock beside the store's; the way there and back takes `trips` seconds, a different one each time."""

    def __init__(self, ahead_ms: int, *trips: float) -> None:
        self.own = ManualClock()
        self.clock = CorrectedClock(self.own)
        self.store = ClockedStore(self.own, ahead_ms, trips or (0.0,))
        self.keeper = Timekeeper(cast("Store", self.store), self.clock)


async def test_a_process_goes_by_the_stores_clock() -> None:
    place = Place(120)
    await place.keeper.step()
    assert place.clock.now_ms() == place.own.now_ms() + 120
    assert place.keeper.trusted
    assert place.keeper.reason() is None


async def test_of_several_samples_the_quickest_is_believed() -> None:
    """Samples with a long way there and back are wrong by up to half of it; here each has all of its delay on the way back."""
    place = Place(50, 0.3, 0.004, 0.2, 0.1, 0.3)
    await place.keeper.step()
    assert place.clock.offset_ms == pytest.approx(50, abs=2)


async def test_only_slow_answers_teach_nothing() -> None:
    place = Place(80)
    await place.keeper.step()
    place.store.ahead_ms, place.store.trips = 9_000, (2.0,)
    place.own.advance(EVERY_MS / 1000)
    await place.keeper.step()
    assert place.clock.offset_ms == 80


@pytest.mark.parametrize("ahead_ms", [-LARGEST_OFFSET_MS - 1, LARGEST_OFFSET_MS + 1])
async def test_a_clock_that_is_far_off_fires_nothing_and_says_so(ahead_ms: int) -> None:
    place = Place(ahead_ms)
    await place.keeper.step()
    assert not place.keeper.trusted
    reason = place.keeper.reason()
    assert reason is not None
    assert "251 ms" in reason
    assert ("behind" in reason) == (ahead_ms > 0)


async def test_a_clock_that_was_set_right_is_trusted_again() -> None:
    place = Place(-5_000)
    await place.keeper.step()
    place.store.ahead_ms = 3
    place.own.advance(EVERY_MS / 1000)
    await place.keeper.step()
    assert place.keeper.trusted


async def test_before_the_first_measurement_nothing_is_trusted() -> None:
    assert not Place(0).keeper.trusted


async def test_a_store_that_is_away_leaves_what_was_known() -> None:
    place = Place(30)
    await place.keeper.step()
    place.store.away = True
    place.own.advance(EVERY_MS / 1000)
    with pytest.raises(StoreUnavailable):
        await place.keeper.step()
    assert place.keeper.trusted
    assert place.clock.offset_ms == 30
