"""Carry: takes an installation from one store to another and proves that all of it has arrived.

    permit ─▶ target is marked ─▶ each kind, page by page ─▶ target is read back ─▶ source is marked ─▶ target's mark goes

Both stores are held by this process alone (whoever opens them sees to that), so nothing changes meanwhile. What is compared in the
end is, for each kind, how many records there are and the sum of their hashes, so that the order of reading does not matter: on
the source as they were read to be carried, on the target as they stand there.

A crash leaves a target that is marked as not whole, which nobody serves, and a source that is as it was. The same move again goes
over all of it once more, and changes nothing where it was before. After the last comparison the source is marked first: between
the two marks neither is served, and the same move again ends it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import blake2b

import msgspec
from msgspec import structs

from tocsin.clock import Clock, rfc3339
from tocsin.errors import StoreError, StoreMoved
from tocsin.store.schedules import SkipRow
from tocsin.store.transfer import JobRecord, Kind, Mark, Record, SecretRow, Transfer
from tocsin.wire import Status

PAGE = 500
INSTALLATION = "installation"
UNFINISHED, DEAD, ATTEMPTS = "unfinished jobs", "dead letters", "attempts"
# How kinds are called in the account of a move, in its order.
LABELS = (
    *(kind.value for kind in (Kind.TENANTS, Kind.TOKENS, Kind.SIGNING_KEYS, Kind.QUEUES, Kind.SECRETS)),
    *(Kind.SCHEDULES.value, Kind.SKIPS.value, UNFINISHED, DEAD, Kind.KEYS.value, Kind.FINISHED.value, ATTEMPTS),
)
_HASH_BYTES = 16
_SUM_BITS = 8 * _HASH_BYTES
_encode = msgspec.json.Encoder(order="deterministic").encode


class Permitted(Enum):
    """What a move finds before it begins."""

    FRESH = "fresh"
    CUT = "cut"  # an earlier try of the same move was cut off
    ENDED = "ended"  # the source has been moved to this target already, all of it


@dataclass(slots=True)
class Account:
    """How many records there are under each label, and the sum of their hashes."""

    counts: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)

    def add(self, kind: Kind, record: Record) -> None:
        """One more record, and a job's attempts with it."""
        label = kind.value
        if isinstance(record, JobRecord):
            if kind is Kind.JOBS:
                label = DEAD if record.status is Status.DEAD else UNFINISHED
            for attempt in record.attempts:
                self._add(ATTEMPTS, _encode((record.job_id, attempt)))
        self._add(label, _encode(record))

    def digest(self, label: str) -> str:
        """The sum of the hashes under a label, whatever order they came in."""
        return f"{self.sums[label] % (1 << _SUM_BITS):0{_SUM_BITS // 4}x}"

    def _add(self, label: str, text: bytes) -> None:
        self.counts[label] += 1
        self.sums[label] += int.from_bytes(blake2b(text, digest_size=_HASH_BYTES).digest(), "big")


@dataclass(frozen=True, slots=True)
class Row:
    """One label of the account: what the source has and what the target has."""

    label: str
    source: int
    target: int
    source_digest: str
    target_digest: str

    @property
    def same(self) -> bool:
        """Whether both have the same records."""
        return (self.source, self.source_digest) == (self.target, self.target_digest)


@dataclass(frozen=True, slots=True)
class Carried:
    """The end of a move. `rows` is empty where it had ended before."""

    permitted: Permitted
    rows: tuple[Row, ...] = ()


async def _silence() -> None:
    """Where nobody can serve a store that is open for a move."""


class Carrier:
    """One move. `told` hears after every page how many records have been read so far, on both sides together; `quiet` raises
    LeaseHeld if somebody has begun to serve one of them, and is asked before the marks."""

    def __init__(
        self,
        source: Transfer,
        target: Transfer,
        clock: Clock,
        *,
        quiet: Callable[[], Awaitable[None]] = _silence,
        history: bool = True,
        keep_source: bool = False,
        told: Callable[[int], None] = lambda done: None,
        page: int = PAGE,
    ) -> None:
        self._source, self._target, self._clock, self._quiet = source, target, clock, quiet
        self._history, self._keep_source, self._told, self._page = history, keep_source, told, page
        self._done = 0

    async def carry(self) -> Carried:
        """Move everything. Raises StoreMoved or StoreError where it may not be, or not everything has arrived."""
        permitted = await permit(self._source, self._target)
        if permitted is Permitted.ENDED:
            return Carried(permitted)
        await self._target.arrive(await self._mark(self._source))
        sent = await self._send()
        rows = compared(sent, await self._check())
        differing = [row for row in rows if not row.same]
        if differing:
            raise StoreError(_not_the_same(differing, self._source.name, self._target.name))
        await self._quiet()
        if not self._keep_source:
            await self._source.depart(await self._mark(self._target))
        await self._target.settle()
        return Carried(permitted, rows)

    async def _send(self) -> Account:
        """Read everything of the source and put it into the target."""
        account = Account()
        for kind in _kinds(self._history):
            async for records in _pages(self._source, kind, self._page):
                await self._target.put(kind, records)
                self._count(account, kind, records)
        return account

    async def _check(self) -> Account:
        """Read the target back, also what should not be there."""
        account = Account()
        for kind in Kind:
            async for records in _pages(self._target, kind, self._page):
                self._count(account, kind, records)
        return account

    def _count(self, account: Account, kind: Kind, records: Sequence[Record]) -> None:
        for record in records:
            account.add(kind, record)
        self._done += len(records)
        self._told(self._done)

    async def _mark(self, store: Transfer) -> Mark:
        installation = (await store.marks()).installation
        return Mark(store=store.name, installation=installation, at=self._clock.now_ms())


