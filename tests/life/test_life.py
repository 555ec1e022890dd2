"""Random lives of jobs: a few, many more with `make test-long`; `HYPOTHESIS_PROFILE=thorough` looks longer and elsewhere each time."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.amount import PROFILE
from tests.life.fleetlife import FleetLife, FleetLifeOfSchedules
from tests.life.machine import Life
from tests.life.schedulelife import LifeOfSchedules, LifeOfSchedulesOnSqlite
from tests.life.serverworld import FleetLifeOnServers, LifeOnServers
from tests.life.sqliteworld import LifeOnSqlite
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

# Thousands of steps, each with a look at the whole store: longer than one test may take elsewhere.
pytestmark = pytest.mark.timeout(3_600)

THOROUGH = PROFILE == "thorough"
LIVES = {"short": 24, "long": 60, "thorough": 1000}
LENGTH = settings(
    max_examples=int(os.environ.get("LIVES", LIVES[PROFILE])),
    stateful_step_count=100 if THOROUGH else 50,
    derandomize=not THOROUGH,
    suppress_health_check=list(HealthCheck),
)

TestLifeWithoutTransactions = Life.TestCase
TestLifeWithoutTransactions.settings = LENGTH

TestLifeOnSqlite = LifeOnSqlite.TestCase
TestLifeOnSqlite.settings = settings(LENGTH, max_examples=LENGTH.max_examples // 5)

TestSchedulesWithoutTransactions = LifeOfSchedules.TestCase
# The cheapest of them, and the one that sees most: a short run has as many as a long one.
TestSchedulesWithoutTransactions.settings = settings(LENGTH, max_examples=max(LENGTH.max_examples * 2 // 3, 40))

TestSchedulesOnSqlite = LifeOfSchedulesOnSqlite.TestCase
TestSchedulesOnSqlite.settings = settings(LENGTH, max_examples=LENGTH.max_examples // 6)

TestLifeInAFleet = FleetLife.TestCase
TestLifeInAFleet.settings = LENGTH

TestSchedulesInAFleet = FleetLifeOfSchedules.TestCase
TestSchedulesInAFleet.settings = settings(LENGTH, max_examples=LENGTH.max_examples * 2 // 3)


ON_SERVERS = settings(LENGTH, max_examples=max(LENGTH.max_examples // 6, 4), stateful_step_count=40)


def test_life_on_servers(postgres: PostgresServer, redis_server: RedisServer) -> None:
    class Here(LifeOnServers):
        servers = postgres, redis_server

    run_state_machine_as_test(Here, settings=ON_SERVERS)


def test_life_in_a_fleet_on_servers(postgres: PostgresServer, redis_server: RedisServer) -> None:
    class Here(FleetLifeOnServers):
        servers = postgres, redis_server

    run_state_machine_as_test(Here, settings=ON_SERVERS)
