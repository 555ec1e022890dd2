"""An installation with some of everything in it, and the places in which one can stand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.yard import LINE, PARTITIONS, Yard, due, due_of, fired, key, skip, step
from tests.life.disk import Disk, Fault
from tests.life.stepstore import StepStore
from tests.life.steptransfer import StepTransfer
from tests.servers.postgres import PostgresServer
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.model.job import LIVE, JobState, Lane
from tocsin.model.partition import partition_of
from tocsin.store import postgres
from tocsin.store.port import FAR, FIRE, WATCH, Beat, Change, JobFilter, Store, Success
from tocsin.store.schedules import Move
from tocsin.store.settings import QueueRow, SigningKeyRow, TenantRow, TokenRow
from tocsin.store.sqlite import open_store, open_transfer
from tocsin.store.transfer import Transfer
from tocsin.wire import Status

BULK = LINE._replace(queue="bulk", lane=Lane.FLEXIBLE, handler="", hold="https://example.com:443")


class SqlitePlace:
    """A file."""

    def __init__(self, folder: Path, clock: ManualClock, partitions: int) -> None:
        folder.mkdir()
        self.path, self._clock, self._partitions = folder / "tocsin.db", clock, partitions

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        store = await open_store(self.path, self._clock, partitions=self._partitions, entropy=SeededEntropy(1))
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def transfer(self) -> AsyncIterator[Transfer]:
        entropy = SeededEntropy(sum(str(self.path).encode()))
        store = await open_transfer(self.path, self._clock, entropy=entropy, make=True, partitions=self._partitions)
        try:
            yield store
        finally:
            await store.close()


class StepPlace:
    """A disk of single rows."""

    def __init__(self, folder: Path, clock: ManualClock, partitions: int) -> None:
        self.disk, self.fault = Disk(installation=str(folder)), Fault()
        self._folder, self._clock, self._partitions = folder, clock, partitions

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        yield StepStore(self.disk, self._clock, self._partitions)

    @asynccontextmanager
    async def transfer(self) -> AsyncIterator[Transfer]:
        yield StepTransfer(StepStore(self.disk, self._clock, self._partitions, self.fault), f"steps:{self._folder}")


class PostgresPlace:
    """One or more databases."""

    def __init__(self, dsns: list[str], clock: ManualClock, partitions: int) -> None:
        self.dsn, self._shards, self._clock, self._partitions = dsns[0], dsns[1:], clock, partitions

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        store = await postgres.open_store(
            self.dsn, self._clock, partitions=self._partitions, entropy=SeededEntropy(1), shards=self._shards
        )
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def transfer(self) -> AsyncIterator[Transfer]:
        entropy = SeededEntropy(sum(self.dsn.encode()))
        store = await postgres.open_transfer(
            self.dsn, self._clock, entropy=entropy, partitions=self._partitions, shards=self._shards
        )
        try:
            yield store
        finally:
            await store.close()


Place = SqlitePlace | StepPlace | PostgresPlace
KINDS = ("sqlite", "single rows", "postgresql")


class Ground:
    """Makes empty places, which are gone at its end."""

    def __init__(
        self, request: pytest.FixtureRequest, folder: Path, clock: ManualClock, databases: AsyncExitStack
    ) -> None:
        self._request, self._folder, self._clock, self._databases = request, folder, clock, databases

    async def place(self, kind: str, name: str, partitions: int = PARTITIONS) -> Place:
        """An empty place of an adapter."""
        match kind:
            case "sqlite":
                return SqlitePlace(self._folder / name, self._clock, partitions)
            case "single rows":
                return StepPlace(self._folder / name, self._clock, partitions)
            case _:
                server: PostgresServer = self._request.getfixturevalue("postgres")
                shards = 2 if kind.endswith("two shards") else 1
                dsns = await self._databases.enter_async_context(server.database(partitions, shards))
                return PostgresPlace(dsns, self._clock, partitions)

    def steps(self, name: str, partitions: int = PARTITIONS) -> StepPlace:
        """An empty place of single rows, with its disk at hand."""
        return StepPlace(self._folder / name, self._clock, partitions)

    def file(self, name: str, partitions: int = PARTITIONS) -> SqlitePlace:
        """An empty place in a file, with its path at hand."""
        return SqlitePlace(self._folder / name, self._clock, partitions)


@asynccontextmanager
async def standing(request: pytest.FixtureRequest, folder: Path, clock: ManualClock) -> AsyncIterator[Ground]:
    """A ground for a test."""
    async with AsyncExitStack() as databases:
        yield Ground(request, folder, clock, databases)


async def fill(store: Store, clock: ManualClock) -> Yard:
    """Put some of everything into an empty store."""
    yard = Yard(store, clock)
    for kind in (_settings, _waiting, _held, _ended, _schedules):
        await kind(yard)
        clock.step_wall(1.0)
    return yard


async def _settings(yard: Yard) -> None:
    rows = yard.store.settings
    await rows.put_tenant(
        TenantRow(name="acme", weight=2.5, quotas={"waiting_jobs": 5, "creates_per_s": 0.5}), create=True
    )
    await rows.put_tenant(TenantRow(name="bolt", created_at=yard.now), create=True)
    for token_id, tenant, expires_at in (("a", "acme", None), ("b", "bolt", yard.now + 1_000)):
        scopes = ("read", "work:*")
        token = TokenRow(
            token_id=token_id,
            tenant=tenant,
            name="ci",
            secret_sha256=token_id.encode() * 32,
            scopes=scopes,
            created_at=yard.now,
            expires_at=expires_at,
        )
        await rows.add_token(token)
    for number in range(3):
        await rows.add_signing_key(
            SigningKeyRow(key_id=f"k{number}", tenant="acme", secret=f"whsec_{number}", created_at=number)
        )
    await rows.put_queue(QueueRow(tenant="acme", queue="mail", paused=True, pause_note="sss ö", created_at=yard.now))
    await rows.put_queue(QueueRow(tenant="bolt", queue="mail", lease_ms=7_000, max_backoff_s=0.1))
    await rows.secret("lease-tokens", b"\x00\xff" * 16)
    await rows.secret("cursors", b"c" * 32)


async def _waiting(yard: Yard) -> None:
    bolt = LINE._replace(tenant="bolt")
    await yard.made(3, 86_400_000)
    await yard.made(2, 5_000, line=BULK, priority=1, name="ümlaut", tags={"a": "b"})
    await yard.made(1, -90_000, line=bolt, expires_in_ms=600_000)
    await yard.made(1, 60_000, key=key("order-7"))
    await yard.made(1, 60_000, key=key("order-7", b"2", "bolt"), line=bolt)
    await yard.queued(2, priority=-1)
    parked = yard.new(0, queued=True, line=BULK)
    await yard.jobs.create([parked])
    await yard.jobs.park([due(parked)])
    await yard.retrying()


async def _held(yard: Yard) -> None:
    running = await yard.running(2)
    await yard.jobs.heartbeat([Beat(job_id=running[0].job_id, attempt=1, progress=b'{"done":0.5}')])
    (asked,) = await yard.running(line=BULK, worker="w-2")
    before = await yard.state(asked.job_id)
    change = Change(before=before, after=replace(before, status=Status.CANCEL_REQUESTED))
    assert await yard.jobs.change([change]) == [True]


async def _ended(yard: Yard) -> None:
    await yard.dead("boom: ö")
    await yard.dead("bang \0 \ufffd", line=BULK)
    plain, told = await yard.running(2)
    await yard.jobs.succeed(
        [
            Success(job_id=plain.job_id, attempt=1),
            Success(job_id=told.job_id, attempt=1, result=b'{"n":1}', status_code=200, response=b"ok"),
        ]
    )
    await _after_a_failure(yard)
    (waiting,) = await yard.made(1, 3_600_000, key=key("order-8"))
    await yard.cancelled(waiting.job_id)
    (late,) = await yard.queued(expires_in_ms=500)
    yard.clock.step_wall(1.0)
    assert await yard.jobs.claim([late], "w-1", 30_000) == [None]


async def _after_a_failure(yard: Yard) -> None:
    """A success whose first attempt failed."""
    job = await yard.retrying()
    yard.clock.step_wall(2.0)
    await yard.jobs.fire([due_of(job)])
    await yard.jobs.claim([job.job_id], "w-3", 30_000)
    assert await yard.jobs.succeed([Success(job_id=job.job_id, attempt=2)]) == [True]


async def _schedules(yard: Yard) -> None:
    row, job = await yard.begun("nightly", at_in_ms=0)
    following = yard.occurrence(row, 86_400_000)
    yard.clock.step_wall(1.0)
    assert (await yard.move(fired(row, job, following, state='{"runs":1}'))).value == "won"
    paused, _ = await yard.begun("weekly", at_in_ms=600_000, tenant="bolt", look_in_ms=None)
    ended = Move(
        schedule_id=paused.schedule_id,
        serial=paused.serial,
        after=step(paused, status="paused", revision=2, spec='{"every_s":5}', state='{"backlog":[1,2]}'),
        skips=(skip(paused, yard.now, "paused", last=yard.now + 5, count=3, detail="why"),),
    )
    assert (await yard.move(ended)).value == "won"
    await yard.schedules.add_skips([skip(row, yard.now + n, "missed") for n in range(4)])


async def unwatched(store: Store, partitions: int, last_bucket: int = FAR) -> list[str]:
    """The unfinished jobs to which no timer leads: at their version, in their partition, not below its floor."""
    floors, led = await store.jobs.floors(), set[str]()
    live: dict[str, int] = {}
    for job in await everything(store):
        if job.status in LIVE:
            live[job.job_id] = job.version
    for partition in range(partitions):
        for kind in (FIRE, WATCH):
            page = await store.jobs.read_timers(partition, kind, last_bucket, None, 5_000)
            assert page.next_key is None
            led |= {
                timer.job_id
                for timer in page.timers
                if timer.version == live.get(timer.job_id)
                and timer.bucket >= floors[partition]
                and partition_of(timer.job_id, partitions) == partition
            }
    return sorted(set(live) - led)


async def everything(store: Store) -> list[JobState]:
    """All jobs of both tenants."""
    found: list[JobState] = []
    for tenant in ("acme", "bolt"):
        found += (await store.jobs.list_jobs(JobFilter(tenant=tenant), None, 5_000)).jobs
    return found
