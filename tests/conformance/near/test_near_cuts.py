"""Cuts: a set holds its earliest members only, the loader reads on, and nothing is lost in between.

`Bucket` stands for the store: all members of the set's partition, lane and tenant in key order, less those that have fired.
"""

from __future__ import annotations

import pytest

from tests.conformance.near.world import Make, World, ids
from tocsin.model.partition import bucket_of
from tocsin.near.port import Cut
from tocsin.store.port import Due, TimerKey


class Bucket:
    """What the store holds; `fire` takes members out, `page` reads like `read_due`."""

    def __init__(self, dues: list[Due]) -> None:
        self.waiting = {due.job_id: due for due in dues}

    def fire(self, dues: list[Due]) -> None:
        for due in dues:
            del self.waiting[due.job_id]

    def page(self, cut: Cut, limit: int) -> tuple[list[Due], TimerKey | None]:
        rows = sorted((key_of(due), due) for due in self.waiting.values())
        if cut.after is not None:
            rows = [row for row in rows if row[0] > cut.after]
        else:
            rows = [row for row in rows if row[1].due_at >= cut.from_time]
        found = [due for _, due in rows[:limit]]
        return found, key_of(found[-1]) if len(rows) > limit else None


def key_of(due: Due) -> TimerKey:
    return (bucket_of(due.due_at), due.line.lane, due.line.tenant, due.due_at, due.job_id, due.version)


async def read_on(world: World, bucket: Bucket, limit: int) -> int:
    """One page for each cut set that has room, as the loader does it."""
    read = 0
    for cut in await world.near.cuts(world.all):
        dues, next_key = bucket.page(cut, limit)
        await world.near.move_cut(cut, None if next_key is None else next_key[3], next_key)
        await world.near.offer(dues)
        read += len(dues)
    return read


async def test_a_set_keeps_its_earliest_members_and_refuses_the_rest(make: Make) -> None:
    world = await make(partitions=1, due_limit=100)
    dues = [world.due(at) for at in range(300)]
    refused = []
    for due in reversed(dues):
        refused += await world.near.offer([due])
    held = (await world.near.figures(world.all)).due
    assert 100 <= held <= 125
    assert await world.near.offer([dues[-1]]) == [dues[-1]]
    early = world.due(-1_000)
    assert await world.near.offer([early]) == []
    world.clock.advance(1)
    assert (await world.take_and_drop(101))[:101] == [early, *dues[:100]]


async def test_a_full_set_is_not_read_on_until_it_is_under_half(make: Make) -> None:
    world = await make(partitions=1, due_limit=100)
    await world.near.offer([world.due(at) for at in range(200)])
    world.clock.advance(1)
    assert await world.near.cuts(world.all) == []
    await world.take_and_drop(40)
    assert await world.near.cuts(world.all) == []
    await world.take_and_drop(40)
    (cut,) = await world.near.cuts(world.all)
    assert (cut.partition, cut.lane, cut.tenant) == (0, 0, "acme")
    assert await world.near.cuts([]) == []


async def test_a_set_that_holds_all_there_is_is_no_longer_cut(make: Make) -> None:
    world = await make(partitions=1, due_limit=100)
    dues = [world.due(at) for at in range(130)]
    await world.near.offer(dues)
    world.clock.advance(1)
    await world.take_and_drop(80)
    (cut,) = await world.near.cuts(world.all)
    await world.near.move_cut(cut, None)
    await world.near.offer(dues[80:])
    assert await world.near.cuts(world.all) == []
    assert await world.near.offer([world.due(99_000)]) == []


