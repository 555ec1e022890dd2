"""Who is to own which partition: what holds of every plan."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tocsin.model.assignment import STABLE_S, eligible, plan

NAMES = ["a", "b", "c", "d", "e", "f"]
AGES = st.sampled_from([0.0, 1.0, STABLE_S - 0.001, STABLE_S, 1000.0])


@st.composite
def fleets(draw, most=32):
    """(number of partitions, owners of now, some of them gone or none, the nodes that stand)"""
    count = draw(st.integers(1, most))
    owners = draw(st.dictionaries(st.integers(0, count - 1), st.sampled_from(NAMES)))
    return count, owners, draw(st.dictionaries(st.sampled_from(NAMES), AGES))


def moved(owners, planned):
    return sum(owners.get(partition) != owner for partition, owner in planned.items())


@given(fleets())
def test_each_partition_has_one_owner_that_may_own_and_all_have_alike_within_one(fleet):
    count, owners, nodes = fleet
    planned = plan(count, owners, nodes)
    if not nodes:
        assert planned == {}
        return
    assert list(planned) == list(range(count))
    able = eligible(owners, nodes)
    assert able
    assert set(planned.values()) <= set(able) <= set(nodes)
    shares = [Counter(planned.values())[node] for node in able]
    assert max(shares) - min(shares) <= 1


@given(fleets(most=5))
def test_no_other_balanced_plan_moves_fewer(fleet):
    count, owners, nodes = fleet
    few = {node: nodes[node] for node in sorted(nodes)[:4]}
    able, planned = eligible(owners, few), plan(count, owners, few)
    if not able:
        return
    fewest = count
    for other in product(able, repeat=count):
        shares = [Counter(other)[node] for node in able]
        if max(shares) - min(shares) <= 1:
            fewest = min(fewest, moved(owners, dict(enumerate(other))))
    assert moved(owners, planned) == fewest


@given(fleets())
def test_a_plan_that_is_followed_is_not_changed_while_nothing_else_changes(fleet):
    count, owners, nodes = fleet
    planned = plan(count, owners, nodes)
    assert plan(count, planned, nodes) == planned


@given(fleets(), st.sampled_from(NAMES))
def test_who_goes_moves_only_what_it_had_and_who_is_new_waits_while_others_are_stable(fleet, node):
    count, owners, nodes = fleet
    stable = dict.fromkeys(nodes, STABLE_S)
    before = plan(count, owners, stable)
    rest = {name: age for name, age in stable.items() if name != node}
    if rest:
        after = plan(count, before, rest)
        assert {partition for partition in before if after[partition] != before[partition]} == {
            partition for partition, owner in before.items() if owner == node
        }
    if rest and node not in nodes:
        assert plan(count, before, {**rest, node: STABLE_S - 0.001}) == before
        joined = plan(count, before, {**rest, node: STABLE_S})
        assert {joined[partition] for partition in joined if joined[partition] != before[partition]} <= {node}


def test_where_no_node_is_stable_nobody_waits():
    assert plan(4, {}, {"a": 0.0}) == {0: "a", 1: "a", 2: "a", 3: "a"}
    assert Counter(plan(4, {}, {"a": 0.5, "b": 0.0}).values()) == {"a": 2, "b": 2}
    assert set(plan(4, dict.fromkeys(range(4), "gone"), {"a": 0.0}).values()) == {"a"}


def test_an_owner_counts_as_stable_and_keeps_what_it_has_when_another_becomes_so_first():
    owners = {0: "a", 1: "a", 2: "b", 3: "b"}
    assert plan(4, owners, {"a": STABLE_S, "b": STABLE_S - 1, "c": STABLE_S - 2}) == owners
