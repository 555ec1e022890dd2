"""Nodes of a test's own on servers that its module shares; work for them, and when it was begun."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import asyncpg

from tests.processes.fleets import PARTITIONS, QUEUE, Fleet, Load, check_all
from tests.processes.journal import Journal
from tests.processes.program import Program
from tests.processes.waiting import wait_until
from tocsin.clock import rfc3339
from tocsin.model.ids import made_at_ms
from tocsin.model.partition import partition_of
from tocsin.sdk.answers import Job
from tocsin.sdk.jobs import NewJob

# Bursts and schedules on one fleet have names of their own.
_NAMES = count()
ENDS_WITHIN_S = 30.0


@contextmanager
def none_left(fleet: Fleet) -> Iterator[None]:
    """At the end no node is left.

    Young nodes get their shares at once, where no older one is: so each test begins with nodes of its own.
    """
    try:
        yield
    finally:
        end(*fleet.nodes.values())
        fleet.nodes.clear()


@contextmanager
def crew(fleet: Fleet, *names: str) -> Iterator[None]:
    """Nodes that share all partitions. None of them, and none that the test adds, is left at the end."""
    with none_left(fleet):
        fleet.start_nodes(*names)
        fleet.settled(*names)
        yield


@contextmanager
def under_load(fleet: Fleet, rate: int, *, queue: str = QUEUE, url: str | None = None) -> Iterator[Load]:
    """So many jobs a second meanwhile, the first second's made already."""
    load = Load(fleet, rate, queue=queue, url=url)
    load.start()
    try:
        more(load, rate)
        yield load
    finally:
        load.stop()


def more(load: Load, jobs: int) -> None:
    """Wait until so many more jobs have been accepted."""
    wanted = len(load.accepted) + jobs
    wait_until(lambda: len(load.accepted) >= wanted, "more load", 60)


def end(*programs: Program) -> None:
    """SIGTERM to all that run, and wait for their ends."""
    running = [program for program in programs if program.running]
    for program in running:
        program.signal(signal.SIGCONT)
        program.signal(signal.SIGTERM)
    for program in running:
        program.end(ENDS_WITHIN_S)


def listed(fleet: Fleet, path: str) -> list[Any]:
    """A list of the API, as soon as that can give it: on a busy machine it may have to wait for what keeps the leases."""

    def asked() -> tuple[list[Any]] | None:
        try:
            return (list(fleet.get(path)),)
        except urllib.error.HTTPError as refused:
            if refused.code != 503:
                raise
            return None

    return wait_until(asked, f"the list of {path}", 30)[0]


def coordinator(fleet: Fleet) -> str:
    """Which node coordinates, as soon as one does: by the name that the test gave it."""

    def known() -> str | None:
        session = next((each["node_id"] for each in listed(fleet, "nodes") if each["coordinator"]), None)
        return next((name for name, program in fleet.nodes.items() if session_of(program) == session), None)

    return wait_until(known, "a coordinator", 60)


def session_of(program: Program) -> str | None:
    """Its newest session, from its log."""
    opened = re.findall(r"session_opened +session='(\w+)'", program.errors)
    return opened[-1] if opened else None


def audited(fleet: Fleet, accepted: Iterable[str] = ()) -> None:
    """`check_all`, when a node that has just started has taken over everything: it counts what there is at once, where others
    would only do so some minutes later."""
    others = list(fleet.nodes.values())
    fleet.node("auditor")
    end(*others)
    check_all(fleet, iter(accepted))


def partitions_of(fleet: Fleet, name: str) -> set[int]:
    """The partitions that a node holds."""
    return {partition for partition, owner in fleet.owners().items() if owner == name}


def burst(fleet: Fleet, number: int, in_s: float) -> dict[str, float]:
    """Make so many jobs that are all due at one instant; IDs, and that instant."""
    due, name = time.time() + in_s, f"burst-{next(_NAMES)}"
    jobs: list[NewJob] = [
        {
            "queue": QUEUE,
            "handler": "note",
            "run_at": rfc3339(round(due * 1000)),
            "idempotency_key": f"{name}-{each}",
        }
        for each in range(number)
    ]
    with fleet.client() as client:
        made = client.jobs.create_batch(jobs)
    assert time.time() < due, "it took too long to make them"
    return {result.job_id: due for result in made if result.job_id is not None}


def in_partitions(ids: Iterable[str], partitions: set[int]) -> list[str]:
    """Those jobs that are in these partitions."""
    return [job_id for job_id in ids if partition_of(job_id, PARTITIONS) in partitions]


