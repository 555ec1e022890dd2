"""The registry of a fleet in PostgreSQL: rows with an expiry, and conditional statements.

Which clock decides: the server's, read inside the statements by one function of the schema, `tocsin_lease.now_ms()`. A process
whose own clock is wrong can so neither take what is held nor keep what has expired. Tests put another function in its place.
Should the server's clock step, or its standby's differ, sessions end early (all start over) or late by that much.

Nothing is locked between two statements and there are no advisory locks: whatever a killed or stopped process held, also behind a
pooler that keeps its connection, is free when its row has expired, and until then the row says who has it. A statement that
was sent before the process died is finished by the server, as if the process had died a moment later.
"""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.lease.port import (
    MOVES_KEPT,
    SESSION_TTL_S,
    Assignment,
    Facts,
    Holding,
    Member,
    Move,
    SessionId,
    Vitals,
    Why,
)
from tocsin.lease.postgres.connection import Line
from tocsin.lease.postgres.schema import migrate
from tocsin.lease.postgres.statements import block

_OPEN = block("sessions", "open")
_RENEW = block("sessions", "renew")
_END = block("sessions", "end")
_REAP = block("sessions", "reap")
_MEMBERS = block("sessions", "members")
_COORDINATOR = block("sessions", "coordinator")
_TAKE_OFFICE = block("sessions", "take_office")
_REVOKE = block("sessions", "revoke")
_CLAIM = block("sessions", "claim")
_RELEASE = block("sessions", "release")
_HOLDINGS = block("sessions", "holdings")
_READ = block("assignment", "read")
_WRITE = block("assignment", "write")
_MOVES = block("assignment", "moves")


async def open_registry(dsn: str, ttl_s: float = SESSION_TTL_S) -> PostgresRegistry:
    """The registry in this database, its tables made if they are missing. Raises LeasesUnavailable, ConfigError."""
    registry = PostgresRegistry(Line(dsn), Line(dsn), round(ttl_s * 1000))
    try:
        await migrate(registry.reads)
    except BaseException:
        await registry.close()
        raise
    return registry


class PostgresRegistry:
    """Fulfils `tocsin.lease.port.Registry`. Two connections: what a session lives by never waits behind what somebody looks up."""

    def __init__(self, session: Line, reads: Line, ttl_ms: int) -> None:
        self._session, self.reads, self._ttl_ms = session, reads, ttl_ms

    async def open(self, session: SessionId, facts: Facts, vitals: Vitals) -> None:
        await self._session.rows(
            _OPEN,
            session,
            facts.node,
            list(facts.roles),
            facts.version,
            facts.address,
            facts.started_at,
            vitals.clock_offset_ms,
            self._ttl_ms,
        )

    async def renew(self, session: SessionId, vitals: Vitals) -> bool:
        return bool(await self._session.rows(_RENEW, session, vitals.clock_offset_ms, self._ttl_ms))

    async def end(self, session: SessionId) -> None:
        await self._session.rows(_END, session)

    async def members(self) -> Sequence[Member]:
        return [
            Member(
                session=SessionId(row["session"]),
                facts=Facts(
                    node=row["node"],
                    roles=tuple(row["roles"]),
                    version=row["version"],
                    address=row["address"],
                    started_at=row["started_at"],
                ),
                vitals=Vitals(clock_offset_ms=row["clock_offset_ms"]),
                age_s=max(row["age_ms"], 0) / 1000,
            )
            for row in await self.reads.rows(_MEMBERS)
        ]

    async def campaign(self, session: SessionId) -> SessionId | None:
        chief = await self.coordinator()
        if chief is not None:
            return chief
        await self._session.rows(_REAP)
        await self._session.rows(_TAKE_OFFICE, session)
        return await self.coordinator()

    async def coordinator(self) -> SessionId | None:
        rows = await self._session.rows(_COORDINATOR)
        return SessionId(rows[0]["session"]) if rows else None

    async def assignment(self, known: int | None = None) -> Assignment | None:
        rows = await self.reads.rows(_READ, known)
        if not rows:
            return None
        row = rows[0]
        owners = zip(row["partitions"], map(SessionId, row["owners"]), strict=True)
        nodes = zip(map(SessionId, row["sessions"]), row["nodes"], strict=True)
        return Assignment(version=row["version"], owners=dict(owners), nodes=dict(nodes))

    async def assign(self, session: SessionId, assignment: Assignment, moves: Sequence[Move]) -> bool:
        written = await self._session.rows(
            _WRITE,
            session,
            assignment.version,
            list(assignment.owners.keys()),
            list(assignment.owners.values()),
            list(assignment.nodes.keys()),
            list(assignment.nodes.values()),
            [move.partition for move in moves],
            [move.from_session for move in moves],
            [move.from_node for move in moves],
            [move.to_session for move in moves],
            [move.to_node for move in moves],
            [move.at for move in moves],
            [move.why.value for move in moves],
            max(MOVES_KEPT - len(moves), 0),
        )
        return bool(written)

    async def claim(self, session: SessionId, partitions: Sequence[int], version: int) -> frozenset[int]:
        await self._session.rows(_REAP)
        rows = await self._session.rows(_CLAIM, session, list(partitions), version)
        return frozenset(row["partition"] for row in rows)

    async def release(self, session: SessionId, partitions: Sequence[int]) -> None:
        await self._session.rows(_RELEASE, session, list(partitions))

    async def holdings(self, of: SessionId | None = None) -> Sequence[Holding]:
        rows = await self.reads.rows(_HOLDINGS, of)
        return [
            Holding(partition=row["partition"], session=SessionId(row["session"]), since=row["since"]) for row in rows
        ]

    async def revoke(self, coordinator: SessionId, session: SessionId) -> bool:
        rows = await self._session.rows(_REVOKE, coordinator, session)
        return bool(rows[0]["exists"])

    async def moves(self, limit: int) -> Sequence[Move]:
        return [
            Move(
                partition=row["partition"],
                from_session=row["from_session"] and SessionId(row["from_session"]),
                from_node=row["from_node"],
                to_session=SessionId(row["to_session"]),
                to_node=row["to_node"],
                at=row["at"],
                why=Why(row["why"]),
            )
            for row in await self.reads.rows(_MOVES, limit)
        ]

    async def close(self) -> None:
        await self._session.close()
        await self.reads.close()
