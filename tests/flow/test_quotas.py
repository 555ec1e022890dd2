"""Quotas: what is counted of a tenant stays small, whatever it asks for."""

from tests.life.world import World
from tocsin.flow.quotas import Limits
from tocsin.model.job import Lane


async def test_jobs_in_every_second_of_a_year_cost_no_more_than_those_of_a_day(monkeypatch):
    monkeypatch.setattr("tocsin.flow.quotas.MOST_COUNTED", 10, raising=False)
    world = World()
    await world.start()
    quotas, limits = world.on.quotas, Limits(precise_per_s=2)
    now = world.clock.now_ms()
    for second in range(100):
        assert quotas.place("acme", limits, now + second * 1000, Lane.PRECISE) is None
    assert len(quotas._seconds["acme"]) == 10
    assert quotas.place("acme", limits, now, Lane.PRECISE) is None
    assert quotas.place("acme", limits, now, Lane.PRECISE) == "precise_per_s"
