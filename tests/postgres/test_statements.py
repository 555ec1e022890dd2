"""Every statement is one that the server takes, and the hot ones keep their plans whatever the planner knows of the tables."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.yard import START, Yard
from tocsin.clock import ManualClock
from tocsin.store import postgres
from tocsin.store.postgres import PostgresStore
from tocsin.store.postgres.connection import Pool
from tocsin.store.postgres.statements import block, blocks

FOLDER = Path(postgres.__file__).parent / "sql"
FILES = sorted(path.stem for path in FOLDER.glob("*.sql"))
# Parts of other statements, and the two that only the first migration takes.
PARTS = {
    ("create", "rows"),
    ("create", "columns"),
    ("create", "values"),
    ("finished", "columns"),
    ("identity", "migrations_table"),
    ("reads", "live"),
    ("reads", "ended"),
    ("reads", "job_of_timer"),
    ("reads", "dead_matches"),
    ("schedules", "row"),
}


@pytest.mark.parametrize("file", FILES)
async def test_every_statement_is_prepared_against_a_migrated_database(store: PostgresStore, file: str) -> None:
    names = [name for name in blocks(file) if (file, name) not in PARTS]
    assert names
    async with store.databases.home.bulk.connection() as conn:
        for name in names:
            await conn.prepare(block(file, name))


IDS = [f"job_01MG01NW9GRM6J4D7JQDY6E{number:03}0" for number in range(500)]
COUNT = len(IDS)
HOT: dict[str, tuple[str, tuple[Any, ...]]] = {
    "jobs.fire": ("urgent", (1, IDS, [1] * COUNT, [1] * COUNT)),
    "jobs.fire_scheduled": ("urgent", (1, IDS, [1] * COUNT, [1] * COUNT)),
    "jobs.look": ("urgent", (IDS,)),
    "jobs.lock": ("urgent", (IDS,)),
    "jobs.claim": ("urgent", (1, IDS, ["w"] * COUNT, [1] * COUNT)),
    "jobs.beat": ("urgent", (1, IDS, [1] * COUNT, [None] * COUNT, 1)),
    "finished.succeed": ("urgent", (1, IDS, [1] * COUNT, [None] * COUNT, [None] * COUNT, [None] * COUNT)),
    "finished.known": ("urgent", (IDS,)),
    "reads.states": ("reads", (IDS, 0)),
    "reads.due": ("reads", (1, 9, 0, 0, "", 0, "", 0, 500)),
    "reads.timers": ("reads", (1, 0, 9, 0, 0, "", 0, "", 0, 500)),
    "timers.sweep_void": ("bulk", (1, 0, 9, 0, 0, "", 0, "", 0, 500)),
}
NAMED = {"jobs.fire", "jobs.fire_scheduled", "jobs.claim", "jobs.beat", "finished.succeed"}


async def plan(pool: Pool, name: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
    """The nodes of the plan that one of the pool's connections makes."""
    async with pool.connection() as conn:
        file, _, statement = name.partition(".")
        text = await conn.fetchval("EXPLAIN (FORMAT JSON) " + block(file, statement), *values)
    return list(_nodes(json.loads(text)[0]["Plan"]))


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


INDEXED = ("Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Tid Scan")


def check(name: str, nodes: list[dict[str, Any]], full: bool) -> None:
    """Rows of tables are found by an index alone, and those of jobs by their IDs. A day that has no rows may be read through."""
    found = [node for node in nodes if "Relation Name" in node and node["Node Type"].endswith("Scan")]
    assert found
    for node in found:
        assert node["Node Type"] in INDEXED, (name, node)
        empty_day = "finished_" in node["Relation Name"] and not (full and node["Relation Name"] == FULL_DAY)
        assert empty_day or node.keys() & {"Index Cond", "Recheck Cond", "TID Cond"}, (name, node)
        if node["Relation Name"] == "jobs" and "Index Name" in node:
            assert node["Index Name"] == "jobs_pkey", (name, node)
    if name in NAMED:
        assert not any(node["Node Type"] == "Nested Loop" for node in nodes), name


FULL_DAY = f"finished_{START:%Y%m%d}"
FILL = f"""
INSERT INTO jobs (id, tenant, queue, lane, handler, hold, suspect, priority, status, due_at, fire_at, timeout_ms, doc)
SELECT 'job_' || lpad(n::text, 26, '0'), 'acme', 'mail', 0, 'send', '', false, 0, 1, n, n, 1000, repeat('x', 400)
FROM generate_series(1, 20000) AS n;
INSERT INTO timers (partition, kind, bucket, lane, tenant, time, job, version)
SELECT 1, 0, 5, 0, 'acme', n, 'job_' || lpad(n::text, 26, '0'), 1 FROM generate_series(1, 20000) AS n;
INSERT INTO {FULL_DAY} (id, tenant, queue, lane, handler, hold, suspect, priority, status, version, attempt, tries, due_at, fire_at,
    losses, releases, finished_at, doc)
SELECT 'job_' || lpad(n::text, 26, '0'), 'acme', 'mail', 0, 'send', '', false, 0, 6, 1, 1, 1, n, n, 0, 0,
    {int(START.timestamp()) * 1000}, repeat('x', 400)
FROM generate_series(1, 20000) AS n;
"""


@pytest.mark.parametrize("analysed", [False, True])
async def test_hot_statements_go_by_their_keys(store: PostgresStore, clock: ManualClock, analysed: bool) -> None:
    home = store.databases.home
    await home.days.ahead(clock.now_ms())
    await Yard(store, clock).made(1)
    pools = {"urgent": home.urgent, "bulk": home.bulk, "reads": home.reads}
    for full in (False, True):
        if full:
            async with home.bulk.connection() as conn:
                await conn.execute(FILL + ("ANALYZE jobs, timers" if analysed else ""))
        for name, (pool, values) in HOT.items():
            check(name, await plan(pools[pool], name, values), full)


async def test_updates_of_a_jobs_life_touch_no_index(store: PostgresStore, clock: ManualClock) -> None:
    yard = Yard(store, clock)
    await yard.running(20)
    async with store.databases.home.bulk.connection() as conn:
        indexed = await conn.fetch(
            "SELECT DISTINCT a.attname::text FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid "
            "WHERE i.indrelid = 'jobs'::regclass AND (a.attnum = ANY (i.indkey) "
            "OR pg_get_expr(i.indpred, i.indrelid) LIKE '%' || a.attname || ' IS%')"
        )
    assert {row[0] for row in indexed} == {"id", "tenant", "queue", "finished_at", "schedule"}
