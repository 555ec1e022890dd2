"""A schedule's number: what its ID becomes in the tables of an adapter that indexes by numbers.

It is read from the ID, so nothing has to be looked up to write a job. It begins with the slice, so that a partition's schedules
lie side by side, and goes on with 48 random bits; whoever reads by a number still compares the ID.
"""

from __future__ import annotations

from tocsin.model.ids import ALPHABET, SLICES

_PYTHONS = str.maketrans(ALPHABET, "0123456789abcdefghijklmnopqrstuv")
_RANDOM_BITS = 48


def number_of(schedule_id: str) -> int:
    """A schedule's number: the first 60 bits behind the time in its ID. What is no schedule's ID has one too."""
    try:
        return int(schedule_id[14:26].translate(_PYTHONS), 32)
    except ValueError:
        return -1


def numbers_of(partition: int, partitions: int) -> tuple[int, int]:
    """The least and the greatest number in a partition."""
    width = (SLICES // partitions) << _RANDOM_BITS
    return partition * width, (partition + 1) * width - 1
