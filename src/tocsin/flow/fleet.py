"""Fleet: who is there, who owns what, who works. Reads only; for operators.

What nodes know of each other comes from the registry; an embedded server is a fleet of one and says so by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from tocsin import wire
from tocsin.clock import Clock, rfc3339
from tocsin.lease.port import Facts, Leases, Registry
from tocsin.model.partition import BUCKET_MS
from tocsin.near.port import NearTier
from tocsin.store.port import JobStore

ALONE = "embedded"


class Fleet:
    """Shows nodes, partitions and workers. `registry` None: this process, which `facts` describe, is all there is."""

    def __init__(
        self,
        registry: Registry | None,
        facts: Facts,
        jobs: JobStore,
        near: NearTier,
        leases: Leases,
        clock: Clock,
    ) -> None:
        self._registry, self._facts, self._jobs, self._near = registry, facts, jobs, near
        self._leases, self._clock = leases, clock

    async def nodes(self) -> Sequence[wire.Node]:
        """All standing sessions, the coordinator first, then by name."""
        if self._registry is None:
            return [self._alone()]
        members, coordinator = await self._registry.members(), await self._registry.coordinator()
        held: dict[str, int] = {}
        for holding in await self._registry.holdings():
            held[holding.session] = held.get(holding.session, 0) + 1
        shown = [
            wire.Node(
                node_id=member.session,
                name=member.facts.node,
                roles=sorted(member.facts.roles),
                version=member.facts.version,
                address=member.facts.address or None,
                started_at=rfc3339(member.facts.started_at),
                age_s=round(member.age_s, 3),
                coordinator=member.session == coordinator,
                partitions=held.get(member.session, 0),
                clock_offset_ms=member.vitals.clock_offset_ms,
            )
            for member in members
        ]
        return sorted(shown, key=lambda node: (not node.coordinator, node.name, node.node_id))

    async def partitions(self) -> Sequence[wire.Partition]:
        """Every partition, in order."""
        floors, now = await self._jobs.floors(), self._clock.now_ms()
        holders: dict[int, tuple[str, str, int]] = {}
        wanted: dict[int, str] = {}
        if self._registry is None:
            for partition in self._leases.owned():
                holders[partition] = (ALONE, self._facts.node, self._facts.started_at)
                wanted[partition] = ALONE
        else:
            names = {member.session: member.facts.node for member in await self._registry.members()}
            for holding in await self._registry.holdings():
                holders[holding.partition] = (holding.session, names.get(holding.session, ""), holding.since)
            assignment = await self._registry.assignment()
            wanted = {p: str(session) for p, session in assignment.owners.items()} if assignment is not None else {}
        shown = []
        for partition in range(self._jobs.partitions):
            node_id, name, since = holders.get(partition, (None, None, None))
            first = await self._near.next_due([partition])
            shown.append(
                wire.Partition(
                    partition=partition,
                    node_id=node_id,
                    node=name,
                    since=None if since is None else rfc3339(since),
                    assigned_to=wanted.get(partition),
                    rechecked_until=rfc3339(floors[partition] * BUCKET_MS) if floors.get(partition) else None,
                    overdue_s=0.0 if first is None else max(now - first, 0) / 1000,
                )
            )
        return shown

    async def moves(self, limit: int) -> Sequence[wire.PartitionMove]:
        """The newest moves of partitions, the newest first."""
        found = [] if self._registry is None else await self._registry.moves(limit)
        return [
            wire.PartitionMove(
                partition=move.partition,
                at=rfc3339(move.at),
                from_node=move.from_node,
                to_node=move.to_node,
                why=move.why.value,
            )
            for move in found
        ]

    async def workers(self, tenant: str | None) -> Sequence[wire.Worker]:
        """The workers of a tenant (None: of all) that asked for jobs within the last day, the latest first."""
        return [
            wire.Worker(
                tenant=seen.tenant,
                queue=seen.queue or None,
                worker=seen.worker,
                last_seen_at=rfc3339(seen.seen_at),
                claimed=seen.claimed,
            )
            for seen in await self._near.workers()
            if tenant is None or seen.tenant == tenant
        ]

    def _alone(self) -> wire.Node:
        return wire.Node(
            node_id=ALONE,
            name=self._facts.node,
            roles=sorted(self._facts.roles),
            version=self._facts.version,
            address=self._facts.address or None,
            started_at=rfc3339(self._facts.started_at),
            age_s=(self._clock.now_ms() - self._facts.started_at) / 1000,
            coordinator=True,
            partitions=len(self._leases.owned()),
            clock_offset_ms=0,
        )
