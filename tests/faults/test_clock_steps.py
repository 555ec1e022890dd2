"""Wall clocks that jump: nothing sleeps for the size of the jump, nothing fires early, leases go by elapsed time (F-43)."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.conftest import worker_of
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.service import LONGEST_REST_S, Alarm, Loop

HOUR_S = 3_600


@pytest.mark.parametrize("hours", [-8, -1, 1, 8], ids=str)
async def test_a_step_and_the_step_back_lose_nothing_and_repeat_nothing(server, client, hours):
    started = []

    async def note(payload):
        started.append(payload)

    async def create(name: str, **when) -> None:
        await client.jobs.create(queue="q", handler="note", payload=name, **when)

    async with server.running(worker_of(server, note=note)):
        await create("before, in a minute", delay=60)
        await create("before, in two days", delay=48 * HOUR_S)
        await server.advance(seconds=1)
        assert started == []

        server.clock.step_wall(hours * HOUR_S)
        await create("during, now")
        await create("during, in a minute", delay=60)
        await server.advance(minutes=2)
        assert "during, now" in started
        assert "during, in a minute" in started
        assert ("before, in a minute" in started) is (hours > 0)

        server.clock.step_wall(-hours * HOUR_S)
        await server.advance(minutes=1)
        await create("after, now")
        await create("after, in a minute", delay=60)
        # Within a minute of being right again everything goes on.
        await server.advance(minutes=1)
        assert {"after, now", "after, in a minute", "before, in a minute"} <= set(started)
        await server.advance(hours=47, minutes=50)
        assert "before, in two days" not in started
        await server.advance(hours=1)
    assert sorted(started) == sorted(set(started))
    assert len(started) == 6


@pytest.mark.parametrize("hours", [-8, -1, 1, 8], ids=str)
async def test_a_held_job_is_neither_taken_early_nor_kept_for_the_size_of_the_jump(server, client, hours):
    # A timeout is kept in the store's time, so this one is longer than the jump.
    job = await client.jobs.create(queue="q", handler="h", timeout_s=86_400)
    (claimed,) = await client.queues.claim("q", worker="w", lease_s=30)
    server.clock.step_wall(hours * HOUR_S)
    await server.advance(seconds=10)
    # The worker is alive and says so: whatever the clock reads, the attempt stays its own.
    await client.attempts.heartbeat(claimed.lease_token)
    await server.advance(seconds=10)
    await client.attempts.heartbeat(claimed.lease_token)
    assert (await client.jobs.get(job.job_id)).status == "RUNNING"
    # Then it falls silent, and that is noticed in the usual time.
    await server.advance(seconds=35)
    assert (await client.jobs.get(job.job_id)).attempt == 1
    assert [each.outcome for each in await client.jobs.attempts(job.job_id)] == ["lost"]


@pytest.mark.parametrize("seconds", [-86_400, -3_600, -60, -10])
async def test_a_worker_that_died_before_the_clock_stepped_back_is_noticed_in_time(server, client, seconds):
    """Its lease ends in a time that the stepped clock shows only much later; a lease's own length is all that it may cost."""
    job = await client.jobs.create(queue="q", handler="h", timeout_s=86_400)
    await client.queues.claim("q", worker="w", lease_s=30)
    await server.advance(seconds=3)
    server.clock.step_wall(seconds)
    await server.advance(seconds=20)
    assert (await client.jobs.get(job.job_id)).status == "RUNNING"
    await server.advance(seconds=40)
    assert [each.outcome for each in await client.jobs.attempts(job.job_id)] == ["lost"]


class Sleepy(Alarm):
    """A stage that wishes to rest until an instant that a step of the clock has made absurd."""

    name = "sleepy"

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.rests: list[float] = []
        self.passed = asyncio.Event()

    async def step(self):
        self.passed.set()
        return Done()

    async def next_at(self) -> int | None:
        return self._clock.now_ms() + 8 * HOUR_S * 1000

    async def rest(self, timeout_s: float) -> None:
        self.rests.append(timeout_s)
        await super().rest(timeout_s)


class Done:
    more = False


async def test_no_loop_sleeps_beyond_its_maximum():
    clock = ManualClock()
    stage = Sleepy(clock)
    loop = Loop(stage, clock, SeededEntropy(1))
    loop.start()
    async with asyncio.timeout(20):
        for _ in range(5):
            await stage.passed.wait()
            stage.passed.clear()
            while not stage.rests:  # noqa: ASYNC110 - the rest begins within a few turns of this loop
                await asyncio.sleep(0)
            assert stage.rests.pop() == LONGEST_REST_S
            clock.advance(LONGEST_REST_S)
        await loop.stop()