async def survey(source: Transfer, *, history: bool = True, page: int = PAGE) -> Account:
    """What there is to move."""
    account = Account()
    for kind in _kinds(history):
        async for records in _pages(source, kind, page):
            for record in records:
                account.add(kind, record)
    return account


async def permit(source: Transfer, target: Transfer | None) -> Permitted:
    """Whether the source may be moved to the target (None: one that is still to be made); raises with the reason if not."""
    here, there = await source.marks(), None if target is None else await target.marks()
    if here.arriving_from is not None:
        raise StoreMoved(
            f"{source.name} is not whole: the move from {here.arriving_from.store} to it has not ended; repeat that one first"
        )
    cut = there is not None and there.arriving_from is not None
    if there is not None and there.arriving_from is not None and there.arriving_from.installation != here.installation:
        raise StoreError(
            f"{there.arriving_from.store} is being moved to this target, and that has not ended; repeat that move, or name an "
            "empty target"
        )
    if here.moved_to is not None:
        if there is None or here.moved_to.installation != there.installation:
            raise StoreMoved(
                f"{source.name} was moved to {here.moved_to.store} at {rfc3339(here.moved_to.at)}; move it on from there"
            )
        return Permitted.CUT if cut else Permitted.ENDED
    if cut:
        return Permitted.CUT
    if target is not None:
        await _expect_empty(target)
    return Permitted.FRESH


async def _expect_empty(target: Transfer) -> None:
    held = [kind.value for kind in Kind if await target.page(kind, None, 1)]
    if held:
        raise StoreError(
            f"{target.name} is not empty: it has {', '.join(held)}; name a store that does not exist yet, or an empty database"
        )


def _kinds(history: bool) -> list[Kind]:
    return [kind for kind in Kind if history or kind is not Kind.FINISHED]


async def _pages(store: Transfer, kind: Kind, limit: int) -> AsyncIterator[list[Record]]:
    records = await store.page(kind, None, limit)
    while records:
        yield [_storable(one) for one in records if not _stays(one)]
        records = await store.page(kind, records[-1], limit)


def _stays(record: Record) -> bool:
    """The name under which an installation keeps what is not in its store (Redis, etcd) is its own: the target makes another."""
    return isinstance(record, SecretRow) and record.name == INSTALLATION


def _storable(record: Record) -> Record:
    """The record as every store can hold it: an error that a handler raised may have a NUL in it, which no text of PostgreSQL can."""
    match record:
        case JobRecord(last_error=last_error, attempts=attempts):
            if any(error is not None and "\0" in error for error in (last_error, *(one.error for one in attempts))):
                clean = tuple(replace(one, error=_without_nul(one.error)) for one in attempts)
                return structs.replace(record, last_error=_without_nul(last_error), attempts=clean)
        case SkipRow(detail=detail):
            if detail is not None and "\0" in detail:
                return structs.replace(record, detail=_without_nul(detail))
    return record


def _without_nul(text: str | None) -> str | None:
    return None if text is None else text.replace("\0", "\ufffd")


async def installation_secret(store: Transfer) -> bytes | None:
    """That name, if the store has one."""
    secrets = [one for one in await store.page(Kind.SECRETS, None, PAGE) if isinstance(one, SecretRow)]
    return next((one.value for one in secrets if one.name == INSTALLATION), None)


def compared(source: Account, target: Account) -> tuple[Row, ...]:
    """Both accounts side by side."""
    return tuple(
        Row(label, source.counts[label], target.counts[label], source.digest(label), target.digest(label))
        for label in LABELS
    )


def _not_the_same(differing: list[Row], source: str, target: str) -> str:
    found = "; ".join(
        f"{row.label}: {row.source} read, {row.target} arrived"
        + (" with other contents" if row.source == row.target else "")
        for row in differing
    )
    return (
        f"what has arrived in {target} is not what {source} has ({found}); {source} is as it was and can be served; delete "
        f"{target} and repeat the move"
    )
