"""What only many processes show: two nodes and one of the role api, over one store and one near tier."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.flow.recurring import TENANT, define
from tests.life.fleetworld import NODES, FleetWorld, Member
from tests.life.invariant import Ledger
from tocsin import wire
from tocsin.errors import NearUnavailable
from tocsin.flow.queues import FRESH_S, TELL_AGAIN_S
from tocsin.model.job import PENDING
from tocsin.model.partition import partition_of
from tocsin.near.port import QueueGate
from tocsin.wire import Status

API = NODES


@pytest.fixture
async def fleet() -> FleetWorld:
    """A fleet whose clocks agree."""
    world = FleetWorld(partitions=2, drift_ms=0)
    await world.start()
    return world


async def test_what_waits_for_a_run_goes_on_where_its_end_was_reported(fleet: FleetWorld) -> None:
    """No stage of a node makes a pass: the process that took the completion follows it."""
    made = await define(fleet, cron="0 * * * *", overlap="forbid")
    fleet.turn_to(API)
    await fleet.on.direct.trigger(TENANT, made.schedule_id, wire.Trigger(), None, b"")
    (running,) = await fleet.claim(10)
    begin = datetime(2026, 12, 5, tzinfo=UTC)
    await fleet.on.direct.backfill(TENANT, made.schedule_id, wire.Backfill(from_=begin, to=begin.replace(hour=2)))
    await fleet.settle()
    assert await fleet.claim(10) == []
    for _ in range(2):
        await fleet.complete(running.lease_token)
        while (await fleet.on.follow.step()).more:
            pass
        (running,) = await fleet.claim(10)


async def test_what_is_durable_is_answered_while_the_near_tier_is_away_and_a_claim_is_refused(
    fleet: FleetWorld,
) -> None:
    fleet.turn_to(API)
    first, second, third = [await fleet.create() for _ in range(3)]
    held = await fleet.claim(3)
    fleet.shared.away = True
    new = await fleet.create()
    later = await fleet.create(delay_s=60)
    tokens = {job.job_id: job.lease_token for job in held}
    assert await fleet.complete(tokens[first]) is Status.SUCCEEDED
    assert await fleet.complete(tokens[second], "retryable_failure", error="why") is Status.RETRYING
    assert (await fleet.cancel(later)).status is Status.CANCELLED
    await fleet.beat(tokens[third])
    with pytest.raises(NearUnavailable):
        await fleet.claim(1)
    assert (await fleet.job(new)).attempt == 0, "a refused claim has taken nothing"
    fleet.shared.away = False
    fleet.shared.lose()
    await fleet.advance(2)
    assert [job.job_id for job in await fleet.claim(1)] == [new]


async def test_a_claim_whose_near_tier_went_away_after_its_write_is_answered_with_its_jobs(fleet: FleetWorld) -> None:
    fleet.turn_to(API)
    job_id = await fleet.create()
    fleet.fault.at("before near.settle", NearUnavailable("away"))
    assert [job.job_id for job in await fleet.claim(1)] == [job_id]


async def test_a_pause_that_nobody_could_be_told_of_holds_at_every_process_within_seconds(fleet: FleetWorld) -> None:
    """The process that paused has died since; another one, which has never been asked for this gate, sets it right."""
    await fleet.pause(False)
    await fleet.claim()
    fleet.turn_to(API)
    await fleet.claim()
    fleet.turn_to(0)
    fleet.shared.away = True
    await fleet.pause()
    fleet.shared.away = False
    await fleet.restart()
    await fleet.create()
    await fleet.advance(TELL_AGAIN_S)
    fleet.turn_to(API)
    assert await fleet.claim() == []


async def test_a_process_that_remembers_an_older_row_does_not_undo_a_pause(fleet: FleetWorld) -> None:
    fleet.turn_to(API)
    await fleet.claim()
    await fleet.advance(TELL_AGAIN_S - FRESH_S + 1)
    await fleet.on.queues.get("acme", "q")  # remembered from now on
    fleet.turn_to(0)
    await fleet.pause()
    await fleet.create()
    await fleet.advance(FRESH_S - 1)
    fleet.turn_to(API)
    assert await fleet.claim() == []


async def test_a_callbacks_queue_that_was_paused_unheard_is_shut_at_the_next_claim(fleet: FleetWorld) -> None:
    target = {"type": "http", "url": "https://example.test/hook"}
    ask = wire.ClaimRequest(worker="executor", max=10)
    await fleet.create(target=target)
    assert len(await fleet.on.claim.claim_callbacks(ask)) == 1
    fleet.shared.away = True
    await fleet.pause()
    fleet.shared.away = False
    await fleet.create(target=target)
    assert await fleet.on.claim.claim_callbacks(ask) == []


async def test_a_callbacks_queue_whose_gate_is_stale_is_shut_by_whoever_gets_its_jobs(fleet: FleetWorld) -> None:
    target = {"type": "http", "url": "https://example.test/hook"}
    ask = wire.ClaimRequest(worker="executor", max=1)
    await fleet.create(target=target)
    await fleet.pause()
    await fleet.shared.ask("configure", ("acme", "q", QueueGate()), {})
    fleet.turn_to(API)
    await fleet.create(target=target, count=3)
    assert len(await fleet.on.claim.claim_callbacks(ask)) == 1
    await fleet.advance(TELL_AGAIN_S)
    assert len(await fleet.on.claim.claim_callbacks(ask)) == 1
    assert await fleet.on.claim.claim_callbacks(ask) == []


async def together(fleet: FleetWorld, *works: Awaitable[Any]) -> None:
    """All of these, each going on wherever another passes a point."""
    for member in fleet.members:
        member.yields(True)
    await asyncio.gather(*works)
    for member in fleet.members:
        member.yields(False)


async def moves_after(fleet: FleetWorld, points: int, then: Member, stage: str) -> None:
    """Everything moves to another node so many points on, which makes its passes at once."""
    for _ in range(points):
        await asyncio.sleep(0)
    for partition in range(fleet.partitions):
        fleet.give(partition, then.number)
    while (await then.custody.step()).more:
        pass
    while (await getattr(then, stage).step()).more:
        pass


@pytest.mark.parametrize("points", range(0, 40, 3))
async def test_a_batch_whose_partitions_move_while_it_fires_fires_each_job_once(points: int) -> None:
    fleet = FleetWorld(partitions=2, drift_ms=0)
    await fleet.start()
    ledger = Ledger(fleet)
    for partition in range(2):
        fleet.give(partition, 0)
    ids = [await fleet.create(delay_s=5) for _ in range(6)]
    await ledger.check(ids)
    await fleet.settle()
    fleet.clock.advance(5)
    old, new = fleet.members[:NODES]
    await together(fleet, old.dispatch.step(), moves_after(fleet, points, new, "dispatch"))
    await ledger.check(ids)
    assert {(await fleet.job(job_id)).status for job_id in ids} == {Status.QUEUED}
    assert sorted([job.job_id for job in await fleet.claim(10)]) == sorted(ids)


@pytest.mark.parametrize("points", range(0, 60, 5))
async def test_a_page_whose_partitions_move_while_it_is_rechecked_loses_no_timer(points: int) -> None:
    fleet = FleetWorld(partitions=2, drift_ms=0)
    await fleet.start()
    ledger = Ledger(fleet)
    for partition in range(2):
        fleet.give(partition, 0)
    ids = [await fleet.create() for _ in range(6)]
    (running,) = await fleet.claim(1, lease_s=600)
    await fleet.settle()
    fleet.clock.advance(125)
    old, new = fleet.members[:NODES]

    async def rechecks() -> None:
        while (await old.recheck.step()).more:
            pass

    await together(fleet, rechecks(), moves_after(fleet, points, new, "recheck"))
    await ledger.check(ids)
    got = [job.job_id for job in await fleet.claim(10)]
    assert sorted([*got, running.job_id]) == sorted(ids)
    assert await fleet.complete(running.lease_token) is Status.SUCCEEDED


async def test_a_lines_parked_jobs_of_two_owners_all_come_out_once_and_the_line_opens_again() -> None:
    fleet = FleetWorld(partitions=2, drift_ms=0, line_limit=4)
    await fleet.start()
    ids = [await fleet.create() for _ in range(24)]
    owners = {partition_of(job_id, 2) for job_id in ids}
    assert owners == {0, 1}
    assert len([row for partition in (0, 1) for row in await fleet.on.store.jobs.parked(partition, None, 99)]) == 20
    got: list[str] = []
    for _ in range(24):
        got += [job.job_id for job in await fleet.claim(2)]
        for member in fleet.members[:NODES]:
            await member.unpark.step()
    assert sorted(got) == sorted(ids)
    last = await fleet.create()
    assert [job.job_id for job in await fleet.claim(2)] == [last]
    assert not [row for partition in (0, 1) for row in await fleet.on.store.jobs.parked(partition, None, 99)]


async def test_the_jobs_of_a_dead_owners_batch_fire_as_soon_as_another_owns_them(fleet: FleetWorld) -> None:
    ids = [await fleet.create(delay_s=5) for _ in range(6)]
    await fleet.settle()
    fleet.clock.advance(5)
    fleet.turn_to(0)
    for partition in range(2):
        fleet.give(partition, 0)
    while (await fleet.members[0].custody.step()).more:
        pass
    await fleet.members[0].near.take((0, 1), fleet.clock.now_ms(), 10)  # and dies
    for partition in range(2):
        fleet.give(partition, 1)
    await fleet.settle()
    assert not [job_id for job_id in ids if (await fleet.job(job_id)).status in PENDING]
