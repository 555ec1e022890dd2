"""The registry in etcd: sessions are leases, and everything that a session has hangs on its lease.

When a lease ends (its process died, was silent for its time to live, ended it or was revoked) the server removes all its keys
in one step: member, office, holdings. What must hold at the moment of a write is compared in the transaction that writes:

    open       the member's key is absent                                      member, vitals
    campaign   the session stands, the office is free                          office
    assign     the session stands and has the office, the version is the last  version, map, moves
    claim      the session stands, the version is still that one; each: free   held
    release    each: held under this lease                                     -held
    revoke     the coordinator stands and has the office                       -member; then the lease

A crash between the two steps of a revocation leaves a session without member: it can do nothing any more, its next renewal
ends its lease, and silence ends it as well. Until then its partitions are free only in name. Every other call is one step.

etcd keeps each version of a key until it is compacted, so what is the same as before is not written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from tocsin.clock import Clock
from tocsin.errors import LeasesUnavailable
from tocsin.lease.etcd import address
from tocsin.lease.etcd.client import EtcdClient
from tocsin.lease.etcd.gateway import Absent, Bound, Compare, Delete, Exists, Get, Holds, If, KeyValue, Put
from tocsin.lease.etcd.keys import HeldValue, Keys, MemberValue, decode, encode, last_part, lease_of
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
)

# etcd takes 128 operations in a transaction (its --max-txn-ops), those inside others included.
CHUNK = 100
# A clock's offset is measured anew all the time and never the same twice; what differs by less is not worth a write.
OFFSET_STEP_MS = 10


async def open_registry(text: str, clock: Clock, *, installation: str, ttl_s: int = SESSION_TTL_S) -> EtcdRegistry:
    """The registry of an installation at an address (see `address`). Raises ConfigError; connects at the first question."""
    return EtcdRegistry(EtcdClient(address.parse(text)), clock, installation, ttl_s)


class EtcdRegistry:
    """The port `Registry`. `clock` is the corrected one: what it says is shown to people and decides nothing."""

    def __init__(self, client: EtcdClient, clock: Clock, installation: str, ttl_s: int) -> None:
        self._client = client
        self._clock = clock
        self._keys = Keys(installation)
        self._ttl_s = ttl_s
        self._told: dict[SessionId, Vitals] = {}

    async def open(self, session: SessionId, facts: Facts, vitals: Vitals) -> None:
        lease = lease_of(session)
        await self._client.grant(self._ttl_s, lease)
        member = Put(self._keys.member(session), encode(MemberValue(facts, self._clock.now_ms())), lease)
        opened = await self._client.txn(
            [Absent(member.key)], [member, Put(self._keys.vitals(session), encode(vitals), lease)]
        )
        if opened.lease_gone:
            raise LeasesUnavailable(f"the session {session} ended before it had begun; it is opened again")
        if opened.succeeded:
            self._told[session] = vitals

    async def renew(self, session: SessionId, vitals: Vitals) -> bool:
        lease = lease_of(session)
        news = [Put(self._keys.vitals(session), encode(vitals), lease)] if self._is_news(session, vitals) else []
        told = await self._client.txn([self._stands(session)], news)
        if not told.succeeded:
            await self.end(session)  # of a session that was revoked halfway the lease may still be there
            return False
        if news:
            self._told[session] = vitals
        return await self._client.keepalive(lease)

    async def end(self, session: SessionId) -> None:
        self._told.pop(session, None)
        await self._client.revoke(lease_of(session))

    async def members(self) -> Sequence[Member]:
        # Both in one transaction, so that nobody is seen without his vitals.
        read = await self._client.txn([], [Get(*self._keys.members), Get(*self._keys.vitals_of_all)])
        vitals = {last_part(each.key): decode(each, Vitals) for each in read.found[1]}
        now_ms = self._clock.now_ms()
        return [
            Member(
                session=SessionId(last_part(each.key)),
                facts=(value := decode(each, MemberValue)).facts,
                vitals=vitals.get(last_part(each.key), Vitals()),
                age_s=max(0.0, (now_ms - value.opened_at) / 1000),
            )
            for each in read.found[0]
        ]

    async def campaign(self, session: SessionId) -> SessionId | None:
        office = self._keys.office
        won = await self._client.txn(
            [self._stands(session), Absent(office)],
            [Put(office, session.encode(), lease_of(session))],
            [Get(office)],
        )
        return session if won.succeeded else _session_in(won.found[0])

    async def coordinator(self) -> SessionId | None:
        return _session_in(await self._client.get(self._keys.office))

    async def assignment(self, known: int | None = None) -> Assignment | None:
        unchanged = [self._at_version(known)] if known is not None else [Absent(self._keys.version)]
        read = await self._client.txn(unchanged, [], [Get(self._keys.map)])
        if read.succeeded:
            return None if known is not None else Assignment()
        return decode(read.found[0][0], Assignment) if read.found[0] else Assignment()

    async def assign(self, session: SessionId, assignment: Assignment, moves: Sequence[Move]) -> bool:
        version, the_map = assignment.version, encode(assignment)
        # Nobody but the coordinator writes moves, and only in the transaction that also moves the version on.
        outdated = _end_of_outdated(await self._log(), len(moves))
        written = await self._client.txn(
            [self._stands(session), self._has_office(session), self._at_version(version - 1)],
            [
                Put(self._keys.version, b"%d" % version),
                Put(self._keys.map, the_map),
                Put(self._keys.moves(version), encode(moves)),
                *([Delete(self._keys.all_moves[0], self._keys.moves(outdated + 1))] if outdated else []),
            ],
            [Get(self._keys.map), Get(self._keys.office)],
        )
        if written.succeeded or not written.repeated:
            return written.succeeded
        # Our first try may have been carried out and its answer lost.
        there, office = written.found
        return bool(there) and there[0].value == the_map and _session_in(office) == session

    async def claim(self, session: SessionId, partitions: Sequence[int], version: int) -> frozenset[int]:
        lease = lease_of(session)
        value = encode(HeldValue(session, self._clock.now_ms()))
        taken: set[int] = set()
        for chunk in _chunks(partitions):
            now = [Get(self._keys.held(chunk[0]), self._keys.held(chunk[-1] + 1)), Get(self._keys.member(session))]
            free = [If(Absent(held), Put(held, value, lease)) for held in map(self._keys.held, chunk)]
            answer = await self._client.txn([self._stands(session), self._at_version(version)], [*free, *now], now)
            held, stands = answer.found[-2:]
            if stands:
                taken |= {int(last_part(each.key)) for each in held if each.lease == lease}.intersection(chunk)
        return frozenset(taken)

    async def release(self, session: SessionId, partitions: Sequence[int]) -> None:
        lease = lease_of(session)
        for chunk in _chunks(partitions):
            await self._client.txn([], [If(Bound(held, lease), Delete(held)) for held in map(self._keys.held, chunk)])

    async def holdings(self, of: SessionId | None = None) -> Sequence[Holding]:
        read = await self._client.txn([], [Get(*self._keys.all_held), Get(*self._keys.members)])
        held, members = read.found
        standing = {last_part(each.key) for each in members}
        found = [(int(last_part(each.key)), decode(each, HeldValue)) for each in held]
        return [
            Holding(partition=partition, session=value.session, since=value.since)
            for partition, value in found
            if value.session in standing and of in (None, value.session)
        ]

    async def revoke(self, coordinator: SessionId, session: SessionId) -> bool:
        allowed = await self._client.txn(
            [self._stands(coordinator), self._has_office(coordinator)], [Delete(self._keys.member(session))]
        )
        if allowed.succeeded:
            await self.end(session)
        return allowed.succeeded

    async def moves(self, limit: int) -> Sequence[Move]:
        newest: list[Move] = []
        for _, of_version in reversed(await self._log()):
            room = max(MOVES_KEPT - len(newest), 0) if newest else len(of_version)
            newest += sorted(of_version, key=lambda move: move.partition)[:room]
        return newest[:limit]

    async def close(self) -> None:
        await self._client.close()

    async def _log(self) -> list[tuple[int, list[Move]]]:
        """The moves by version, the oldest first."""
        read = await self._client.get(*self._keys.all_moves)
        return [(int(last_part(each.key)), decode(each, list[Move])) for each in read]

    def _stands(self, session: SessionId) -> Compare:
        return Exists(self._keys.member(session))

    def _has_office(self, session: SessionId) -> Compare:
        return Bound(self._keys.office, lease_of(session))

    def _at_version(self, version: int) -> Compare:
        return Holds(self._keys.version, b"%d" % version) if version else Absent(self._keys.version)

    def _is_news(self, session: SessionId, vitals: Vitals) -> bool:
        told = self._told.get(session)
        if told is None or told.clock_offset_ms is None or vitals.clock_offset_ms is None:
            return vitals != told
        return abs(told.clock_offset_ms - vitals.clock_offset_ms) >= OFFSET_STEP_MS


def _session_in(found: tuple[KeyValue, ...]) -> SessionId | None:
    return SessionId(found[0].value.decode("ascii")) if found else None


def _end_of_outdated(log: list[tuple[int, list[Move]]], coming: int) -> int:
    """The last version whose moves are not among the newest `MOVES_KEPT` any more once `coming` are added; 0: none."""
    kept = coming
    for version, moves in reversed(log):
        if kept >= MOVES_KEPT:
            return version
        kept += len(moves)
    return 0


def _chunks(partitions: Sequence[int]) -> Iterator[list[int]]:
    rest = iter(sorted(set(partitions)))
    while chunk := list(islice(rest, CHUNK)):
        yield chunk
