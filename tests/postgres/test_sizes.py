"""Small and large payloads, and large batches."""

import random

import pytest
from msgspec import Raw

from tests.conformance.yard import LEASE_MS, WORKER, Yard, due
from tocsin.clock import ManualClock
from tocsin.store.port import Fired, Made, Success
from tocsin.store.postgres import PostgresStore


@pytest.mark.parametrize("size", [1, 7_900, 8_100, 65_536])
@pytest.mark.parametrize("varied", [False, True])
async def test_a_payload_comes_out_as_it_went_in(
    store: PostgresStore, clock: ManualClock, size: int, varied: bool
) -> None:
    yard = Yard(store, clock)
    text = (
        "".join(random.Random(size).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=size)) if varied else "x" * size
    )
    payload = Raw(f'"{text}"'.encode())
    (job,) = await yard.running(payload=payload)
    assert job.definition.payload == payload
    await yard.jobs.succeed([Success(job_id=job.job_id, attempt=1, result=bytes(payload))])
    ended = await yard.state(job.job_id)
    assert (ended.definition.payload, ended.result) == (payload, bytes(payload))


async def test_a_batch_of_five_thousand_lives_its_life(store: PostgresStore, clock: ManualClock) -> None:
    yard = Yard(store, clock)
    jobs = [yard.new() for _ in range(5_000)]
    assert {answer.made for answer in await yard.jobs.create(jobs)} == {Made.CREATED}
    assert set(await yard.jobs.fire([due(job) for job in jobs])) == {Fired.WON}
    got = await yard.jobs.claim([job.job_id for job in jobs], WORKER, LEASE_MS)
    assert [job and job.job_id for job in got] == [job.job_id for job in jobs]
    assert set(await yard.jobs.succeed([Success(job_id=job.job_id, attempt=1) for job in jobs])) == {True}
