"""Nodes of a fleet that die, stop for a while, hang or are told to go, under load: every job once, and soon."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

import pytest

from tests.amount import LONG, one_in
from tests.processes.crews import (
    Paces,
    audited,
    burst,
    coordinator,
    crew,
    each_fired_once,
    fired,
    free_port,
    in_partitions,
    joins_anew,
    lateness,
    listed,
    more,
    none_left,
    partitions_of,
    seen,
    somebody_is_stuck,
    stuck_behind,
    under_load,
)
from tests.processes.fleets import PARTITIONS, TAKEN_OVER_S, Fleet, drained, fleet
from tests.processes.journal import Journal
from tests.processes.proxy import between
from tests.processes.waiting import wait_until
from tocsin.flow.ownership import DISPATCHED_WITHIN_S

pytestmark = pytest.mark.timeout(1_200 if LONG else 240)

RATE = 200
BURST = 2_000
# What is promised: partitions of a node that goes in order move at once.
HANDED_OVER_S = 5.0
PAUSES, PAUSED_S = (10, 20.0) if LONG else (2, 12.0)
# How long it is seen that a node without a store stays away.
DARK_S = 3.0
# What a machine with too much to do may add to what is promised.
SLACK_S = 3.0
WORKER = ("--concurrency", "200", "--prefetch", "400")


@dataclass
class Site:
    """Servers, an API and a worker; each test adds nodes."""

    fleet: Fleet
    journal: Journal


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("nodes")
    journal = Journal(folder / "journal")
    with fleet(folder, etcd=True) as made:
        made.api()
        made.worker(journal, *WORKER)
        yield Site(made, journal)


def test_after_a_kill_in_the_middle_of_a_batch_nothing_is_late_beyond_fifteen_seconds(site: Site):
    # Alone, and together with the coordinator.
    for number in takewhile(lambda number: number < 2, one_in(2)):
        one_is_killed(site, with_the_coordinator=number == 1)


def one_is_killed(site: Site, *, with_the_coordinator: bool) -> None:
    fleet = site.fleet
    with crew(fleet, "a", "b", "c"):
        head = coordinator(fleet)
        victim = next(name for name in fleet.nodes if name != head)
        with under_load(fleet, RATE) as load:
            due = burst(fleet, BURST, in_s=3.0)
            doomed = in_partitions(due, partitions_of(fleet, victim))
            with stuck_behind(fleet, max(doomed)) as held:
                wait_until(lambda: somebody_is_stuck(held), "the batch to be under way")
                fleet.nodes[victim].kill()
                if with_the_coordinator:
                    fleet.nodes[head].kill()
            (left,) = fleet.query("SELECT count(*) AS n FROM jobs WHERE id = ANY($1::text[])", doomed)
            assert left["n"] > 0, "the kill was to come before the batch had ended"
            fleet.settled(*(name for name, program in fleet.nodes.items() if program.running))
        drained(fleet)
        accepted = due | load.accepted
        late = lateness(fleet, accepted)
        assert len(late) == len(accepted)
        assert late[-1] < TAKEN_OVER_S + SLACK_S
        each_fired_once(fleet, site.journal, accepted)
        audited(fleet, accepted)


def test_a_node_that_is_told_to_go_hands_over_at_once(site: Site):
    fleet = site.fleet
    with crew(fleet, "a", "b", "c"):
        head = coordinator(fleet)
        other = next(name for name in fleet.nodes if name != head)
        with under_load(fleet, RATE) as load:
            for name in (other, head):
                fleet.nodes[name].signal(signal.SIGTERM)
                fleet.owned(but=name, within_s=HANDED_OVER_S + SLACK_S)
                assert fleet.nodes[name].end() == 0
            more(load, RATE)
        drained(fleet)
        assert lateness(fleet, load.accepted)[-1] < HANDED_OVER_S + SLACK_S
        each_fired_once(fleet, site.journal, load.accepted)
        audited(fleet, load.accepted)


def test_a_node_that_is_stopped_again_and_again_misses_no_occurrence_and_takes_part_again(site: Site):
    fleet = site.fleet
    with crew(fleet, "a", "b", "c"):
        paces = Paces(fleet, 1, 2, 3, 2, 1)
        for number in range(PAUSES):
            stopped = coordinator(fleet)
            session = seen(fleet, stopped)
            until = time.monotonic() + PAUSED_S
            fleet.nodes[stopped].signal(signal.SIGSTOP)
            fleet.owned(but=stopped, within_s=TAKEN_OVER_S + SLACK_S)
            wait_until(partial(passed, until), "the stop to last", PAUSED_S)
            fleet.nodes[stopped].signal(signal.SIGCONT)
            joins_anew(fleet, stopped, session)
            if number + 1 < PAUSES or LONG:
                # It has a share as soon as it has been there for half a minute, or the others have not either.
                fleet.settled(*fleet.nodes)
        runs = paces.runs()
        wait_until(lambda: paces.runs() > runs, "more runs of each schedule")
        wait_until(lambda: {each["overdue_s"] for each in listed(fleet, "partitions")} == {0}, "nothing to be overdue")
        paces.stop()
        drained(fleet)
        assert paces.each_ran_once(site.journal)[-1] < TAKEN_OVER_S + SLACK_S
        audited(fleet)


def passed(until: float) -> bool:
    return time.monotonic() >= until


def test_a_node_whose_dispatcher_hangs_loses_its_partitions_until_it_reaches_the_store_again(site: Site):
    fleet = site.fleet
    with between(fleet.postgres.port) as line, crew(fleet, "a", "b"):
        # Its lease is in etcd, which it goes on to reach.
        fleet.node("c", direct={"postgres": line.port})
        fleet.settled("a", "b", "c")
        session = seen(fleet, "c")
        with under_load(fleet, RATE) as load:
            line.black_hole()
            fleet.owned(but="c", within_s=TAKEN_OVER_S + DISPATCHED_WITHIN_S + SLACK_S)
            until = time.monotonic() + DARK_S
            while not passed(until):
                assert seen(fleet, "c") is None, "it is of no use, and joins all the same"
            line.allow_new()
            joins_anew(fleet, "c", session)
        drained(fleet)
        assert lateness(fleet, load.accepted)[-1] < TAKEN_OVER_S + DISPATCHED_WITHIN_S + SLACK_S
        each_fired_once(fleet, site.journal, load.accepted)
        audited(fleet, load.accepted)


def test_two_nodes_that_both_own_everything_fire_each_job_and_each_occurrence_once(site: Site):
    fleet = site.fleet
    ports = {name: free_port() for name in ("a", "b")}
    with none_left(fleet):
        # Each keeps its lease elsewhere: neither can know that the other has the same partitions.
        for name, lease in (("a", fleet.settings()["TOCSIN_LEASE"]), ("b", "postgresql")):
            node = fleet.node(name, TOCSIN_METRICS_PORT=str(ports[name]), TOCSIN_LEASE=lease)
            node.says(f"partitions_claimed partitions={PARTITIONS}")
        paces = Paces(fleet, *([1] * 10))
        with under_load(fleet, RATE) as load:
            due = burst(fleet, BURST, in_s=3.0)
            wait_until(lambda: paces.runs() >= 3, "three runs of each schedule", 60)
        paces.stop()
        drained(fleet)
        accepted = due | load.accepted
        each_fired_once(fleet, site.journal, accepted)
        occurrences = len(paces.each_ran_once(site.journal))
        counts = [fired(port) for port in ports.values()]
        assert min(counts) > 0, "both were to fire"
        # What is due already when it is written needs no fire.
        assert sum(counts) <= len(accepted) + occurrences, "something was fired twice"
        audited(fleet, accepted)