@pytest.mark.parametrize("spread", ["one millisecond", "a minute", "ten in each"])
@pytest.mark.parametrize("partitions", [1, 4])
async def test_a_flood_passes_through_a_small_set_without_loss(make: Make, spread: str, partitions: int) -> None:
    world = await make(partitions=partitions, due_limit=200)
    times = {
        "one millisecond": [0] * 1_500,
        "a minute": [at * 20 for at in range(1_500)],
        "ten in each": [at // 10 for at in range(1_500)],
    }
    dues = [world.due(at) for at in times[spread]]
    bucket = Bucket(dues)
    for at in range(0, len(dues), 100):
        await world.near.offer(sorted(dues, key=key_of)[at : at + 100])
    world.clock.advance(120)
    fired: list[Due] = []
    most_held = 0
    for _ in range(2_000):
        if not bucket.waiting:
            break
        taken = await world.take(50)
        bucket.fire(taken)
        await world.near.drop(taken)
        fired += taken
        await read_on(world, bucket, 50)
        most_held = max(most_held, (await world.near.figures(world.all)).due)
    assert not bucket.waiting, "a member behind the cut was never read"
    assert sorted(ids(fired)) == sorted(ids(dues))
    assert len(fired) == len(dues)
    # Where sets are shared by processes, each partition has one of its own.
    assert most_held <= 250 * (partitions if world.shared else 1)
    if partitions == 1:
        assert [due.due_at for due in fired] == sorted(due.due_at for due in dues)


async def test_members_written_while_the_loader_reads_are_not_lost(make: Make) -> None:
    world = await make(partitions=1, due_limit=100)
    dues = [world.due(at * 10) for at in range(130)]
    bucket = Bucket(dues)
    await world.near.offer(dues)
    world.clock.advance(2)
    taken = await world.take_and_drop(80)
    bucket.fire(taken)
    (cut,) = await world.near.cuts(world.all)
    page, next_key = bucket.page(cut, 20)
    assert next_key is not None
    # Committed after the page was read, offered before the cut is moved, and within the page's range.
    written = world.due(page[10].due_at + 5 - world.now)
    bucket.waiting[written.job_id] = written
    await world.near.offer([written])
    await world.near.move_cut(cut, next_key[3], next_key)
    await world.near.offer(page)
    seen = ids(await world.take_and_drop(1_000))
    while await read_on(world, bucket, 20):
        seen += ids(await world.take_and_drop(1_000))
        bucket.fire([due for due in bucket.waiting.values() if due.job_id in seen])
    assert sorted(seen) == sorted([*ids(dues[80:]), written.job_id])


async def test_a_set_that_was_trimmed_while_the_loader_read_keeps_its_cut(make: Make) -> None:
    world = await make(partitions=1, due_limit=100)
    dues = [world.due(1_000 + at * 10) for at in range(130)]
    bucket = Bucket(dues)
    await world.near.offer(dues)
    world.clock.advance(3)
    bucket.fire(await world.take_and_drop(80))
    (cut,) = await world.near.cuts(world.all)
    page, next_key = bucket.page(cut, 20)
    assert next_key is not None
    flood = [world.due(-5_000 + at) for at in range(200)]
    bucket.waiting.update({due.job_id: due for due in flood})
    await world.near.offer(flood)
    await world.near.move_cut(cut, next_key[3], next_key)
    await world.near.offer(page)
    fired: list[Due] = []
    for _ in range(500):
        taken = await world.take_and_drop(40)
        bucket.fire(taken)
        fired += taken
        await read_on(world, bucket, 20)
    assert not bucket.waiting
    assert sorted(ids(fired)) == sorted(ids(dues[80:] + flood))


async def test_what_came_while_the_loader_read_and_was_trimmed_again_is_read_later(make: Make) -> None:
    world = await make(partitions=1, due_limit=100)
    dues = [world.due(at * 10) for at in range(130)]
    bucket = Bucket(dues)
    await world.near.offer(dues)
    world.clock.advance(2)
    bucket.fire(await world.take_and_drop(80))
    (cut,) = await world.near.cuts(world.all)
    page, next_key = bucket.page(cut, 20)
    assert next_key is not None
    written = [world.due(page[10].due_at + 1 - world.now) for _ in range(150)]
    bucket.waiting.update({due.job_id: due for due in written})
    await world.near.offer(written)
    await world.near.move_cut(cut, next_key[3], next_key)
    await world.near.offer(page)
    for _ in range(100):
        bucket.fire([due for due in await world.take_and_drop(40) if due.job_id in bucket.waiting])
        await read_on(world, bucket, 20)
    assert not bucket.waiting


async def test_one_tenants_cut_and_one_lanes_cut_concern_nobody_else(make: Make) -> None:
    world = await make(partitions=1, due_limit=100)
    await world.near.offer([world.due(at) for at in range(200)])
    other, flexible = world.due(9_000, tenant="other"), world.due(9_000, lane=1)  # type: ignore[arg-type]
    assert await world.near.offer([other, flexible]) == []


async def test_cuts_are_forgotten_with_their_partition(make: Make) -> None:
    world = await make(partitions=4, due_limit=100)
    await world.near.offer([world.due(at, partition=at % 4) for at in range(600)])
    world.clock.advance(1)
    await world.take_and_drop()
    assert {cut.partition for cut in await world.near.cuts(world.all)} == {0, 1, 2, 3}
    await world.near.forget([0, 1])
    assert {cut.partition for cut in await world.near.cuts(world.all)} == ({0, 1, 2, 3} if world.shared else {2, 3})


async def test_a_full_set_of_one_millisecond_is_not_read_on_before_it_has_room(make: Make) -> None:
    world = await make(partitions=1, due_limit=100)
    await world.near.offer([world.due(0) for _ in range(300)])
    assert await world.near.cuts(world.all) == []


async def test_what_is_more_urgent_than_all_that_a_full_set_holds_is_read_on_at_once(make: Make) -> None:
    world = await make(partitions=1, due_limit=100)
    dues = [world.due(at) for at in range(130)]
    await world.near.offer(dues)
    world.clock.advance(1)
    await world.take_and_drop(100)
    (cut,) = await world.near.cuts(world.all)
    # The loader reads for a while; meanwhile others fill the set with later times.
    await world.near.offer([world.due(60_000 + at) for at in range(90)])
    assert cut in await world.near.cuts(world.all)
