"""Coordinate: one node of the fleet decides who is to own which partition.

Every node campaigns; the one that holds the office looks once a second at who is there, at the map and at what is held. The plan
is pure (`model.assignment`); the map is written only where the plan differs from it, on the condition that the office and the
version are still what they were. So a coordinator that was asleep and wakes beside its successor can write nothing, and
two maps of one version cannot be. A crash: another is elected when the session has ended, and finds the map as it was.

A node that does not give a partition back within five seconds loses its session: the others cannot claim what it holds. It may
be one that hangs; if it only was slow, it drops everything at its next renewal and begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tocsin import telemetry
from tocsin.flow.ownership import LOOK_EVERY_S, Ownership, wall_ms
from tocsin.lease.port import Assignment, Holding, Member, Move, SessionId, Why
from tocsin.model.assignment import plan
from tocsin.service import Alarm
from tocsin.telemetry import log

RELEASE_WITHIN_S = 5.0
NODE_ROLE = "node"


@dataclass(frozen=True, slots=True)
class Coordinated:
    """What one pass did; `elected`: this process is the coordinator."""

    elected: bool = False
    moved: int = 0
    revoked: int = 0
    more: bool = False


class Coordinator(Alarm):
    """Campaigns, and coordinates while elected. `follow` is called when the map has changed, so that this node follows at once."""

    name = "coordinate"

    def __init__(self, ownership: Ownership, partitions: int, follow: Callable[[], None]) -> None:
        super().__init__(ownership.clock)
        self._ownership, self._partitions, self._follow = ownership, partitions, follow
        self._look_at_s = 0.0
        self._elected = False
        self._overdue_s: dict[tuple[int, SessionId], float] = {}
        self._revoked: set[SessionId] = set()

    @property
    def elected(self) -> bool:
        """Whether this process is certain to be the coordinator at this moment."""
        return self._elected and self._ownership.trusted() is not None

    async def step(self) -> Coordinated:
        """One campaign; if it is won, one look at the fleet."""
        ownership = self._ownership
        now_s, session = ownership.clock.elapsed_s(), ownership.trusted()
        if session is None:
            self._elected = False
            return Coordinated()
        if now_s < self._look_at_s:
            return Coordinated(elected=self.elected)
        me, registry = session.session, ownership.registry
        self._elected = await registry.campaign(me) == me
        if not self._elected:
            self._forget()
            self._look_at_s = now_s + LOOK_EVERY_S
            return Coordinated()
        assignment = await registry.assignment()
        assert assignment is not None, "asked without a known version, the registry always has a map"
        revoked = await self._revoke(me, assignment, await registry.holdings(), now_s)
        moved = await self._assign(me, assignment, await registry.members())
        self._look_at_s = now_s + LOOK_EVERY_S
        return Coordinated(elected=True, moved=moved, revoked=revoked)

    async def next_at(self) -> int | None:
        return wall_ms(self._ownership.clock, self._look_at_s) if self._ownership.trusted() is not None else None

    async def _revoke(self, me: SessionId, assignment: Assignment, holdings: Sequence[Holding], now_s: float) -> int:
        """End the sessions that still hold what the map has given to others, five seconds after that was first seen."""
        foreign = {
            (holding.partition, holding.session)
            for holding in holdings
            if assignment.owners.get(holding.partition) not in (None, holding.session)
        }
        self._overdue_s = {key: self._overdue_s.get(key, now_s) for key in foreign}
        late = sorted({session for (_, session), at_s in self._overdue_s.items() if now_s - at_s >= RELEASE_WITHIN_S})
        revoked = 0
        for session in late:
            if await self._ownership.registry.revoke(me, session):
                revoked += 1
                self._revoked.add(session)
                log.warning(
                    "session_revoked", session=session, node=assignment.nodes.get(session), why="did not release"
                )
        return revoked

    async def _assign(self, me: SessionId, assignment: Assignment, members: Sequence[Member]) -> int:
        """Write what the plan changes; how many partitions it moves."""
        nodes = {member.session: member for member in members if NODE_ROLE in member.facts.roles}
        planned = plan(self._partitions, assignment.owners, {session: one.age_s for session, one in nodes.items()})
        owners = {partition: nodes[SessionId(owner)].session for partition, owner in planned.items()}
        if not owners or owners == assignment.owners:
            return 0
        moves = self._moves(assignment, owners, nodes)
        names = {session: self._name(session, assignment, nodes) for session in set(owners.values())}
        written = await self._ownership.registry.assign(
            me, Assignment(version=assignment.version + 1, owners=owners, nodes=names), moves
        )
        if not written:
            # Somebody else has the office by now, or this map was written by a call that got no answer: look again.
            return 0
        for move in moves:
            telemetry.PARTITION_MOVES.labels(move.why.value).inc()
        log.info("partitions_assigned", map_version=assignment.version + 1, moved=len(moves), nodes=len(names))
        self._follow()
        return len(moves)

    def _moves(
        self, assignment: Assignment, owners: Mapping[int, SessionId], nodes: Mapping[SessionId, Member]
    ) -> list[Move]:
        at = self._ownership.clock.now_ms()
        found: list[Move] = []
        for partition, owner in owners.items():
            before = assignment.owners.get(partition)
            if before != owner:
                found.append(
                    Move(
                        partition=partition,
                        from_session=before,
                        from_node=None if before is None else self._name(before, assignment, nodes),
                        to_session=owner,
                        to_node=nodes[owner].facts.node,
                        at=at,
                        why=self._why(before, nodes),
                    )
                )
        return found

    def _why(self, before: SessionId | None, nodes: Mapping[SessionId, Member]) -> Why:
        if before is None:
            return Why.FIRST
        if before in self._revoked:
            return Why.REVOKED
        return Why.BALANCE if before in nodes else Why.GONE

    @staticmethod
    def _name(session: SessionId, assignment: Assignment, nodes: Mapping[SessionId, Member]) -> str:
        member = nodes.get(session)
        return member.facts.node if member is not None else assignment.nodes.get(session, session)

    def _forget(self) -> None:
        """What was seen in an earlier term says nothing about the next one."""
        self._overdue_s.clear()
        self._revoked.clear()
