"""Every statement is prepared against a migrated file, and the hot ones keep to their keys."""

import re
from pathlib import Path
from sqlite3 import Connection

import pytest

from tests.unit.store.conftest import Opener
from tocsin.store.sqlite import statements
from tocsin.store.sqlite.connection import open_writer
from tocsin.store.sqlite.migrate import migrate
from tocsin.store.sqlite.statements import Many, block, blocks

FILES = sorted(file.stem for file in (Path(statements.__file__).parent / "sql").glob("*.sql"))
# Pieces of other statements.
PIECES = {"finished.columns", "states.live", "states.ended", "states.either", "reads.dead_matches", "schedules.row"}
# Statements that make what a migrated file has already.
ONCE = {"identity.migrations_table"}
NAMES = [f"{file}.{name}" for file in FILES for name in blocks(file) if f"{file}.{name}" not in PIECES | ONCE]


@pytest.fixture(scope="module")
def conn(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("store") / "store.db"
    conn = open_writer(path)
    migrate(conn, path, 0)
    yield conn
    conn.close()


def text_of(name: str) -> str:
    file, block_name = name.split(".")
    text = block(file, block_name)
    return Many(file, block_name, _shared(text)).texts[5] if "[[" in text else text


def _shared(text: str) -> int:
    return max((int(number) for number in re.findall(r"\?(\d+)", text)), default=0)


def plan(conn: Connection, name: str) -> list[str]:
    text = text_of(name)
    count = max((int(number) for number in re.findall(r"\?(\d+)", text)), default=0)
    return [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {text}", [None] * count)]


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_can_be_prepared(conn: Connection, name: str) -> None:
    assert plan(conn, name) is not None


# A scan of these is the point: one JSON list, one page, or a table with one row per installation, queue or partition.
SCANS = re.compile(r"SCAN (asked|told|t|tag|l|q|k|CONSTANT ROW|\d+ CONSTANT ROWS?|json_each|\(subquery-\d+\))($| )")
WHOLE = {
    "reads.counts",
    "reads.counts_bound",
    "keys.next",
    "timers.floors",
    "identity.migrations",
    "settings.tenants",
    "settings.tokens",
    "settings.queues",
    "schedules.counts",
}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WHOLE])
def test_no_statement_reads_a_whole_table(conn: Connection, name: str) -> None:
    for step in plan(conn, name):
        assert "AUTOMATIC" not in step, step
        if step.startswith("SCAN") and "VIRTUAL TABLE" not in step:
            assert SCANS.match(step), step


