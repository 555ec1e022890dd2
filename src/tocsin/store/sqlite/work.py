"""What a write has in its hands while its transaction is open, and the look at jobs that every careful path starts with.

The writer is the only one that writes, so what `look` sees stays true until the commit: reading, deciding in Python and then
writing by a list of IDs is as safe as one conditional statement.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from tocsin.store.rounds import rounds_of
from tocsin.store.sqlite.lines import Interner
from tocsin.store.sqlite.statements import block

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_LOOK = block("jobs", "look")


class Look(Struct, array_like=True, frozen=True):
    """The part of a live job's row that conditions are about; `status` 0: there is no such live job."""

    status: int
    version: int
    attempt: int
    due_at: int
    expires_at: int | None
    claimed_at: int | None
    timeout_ms: int
    lease_ms: int | None
    lease_until: int | None
    beaten_at: int | None


_LOOKS = msgspec.json.Decoder(list[Look])
_encode = msgspec.json.Encoder().encode


def json_text(value: object) -> str:
    """JSON as a bound text, for `json_each`."""
    return _encode(value).decode()


@dataclass(slots=True)
class Work:
    """The open transaction: its connection, its instant, and the names' numbers.

    `undo` goes back to where the batch began: the savepoint `batch`, or, where `marked` is False, the transaction's own
    beginning (nearly every group is one batch, and each statement saved is a hand-over of the interpreter's lock saved).
    """

    conn: Connection
    lines: Interner
    partitions: int
    now: int = 0
    marked: bool = True

    def begin(self) -> None:
        """Begin the transaction, and with it its first batch."""
        self.conn.execute("BEGIN IMMEDIATE")
        self.marked = False

    def mark(self) -> None:
        """Begin another batch. Savepoints of batches that went well end with the transaction."""
        self.conn.execute("SAVEPOINT batch")
        self.marked = True

    def write(self, sql: str, *values: Any) -> int:
        """Run one statement; how many rows it changed."""
        return self.conn.execute(sql, values).rowcount

    def row(self, sql: str, *values: Any) -> Any:
        """The only row of a query."""
        return self.conn.execute(sql, values).fetchone()

    def undo(self) -> None:
        """Take back what this batch has written so far."""
        if self.marked:
            self.conn.execute("ROLLBACK TO batch")
        else:
            self.conn.execute("ROLLBACK")
            self.conn.execute("BEGIN IMMEDIATE")
        self.lines.undo()

    def look(self, job_ids: Sequence[str]) -> list[Look]:
        """The live rows of these jobs, in their order."""
        looks = _LOOKS.decode(self.row(_LOOK, json_text(job_ids))[0])
        if len(looks) != len(job_ids):
            raise ValueError("the store answered for another number of jobs than it was asked for")
        return looks


def in_rounds(
    items: Sequence[Item], name: Callable[[Item], Hashable], act: Callable[[Sequence[Item]], list[Answer]]
) -> list[Answer]:
    """Act on items so that no call has two of the same name, and the later of two sees what the earlier did."""
    rounds = rounds_of(items, name)
    if len(rounds) == 1:
        return act(items)
    answers: dict[int, Answer] = {}
    for places in rounds:
        answers.update(zip(places, act([items[at] for at in places]), strict=True))
    return [answers[at] for at in range(len(items))]
