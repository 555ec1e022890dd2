"""Who is to own which partition: a pure plan from who owns what and who is there.

Nodes come and go, and a partition that changes hands costs a look through its timers. So the plan moves as few as possible,
and a node that has just come (it may be one that comes and goes) waits until it has been stable for half a minute; unless no
node is stable, as at a fleet's first start, when waiting would mean that nothing fires. Whoever owns partitions already counts
as stable: a node that falters loses its session, and with that what it owned.
"""

from __future__ import annotations

from collections.abc import Mapping

STABLE_S = 30.0


def plan(partitions: int, owners: Mapping[int, str], nodes: Mapping[str, float]) -> dict[int, str]:
    """The owner of every partition; empty if there are no `nodes`.

    `nodes` are those that stand, with the seconds they have stood; `owners` those of now, who may be gone. Balanced within one
    over the nodes that may own, each partition once, as few as possible moved. The same facts always give the same plan.
    """
    able = eligible(owners, nodes)
    if not able:
        return {}
    kept: dict[str, list[int]] = {node: [] for node in able}
    for partition in range(partitions):
        if (owner := owners.get(partition)) in kept:
            kept[owner].append(partition)
    share, over = divmod(partitions, len(able))
    # The shares that are larger by one go to those who have most: every other choice would move more.
    fullest = sorted(able, key=lambda node: (-len(kept[node]), node))
    room = {node: share + (at < over) for at, node in enumerate(fullest)}
    planned = {partition: node for node in able for partition in kept[node][: room[node]]}
    takers = (node for node in able for _ in range(room[node] - len(kept[node])))
    free = (partition for partition in range(partitions) if partition not in planned)
    planned.update(zip(free, takers, strict=True))
    return dict(sorted(planned.items()))


def eligible(owners: Mapping[int, str], nodes: Mapping[str, float]) -> list[str]:
    """The nodes that may own partitions, in order."""
    stable = {node for node, stood_s in nodes.items() if stood_s >= STABLE_S}
    if not stable:
        return sorted(nodes)
    return sorted(stable | (nodes.keys() & set(owners.values())))