@contextmanager
def stuck_behind(fleet: Fleet, job_id: str) -> Iterator[tuple[asyncio.Runner, asyncpg.Connection]]:
    """Hold the row of a job, so that whoever writes it is stopped in the middle of its batch; see `somebody_is_stuck`."""
    with asyncio.Runner() as runner:
        conn = runner.run(asyncpg.connect(fleet.postgres.dsn("tocsin")))
        try:
            runner.run(conn.execute("BEGIN"))
            row = runner.run(conn.fetchrow("SELECT id FROM jobs WHERE id = $1 FOR UPDATE", job_id))
            assert row is not None, "the job has ended already"
            yield runner, conn
        finally:
            runner.run(conn.close())


def somebody_is_stuck(held: tuple[asyncio.Runner, asyncpg.Connection]) -> bool:
    """Whether a statement waits for the row that is held."""
    runner, conn = held
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    return bool(runner.run(conn.fetchval(waiting)))


def lateness(fleet: Fleet, ids: Iterable[str]) -> list[float]:
    """How late each job was begun, in order: from when it was due, or made if that was later. From the database alone."""
    rows = fleet.query("SELECT id, fire_at, started_at FROM finished WHERE id = ANY($1::text[])", list(ids))
    assert all(row["started_at"] is not None for row in rows), "a job has ended without a start"
    return sorted((row["started_at"] - max(row["fire_at"], made_at_ms(row["id"]))) / 1000 for row in rows)


def each_fired_once(fleet: Fleet, journal: Journal, ids: Iterable[str]) -> None:
    """Every job succeeded in its first attempt, at its first version, and its handler ran once."""
    wanted = set(ids)
    rows = fleet.query("SELECT id, status, version, attempt FROM finished WHERE id = ANY($1::text[])", list(wanted))
    odd = [dict(row) for row in rows if (row["version"], row["attempt"]) != (1, 1)]
    assert not odd, f"{len(odd)} jobs were begun more than once, such as {odd[0]}"
    begun = Counter(entry.job_id for entry in journal.entries())
    assert {begun[job_id] for job_id in wanted} == {1}, "a handler ran twice, or never"


def seen(fleet: Fleet, name: str) -> str | None:
    """The session of the node of that name, if one stands."""
    return next((each["node_id"] for each in listed(fleet, "nodes") if each["name"] == name), None)


def joins_anew(fleet: Fleet, name: str, before: str | None, within_s: float = 60.0) -> None:
    """Wait until the node of that name has another session than `before`."""
    wait_until(lambda: seen(fleet, name) not in (None, before), f"a new session of {name}", within_s)


class Paces:
    """Schedules of a test's own, each of another pace; what is missed is to be made up for, run by run."""

    def __init__(self, fleet: Fleet, *every_s: int) -> None:
        self._fleet, name = fleet, f"paces-{next(_NAMES)}"
        with fleet.client() as client:
            self._made = [
                client.schedules.create(
                    f"{name}-{number}", every=pace, queue=QUEUE, handler="note", missed_runs="run_all"
                )
                for number, pace in enumerate(every_s)
            ]

    def runs(self) -> int:
        """How many runs there have been, of that schedule which has had the fewest."""
        return min(len(self._jobs(made.schedule_id)) for made in self._made)

    def stop(self) -> None:
        """No more occurrences. What waits becomes a skip."""
        with self._fleet.client() as client:
            for made in self._made:
                client.schedules.pause(made.schedule_id)

    def each_ran_once(self, journal: Journal) -> list[float]:
        """Once they have stopped and all is done: each occurrence came to one job and ran once. How late each was, in order."""
        late: list[float] = []
        begun = Counter(entry.job_id for entry in journal.entries())
        with self._fleet.client() as client:
            for made in self._made:
                jobs = self._jobs(made.schedule_id)
                instants = sorted(_instant(job.occurrence_at) for job in jobs)
                pace = timedelta(seconds=made.every_s or 0)
                first = _instant(made.anchor) + pace
                assert instants == [first + number * pace for number in range(len(jobs))], "missed, or twice"
                assert {skip.reason for skip in client.schedules.skips(made.schedule_id)} <= {"paused"}
                assert {(job.attempt, begun[job.job_id]) for job in jobs} == {(1, 1)}, "a run was begun twice"
                late += [(_instant(job.started_at) - _instant(job.occurrence_at)).total_seconds() for job in jobs]
        return sorted(late)

    def _jobs(self, schedule_id: str) -> list[Job]:
        with self._fleet.client() as client:
            jobs = [job for job in client.schedules.jobs(schedule_id) if job.origin == "schedule"]
        return [job for job in jobs if job.status == "SUCCEEDED"]


def _instant(text: str | None) -> datetime:
    assert text is not None
    return datetime.fromisoformat(text)


def fired(metrics: int) -> int:
    """How many jobs a process has fired, as its metrics on that port tell."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return round(sum(float(line.split()[-1]) for line in lines if line.startswith('tocsin_jobs_total{event="fired"}')))


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
