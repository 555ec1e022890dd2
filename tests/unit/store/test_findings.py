"""What is said about a database of PostgreSQL: which promise holds, and which faults are named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tocsin.store.postgres.findings import (
    Contents,
    Finding,
    Offset,
    Promise,
    Server,
    Standby,
    of_clock,
    of_contents,
    of_server,
)

SOUND = Server(
    version=160_004,
    encoding="UTF8",
    in_recovery=False,
    read_only=False,
    fsync=True,
    full_page_writes=True,
    synchronous_commit="on",
    synchronous_standby_names="",
    autovacuum=True,
    max_connections=100,
    in_use=10,
    transaction_age_s=2.0,
    prepared_age_s=None,
    xid_age=1_000,
    size=5 << 20,
    sees_all=True,
)
WAITED_FOR = (Standby(name="b", sync_state="quorum"), Standby(name="c", sync_state="async"))
STORE = Contents(version=2, newest=2, installation="i", partitions=64, days_ahead=7)


def wrong(findings: Any) -> list[tuple[str, str]]:
    """What is not well, by check; each says what to do."""
    found: list[Finding] = list(findings)
    assert all(finding.do for finding in found if finding.state != "ok")
    return [(finding.check, finding.state) for finding in found if finding.state != "ok"]


def test_a_sound_server_has_nothing_to_be_done() -> None:
    assert wrong(of_server(SOUND, "db/tocsin", 20)) == []
    assert SOUND.promise is Promise.PROCESS


@pytest.mark.parametrize("commit", ["on", "remote_apply", "remote_write"])
def test_with_a_standby_that_is_waited_for_jobs_survive_the_machine(commit: str) -> None:
    server = replace(SOUND, synchronous_standby_names="ANY 1 (b, c)", standbys=WAITED_FOR, synchronous_commit=commit)
    assert server.promise is Promise.MACHINE
    assert wrong(of_server(server, "db/tocsin", 20)) == ([("durability", "note")] if commit == "remote_write" else [])


@pytest.mark.parametrize(
    "changes",
    [
        {"standbys": ()},
        {"standbys": WAITED_FOR[1:]},
        {"standbys": (replace(WAITED_FOR[0], sync_state="potential"),)},
        {"synchronous_commit": "local"},
    ],
)
def test_a_standby_that_nobody_waits_for_makes_no_promise(changes: dict[str, Any]) -> None:
    server = replace(SOUND, synchronous_standby_names="b", **{"standbys": WAITED_FOR, **changes})
    assert server.promise is Promise.PROCESS
    assert wrong(of_server(server, "db/tocsin", 20)) == [("durability", "problem")]


def test_who_may_not_see_the_standbys_is_told_so() -> None:
    server = replace(SOUND, synchronous_standby_names="b", sees_all=False)
    assert wrong(of_server(server, "db/tocsin", 20)) == [("durability", "note")]


@pytest.mark.parametrize(
    ("changes", "checks"),
    [
        ({"fsync": False}, [("fsync", "problem"), ("durability", "problem")]),
        ({"full_page_writes": False}, [("full_page_writes", "problem"), ("durability", "problem")]),
        ({"synchronous_commit": "off"}, [("durability", "problem")]),
        ({"version": 140_011}, [("server", "problem")]),
        ({"version": 190_000}, [("server", "note")]),
        ({"encoding": "SQL_ASCII"}, [("encoding", "problem")]),
        ({"in_recovery": True}, [("writable", "problem")]),
        ({"read_only": True}, [("writable", "problem")]),
        ({"autovacuum": False}, [("autovacuum", "problem")]),
        ({"xid_age": 600_000_000}, [("autovacuum", "note")]),
        ({"xid_age": 1_900_000_000}, [("autovacuum", "problem")]),
        ({"transaction_age_s": 301.0}, [("open transactions", "note")]),
        ({"transaction_age_s": 90_000.0}, [("open transactions", "problem")]),
        ({"prepared_age_s": 301.0}, [("open transactions", "problem")]),
        ({"in_use": 90}, [("connections", "note")]),
        ({"max_connections": 15}, [("connections", "problem")]),
    ],
)
def test_each_fault_is_named(changes: dict[str, Any], checks: list[tuple[str, str]]) -> None:
    server = replace(SOUND, **changes)
    assert wrong(of_server(server, "db/tocsin", 20)) == checks
    loses = not server.fsync or not server.full_page_writes or server.synchronous_commit == "off"
    assert (server.promise is Promise.NOTHING) == loses


@pytest.mark.parametrize(
    ("behind_ms", "round_trip_ms", "state"),
    [(0, 1, "ok"), (-120, 0, "ok"), (200, 2, "note"), (-300, 0, "problem"), (300, 400, "ok"), (5_000, 400, "problem")],
)
def test_a_clock_is_judged_by_what_is_certain_of_it(behind_ms: int, round_trip_ms: int, state: str) -> None:
    assert of_clock(Offset(behind_ms=behind_ms, round_trip_ms=round_trip_ms)).state == state


@pytest.mark.parametrize(
    ("changes", "checks"),
    [
        ({}, []),
        ({"version": 0}, [("schema", "note")]),
        ({"version": 1}, [("schema", "note")]),
        ({"version": 3}, [("schema", "note")]),
        ({"version": 3, "least_code": 3}, [("schema", "problem")]),
        ({"installation": None}, [("identity", "problem")]),
        ({"days_ahead": 3}, []),
        ({"days_ahead": 2}, [("days ahead", "problem")]),
        ({"days_ahead": -1}, [("days ahead", "problem")]),
    ],
)
def test_what_stands_in_the_database_is_judged(changes: dict[str, Any], checks: list[tuple[str, str]]) -> None:
    assert wrong(of_contents(replace(STORE, **changes))) == checks
