"""Quotas at the door: how many creates a second, also where that is less than one."""

from typing import cast

import pytest

from tocsin.clock import ManualClock
from tocsin.flow.quotas import Limits, Quotas
from tocsin.flow.tally import Tally
from tocsin.store.settings import SettingsStore


@pytest.mark.parametrize(("rate", "allowed"), [(0, 0), (0.1, 6), (0.5, 30), (1, 60), (2.5, 150)])
def test_the_rate_of_creates_holds_over_a_minute(rate, allowed):
    clock = ManualClock()
    quotas, limits = Quotas(cast("SettingsStore", None), Tally(), clock), Limits(creates_per_s=rate)
    quotas.take_creates("acme", limits, 1_000)
    taken = 0
    for _ in range(60 * 4):
        clock.advance(0.25)
        taken += quotas.take_creates("acme", limits, 1_000)
    assert taken == pytest.approx(allowed, abs=1)
