"""Random lives of jobs. `HYPOTHESIS_PROFILE=thorough` looks longer and elsewhere each time."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.life.machine import Life
from tests.life.schedulelife import LifeOfSchedules, LifeOfSchedulesOnSqlite
from tests.life.sqliteworld import LifeOnSqlite

# Thousands of steps, each with a look at the whole store: longer than one test may take elsewhere.
pytestmark = pytest.mark.timeout(3_600)

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
LENGTH = settings(
    max_examples=int(os.environ.get("LIVES", "1000")) if THOROUGH else 60,
    stateful_step_count=100 if THOROUGH else 50,
    derandomize=not THOROUGH,
    suppress_health_check=list(HealthCheck),
)

TestLifeWithoutTransactions = Life.TestCase
TestLifeWithoutTransactions.settings = LENGTH

TestLifeOnSqlite = LifeOnSqlite.TestCase
TestLifeOnSqlite.settings = settings(LENGTH, max_examples=LENGTH.max_examples // 5)

TestSchedulesWithoutTransactions = LifeOfSchedules.TestCase
TestSchedulesWithoutTransactions.settings = settings(LENGTH, max_examples=LENGTH.max_examples * 2 // 3)

TestSchedulesOnSqlite = LifeOfSchedulesOnSqlite.TestCase
TestSchedulesOnSqlite.settings = settings(LENGTH, max_examples=LENGTH.max_examples // 6)
