"""The transfer port: an installation's contents as plain records, for a move from one store to another (`flow/carry`).

Every adapter reads all that it holds, page by page, and takes records in so that its own rules hold afterwards. What is only an
index of a record is not carried but made anew by whoever takes it in: names as numbers, lists, and timers. Nobody else works on a
store meanwhile, so there are no conditions here; what there is instead:

- **Taking in is idempotent.** A record replaces the one with its name, a job also one that has ended or not ended meanwhile. A
  batch that was cut is simply taken in again, also by an adapter without transactions: there the timer comes before its job, and
  a job's row after all that hangs on it.
- **The invariant holds at every commit**: with each unfinished job comes a timer at its version, fire where it waits for its time,
  else watch, in the bucket of max(its time, now). A parked job comes as one that is QUEUED, and is parked again if need be.
- **Order is the adapter's own.** A page continues behind the last record of the one before.
- **A store that is on its way is marked** (`Marks`) and served by nobody: a target until all has arrived, a source ever after.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol, TypeAlias

from msgspec import Struct

from tocsin.model.job import Line
from tocsin.store.port import AttemptRecord
from tocsin.store.schedules import ScheduleRow, SkipRow
from tocsin.store.settings import QueueRow, SigningKeyRow, TenantRow, TokenRow
from tocsin.wire import Outcome, Status


class Kind(Enum):
    """What there is to carry, in the order in which it is: a job never before the settings and the schedule that it is under."""

    TENANTS = "tenants"
    TOKENS = "tokens"
    SIGNING_KEYS = "signing keys"
    QUEUES = "queues"
    SECRETS = "secrets"
    SCHEDULES = "schedules"
    SKIPS = "skips"
    JOBS = "jobs"  # unfinished ones and dead letters
    KEYS = "idempotency records"
    FINISHED = "finished jobs"


class SecretRow(Struct, frozen=True, kw_only=True):
    """One of the installation's own secrets."""

    name: str
    value: bytes


class KeyRecord(Struct, frozen=True, kw_only=True, gc=False):
    """What an idempotency key is bound to. `key_hash` is blake2b of its text (16 bytes), in every adapter."""

    tenant: str
    key_hash: bytes
    body_hash: bytes
    job_id: str
    expires_at: int


class JobRecord(Struct, frozen=True, kw_only=True):
    """A job with all that hangs on it. Texts are the stored ones, read by nobody on the way: also what is damaged gets across.

    `timeout_ms` is 0 in a finished job, as are lease and heartbeat None. `attempts` are the records that are kept, in order: a
    finished job itself stands for a success without one.
    """

    job_id: str
    line: Line
    priority: int
    status: Status
    version: int
    attempt: int
    tries: int
    due_at: int
    fire_at: int
    timeout_ms: int
    expires_at: int | None
    queued_at: int | None
    started_at: int | None
    claimed_at: int | None
    lease_until: int | None
    lease_ms: int | None
    beaten_at: int | None
    worker: str | None
    losses: int
    releases: int
    finished_at: int | None
    outcome: Outcome | None
    last_error: str | None
    progress: str | None
    result: str | None
    status_code: int | None
    response: str | None
    definition: str
    attempts: tuple[AttemptRecord, ...]


Record: TypeAlias = (
    TenantRow | TokenRow | SigningKeyRow | QueueRow | SecretRow | ScheduleRow | SkipRow | JobRecord | KeyRecord
)


class Mark(Struct, frozen=True, kw_only=True):
    """The other end of a move: its address without secrets, its installation's ID, and when (ms)."""

    store: str
    installation: str
    at: int


class Marks(Struct, frozen=True, kw_only=True):
    """Who a store is, where it went if it was moved away, and where it is being filled from if it is not whole yet."""

    installation: str
    moved_to: Mark | None = None
    arriving_from: Mark | None = None


class Transfer(Protocol):
    """One end of a move: a store that nobody serves. `name` is its address without secrets."""

    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> int: ...

    async def marks(self) -> Marks: ...

    async def page(self, kind: Kind, after: Record | None, limit: int) -> list[Record]:
        """The next records of a kind behind `after` (None: from the first); an empty page is the end."""
        ...

    async def put(self, kind: Kind, records: Sequence[Record]) -> None:
        """Take these in, durably."""
        ...

    async def arrive(self, origin: Mark) -> None:
        """Say that this store is being filled from there. First each partition's floor is raised to now: what arrives lives in
        later buckets. A store that is marked already is left as it is."""
        ...

    async def settle(self) -> None:
        """Say that all has arrived: this store may be served."""
        ...

    async def depart(self, to: Mark) -> None:
        """Say that this store has been moved there and must not be served any more."""
        ...

    async def close(self) -> None: ...


def why_not_served(name: str, marks: Marks) -> str | None:
    """What keeps a server, or a command, from working on a store with these marks; None: nothing."""
    if marks.arriving_from is not None:
        origin = marks.arriving_from.store
        return (
            f"the move from {origin} to {name} has not ended; repeat it (tocsin move --from {origin} --to {name}), or "
            f"delete {name} and go on with {origin}"
        )
    if marks.moved_to is not None:
        return (
            f"{name} has been moved to {marks.moved_to.store}; serve that one (the setting store), or move it back to a "
            "new place"
        )
    return None
