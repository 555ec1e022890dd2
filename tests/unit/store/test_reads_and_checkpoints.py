"""Readers are bounded in time and never write; the WAL stays short."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from tests.conformance.yard import START, Yard
from tests.unit.store.conftest import Opener
from tests.unit.store.test_writer import Gate, Steps
from tocsin.clock import ManualClock
from tocsin.errors import StoreUnavailable
from tocsin.store.port import JobFilter
from tocsin.store.sqlite.checkpoint import Checkpointer
from tocsin.store.sqlite.connection import open_reader, open_writer
from tocsin.store.sqlite.migrate import migrate
from tocsin.store.sqlite.reads import Readers

ENDLESS = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


class HurryingClock(ManualClock):
    """Ten milliseconds pass at every look."""

    def elapsed_s(self) -> float:
        self._elapsed_s += 0.01
        return self._elapsed_s


@pytest.fixture
def migrated(path: Path) -> Path:
    conn = open_writer(path)
    migrate(conn, path, 0)
    conn.close()
    return path


async def test_a_read_that_takes_too_long_is_ended_and_the_reader_goes_on(migrated: Path) -> None:
    readers = Readers(migrated, HurryingClock(START), readers=1)
    with pytest.raises(StoreUnavailable, match="longer than 2 s; ask for less"):
        await readers.run(lambda conn: conn.execute(ENDLESS).fetchone())
    assert await readers.run(lambda conn: conn.execute("SELECT 7").fetchone()) == (7,)
    readers.close()


async def test_a_reader_cannot_write(migrated: Path) -> None:
    conn = open_reader(migrated, lambda: False)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        conn.execute("DELETE FROM jobs")
    conn.close()


async def test_reads_go_on_while_a_write_stands_still(opener: Opener, clock: ManualClock) -> None:
    steps = Steps()
    yard = Yard(await opener(on_step=steps), clock)
    (before,) = await yard.made(1)
    gate = Gate(steps)
    writing = asyncio.create_task(yard.made(1))
    await gate.reached()
    page = await yard.jobs.list_jobs(JobFilter(tenant="acme"), None, 10)
    assert [job.job_id for job in page.jobs] == [before.job_id]
    gate.open()
    await writing


async def test_the_recheck_reads_after_what_was_asked_for_before(opener: Opener, clock: ManualClock) -> None:
    steps = Steps()
    yard = Yard(await opener(on_step=steps), clock)
    gate = Gate(steps)
    creating = asyncio.create_task(yard.made(3))
    await gate.reached()
    reading = asyncio.create_task(yard.timers())
    await asyncio.sleep(0)
    assert not reading.done()
    gate.open()
    await creating
    assert len(await reading) == 3


async def test_a_list_reads_no_more_than_five_thousand_and_goes_on(opener: Opener, clock: ManualClock) -> None:
    yard = Yard(await opener(), clock)
    first = (await yard.made(1, tags={"wanted": "1"}))[0].job_id
    clock.advance(1)
    await yard.made(5_001)
    wanted = JobFilter(tenant="acme", tags=(("wanted", "1"),))
    page = await yard.jobs.list_jobs(wanted, None, 10)
    assert page.jobs == []
    assert page.after is not None
    page = await yard.jobs.list_jobs(wanted, page.after, 10)
    assert [job.job_id for job in page.jobs] == [first]
    assert page.after is None


async def test_a_list_merges_many_queues(opener: Opener, clock: ManualClock) -> None:
    yard = Yard(await opener(), clock)
    jobs = [yard.new(line=yard.new().line._replace(queue=f"q{number % 300}")) for number in range(900)]
    await yard.jobs.create(jobs)
    found: list[str] = []
    after: str | None = None
    while True:
        page = await yard.jobs.list_jobs(JobFilter(tenant="acme"), after, 250)
        found += [job.job_id for job in page.jobs]
        after = page.after
        if after is None:
            break
    assert found == sorted((job.job_id for job in jobs), reverse=True)


def write(conn: sqlite3.Connection, count: int) -> None:
    for number in range(count):
        conn.execute("BEGIN IMMEDIATE")
        conn.execute("INSERT INTO secrets VALUES (?, zeroblob(40000))", (f"{threading.get_ident()} {number}",))
        conn.execute("COMMIT")
        conn.execute("DELETE FROM secrets")


def test_the_wal_is_started_anew_when_it_has_grown(migrated: Path) -> None:
    conn = open_writer(migrated)
    checkpoints = Checkpointer(migrated, full_bytes=1_000_000)
    beside = sqlite3.connect(migrated, isolation_level=None)
    lengths = []
    for _ in range(12):
        write(conn, 10)
        checkpoints._passive(beside)
        write(conn, 1)
        checkpoints.between(conn, 1)
        lengths.append(checkpoints.wal_bytes())
    assert checkpoints.finished >= 3
    assert max(lengths) < 4_000_000
    assert lengths[-1] <= max(lengths[:6])
    beside.close()
    conn.close()


def test_a_reader_in_the_way_only_delays_it(migrated: Path) -> None:
    conn = open_writer(migrated)
    checkpoints = Checkpointer(migrated, full_bytes=100_000)
    reader = open_reader(migrated, lambda: False)
    write(conn, 5)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM secrets").fetchone()
    write(conn, 5)
    beside = sqlite3.connect(migrated, isolation_level=None)
    checkpoints._passive(beside)
    checkpoints.between(conn, 1)
    assert checkpoints.finished == 0
    reader.rollback()
    checkpoints._passive(beside)
    checkpoints.between(conn, 1)
    assert checkpoints.finished == 1
    for one in (reader, beside, conn):
        one.close()
