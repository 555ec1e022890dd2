"""Deficit round robin: shares follow weights, nobody starves, what one does not use another gets."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tocsin.model.fairness import LEAST_WEIGHT, QUANTUM, DeficitRing, bounded_weight

WEIGHTS = st.floats(min_value=LEAST_WEIGHT, max_value=20.0, allow_nan=False)
BUDGETS = st.lists(st.integers(min_value=1, max_value=500), min_size=1, max_size=40)


def serve(ring: DeficitRing, waiting: dict[str, int], most: int) -> Counter[str]:
    """One pass over tenants with so many jobs each."""
    served: Counter[str] = Counter()
    while (room := most - served.total()) and (turn := ring.turn()) is not None:
        tenant, allowed = turn
        assert allowed >= 1
        asked = min(allowed, room)
        got = min(asked, waiting[tenant])
        waiting[tenant] -= got
        served[tenant] += got
        ring.done(tenant, got, dry=got < asked)
    return served


@given(st.lists(WEIGHTS, min_size=2, max_size=6), BUDGETS)
def test_shares_of_busy_tenants_follow_their_weights_within_a_turn(weights: list[float], budgets: list[int]) -> None:
    by_name = {f"t{at}": weight for at, weight in enumerate(weights)}
    ring = DeficitRing(by_name)
    for tenant in by_name:
        ring.join(tenant)
    served: Counter[str] = Counter()
    waiting = dict.fromkeys(by_name, 10**9)
    for most in budgets:
        passed = serve(ring, waiting, most)
        assert passed.total() == most, "a pass was not filled although there is work"
        served += passed
    rounds = [served[tenant] / (QUANTUM * weight) for tenant, weight in by_name.items()]
    slack = max(1 / (QUANTUM * weight) for weight in weights)
    assert max(rounds) - min(rounds) <= 1 + 2 * slack + 1e-6


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(min_value=0, max_value=300), min_size=1),
    st.dictionaries(st.sampled_from("abcdef"), WEIGHTS),
    BUDGETS,
)
def test_all_work_is_served_and_no_pass_is_short_while_there_is_some(
    waiting: dict[str, int], weights: dict[str, float], budgets: list[int]
) -> None:
    ring = DeficitRing(weights)
    for tenant in waiting:
        ring.join(tenant)
    left = dict(waiting)
    for most in budgets:
        before = sum(left.values())
        assert serve(ring, left, most).total() == min(most, before)
    assert all(tenant in ring for tenant, count in left.items() if count)


@given(st.integers(min_value=1, max_value=60), st.integers(min_value=1, max_value=200))
def test_a_tenant_is_served_before_any_other_has_had_two_turns(tenants: int, most: int) -> None:
    ring = DeficitRing({})
    for at in range(tenants):
        ring.join(f"t{at}")
    waiting = dict.fromkeys([f"t{at}" for at in range(tenants)], 10**6)
    ring.join("late")
    waiting["late"] = 1
    served: Counter[str] = Counter()
    while not served["late"]:
        served += serve(ring, waiting, most)
        assert served.total() <= (tenants + 1) * QUANTUM + most


def test_an_idle_tenant_saves_nothing_up() -> None:
    ring = DeficitRing({})
    for _ in range(100):
        ring.join("idle")
        assert ring.turn() is not None
        ring.done("idle", 1, dry=True)
    ring.join("idle")
    assert ring.turn() == ("idle", QUANTUM)


def test_a_turn_that_a_full_pass_cut_short_goes_on_in_the_next_pass() -> None:
    ring = DeficitRing({})
    ring.join("a")
    ring.join("b")
    assert ring.turn() == ("a", QUANTUM)
    ring.done("a", 20, dry=False)
    assert ring.turn() == ("a", QUANTUM - 20)
    ring.done("a", QUANTUM - 20, dry=False)
    assert ring.turn() == ("b", QUANTUM)


def test_a_new_weight_counts_from_the_next_turn() -> None:
    weights: dict[str, float] = {}
    ring = DeficitRing(weights)
    ring.join("a")
    ring.turn()
    weights["a"] = 2.0
    assert ring.turn() == ("a", QUANTUM)
    ring.done("a", QUANTUM, dry=False)
    assert ring.turn() == ("a", 2 * QUANTUM)


@given(st.floats(allow_nan=False))
def test_any_weight_becomes_one_that_can_be_served(weight: float) -> None:
    ring = DeficitRing({"a": bounded_weight(weight)})
    ring.join("a")
    turn = ring.turn()
    assert turn is not None
    assert 1 <= turn[1] <= 1_000 * QUANTUM
