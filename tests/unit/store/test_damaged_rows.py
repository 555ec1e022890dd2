"""Extremes and rubbish written straight into the file spoil their own row and nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.yard import LEASE_MS, PARTITIONS, WORKER, Yard, due
from tests.unit.store.conftest import Opener
from tocsin.clock import ManualClock
from tocsin.model.job import Line
from tocsin.model.partition import bucket_of
from tocsin.store.port import FIRE, Beat, Beaten, Change, DeadFilter, Due, Fired, JobFilter, NotYours, Success
from tocsin.store.settings import TenantRow, TokenRow
from tocsin.store.sqlite.recent import Recent
from tocsin.wire import Status

MOST = 2**63 - 1
RUBBISH = ["", "{", "null", "\x1e", 'a\x1e{"b":1}', '{"target":{"type":"fax"}}', "\ud7ff", "[" * 5_000]


@pytest.fixture
async def yard(opener: Opener, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Yard:
    """A store that remembers no definitions: what the tests change in the file is what it sees."""
    monkeypatch.setattr(Recent, "add", lambda *_: None)
    return Yard(await opener(), clock)


@pytest.fixture
def file(yard: Yard, path: Path) -> Iterator[sqlite3.Connection]:
    """The same file, open beside the store."""
    conn = sqlite3.connect(path, isolation_level=None)
    yield conn
    conn.close()


def unreadable(yard: Yard) -> int:
    return yard.store.jobs.unreadable  # type: ignore[attr-defined]


@pytest.mark.parametrize("doc", RUBBISH)
async def test_a_definition_that_cannot_be_read_stops_nobody_else(
    yard: Yard, file: sqlite3.Connection, doc: str
) -> None:
    ids = await yard.queued(5)
    scheduled = await yard.made(4, 1_000)
    file.execute("UPDATE bodies SET doc = ? WHERE id IN (?, ?)", (doc, ids[2], scheduled[1].job_id))

    found = await yard.jobs.states(ids)
    assert [job is not None for job in found] == [True, True, False, True, True]
    assert unreadable(yard) > 0
    assert await yard.jobs.fire([due(job) for job in scheduled]) == [Fired.WON] * 4
    got = await yard.jobs.claim(ids, WORKER, LEASE_MS)
    assert [job and job.job_id for job in got] == [*ids[:2], None, *ids[3:]]
    assert len((await yard.jobs.list_jobs(JobFilter(tenant="acme"), None, 100)).jobs) == 7
    assert len(await yard.timers(FIRE)) == 7
    done = await yard.jobs.succeed([Success(job_id=job_id, attempt=1) for job_id in ids if job_id != ids[2]])
    assert done == [True] * 4


async def test_invalid_bytes_stop_nobody_else(yard: Yard, file: sqlite3.Connection) -> None:
    ids = await yard.queued(3)
    file.execute("UPDATE bodies SET doc = CAST(x'ff1eff' AS TEXT) WHERE id = ?", (ids[1],))
    file.execute("UPDATE jobs SET last_error = CAST(x'ff' AS TEXT) WHERE id = ?", (ids[2],))
    found = await yard.jobs.states(ids)
    assert [job is not None for job in found] == [True, False, True]
    assert found[2] is not None
    assert found[2].last_error == "\N{REPLACEMENT CHARACTER}"
    assert [job is not None for job in await yard.jobs.claim(ids, WORKER, LEASE_MS)] == [True, False, True]


async def test_a_missing_body_stops_nobody_else(yard: Yard, file: sqlite3.Connection) -> None:
    ids = await yard.queued(3)
    file.execute("DELETE FROM bodies WHERE id = ?", (ids[1],))
    assert [job is not None for job in await yard.jobs.states(ids)] == [True, False, True]
    assert [job is not None for job in await yard.jobs.claim(ids, WORKER, LEASE_MS)] == [True, False, True]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("priority", 99),
        ("priority", -MOST - 1),
        ("due_at", -MOST - 1),
        ("due_at", MOST),
        ("fire_at", MOST),
        ("timeout_ms", MOST),
        ("timeout_ms", -1),
        ("expires_at", MOST),
        ("attempt", MOST - 1),
        ("version", MOST),
        ("line_id", 999),
        ("queue_id", 999),
        ("outcome", 77),
        ("progress", "no json"),
        ("worker", "\x1e"),
    ],
)
async def test_an_absurd_value_stops_nobody_else(
    yard: Yard, file: sqlite3.Connection, column: str, value: object
) -> None:
    jobs = await yard.made(5, 1_000)
    odd = jobs[2]
    file.execute(f"UPDATE jobs SET {column} = ? WHERE id = ?", (value, odd.job_id))
    ids = [job.job_id for job in jobs]
    others = [job_id for job_id in ids if job_id != odd.job_id]

    states = {job.job_id for job in await yard.jobs.states(ids) if job is not None}
    assert states >= set(others)
    assert {one.job_id for one in await yard.dues()} >= set(others)
    assert {timer.job_id for timer in await yard.timers()} >= set(others)
    fired = dict(zip(ids, await yard.jobs.fire([due(job) for job in jobs]), strict=True))
    assert [fired[job_id] for job_id in others] == [Fired.WON] * 4
    claimed = {job.job_id for job in await yard.jobs.claim(ids, WORKER, LEASE_MS) if job is not None}
    assert claimed >= set(others)
    beats = await yard.jobs.heartbeat([Beat(job_id=job_id, attempt=1) for job_id in ids])
    assert sum(isinstance(beat, Beaten) for beat in beats) >= 4
    done = dict(zip(ids, await yard.jobs.succeed([Success(job_id=job_id, attempt=1) for job_id in ids]), strict=True))
    assert [done[job_id] for job_id in others] == [True] * 4
    page = await yard.jobs.list_jobs(JobFilter(tenant="acme"), None, 100)
    assert {job.job_id for job in page.jobs} >= set(others)
    assert sum((await yard.jobs.live_counts()).values()) in (0, 1)


async def test_a_lease_beyond_all_numbers_is_refused_alone(yard: Yard, file: sqlite3.Connection) -> None:
    one, two = await yard.running(2)
    file.execute("UPDATE jobs SET lease_ms = ?, timeout_ms = ? WHERE id = ?", (MOST, MOST, one.job_id))
    beats = [Beat(job_id=one.job_id, attempt=1), Beat(job_id=two.job_id, attempt=1)]
    first, second = await yard.jobs.heartbeat(beats)
    assert first in (NotYours.UNKNOWN, NotYours.TIMED_OUT)
    assert isinstance(second, Beaten)
    queued = await yard.queued(2)
    assert await yard.jobs.claim(queued, WORKER, MOST) == [None, None]
    assert await yard.status(queued[0]) is Status.QUEUED


async def test_rows_that_break_an_invariant_cannot_be_written(yard: Yard, file: sqlite3.Connection) -> None:
    (job_id,) = await yard.queued()
    wrong = [
        ("status = 6", "status_is_live_or_dead"),
        ("status = 3", "held_under_a_lease"),
        ("status = 7", "dead_at_some_time"),
        ("version = 0", "version_from_one"),
        ("tries = 5", "tries_within_attempts"),
        ("due_at = 'soon'", "cannot store TEXT value in INTEGER column"),
    ]
    for assignment, message in wrong:
        with pytest.raises(sqlite3.IntegrityError, match=message):
            file.execute(f"UPDATE jobs SET {assignment} WHERE id = ?", (job_id,))


async def test_timers_of_unknown_jobs_tenants_and_times_are_passed(yard: Yard, file: sqlite3.Connection) -> None:
    (made,) = await yard.made(1)
    rows = [
        (0, 0, 0, 0, 1, -MOST, "job_nothing", 1),
        (0, 0, bucket_of(yard.now), 7, 1, MOST, "", -5),
        (0, 0, bucket_of(yard.now), 0, 999, 5, "job_nobody", 1),
        (0, 0, MOST, 0, 1, MOST, "job_far", 1),
    ]
    file.executemany("INSERT INTO timers VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    assert [one.job_id for one in await yard.dues()] == [made.job_id]
    assert made.job_id in {timer.job_id for timer in await yard.timers()}
    swept = [await yard.jobs.sweep_void(partition, FIRE, MOST, 100) for partition in range(PARTITIONS)]
    assert sum(swept) == 4
    assert [timer.job_id for timer in await yard.timers()] == [made.job_id]


async def test_dead_letters_with_rubbish_are_listed_without_it(yard: Yard, file: sqlite3.Connection) -> None:
    odd, fine = await yard.dead(tags={"a": "b"}), await yard.dead(tags={"a": "b"})
    file.execute("UPDATE bodies SET doc = '{' WHERE id = ?", (odd.job_id,))
    for wanted in (
        DeadFilter(tenant="acme", queue="mail"),
        DeadFilter(tenant="acme", queue="mail", tag=("a", "b")),
    ):
        assert [job.job_id for job in await yard.jobs.list_dead(wanted, None, 10)] == [fine.job_id]
    file.execute("UPDATE attempts SET outcome = 99 WHERE job = ?", (fine.job_id,))
    assert await yard.jobs.attempts(fine.job_id) == []


async def test_settings_with_rubbish_hide_no_others(yard: Yard, file: sqlite3.Connection) -> None:
    settings = yard.store.settings
    for name in ("a", "b"):
        await settings.put_tenant(TenantRow(name=name), create=True)
        row = TokenRow(token_id=name, tenant=name, name="", secret_sha256=b"x" * 32, scopes=(), created_at=0)
        await settings.add_token(row)
    file.execute("UPDATE tenants SET quotas = '{\"x\":\"y\"}' WHERE name = 'a'")
    file.execute("UPDATE tokens SET scopes = '7' WHERE token_id = 'a'")
    assert [row.name for row in await settings.tenants()] == ["b"]
    assert [row.token_id for row in await settings.tokens()] == ["b"]
    assert await settings.token("a") is None


async def test_a_parked_job_of_an_unknown_line_is_passed(yard: Yard, file: sqlite3.Connection) -> None:
    job = yard.new()
    await yard.jobs.park([due(job)])
    partition = file.execute("SELECT partition FROM parked").fetchone()[0]
    file.execute("INSERT INTO parked VALUES (?, 999, 0, 'job_x', 1, 0, 0)", (partition,))
    assert [one.due.job_id for one in await yard.jobs.parked(partition, None, 10)] == [job.job_id]
    assert list(await yard.jobs.parked_lines(partition)) == [job.line]


async def test_a_change_of_a_job_in_an_unknown_lane_is_refused_alone(yard: Yard) -> None:
    one, two = await yard.made(2)
    before = [await yard.state(job.job_id) for job in (one, two)]
    bad = Line("acme", "mail", 2**70, "send", "")  # type: ignore[arg-type]
    changes = [
        Change(before=job, after=replace(job, version=2, line=line), timer=True)
        for job, line in zip(before, (bad, two.line), strict=True)
    ]
    assert await yard.jobs.change(changes) == [False, True]
    assert await yard.jobs.fire([Due(one.fire_at, one.job_id, 1, one.line, 0)]) == [Fired.WON]
