"""A registry in memory, shared by the processes of a test, on a clock that the test moves. It passes the suite of the real ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tocsin.clock import Clock
from tocsin.errors import LeasesUnavailable
from tocsin.lease.port import MOVES_KEPT, Assignment, Facts, Holding, Member, Move, SessionId, Vitals


@dataclass(slots=True)
class Row:
    """One session."""

    facts: Facts
    vitals: Vitals
    opened_s: float
    expires_s: float


@dataclass(slots=True)
class Book:
    """What the server knows. `unreachable`: it answers nobody."""

    clock: Clock
    ttl_s: float
    rows: dict[SessionId, Row] = field(default_factory=dict)
    office: SessionId | None = None
    assignment: Assignment = field(default_factory=Assignment)
    held: dict[int, Holding] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    unreachable: bool = False

    def look(self) -> None:
        """Let what has expired be gone."""
        for session in [one for one, row in self.rows.items() if row.expires_s <= self.clock.elapsed_s()]:
            self.remove(session)

    def remove(self, session: SessionId) -> None:
        self.rows.pop(session, None)
        self.held = {partition: one for partition, one in self.held.items() if one.session != session}
        self.office = None if self.office == session else self.office


class MemoryRegistry:
    """One process's way to the book. `cut_off`: this process alone cannot reach it."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self.cut_off = False

    def _open_book(self) -> Book:
        if self.cut_off or self._book.unreachable:
            raise LeasesUnavailable("the registry cannot be reached")
        self._book.look()
        return self._book

    async def open(self, session: SessionId, facts: Facts, vitals: Vitals) -> None:
        book = self._open_book()
        now_s = book.clock.elapsed_s()
        book.rows.setdefault(session, Row(facts, vitals, now_s, now_s + book.ttl_s))

    async def renew(self, session: SessionId, vitals: Vitals) -> bool:
        book = self._open_book()
        row = book.rows.get(session)
        if row is None:
            return False
        row.vitals, row.expires_s = vitals, book.clock.elapsed_s() + book.ttl_s
        return True

    async def end(self, session: SessionId) -> None:
        self._open_book().remove(session)

    async def members(self) -> Sequence[Member]:
        book = self._open_book()
        now_s = book.clock.elapsed_s()
        return [
            Member(session=session, facts=row.facts, vitals=row.vitals, age_s=now_s - row.opened_s)
            for session, row in sorted(book.rows.items())
        ]

    async def campaign(self, session: SessionId) -> SessionId | None:
        book = self._open_book()
        if book.office is None and session in book.rows:
            book.office = session
        return book.office

    async def coordinator(self) -> SessionId | None:
        return self._open_book().office

    async def assignment(self, known: int | None = None) -> Assignment | None:
        assignment = self._open_book().assignment
        return assignment if assignment.version != known else None

    async def assign(self, session: SessionId, assignment: Assignment, moves: Sequence[Move]) -> bool:
        book = self._open_book()
        if book.office != session or assignment.version != book.assignment.version + 1:
            return False
        book.assignment = replace(assignment, owners=dict(assignment.owners), nodes=dict(assignment.nodes))
        newest = sorted(moves, key=lambda move: move.partition)
        book.moves = newest + book.moves[: max(MOVES_KEPT - len(newest), 0)]
        return True

    async def claim(self, session: SessionId, partitions: Sequence[int], version: int) -> frozenset[int]:
        book = self._open_book()
        if session not in book.rows:
            return frozenset()
        for partition in partitions:
            if partition not in book.held and version == book.assignment.version:
                book.held[partition] = Holding(partition=partition, session=session, since=book.clock.now_ms())
        return frozenset(p for p in partitions if p in book.held and book.held[p].session == session)

    async def release(self, session: SessionId, partitions: Sequence[int]) -> None:
        book = self._open_book()
        for partition in partitions:
            if partition in book.held and book.held[partition].session == session:
                del book.held[partition]

    async def holdings(self, of: SessionId | None = None) -> Sequence[Holding]:
        held = sorted(self._open_book().held.items())
        return [holding for _, holding in held if of in (None, holding.session)]

    async def revoke(self, coordinator: SessionId, session: SessionId) -> bool:
        book = self._open_book()
        if book.office != coordinator:
            return False
        book.remove(session)
        return True

    async def moves(self, limit: int) -> Sequence[Move]:
        return self._open_book().moves[:limit]

    async def close(self) -> None:
        self.cut_off = True
