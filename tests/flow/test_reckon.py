"""Many processes count, and each knows what all have counted."""

from __future__ import annotations

import pytest

from tocsin.clock import ManualClock
from tocsin.errors import NearUnavailable
from tocsin.flow.count import LATEST_MS, SOONEST_MS, Counter
from tocsin.flow.reckon import Reckoner
from tocsin.flow.tally import Tally
from tocsin.model.job import Lane, Line
from tocsin.near.memory import MemoryNearTier
from tocsin.wire import Status

LINE = Line("acme", "mail", Lane.PRECISE, "send", "")
QUEUED, RUNNING, SCHEDULED = Status.QUEUED, Status.RUNNING, Status.SCHEDULED


class Shared(MemoryNearTier):
    """One near tier for two processes; it can be away."""

    away = False

    async def add_counts(self, changes):
        if self.away:
            raise NearUnavailable("away")
        await super().add_counts(changes)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def near(clock: ManualClock) -> Shared:
    return Shared(clock, 4)


def process(near: Shared, clock: ManualClock) -> tuple[Tally, Reckoner]:
    tally = Tally()
    return tally, Reckoner(near, tally, clock)


async def test_a_process_knows_what_another_has_counted(near: Shared, clock: ManualClock) -> None:
    (api, tells), (node, hears) = process(near, clock), process(near, clock)
    api.moved(LINE, None, SCHEDULED, 3)
    await tells.step()
    await hears.step()
    assert node.count("acme", "mail", SCHEDULED) == 3
    assert node.waiting("acme") == 3
    node.fired(LINE, 2)
    clock.advance(1)
    await hears.step()
    await tells.step()
    assert [api.count("acme", "mail", status) for status in (SCHEDULED, QUEUED)] == [1, 2]


async def test_what_is_counted_while_others_are_told_is_not_lost(near: Shared, clock: ManualClock) -> None:
    tally, reckoner = process(near, clock)
    tally.moved(LINE, None, QUEUED)
    counts = near.counts

    async def slow():
        found = await counts()
        tally.moved(LINE, None, QUEUED, 5)
        return found

    near.counts = slow  # type: ignore[method-assign]
    await reckoner.step()
    assert tally.count("acme", "mail", QUEUED) == 6
    near.counts = counts  # type: ignore[method-assign]
    clock.advance(1)
    await reckoner.step()
    assert await near.counts() == {("acme", "mail", QUEUED): 6}


async def test_what_could_not_be_told_is_told_later(near: Shared, clock: ManualClock) -> None:
    tally, reckoner = process(near, clock)
    tally.moved(LINE, None, QUEUED, 2)
    near.away = True
    with pytest.raises(NearUnavailable):
        await reckoner.step()
    tally.moved(LINE, QUEUED, RUNNING)
    near.away = False
    await reckoner.step()
    assert await near.counts() == {("acme", "mail", QUEUED): 1, ("acme", "mail", RUNNING): 1}


class Counts:
    """A store of which only the counts are asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def live_counts(self):
        self.asked += 1
        return {("acme", "mail", QUEUED): 7}


async def test_the_stores_count_replaces_the_shared_one_and_only_its_coordinator_counts(
    near: Shared, clock: ManualClock
) -> None:
    store, leads = Counts(), False
    counter = Counter(store, near.reset_counts, clock, lambda: leads)  # type: ignore[arg-type]
    await counter.step()
    assert store.asked == 0
    leads = True
    await counter.step()
    assert await near.counts() == {("acme", "mail", QUEUED): 7}
    await counter.step()
    assert store.asked == 1
    clock.advance(SOONEST_MS / 1000)
    await counter.step()
    assert store.asked == 2


async def test_counts_that_were_lost_with_the_near_tier_are_made_at_once(near: Shared, clock: ManualClock) -> None:
    store, generation = Counts(), "one"
    counter = Counter(store, near.reset_counts, clock, generation=lambda: generation)  # type: ignore[arg-type]
    await counter.step()
    generation = "two"
    await counter.step()
    await counter.step()
    assert store.asked == 2


async def test_who_begins_to_lead_counts_at_once_however_lately_it_has_counted(
    near: Shared, clock: ManualClock
) -> None:
    store, leads = Counts(), True
    counter = Counter(store, near.reset_counts, clock, lambda: leads)  # type: ignore[arg-type]
    await counter.step()
    leads = False
    await counter.step()
    leads = True
    await counter.step()
    await counter.step()
    assert store.asked == 2


async def test_a_process_that_ends_tells_what_it_has_not_told(near: Shared, clock: ManualClock) -> None:
    tally, reckoner = process(near, clock)
    await reckoner.step()
    tally.moved(LINE, None, QUEUED, 3)
    await reckoner.tell_last()
    await reckoner.tell_last()
    assert await near.counts() == {("acme", "mail", QUEUED): 3}


async def test_a_step_of_the_clock_does_not_stop_counting(near: Shared, clock: ManualClock) -> None:
    store = Counts()
    counter = Counter(store, near.reset_counts, clock)  # type: ignore[arg-type]
    await counter.step()
    clock.step_wall(-2 * LATEST_MS / 1000)
    await counter.step()
    assert store.asked == 2
