"""The SQL of this adapter, from the `.sql` files beside it: named blocks, and rows of VALUES that repeat.

In a block for many rows, `[[(…)]]` is one row: `{1}`, `{2}` … are its own parameters, `?1` … those that all rows share. Nothing
else is ever put into a statement, so no value can become SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from sqlite3 import Connection, Cursor
from typing import Any, LiteralString

from tocsin.store.blocks import blocks as read_blocks

_ROW = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
_FIELD = re.compile(r"\{(\d+)\}")
# Each statement hands the interpreter's lock over and may wait milliseconds to get it back, so there must be few, and always
# the same, so that they stay prepared: full ones of the largest size and one that is filled up to a power of two.
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def blocks(file: str) -> dict[str, LiteralString]:
    """The named blocks of `sql/<file>.sql`."""
    assert __package__ is not None
    return read_blocks(__package__, file)


def block(file: str, name: str) -> str:
    """One statement."""
    return blocks(file)[name]


class Many:
    """A statement that takes many rows of VALUES, run in a few large steps.

    The last step is filled up by repeating its last row, so the statement must do nothing about a row that is there already.
    """

    def __init__(self, file: str, name: str, shared: int = 0) -> None:
        text = block(file, name)
        found = _ROW.search(text)
        assert found is not None, f"{file}.{name} has no [[row]]"
        row = found[1]
        width = max(int(number) for number in _FIELD.findall(row))
        self.texts = [self._compose(text, row, width, shared, size) for size in _SIZES]

    @staticmethod
    def _compose(text: str, row: str, width: int, shared: int, size: int) -> str:
        def numbered(at: int) -> str:
            return _FIELD.sub(lambda found: f"?{shared + at * width + int(found[1])}", row)

        return _ROW.sub(lambda _: ",".join(numbered(at) for at in range(size)), text)

    def run(self, conn: Connection, rows: Sequence[tuple[Any, ...]], *shared: Any) -> int:
        """Write for all rows; how many rows were changed in total."""
        return sum(cursor.rowcount for cursor in self._steps(conn, rows, shared))

    def rows(self, conn: Connection, rows: Sequence[tuple[Any, ...]], *shared: Any) -> list[tuple[Any, ...]]:
        """Ask for all rows; what each step answered, a filled one in part twice."""
        return [row for cursor in self._steps(conn, rows, shared) for row in cursor]

    def _steps(self, conn: Connection, rows: Sequence[tuple[Any, ...]], shared: tuple[Any, ...]) -> Iterator[Cursor]:
        most = _SIZES[-1]
        for at in range(0, len(rows), most):
            part = rows[at : at + most]
            power = (len(part) - 1).bit_length()
            values = list(chain(shared, chain.from_iterable(part)))
            values += part[-1] * ((1 << power) - len(part))
            yield conn.execute(self.texts[power], values)
