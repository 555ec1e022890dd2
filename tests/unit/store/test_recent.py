"""A claim gets the job's definition as it is, whether it was remembered or read."""

from __future__ import annotations

from dataclasses import replace

from msgspec import Raw

from tests.conformance.yard import LEASE_MS, WORKER, Yard, due_of
from tocsin.model.job import decode_definition
from tocsin.store.port import Change
from tocsin.store.sqlite.recent import Recent
from tocsin.wire import Status


def test_the_oldest_are_forgotten_first() -> None:
    recent = Recent(most_bytes=10)
    for name in "abc":
        recent.add(name, name * 4)
    assert [recent.take(name) for name in "abca"] == [None, "bbbb", "cccc", None]
    recent.add("d", "x" * 11)
    assert recent.take("d") is None


async def test_remembered_and_read_definitions_are_handed_out_side_by_side(yard: Yard) -> None:
    jobs = [yard.new(queued=True, name=f"job {number}") for number in range(9)]
    await yard.jobs.create(jobs)
    for job in jobs[::3]:
        yard.store.jobs._recent.take(job.job_id)  # type: ignore[attr-defined]
    got = await yard.jobs.claim([job.job_id for job in jobs], WORKER, LEASE_MS)
    assert [one and one.definition for one in got] == [decode_definition(job.definition) for job in jobs]


async def test_a_changed_definition_is_handed_out_as_it_is_now(yard: Yard) -> None:
    patched, bumped, kept = await yard.made(3, 1_000)
    for job, version in ((patched, 1), (bumped, 2)):
        before = await yard.state(job.job_id)
        definition = type(before.definition)(
            target=before.definition.target, run_at=1, key_at=1, payload=Raw(b'"changed"')
        )
        after = replace(before, version=version, definition=definition)
        assert await yard.jobs.change([Change(before=before, after=after, timer=True)]) == [True]
    # A create that is repeated late brings the first definition back into memory: the version tells that it is an old one.
    await yard.jobs.create([bumped])
    states = [await yard.state(job.job_id) for job in (patched, bumped, kept)]
    await yard.jobs.fire([due_of(job) for job in states])
    got = await yard.jobs.claim([job.job_id for job in states], WORKER, LEASE_MS)
    payloads = [one and bytes(one.definition.payload) for one in got]
    assert payloads == [b'"changed"', b'"changed"', b'{"to":"ada"}']
    assert [await yard.status(job.job_id) for job in states] == [Status.RUNNING] * 3


async def test_after_a_restart_definitions_are_read(opener, clock) -> None:
    store = await opener()
    ids = await Yard(store, clock).queued(3)
    await store.close()
    got = await Yard(await opener(), clock).jobs.claim(ids, WORKER, LEASE_MS)
    assert [one and bytes(one.definition.payload) for one in got] == [b'{"to":"ada"}'] * 3
