"""A fleet whose processes are all restarted, one after another or at random, while there is work: nobody notices much."""

from __future__ import annotations

import http.server
import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.amount import LONG
from tests.processes.crews import (
    Paces,
    audited,
    crew,
    each_fired_once,
    end,
    free_port,
    lateness,
    listed,
    more,
    none_left,
    session_of,
    under_load,
)
from tests.processes.fleets import TAKEN_OVER_S, Fleet, drained, fleet
from tests.processes.journal import Journal
from tests.processes.program import Program
from tests.processes.waiting import wait_until
from tocsin.lease.port import SESSION_TTL_S

pytestmark = pytest.mark.timeout(900 if LONG else 240)

# Jobs a second for workers, and beside them callbacks; and how late 99 of 100 may be begun.
RATE, P99_S = (2_000, 2.0) if LONG else (200, 4.0)
CALLS = 20
KILLS = 10 if LONG else 2
# What a machine with too much to do may add to what is promised.
SLACK_S = 5.0
NAMES = ("a", "b", "c")


@dataclass
class Site:
    """Servers, two APIs, and a worker on each; each test adds nodes."""

    fleet: Fleet
    journal: Journal


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("restarts")
    journal = Journal(folder / "journal")
    with fleet(folder) as made:
        for at in range(2):
            made.api(TOCSIN_PORT=str(free_port()))
            made.worker(journal, "--concurrency", "200", "--prefetch", "400", api=at)
        yield Site(made, journal)


# --- every role -------------------------------------------------------------------------------------------------------


@contextmanager
def endpoint() -> Iterator[tuple[str, Counter[str]]]:
    """Where callbacks arrive: the address, and how often each idempotency key has."""
    calls: Counter[str] = Counter()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            calls[self.headers["Idempotency-Key"]] += 1
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/", calls
        finally:
            server.shutdown()
            serving.join()


def executor(fleet: Fleet, name: str, api: int) -> Program:
    """Start a process that makes callbacks for one of the APIs."""
    program = fleet.programs.tocsin(
        name,
        "serve",
        TOCSIN_ROLES="executor",
        TOCSIN_URL=fleet.apis[api].url,
        TOCSIN_TOKEN=fleet.token,
        TOCSIN_CALLBACK_ALLOW="127.0.0.0/8:*",
        TOCSIN_DRAIN_S="5",
    )
    program.says("Tocsin is ready")
    return program


def goes(program: Program) -> None:
    """It is told to go, and goes in order."""
    program.signal(signal.SIGTERM)
    assert program.end() == 0, program.errors[-2_000:]


def test_when_every_process_is_restarted_under_load_no_job_is_lost_and_hardly_one_is_late(site: Site):
    fleet = site.fleet
    with endpoint() as (url, calls), crew(fleet, *NAMES):
        executors = [executor(fleet, f"executor-{at}", at) for at in range(2)]
        with under_load(fleet, RATE) as load, under_load(fleet, CALLS, queue="calls", url=url) as callbacks:
            for at in range(2):
                goes(fleet.apis[at].program)
                fleet.api(TOCSIN_PORT=fleet.apis[at].url.rsplit(":", 1)[1])
                fleet.apis[at] = fleet.apis.pop()
            for name in NAMES:
                goes(fleet.nodes[name])
                fleet.node(name)
                fleet.owned()
            for at in range(2):
                goes(executors[at])
                executors[at] = executor(fleet, f"executor-{at}-again", at)
            more(load, RATE)
        drained(fleet)
        end(*executors)
        late = lateness(fleet, load.accepted)
        assert len(late) == len(load.accepted)
        assert late[len(late) * 99 // 100] < P99_S
        late_calls = lateness(fleet, callbacks.accepted)
        assert late_calls[len(late_calls) * 99 // 100] < P99_S
        assert len(calls) == len(callbacks.accepted), "each was called, under one key"
        each_fired_once(fleet, site.journal, load.accepted)
        audited(fleet, [*load.accepted, *callbacks.accepted])


# --- processes that cannot be told from each other --------------------------------------------------------------------


def held_by(shown: Sequence[Any], program: Program) -> set[int]:
    """The partitions that a list of them shows in the hands of the process."""
    session = session_of(program)
    return {each["partition"] for each in shown if each["node_id"] == session and each["since"]}


def holders(fleet: Fleet, programs: Sequence[Program]) -> list[Program]:
    """Those of the processes that hold partitions now."""
    shown = listed(fleet, "partitions")
    return [program for program in programs if held_by(shown, program)]


def holds_nothing(fleet: Fleet, program: Program) -> bool:
    return not holders(fleet, [program])


def test_of_three_processes_with_one_name_each_occurrence_runs_once_whichever_are_killed(site: Site):
    fleet = site.fleet
    with none_left(fleet):
        # Their name is their host's, and so are all their settings.
        alive = fleet.start_nodes(*NAMES, TOCSIN_NODE_NAME="")
        wait_until(
            lambda: len({each["name"] for each in listed(fleet, "nodes") if "node" in each["roles"]}) == 1, "one name"
        )
        wait_until(lambda: holders(fleet, alive) == alive, "each to hold some", 60)
        paces = Paces(fleet, *([1] * 10))
        for kill in range(KILLS):
            victim = random.choice(holders(fleet, alive))
            alive.remove(victim)
            shown = json.loads(fleet.admin("partitions", "--json"))["items"]
            assert held_by(shown, victim), "people see who holds what, and since when"
            killed_at = time.monotonic()
            victim.kill()
            assert holders(fleet, [victim]), "who has died is shown as the holder until its lease is over"
            wait_until(partial(holds_nothing, fleet, victim), "what it held to be free", 30)
            assert time.monotonic() - killed_at < SESSION_TTL_S + SLACK_S
            alive += fleet.start_nodes(f"again-{kill}", TOCSIN_NODE_NAME="")
            fleet.owned()
        assert len({session_of(each) for each in alive}) == len(alive)
        runs = max(10, paces.runs() + 1)
        wait_until(lambda: paces.runs() >= runs, "ten runs of each schedule", 60)
        paces.stop()
        drained(fleet)
        assert paces.each_ran_once(site.journal)[-1] < TAKEN_OVER_S + SLACK_S
        audited(fleet)
