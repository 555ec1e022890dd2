"""Random lives of jobs. `HYPOTHESIS_PROFILE=thorough` looks longer and elsewhere each time."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.life.machine import Life
from tests.life.sqliteworld import LifeOnSqlite

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
TestLifeOnSqlite.settings = settings(LENGTH, max_examples=LENGTH.max_examples // 4)
