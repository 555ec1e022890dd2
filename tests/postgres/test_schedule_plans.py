"""The hot statements on schedules keep to their indexes on an empty, a never analysed and a full table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.conformance.yard import PARTITIONS
from tests.servers.postgres import PostgresServer
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.store import codes
from tocsin.store.postgres import PostgresStore, open_store
from tocsin.store.postgres.statements import block

MANY = 500
ROWS = 10_000
NUMBERS = list(range(1, MANY + 1))
IDS = [f"sch_{number:026d}" for number in NUMBERS]
SAME = [1] * MANY
TEXTS = [b"{}"] * MANY

# Where it runs, the statement with what it is given, and the indexes that it may use.
HOT: dict[str, tuple[str, list[Any], set[str]]] = {
    "lock": ("urgent", [NUMBERS], {"schedules_pkey"}),
    "step": ("urgent", [NUMBERS, SAME, SAME, SAME, SAME, SAME, TEXTS], {"schedules_pkey"}),
    "delete": ("urgent", [NUMBERS, SAME], {"schedules_pkey"}),
    "delete_rest": ("urgent", [NUMBERS], {"specs_pkey", "skips_pkey"}),
    "get": ("urgent", [NUMBERS], {"schedules_pkey", "specs_pkey"}),
    "unfinished": ("urgent", [NUMBERS, [codes.QUEUED]], {"jobs_of_schedules"}),
    "named": ("reads", ["acme", IDS], {"schedules_names", "specs_pkey"}),
    "of_tenant": ("reads", ["acme", [1, 2], "~", 50], {"schedules_of_tenant", "specs_pkey"}),
    "overdue": ("reads", [[0, 1, 2, 3], 10, 50], {"schedules_to_look_at", "specs_pkey"}),
    "walk": ("reads", [0, 2**60, 50], {"schedules_pkey", "specs_pkey"}),
    "crowd": ("reads", [[0, 1, 2, 3], [0, 60_000], 1_000], {"schedules_to_look_at"}),
}

FILL = """
INSERT INTO schedules (number, id, partition, tenant, name, revision, serial, status, look_at, spec_crc, state)
SELECT n, 'sch_' || lpad(n::text, 26, '0'), n % 4, 'acme', 'sch_' || lpad(n::text, 26, '0'), 1, 1, 1, n, 0, ''
FROM generate_series(1, $1::bigint) AS n
"""
FILL_SPECS = "INSERT INTO specs (schedule, spec) SELECT n, '{}' FROM generate_series(1, $1::bigint) AS n"
FILL_SKIPS = """
INSERT INTO skips (schedule, first, reason, last, count, recorded_at)
SELECT n, 1, 'missed', 1, 1, 1 FROM generate_series(1, $1::bigint) AS n
"""
FILL_JOBS = """
INSERT INTO jobs (id, tenant, queue, lane, handler, hold, suspect, priority, status, due_at, fire_at, timeout_ms, schedule, doc)
SELECT 'job_' || lpad(n::text, 26, '0'), 'acme', 'mail', 0, 'send', '', false, 0, 1, n, n, 1000, n, '{}'
FROM generate_series(1, $1::bigint) AS n
"""


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A plan's steps."""
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


async def used(store: PostgresStore, name: str) -> tuple[set[str], set[str]]:
    """The indexes that a statement uses, and the tables that it reads from end to end."""
    pool, values, _ = HOT[name]
    async with getattr(store.databases.home, pool).connection() as conn:
        statement = await conn.prepare(block("schedules", name))
        (explained,) = await statement.explain(*values)
    steps = list(nodes(explained["Plan"]))
    return (
        {step["Index Name"] for step in steps if "Index Name" in step},
        {step["Relation Name"] for step in steps if step["Node Type"] == "Seq Scan"},
    )


@pytest.fixture
async def store(postgres: PostgresServer, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    """In a database of its own: what the planner was told of it would mislead others."""
    async with postgres.blank() as (dsn,):
        opened = await open_store(dsn, clock, partitions=PARTITIONS, entropy=SeededEntropy(1))
        yield opened
        await opened.close()


async def test_hot_statements_are_driven_by_keys(store: PostgresStore) -> None:
    async def check(tables: str) -> None:
        for name, (_, _, indexes) in HOT.items():
            assert await used(store, name) == (indexes, set()), f"{name} on {tables} tables"

    bulk = store.databases.home.bulk
    await check("empty")
    for fill in (FILL, FILL_SPECS, FILL_SKIPS, FILL_JOBS):
        await bulk.fetch(fill, ROWS)
    await check("never analysed")
    await bulk.fetch("ANALYZE")
    await check("full")
