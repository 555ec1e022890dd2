"""Moves of schedules in SQLite: the quick path and the careful one, crashes, bad items, damaged rows, files from before."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw, structs

from tests.amount import examples
from tests.conformance.yard import LEASE_MS, LINE, PARTITIONS, START, WORKER, Yard, due, fired, skip, step
from tests.unit.store.conftest import Opener
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.errors import StoreUnavailable
from tocsin.model.ids import SLICES, new_schedule_id, occurrence_id, slice_of
from tocsin.model.job import Definition, decode_definition, encode_definition
from tocsin.model.partition import partition_of
from tocsin.store.numbers import number_of, numbers_of
from tocsin.store.port import Change, Due, Fired, JobFilter, NewJob
from tocsin.store.schedules import Move, Moved, ScheduleFilter, ScheduleRow, SkipRow
from tocsin.store.sqlite import move as moves_of
from tocsin.store.sqlite import occurrences
from tocsin.store.sqlite.connection import open_writer
from tocsin.store.sqlite.create import insert
from tocsin.store.sqlite.lines import Interner
from tocsin.store.sqlite.migrate import migrate, migrations
from tocsin.store.sqlite.work import Work, in_rounds
from tocsin.store.sqlite.writer import Crash
from tocsin.wire import Status, TaskTarget

NOW = ManualClock(START).now_ms()
MOST = 2**63 - 1


# numbers


def test_a_number_begins_with_the_slice_and_is_nearly_the_id() -> None:
    entropy = SeededEntropy(3)
    ids = [new_schedule_id(NOW + number, entropy, "acme", f"n{number}") for number in range(2_000)]
    numbers = [number_of(schedule_id) for schedule_id in ids]
    assert len(set(numbers)) == len(ids)
    assert [number >> 48 for number in numbers] == [slice_of(schedule_id) for schedule_id in ids]
    assert 0 <= min(numbers) <= max(numbers) <= MOST
    for strange in ("", "sch_1", "sch_" + "é" * 26, "\ud800" * 30, "x" * 10_000):
        assert number_of(strange) == -1


@pytest.mark.parametrize("partitions", [1, 4, 16, SLICES])
def test_the_numbers_of_a_partition_are_a_range(partitions: int) -> None:
    entropy = SeededEntropy(4)
    for number in range(200):
        schedule_id = new_schedule_id(NOW, entropy, "acme", f"n{number}")
        least, greatest = numbers_of(partition_of(schedule_id, partitions), partitions)
        assert least <= number_of(schedule_id) <= greatest
    assert numbers_of(partitions - 1, partitions)[1] < 2**60


# the quick path is the careful path

IDS = [new_schedule_id(NOW, SeededEntropy(number), "acme", f"s{number}") for number in range(4)]
TABLES = ("schedules", "specs", "skips", "occurrences", "jobs", "bodies", "timers")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Work]:
    path: Path = tmp_path_factory.mktemp("store") / "store.db"
    conn = open_writer(path)
    migrate(conn, path, 0)
    yield Work(conn, Interner(conn), PARTITIONS, NOW)
    conn.close()


def job_of(schedule_id: str, at: int) -> NewJob:
    made = Definition(
        target=TaskTarget(handler="send"), run_at=at, key_at=at, schedule_id=schedule_id, occurrence_at=at
    )
    return NewJob(
        job_id=occurrence_id(schedule_id, 1, at, "schedule", leader=False),
        line=LINE,
        priority=0,
        fire_at=at,
        timeout_ms=1,
        queued=False,
        definition=encode_definition(made),
        schedule_id=schedule_id,
    )


def row_of(schedule_id: str, **fields: Any) -> ScheduleRow:
    row = ScheduleRow(
        schedule_id=schedule_id,
        tenant="acme",
        name=f"s{IDS.index(schedule_id)}",
        revision=1,
        serial=1,
        status="active",
        look_at=NOW,
        spec="{}",
        state="",
    )
    return structs.replace(row, **fields)


ids = st.sampled_from(IDS)
instants = st.integers(NOW - 1, NOW + 1)
fires = st.lists(st.tuples(instants, st.sampled_from((0, 0, 0, -1)), st.sampled_from((1, 1, 1, 2))), max_size=2)


def due_of(schedule_id: str, at: int, earlier: int, version: int) -> Due:
    return Due(at + earlier, job_of(schedule_id, at).job_id, version, LINE, 0)


moves = st.builds(
    lambda schedule_id, serial, status, revision, spec, fires, jobs, skips: Move(
        schedule_id=schedule_id,
        serial=serial,
        after=row_of(schedule_id, serial=serial + 1, status=status, revision=revision, spec=spec, state="moved"),
        fires=tuple(due_of(schedule_id, *fire) for fire in fires),
        jobs=tuple(job_of(schedule_id, at) for at in jobs),
        skips=tuple(
            SkipRow(schedule_id=schedule_id, first=at, last=at, count=1, reason="missed", recorded_at=NOW)
            for at in skips
        ),
    ),
    ids,
    st.sampled_from((1, 1, 1, 1, 2, 0)),
    st.sampled_from(("active", "active", "active", "paused")),
    st.sampled_from((1, 1, 1, 2)),
    st.sampled_from(("{}", "{}", "{}", "[]")),
    fires,
    st.lists(instants, max_size=2),
    st.lists(instants, max_size=2),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(150))
@given(
    there=st.lists(ids, unique=True, min_size=2),
    waiting=st.lists(st.builds(job_of, ids, instants), unique_by=lambda job: job.job_id, max_size=8),
    asked=st.lists(moves, min_size=1, max_size=6),
)
def test_moves(work: Work, there: list[str], waiting: list[NewJob], asked: list[Move]) -> None:
    def careful(part: list[Move]) -> list[Any]:
        return in_rounds(part, lambda one: one.schedule_id, lambda some: moves_of._careful(work, some))

    outcomes = []
    for act in (
        lambda: moves_of.move(work, asked),
        lambda: careful(asked),
        lambda: [answer for one in asked for answer in careful([one])],
    ):
        work.conn.execute("BEGIN")
        begun = [Move(schedule_id=schedule_id, serial=0, after=row_of(schedule_id)) for schedule_id in there]
        assert all(answer[0] is Moved.WON for answer in careful(begun))
        assert occurrences.known(work, waiting) == set()
        insert(work, waiting)
        work.conn.execute("SAVEPOINT batch")
        answers = act()
        left = [sorted(work.conn.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in TABLES]
        outcomes.append((answers, left))
        work.conn.execute("ROLLBACK")
        work.lines.undo()
    assert outcomes[0] == outcomes[1]
    assert outcomes[0] == outcomes[2]


async def test_a_batch_of_plain_steps_is_a_handful_of_statements(yard: Yard) -> None:
    begun = [await yard.begun(f"s{number}") for number in range(250)]
    moves = [fired(row, job, yard.occurrence(row, 60_000)) for row, job in begun]
    conn = yard.store._writer._work.conn  # type: ignore[attr-defined]
    heard: list[str] = []
    conn.set_trace_callback(heard.append)
    assert await yard.schedules.move(moves) == [Moved.WON] * 250
    conn.set_trace_callback(None)
    assert len(heard) <= 9, [text[:60] for text in heard]


async def test_thousands_of_moves_are_cut_and_answered_in_order(yard: Yard) -> None:
    rows = [yard.schedule(f"s{number}") for number in range(1_500)]
    made = [Move(schedule_id=row.schedule_id, serial=0, after=row, jobs=(yard.occurrence(row),)) for row in rows]
    assert await yard.schedules.move(made) == [Moved.WON] * 1_500
    steps = [
        fired(move.after, move.jobs[0], yard.occurrence(move.after, 60_000)) for move in made if move.after is not None
    ]
    steps[77] = structs.replace(steps[77], serial=5)
    steps[1_400] = structs.replace(steps[1_400], fires=(due(steps[1_400].jobs[0], version=3),))
    expected = [Moved.WON] * 1_500
    expected[77], expected[1_400] = Moved.LOST, Moved.STALE
    assert await yard.schedules.move(steps) == expected
    found = await yard.schedules.get([row.schedule_id for row in rows])
    assert [row and row.serial for row in found] == [2 if moved is Moved.WON else 1 for moved in expected]


# what cannot be written


async def test_a_move_that_cannot_be_written_is_refused_alone(yard: Yard) -> None:
    begun = [await yard.begun(f"s{number}") for number in range(12)]
    moves = [fired(row, job, yard.occurrence(row, 60_000)) for row, job in begun]
    bad: dict[int, Any] = {
        1: {"after": step(begun[1][0], look_at=2**63)},
        4: {"after": step(begun[4][0], state="\ud800")},
        5: {"jobs": (structs.replace(moves[5].jobs[0], fire_at=2**64),)},
        8: {"skips": (skip(begun[8][0], 2**70),)},
        9: {"after": step(begun[9][0], status="strange")},
    }
    for at, change in bad.items():
        moves[at] = structs.replace(moves[at], **change)
    answers = await yard.schedules.move(moves)
    assert [at for at, moved in enumerate(answers) if moved is Moved.REFUSED] == list(bad)
    assert answers.count(Moved.WON) == 7
    for at in bad:
        row, job = begun[at]
        assert await yard.row(row.schedule_id) == row
        assert await yard.status(job.job_id) is Status.SCHEDULED


# a crash


@pytest.mark.parametrize(
    ("at", "there"), [("before begin", False), ("after move", False), ("before commit", False), ("after commit", True)]
)
async def test_a_crash_leaves_a_move_whole_or_nothing_of_it(
    opener: Opener, clock: ManualClock, at: str, there: bool
) -> None:
    steps: list[str] = []

    def crash(name: str) -> None:
        if steps and name == at:
            raise Crash

    store = await opener(on_step=crash)
    yard = Yard(store, clock)
    row, job = await yard.begun()
    following = yard.occurrence(row, 60_000)
    move = structs.replace(fired(row, job, following, state="on"), skips=(skip(row, 1),))
    steps.append("crash")
    with pytest.raises(StoreUnavailable, match="crashed"):
        await yard.schedules.move([move])
    await store.close()

    again = Yard(await opener(), clock)
    assert (await again.row(row.schedule_id)).serial == 1 + there
    assert await again.status(job.job_id) is (Status.QUEUED if there else Status.SCHEDULED)
    assert (await again.jobs.states([following.job_id]) != [None]) == there
    assert len(await again.schedules.skips(row.schedule_id, None, 9)) == there
    assert len(await again.timers()) == 1 + there
    assert await again.schedules.move([move]) == [Moved.LOST if there else Moved.WON]
    assert len(await again.timers()) == 2


# definitions that were written a moment ago


async def test_a_claim_gets_what_a_move_has_made_without_reading_it(yard: Yard) -> None:
    row, job = await yard.begun()
    recent = yard.store.jobs._recent  # type: ignore[attr-defined]
    far = yard.occurrence(row, 3_600_000)
    assert await yard.move(fired(row, job, far)) is Moved.WON
    assert recent.take(job.job_id) == job.definition
    assert recent.take(far.job_id) is None
    late = await yard.move(fired(row, job, yard.occurrence(row, 1_000)))
    assert late is Moved.LOST
    assert recent.take(yard.occurrence(row, 1_000).job_id) is None


async def test_a_job_that_was_there_already_is_not_remembered_as_it_was_asked_for(yard: Yard) -> None:
    row, job = await yard.begun(at_in_ms=1_000)
    waits = await yard.state(job.job_id)
    changed = structs.replace(waits.definition, payload=Raw(b'"new"'))
    move = Move(
        schedule_id=row.schedule_id,
        serial=1,
        after=step(row),
        changes=(Change(before=waits, after=replace(waits, definition=changed)),),
    )
    assert await yard.move(move) is Moved.WON
    assert await yard.move(Move(schedule_id=row.schedule_id, serial=2, after=step(step(row)), jobs=(job,))) is Moved.WON
    await yard.jobs.create([job])
    yard.clock.advance(1)
    assert await yard.jobs.fire([due(job)]) == [Fired.WON]
    (claimed,) = await yard.jobs.claim([job.job_id], WORKER, LEASE_MS)
    assert claimed is not None
    assert claimed.definition == changed


# damaged rows


@pytest.fixture
def file(yard: Yard, path: Path) -> Iterator[sqlite3.Connection]:
    """The same file, open beside the store, without its constraints."""
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("PRAGMA ignore_check_constraints = ON")
    yield conn
    conn.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE schedules SET status = 99 WHERE name = 's1'",
        "UPDATE schedules SET tenant_id = 999 WHERE name = 's1'",
        "UPDATE schedules SET id = 'sch_' WHERE name = 's1'",
        "UPDATE schedules SET serial = -1 WHERE name = 's1'",
        "UPDATE schedules SET revision = 9223372036854775807 WHERE name = 's1'",
        "UPDATE schedules SET look_at = -9223372036854775808 WHERE name = 's1'",
        "UPDATE schedules SET state = CAST(x'ff1eff' AS TEXT) WHERE name = 's1'",
        "UPDATE specs SET spec = CAST(x'ff1eff' AS TEXT) WHERE spec_id = (SELECT spec_id FROM schedules WHERE name = 's1')",
        "DELETE FROM specs WHERE spec_id = (SELECT spec_id FROM schedules WHERE name = 's1')",
        "UPDATE schedules SET partition = 77 WHERE name = 's1'",
    ],
)
async def test_a_row_that_cannot_be_read_hides_no_others(yard: Yard, file: sqlite3.Connection, damage: str) -> None:
    begun = [await yard.begun(f"s{number}", at_in_ms=1_000, look_in_ms=0) for number in range(4)]
    yard.clock.advance(1)
    file.execute(damage)
    others = [row for row, _ in begun if row.name != "s1"]
    names = {row.name for row in others}
    schedule_ids = [row.schedule_id for row, _ in begun]
    assert {row.name for row in await yard.schedules.get(schedule_ids) if row is not None} >= names
    assert {
        row.name for row in await yard.schedules.named("acme", ["s0", "s1", "s2", "s3"]) if row is not None
    } >= names
    assert {row.name for row in await yard.schedules.list_schedules(ScheduleFilter(tenant="acme"), None, 9)} >= names
    for read in (lambda p: yard.schedules.overdue([p], yard.now, 9), lambda p: yard.schedules.walk(p, "", 9)):
        assert {row.name for partition in range(PARTITIONS) for row in await read(partition)} >= names
    assert sum((await yard.schedules.counts()).values()) in (3, 4)
    assert len(await yard.schedules.of_jobs([job.job_id for _, job in begun])) == 4
    moves = [fired(row, job, yard.occurrence(row, 60_000)) for row, job in begun]
    answers = await yard.schedules.move(moves)
    assert [moved for move, moved in zip(moves, answers, strict=True) if move.schedule_id != schedule_ids[1]] == [
        Moved.WON
    ] * 3


async def test_skips_that_cannot_be_read_hide_no_others(yard: Yard, file: sqlite3.Connection) -> None:
    row, _ = await yard.begun()
    await yard.schedules.add_skips([skip(row, at) for at in range(5)])
    file.execute("UPDATE skips SET reason = 'boredom' WHERE first = 2")
    file.execute("UPDATE skips SET detail = CAST(x'ff1eff' AS TEXT) WHERE first = 3")
    found = await yard.schedules.skips(row.schedule_id, None, 10)
    assert [one.first for one in found] == [4, 3, 1, 0]
    assert yard.store.jobs.unreadable > 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "doc", ["", "{", "null", "[]", '{"occurrence_at":"x","schedule_id":7}', '{"occurrence_at":1e400}', "[" * 5_000]
)
async def test_jobs_with_rubbish_expire_and_are_archived(yard: Yard, file: sqlite3.Connection, doc: str) -> None:
    row = yard.schedule()
    jobs = [yard.occurrence(row, at, expires_in_ms=1_000) for at in (0, -1, -2)]
    await yard.move(Move(schedule_id=row.schedule_id, serial=0, after=row, jobs=tuple(jobs)))
    file.execute("UPDATE bodies SET doc = ? WHERE id = ?", (doc, jobs[1].job_id))
    yard.clock.advance(2)
    assert await yard.jobs.fire([due(job) for job in jobs]) == [Fired.EXPIRED] * 3
    assert [one.first for one in await yard.schedules.skips(row.schedule_id, None, 9)] == [
        jobs[0].fire_at,
        jobs[2].fire_at,
    ]
    wanted = JobFilter(tenant="acme", schedule_id=row.schedule_id)
    assert [job.job_id for job in (await yard.jobs.list_jobs(wanted, None, 9)).jobs] == [jobs[0].job_id, jobs[2].job_id]
    yard.clock.advance(3_600)
    assert await yard.jobs.archive(yard.now, 100) == 3
    assert (await yard.jobs.list_jobs(wanted, None, 9)).jobs == []


# a file from before


async def test_a_store_from_before_there_were_schedules_goes_on(path: Path, clock: ManualClock, opener: Opener) -> None:
    conn = open_writer(path)
    migrate(conn, path, 0, migrations()[:1])
    conn.execute("INSERT INTO identity VALUES (1, 'x', ?, 0, 0)", (PARTITIONS,))
    conn.execute("INSERT INTO tenant_ids VALUES (1, 'acme')")
    conn.execute("INSERT INTO queue_ids VALUES (1, 1, 'mail')")
    conn.execute("INSERT INTO lines VALUES (1, 1, 0, 'send', '', 0)")
    old = Yard.__new__(Yard)
    old.clock, old.entropy = clock, SeededEntropy(9)
    job = old.new()
    conn.execute("INSERT INTO bodies VALUES (1, ?, ?)", (job.job_id, job.definition))
    conn.execute(
        "INSERT INTO jobs (id, queue_id, line_id, priority, status, due_at, fire_at, timeout_ms) VALUES (?, 1, 1, 0, 1, ?, ?, 1)",
        (job.job_id, job.fire_at, job.fire_at),
    )
    conn.close()

    yard = Yard(await opener(), clock)
    assert (await yard.state(job.job_id)).definition == decode_definition(job.definition)
    assert await yard.jobs.fire([due(job)]) == [Fired.WON]
    row, waiting = await yard.begun()
    assert await yard.move(fired(row, waiting)) is Moved.WON
    got = await yard.jobs.claim([job.job_id, waiting.job_id], WORKER, LEASE_MS)
    assert [one and one.job_id for one in got] == [job.job_id, waiting.job_id]
