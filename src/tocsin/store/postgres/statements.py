"""The SQL of this adapter, from the `.sql` files beside it.

Values are bound as `$n`; lists come as arrays, one for each column, and become rows by `unnest`. A statement that writes finds its
rows by `key = ANY($n)` or by whole keys, never by a condition on their contents: so its plan is the same on an empty, a never
analysed and a full table (`connection.py` takes the other plans away). Arrays are sorted by job, so two batches lock the rows that
they share in the same order.
"""

from __future__ import annotations

from typing import LiteralString

from tocsin.store.blocks import blocks as read_blocks


def blocks(file: str) -> dict[str, LiteralString]:
    """The named blocks of `sql/<file>.sql`."""
    assert __package__ is not None
    return read_blocks(__package__, file)


def block(file: str, name: str) -> LiteralString:
    """One statement."""
    return blocks(file)[name]
