"""The lease of a job that was claimed here a moment ago is held back for two seconds, and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.conformance.near.world import PARTITIONS, World
from tests.servers.redis import RedisServer, new_installation
from tocsin.clock import ManualClock
from tocsin.near.redis import RedisNearTier, open_near
from tocsin.near.redis.leases import HELD_BACK_S

ALL = range(PARTITIONS)


class Two:
    """Two processes on one server."""

    def __init__(self, one: RedisNearTier, other: RedisNearTier, clock: ManualClock) -> None:
        self.one, self.other, self.clock = one, other, clock
        self.job_id = World(one, clock, PARTITIONS).job_id

    async def claimed(self) -> str:
        job_id = self.job_id()
        await self.one.lease([(job_id, 1, 1_000)], rechecked_soon=True)
        return job_id

    async def known(self) -> int:
        """How many leases the other process sees."""
        return (await self.other.figures(ALL)).leases


@pytest.fixture
async def two(redis_server: RedisServer) -> AsyncIterator[Two]:
    clock, installation = ManualClock(), new_installation()
    tiers = [
        await open_near(redis_server.url, clock, installation=installation, partitions=PARTITIONS) for _ in range(2)
    ]
    for tier in tiers:
        await tier.begin(ALL)
    yield Two(tiers[0], tiers[1], clock)
    for tier in tiers:
        await tier.close()


async def test_a_job_that_ends_within_a_second_costs_redis_nothing(two: Two) -> None:
    job_id = await two.claimed()
    assert await two.known() == 0
    await two.one.unlease([(job_id, 1)])
    two.clock.advance(HELD_BACK_S)
    assert (await two.one.figures(ALL)).leases == 0
    assert await two.known() == 0


async def test_a_job_that_goes_on_is_known_to_all_after_a_second(two: Two) -> None:
    await two.claimed()
    flushed = two.one._leases._later
    assert flushed is not None
    await asyncio.sleep(0)  # it waits from now on
    two.clock.advance(HELD_BACK_S)
    await flushed
    assert await two.known() == 1


async def test_an_orderly_end_tells_what_is_held_back(two: Two) -> None:
    await two.claimed()
    await two.one.close()
    assert await two.known() == 1


async def test_a_renewal_that_another_process_notes_is_not_undone(two: Two) -> None:
    job_id = await two.claimed()
    await two.other.lease([(job_id, 1, 9_000)])
    assert await two.known() == 1
    await two.other.unlease([(job_id, 1)])
    assert await two.known() == 0


async def test_an_attempt_that_was_not_claimed_here_is_told_at_once(two: Two) -> None:
    await two.one.lease([(two.job_id(), 1, 1_000)])
    assert await two.known() == 1


async def test_a_newer_attempt_of_a_job_held_back_is_told_at_once_and_wins(two: Two) -> None:
    job_id = await two.claimed()
    await two.one.lease([(job_id, 2, 5_000)])
    assert await two.one.leases_over(ALL, 6_000, 10) == [(job_id, 2)]
