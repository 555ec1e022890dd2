"""What all processes know together: counts of jobs, and the workers seen."""

from __future__ import annotations

from tests.conformance.near.world import World
from tocsin.near.port import WORKERS_KEPT_MS, WORKERS_SHOWN, WorkerSeen
from tocsin.wire import Status

HOUR_S = 3_600


def seen(world: World, worker: str, *, queue: str = "mail", claimed: int = 0, ago_ms: int = 0) -> WorkerSeen:
    return WorkerSeen(tenant="acme", worker=worker, queue=queue, seen_at=world.now - ago_ms, claimed=claimed)


async def test_counts_add_up(world: World) -> None:
    queued, running = ("acme", "mail", Status.QUEUED), ("acme", "mail", Status.RUNNING)
    await world.near.add_counts({queued: 5})
    await world.near.add_counts({queued: -2, running: 2})
    await world.near.add_counts({})
    assert await world.near.counts() == {queued: 3, running: 2}
    await world.near.add_counts({running: -2})
    assert {key: count for key, count in (await world.near.counts()).items() if count} == {queued: 3}


async def test_a_count_of_the_store_takes_the_place_of_all_counts(world: World) -> None:
    await world.near.add_counts({("acme", "mail", Status.QUEUED): 5, ("globex", "fax", Status.DEAD): 1})
    await world.near.reset_counts({("acme", "fax", Status.SCHEDULED): 7})
    assert await world.near.counts() == {("acme", "fax", Status.SCHEDULED): 7}
    await world.near.reset_counts({})
    assert await world.near.counts() == {}


async def test_the_latest_sighting_of_each_worker_is_shown_the_latest_first(world: World) -> None:
    await world.near.note_workers([])
    await world.near.note_workers([seen(world, "one", claimed=3), seen(world, "two words", queue="fax")])
    world.clock.advance(1)
    again = seen(world, "one", claimed=8)
    await world.near.note_workers([again])
    assert await world.near.workers() == [again, seen(world, "two words", queue="fax", ago_ms=1_000)]


async def test_a_worker_is_forgotten_a_day_after_it_was_seen_last(world: World) -> None:
    await world.near.note_workers([seen(world, "old", ago_ms=WORKERS_KEPT_MS - 1_000), seen(world, "new")])
    assert [each.worker for each in await world.near.workers()] == ["new", "old"]
    world.clock.advance(2)
    assert [each.worker for each in await world.near.workers()] == ["new"]
    world.clock.advance(24 * HOUR_S)
    assert await world.near.workers() == []


async def test_of_too_many_workers_the_latest_are_kept(world: World) -> None:
    for start in range(0, WORKERS_SHOWN + 5, 2_001):
        end = min(start + 2_001, WORKERS_SHOWN + 5)
        world.clock.advance(1)
        await world.near.note_workers([seen(world, f"w{at:05d}") for at in range(start, end)])
    shown = {each.worker for each in await world.near.workers()}
    assert shown == {f"w{at:05d}" for at in range(5, WORKERS_SHOWN + 5)}
