"""One of two databases is lost: what lives in the other goes on, and what lives in the lost one is there again afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.conformance.yard import LEASE_MS, PARTITIONS, WORKER, Yard
from tests.life.world import World
from tests.postgres.sessions import session
from tests.servers.postgres import PostgresServer
from tocsin.clock import SeededEntropy
from tocsin.errors import PartlyUnavailable, StoreUnavailable
from tocsin.flow.custody import Custodian
from tocsin.flow.health import Health
from tocsin.flow.reach import Reach
from tocsin.model.partition import partition_of
from tocsin.store.port import Store
from tocsin.store.postgres import open_store
from tocsin.wire import Status

LOST = frozenset(range(PARTITIONS // 2, PARTITIONS))


class Pair(World):
    """A process over two databases, of which the second can be lost."""

    def __init__(self, dsns: list[str]) -> None:
        super().__init__(partitions=PARTITIONS)
        self.dsns = dsns

    async def open_store(self) -> Store:
        return await open_store(
            self.dsns[0], self.clock, partitions=PARTITIONS, entropy=SeededEntropy(1), shards=self.dsns[1:]
        )

    @asynccontextmanager
    async def loss(self, which: int = 1) -> AsyncIterator[None]:
        name = self.dsns[which].rpartition("/")[2].partition("?")[0]
        async with session(self.dsns[1 - which]) as other:
            await other.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            await other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
            try:
                yield
            finally:
                await other.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


@pytest.fixture
async def pair(postgres: PostgresServer) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        dsns = await stack.enter_async_context(postgres.database(PARTITIONS, shards=2))
        world = Pair(list(dsns))
        await world.start()
        stack.push_async_callback(world.on.store.close)
        yield world


def lives_in_the_lost_one(job_id: str) -> bool:
    return partition_of(job_id, PARTITIONS) in LOST


async def test_a_claim_over_both_gives_what_the_other_has_and_charges_nothing_else(pair: Pair) -> None:
    ids = await Yard(pair.on.store, pair.clock).queued(12)
    async with pair.loss():
        with pytest.raises(PartlyUnavailable) as partly:
            await pair.on.store.jobs.claim(ids, WORKER, LEASE_MS)
        with pytest.raises(PartlyUnavailable, match="does not take us") as unwritten:
            await pair.on.store.ping()
        floors = await pair.on.store.jobs.floors()
    assert partly.value.partitions == unwritten.value.partitions == LOST
    assert partly.value.unanswered == {at for at, job_id in enumerate(ids) if lives_in_the_lost_one(job_id)}
    got = [job for at, job in enumerate(partly.value.answers) if at not in partly.value.unanswered]
    assert [(job.job_id, job.attempt) for job in got] == [(each, 1) for each in ids if not lives_in_the_lost_one(each)]
    assert set(floors) == set(range(PARTITIONS)) - LOST


async def test_the_jobs_of_the_other_fire_and_are_claimed_and_those_of_the_lost_one_when_it_is_back(pair: Pair) -> None:
    on, reach = pair.on, Reach(pair.on.leases)
    for stage in (on.dispatch, on.load, on.recheck, on.unpark, on.rescue):
        stage._leases = reach
    on.pulse._saw = reach.saw
    custodian = Custodian(on.near, reach, on.recover, pair.clock)
    while (await custodian.step()).more:
        pass
    ready = {await pair.create() for _ in range(8)}
    due = {await pair.create(delay_s=10) for _ in range(8)}
    here = {job_id for job_id in ready | due if not lives_in_the_lost_one(job_id)}
    assert ready & here
    assert due & here
    assert (ready | due) - here
    async with pair.loss():
        pair.clock.advance(10)
        await on.pulse.step()
        while (await on.dispatch.step()).more:
            pass
        got = await pair.claim(100)
        assert {job.job_id for job in got} == here
        assert {job.attempt for job in got} == {1}
        for job in got:
            assert await pair.complete(job.lease_token) is Status.SUCCEEDED
    pair.clock.advance(10)
    await on.pulse.step()
    while (await custodian.step()).more:
        pass
    while (await on.dispatch.step()).more:
        pass
    assert {job.job_id for job in await pair.claim(100)} == (ready | due) - here


@pytest.mark.parametrize("which", [0, 1])
async def test_a_process_is_ready_without_another_database_than_the_home_one(pair: Pair, which: int) -> None:
    health = Health(pair.on.store, pair.on.gap, pair.clock, None)
    health.recovered()
    assert await health.reasons() == []
    async with pair.loss(which):
        reasons = await health.reasons()
    assert len(reasons) == 1 - which
    assert all("home database" in reason for reason in reasons)


async def test_a_store_that_has_lost_both_is_simply_unavailable(pair: Pair, postgres: PostgresServer) -> None:
    postgres.kill()
    try:
        with pytest.raises(StoreUnavailable) as lost:
            await pair.on.store.ping()
        assert not isinstance(lost.value, PartlyUnavailable)
    finally:
        postgres.start()