HOT = {
    "jobs.look": "SEARCH j USING PRIMARY KEY (id=?)",
    "jobs.fire_quick": "SEARCH jobs USING PRIMARY KEY (id=?)",
    "jobs.fire_these": "SEARCH jobs USING PRIMARY KEY (id=?)",
    "jobs.due_earlier": "SEARCH j USING PRIMARY KEY (id=?)",
    "jobs.claim_quick": "SEARCH jobs USING PRIMARY KEY (id=?)",
    "jobs.claim_these": "SEARCH jobs USING PRIMARY KEY (id=?)",
    "jobs.claimed": "SEARCH j USING PRIMARY KEY (id=?)",
    "jobs.definitions": "SEARCH b USING INDEX sqlite_autoindex_bodies_1 (queue_id=? AND id=?)",
    "jobs.beat_these": "SEARCH jobs USING PRIMARY KEY (id=?)",
    "jobs.progress": "SEARCH jobs USING PRIMARY KEY (id=?)",
    "jobs.delete": "SEARCH jobs USING PRIMARY KEY (id=?)",
    "finished.succeed_plain": "SEARCH j USING PRIMARY KEY (id=?)",
    "finished.succeed_told": "SEARCH j USING PRIMARY KEY (id=?)",
    "reads.states": "SEARCH j USING PRIMARY KEY (id=?) LEFT-JOIN",
    "reads.due": "SEARCH timers USING PRIMARY KEY (partition=? AND kind=? AND (bucket,lane,tenant_id,time,job,version)>",
    "reads.due_of_tenant": "SEARCH timers USING PRIMARY KEY (partition=? AND kind=? AND bucket=? AND lane=? AND tenant_id=?",
    "reads.timers": "SEARCH timers USING PRIMARY KEY (partition=? AND kind=? AND (bucket,lane,tenant_id,time,job,version)>",
    "timers.sweep_void": "SEARCH timers USING PRIMARY KEY (partition=? AND kind=? AND (bucket,lane,tenant_id,time,job,version)>",
    "timers.void_bound": "SEARCH timers USING PRIMARY KEY (partition=? AND kind=? AND (bucket,lane,tenant_id,time,job,version)>",
    "parking.of_line": "SEARCH parked USING PRIMARY KEY (partition=? AND line_id=?)",
    "keys.find": "SEARCH k USING INDEX sqlite_autoindex_keys_1 (tenant_id=? AND hash=?)",
    "reads.ids_of_queue": "SEARCH bodies USING COVERING INDEX sqlite_autoindex_bodies_1 (queue_id=? AND id>? AND id<?)",
    "reads.dead": "SEARCH j USING INDEX dead_jobs (queue_id=?",
    "upkeep.next_finished": "SEARCH finished USING PRIMARY KEY (id>? AND id<?)",
    "upkeep.delete_attempts": "SEARCH attempts USING PRIMARY KEY (job=?)",
    "upkeep.delete_bodies": "SEARCH b USING COVERING INDEX sqlite_autoindex_bodies_1 (queue_id=? AND id=?)",
    "schedules.step": "SEARCH schedules USING INTEGER PRIMARY KEY (rowid=?)",
    "schedules.look": "SEARCH s USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
    "schedules.names": "SEARCH s USING COVERING INDEX sqlite_autoindex_schedules_1 (tenant_id=? AND name=?)",
    "schedules.get": "SEARCH s USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
    "schedules.named": "SEARCH s USING INDEX sqlite_autoindex_schedules_1 (tenant_id=? AND name=?) LEFT-JOIN",
    "schedules.of_tenant": "SEARCH schedules USING COVERING INDEX schedules_of_tenant (tenant_id=? AND status=? AND id<?)",
    "schedules.overdue": "SEARCH schedules USING COVERING INDEX schedules_to_look_at (partition=? AND look_at<?)",
    "schedules.walk": "SEARCH schedules USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
    "schedules.crowd": "SEARCH s USING COVERING INDEX schedules_to_look_at (partition=? AND look_at>? AND look_at<?)",
    "skips.page": "SEARCH skips USING PRIMARY KEY (schedule=? AND (first,reason)<(?,?))",
    "skips.old_bound": "SEARCH skips USING PRIMARY KEY ((schedule,first,reason)>(?,?,?))",
    "skips.delete_old": "SEARCH skips USING PRIMARY KEY ((schedule,first,reason)>(?,?,?) AND (schedule,first,reason)<(?,?,?))",
    "skips.delete": "SEARCH skips USING PRIMARY KEY (schedule=?)",
    "occurrences.known": "SEARCH o USING PRIMARY KEY (schedule=? AND job=?)",
    "occurrences.ids": "SEARCH occurrences USING PRIMARY KEY (schedule=? AND job<?)",
    "occurrences.unfinished": "SEARCH j USING INDEX jobs_of_schedules (schedule=?)",
    "occurrences.skip_expired": "SEARCH j USING PRIMARY KEY (id=?)",
    "jobs.fire_scheduled": "SEARCH jobs USING PRIMARY KEY (id=?)",
    "upkeep.old_dead": "SEARCH j USING INDEX dead_jobs (queue_id=? AND finished_at<?)",
}


@pytest.mark.parametrize("name", HOT)
@pytest.mark.parametrize("analyzed", [False, True])
def test_hot_statements_go_by_their_key(conn: Connection, name: str, analyzed: bool) -> None:
    if analyzed:
        conn.execute("ANALYZE")
    try:
        steps = plan(conn, name)
        assert any(HOT[name] in step for step in steps), steps
        assert not any("TEMP B-TREE" in step for step in steps), steps
    finally:
        if analyzed:
            conn.execute("DROP TABLE sqlite_stat1")
            conn.execute("ANALYZE sqlite_schema")


async def test_many_rows_are_written_whatever_their_number(opener: Opener, path: Path) -> None:
    await opener()
    conn = open_writer(path)
    many = Many("timers", "add_watch", shared=1)
    for count in (0, 1, 7, 8, 9, 40, 127, 128, 129, 500):
        conn.execute("DELETE FROM timers")
        rows = [(0, 0, 1, 60_000 * number, f"job_{number}", 1) for number in range(count)]
        assert many.run(conn, rows, 0) == count
        assert conn.execute("SELECT count(*), count(DISTINCT bucket) FROM timers").fetchone() == (count, count)
    conn.close()
