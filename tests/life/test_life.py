"""Random lives of jobs over the store without transactions. `HYPOTHESIS_PROFILE=thorough` looks longer."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.life.machine import Life

TestLifeWithoutTransactions = Life.TestCase
TestLifeWithoutTransactions.settings = settings(
    max_examples=60 if settings.default.max_examples <= 100 else settings.default.max_examples,
    stateful_step_count=50,
    suppress_health_check=list(HealthCheck),
)
