"""Batches in which the same name stands twice: rounds, so that the later sees what the earlier did."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def rounds_of(items: Sequence[Item], name: Callable[[Item], Hashable]) -> list[list[int]]:
    """The places of the items, in rounds of which none has two of the same name; one round at least."""
    rounds: list[list[int]] = [[]]
    seen: dict[Hashable, int] = {}
    for at, item in enumerate(items):
        key = name(item)
        turn = seen.get(key, 0)
        seen[key] = turn + 1
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append(at)
    return rounds
