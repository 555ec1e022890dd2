"""The quick path of each write gives exactly the careful path's answers and leaves exactly the same rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.amount import examples
from tests.conformance.yard import LINE, START
from tocsin.clock import ManualClock
from tocsin.model.ids import PREFIX
from tocsin.model.job import Definition, encode_definition
from tocsin.store.port import Beat, Due, NewJob, Success
from tocsin.store.sqlite import claim, create, finish, fire
from tocsin.store.sqlite.beat import heartbeat
from tocsin.store.sqlite.connection import OLDEST_SQLITE, open_writer
from tocsin.store.sqlite.lines import Interner
from tocsin.store.sqlite.migrate import migrate
from tocsin.store.sqlite.work import Work, in_rounds
from tocsin.wire import TaskTarget

NOW = ManualClock(START).now_ms()
IDS = [f"{PREFIX}01KMG{number:021d}" for number in range(6)]
TABLES = ("jobs", "finished", "bodies", "timers", "attempts")


@dataclass(frozen=True)
class Row:
    """The part of a job's row that conditions are about."""

    status: int
    version: int
    attempt: int
    due_at: int
    expires_at: int | None
    ended: bool = False


rows = st.builds(
    Row,
    status=st.sampled_from([1, 2, 3, 4, 5, 7]),
    version=st.integers(1, 3),
    attempt=st.integers(0, 2),
    due_at=st.integers(NOW - 2, NOW + 2),
    expires_at=st.none() | st.integers(NOW - 1, NOW + 1),
    ended=st.booleans(),
)
worlds = st.lists(st.none() | rows, min_size=len(IDS), max_size=len(IDS))
ids = st.sampled_from(IDS)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory):
    path: Path = tmp_path_factory.mktemp("store") / "store.db"
    conn = open_writer(path)
    migrate(conn, path, 0)
    yield Work(conn, Interner(conn), 4, NOW)
    conn.close()


def both_ways(work: Work, world: Sequence[Row | None], quick: Callable[[], Any], careful: Callable[[], Any]) -> None:
    """Run both on the same world; answers and rows must be equal."""
    outcomes = []
    for act in (quick, careful):
        work.conn.execute("BEGIN")
        _fill(work, world)
        work.conn.execute("SAVEPOINT batch")
        answers = act()
        left = [sorted(work.conn.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in TABLES]
        outcomes.append((answers, left))
        work.conn.execute("ROLLBACK")
        work.lines.undo()
    assert outcomes[0] == outcomes[1]


def _fill(work: Work, world: Sequence[Row | None]) -> None:
    line_id, queue_id, _, _ = work.lines.ids(LINE)
    for job_id, row in zip(IDS, world, strict=True):
        if row is None:
            continue
        work.conn.execute("INSERT INTO bodies (queue_id, id, doc) VALUES (?, ?, '{}')", (queue_id, job_id))
        if row.ended:
            work.conn.execute(
                "INSERT INTO finished (id, queue_id, line_id, priority, status, version, attempt, tries, due_at, fire_at,"
                " losses, releases, finished_at) VALUES (?, ?, ?, 0, 6, ?, ?, 0, ?, ?, 0, 0, 5)",
                (job_id, queue_id, line_id, row.version, row.attempt, row.due_at, row.due_at),
            )
            continue
        held = row.status in (3, 4)
        attempt = max(row.attempt, 1) if held else row.attempt
        lease = (NOW - 9, NOW - 9, NOW, 30_000) if held else (None,) * 4
        work.conn.execute(
            "INSERT INTO jobs (id, queue_id, line_id, priority, status, version, attempt, tries, due_at, fire_at, timeout_ms,"
            " expires_at, started_at, claimed_at, lease_until, lease_ms, finished_at)"
            " VALUES (?, ?, ?, 0, ?, ?, ?, ?, ?, ?, 60000, ?, ?, ?, ?, ?, ?)",
            (
                job_id,
                queue_id,
                line_id,
                row.status,
                row.version,
                attempt,
                attempt,
                row.due_at,
                row.due_at,
                row.expires_at,
                *lease,
                7 if row.status == 7 else None,
            ),
        )


quickly = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(150))


@quickly
@given(
    world=worlds,
    asked=st.lists(st.tuples(st.integers(NOW - 2, NOW + 2), ids, st.integers(1, 3)), min_size=1, max_size=8),
)
def test_fire(work: Work, world: list[Row | None], asked: list[tuple[int, str, int]]) -> None:
    dues = [Due(at, job_id, version, LINE, 0) for at, job_id, version in asked]
    both_ways(
        work,
        world,
        lambda: fire.fire(work, dues),
        lambda: in_rounds(dues, lambda due: due.job_id, lambda part: fire._careful(work, part)),
    )


@quickly
@given(world=worlds, asked=st.lists(st.tuples(ids, st.sampled_from(["a", "b"])), min_size=1, max_size=8))
def test_claim(work: Work, world: list[Row | None], asked: list[tuple[str, str]]) -> None:
    wanted = [claim.Wanted(job_id, worker, 30_000) for job_id, worker in asked]
    both_ways(
        work,
        world,
        lambda: claim.claim(work, wanted),
        lambda: in_rounds(wanted, lambda one: one.job_id, lambda part: claim._careful(work, part)),
    )


results = st.none() | st.just(b"1")


@quickly
@given(world=worlds, asked=st.lists(st.tuples(ids, st.integers(0, 2), results), min_size=1, max_size=8))
def test_succeed(work: Work, world: list[Row | None], asked: list[tuple[str, int, bytes | None]]) -> None:
    reports = [Success(job_id=job_id, attempt=attempt, result=result) for job_id, attempt, result in asked]
    both_ways(
        work,
        world,
        lambda: finish.succeed(work, reports),
        lambda: in_rounds(reports, lambda one: one.job_id, lambda part: finish._succeed_careful(work, part)),
    )


@quickly
@given(world=worlds, asked=st.lists(st.tuples(ids, st.integers(0, 2)), min_size=1, max_size=8))
def test_heartbeats_in_a_batch_and_one_by_one(
    work: Work, world: list[Row | None], asked: list[tuple[str, int]]
) -> None:
    beats = [Beat(job_id=job_id, attempt=attempt) for job_id, attempt in asked]
    both_ways(
        work,
        world,
        lambda: heartbeat(work, beats),
        lambda: [answer for beat in beats for answer in heartbeat(work, [beat])],
    )


@quickly
@given(world=worlds, asked=st.lists(ids, min_size=1, max_size=8))
def test_creates_in_a_batch_and_one_by_one(work: Work, world: list[Row | None], asked: list[str]) -> None:
    definition = encode_definition(Definition(target=TaskTarget(handler="send"), run_at=NOW, key_at=NOW))
    jobs = [
        NewJob(job_id=job_id, line=LINE, priority=0, fire_at=NOW, timeout_ms=1, queued=False, definition=definition)
        for job_id in asked
    ]

    def singly() -> list[Any]:
        answers = []
        for job in jobs:
            work.conn.execute("RELEASE batch")
            work.conn.execute("SAVEPOINT batch")
            answers += create.create(work, [job])
        return answers

    both_ways(work, world, lambda: create.create(work, jobs), singly)


def test_sqlite_is_new_enough() -> None:
    assert sqlite3.sqlite_version_info >= OLDEST_SQLITE
