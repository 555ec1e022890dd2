"""The lease port: who owns which partitions. Embedded: one file lock; a fleet: sessions in PostgreSQL or etcd.

The stages see `Leases` and nothing else. In a fleet `flow.ownership` makes it of a `Registry`, which is what an adapter offers:

    session      one start of one process. Ends with its process: by itself, by its time to live, or revoked
      ├── member       who that is, for people and for the plan
      ├── office       at most one standing session is the coordinator
      └── holdings     a partition is held by at most one session, and free as soon as that has ended
    assignment   who is to hold what: one map with a version, written by the coordinator
    moves        what the newest versions of the map changed, and why

Losing a race is a value. A call that cannot be answered raises LeasesUnavailable; whether it took effect is not known then, and
every call may be repeated: what was done already is done again without harm.

Which clock decides: whether a session stands is judged by the registry's server alone, never by a process's clock. Each process
trusts its own session on its elapsed clock, from the moment it *sent* the renewal, and for less than the time to live.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType, Protocol

from tocsin.clock import Entropy

SessionId = NewType("SessionId", str)

SESSION_TTL_S = 10
MOVES_KEPT = 1_000


class Leases(Protocol):
    """This process's ownership of partitions."""

    async def acquire(self) -> None:
        """Take what this process may own; raises LeaseHeld naming the holder."""
        ...

    def owned(self) -> tuple[int, ...]:
        """The partitions that this process may act for now; empty when its lease is not certain."""
        ...

    async def release(self) -> None:
        """Give everything back."""
        ...


def new_session_id(entropy: Entropy) -> SessionId:
    """A fresh name of a session: 63 random bits as 16 hexadecimal digits. Never a host's name: many processes share that."""
    return SessionId(f"{(int.from_bytes(entropy.bytes(8), 'big') >> 1) or 1:016x}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a process is, as long as it runs. `started_at` in milliseconds since 1970, `address` where its API answers, if it does."""

    node: str
    roles: tuple[str, ...]
    version: str
    address: str = ""
    started_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """What changes about a process; each renewal brings it anew. `clock_offset_ms`: its clock less the store's, None if unknown."""

    clock_offset_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A standing session. `age_s`: how long it has stood, by the clock that judges sessions or corrected clocks."""

    session: SessionId
    facts: Facts
    vitals: Vitals
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The map: which session is to hold which partition. `nodes` are the sessions' names for people, also of those that are gone.

    Version 0 is the empty map, before the first was written.
    """

    version: int = 0
    owners: Mapping[int, SessionId] = field(default_factory=dict)
    nodes: Mapping[SessionId, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A partition in the hands of a standing session; `since` (ms since 1970) is when it was claimed."""

    partition: int
    session: SessionId
    since: int


class Why(StrEnum):
    """Why the coordinator moved a partition."""

    FIRST = "first"  # it had no owner yet
    GONE = "gone"  # its owner stopped, died or could not be reached
    REVOKED = "revoked"  # its owner did not release what it was to release
    BALANCE = "balance"  # another node has room


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition that a version of the map gave to somebody else; `at` in milliseconds since 1970."""

    partition: int
    from_session: SessionId | None
    from_node: str | None
    to_session: SessionId
    to_node: str
    at: int
    why: Why


class Registry(Protocol):
    """What all processes of an installation know of each other. Its sessions live `SESSION_TTL_S` beyond their last renewal."""

    async def open(self, session: SessionId, facts: Facts, vitals: Vitals) -> None:
        """Begin a session. Repeated: it is one session. Whoever has lost one draws a new ID, so that no late call can mix them up."""
        ...

    async def renew(self, session: SessionId, vitals: Vitals) -> bool:
        """Begin the time to live anew; False if the session does not stand any more (expired, ended, revoked): it holds nothing."""
        ...

    async def end(self, session: SessionId) -> None:
        """End a session now: what it held is free, the office too if it had it. One that has ended already: nothing happens."""
        ...

    async def members(self) -> Sequence[Member]:
        """All standing sessions, by their IDs."""
        ...

    async def campaign(self, session: SessionId) -> SessionId | None:
        """Take the office if it is free and the session stands; who has it now. It is kept until the session ends, however it ends."""
        ...

    async def coordinator(self) -> SessionId | None:
        """Who has the office now, without wanting it."""
        ...

    async def assignment(self, known: int | None = None) -> Assignment | None:
        """The map; None if its version is `known`, so that whoever follows it is spared reading it again."""
        ...

    async def assign(self, session: SessionId, assignment: Assignment, moves: Sequence[Move]) -> bool:
        """Write the map of the version before `assignment.version`, and log what it moves, in one atomic step.

        False, and nothing is written, unless the stored version is exactly one less and the session has the office and stands.
        The log keeps the newest `MOVES_KEPT` moves, and any number of those of the newest version.
        """
        ...

    async def claim(self, session: SessionId, partitions: Sequence[int], version: int) -> frozenset[int]:
        """Take partitions that are free; those that the session holds now, of the ones asked for.

        Each by itself is one atomic comparison: free (or its own already), the session stands, and the map's version is still
        `version`. A claim by an old map takes nothing.
        """
        ...

    async def release(self, session: SessionId, partitions: Sequence[int]) -> None:
        """Give partitions back that the session holds; others are left alone."""
        ...

    async def holdings(self, of: SessionId | None = None) -> Sequence[Holding]:
        """What standing sessions hold, or that one alone, by partition."""
        ...

    async def revoke(self, coordinator: SessionId, session: SessionId) -> bool:
        """End another's session, as `end` does; False, and nothing happens, unless `coordinator` has the office and stands."""
        ...

    async def moves(self, limit: int) -> Sequence[Move]:
        """The newest moves, the newest first; those of one version of the map by partition."""
        ...

    async def close(self) -> None:
        """Let go of connections. Sessions stay as they are: they end by `end` or by their time."""
        ...
