"""The store port: the record of truth, as the flow sees it.

Every adapter (SQLite, PostgreSQL, later a wide-column store) implements `JobStore`, `ScheduleStore` and `SettingsStore` and passes
the suite in `tests/conformance/`. The rules that hold for all of them:

- **Every item of a batch stands alone.** A batch is an economy, never a transaction: each item concerns one job in one
  partition, is a conditional write on its own rows in the order given below, and has its own answer in the same order as
  the request. One bad item never fails another; the same job twice in a batch is allowed (the later sees the earlier).
- **Losing a race is an answer**, not an exception. `StoreUnavailable` means that nothing is known to have happened; every
  call here may be repeated.
- **The store's clock decides.** `now` is taken inside the write; where an item carries a time of its own it is an instant
  that was decided before (a due time). A timer lives in the bucket of max(its time, the store's now).
- **Durable when answered.**

Where an operation writes more than one row and the store has no transactions, the order is the one in its docstring, and a
crash between two of them leaves what §5 of the design's table says: a timer without its job is void, a job is never without
a timer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, Protocol

from msgspec import Struct

from tocsin.model.job import Definition, JobState, Line
from tocsin.model.timer import FAR as FAR
from tocsin.model.timer import Due as Due
from tocsin.model.timer import TimerKey as TimerKey
from tocsin.store.settings import SettingsStore
from tocsin.wire import Outcome, Status

if TYPE_CHECKING:
    from tocsin.store.schedules import ScheduleStore

FIRE: Final = "fire"
WATCH: Final = "watch"
TimerKind = Literal["fire", "watch"]
KEY_KEPT_MS = 7 * 86_400_000  # an idempotency key stays bound so long, and while its job lives
FIRST_WATCH_MS = 300_000  # the distance of a job's first watch timer, which doubles from there


# What there is one of for each job on the hot paths is a msgspec Struct: made in a tenth of a frozen dataclass's time.

# --- values -----------------------------------------------------------------------------------------------------------


class Key(Struct, frozen=True, kw_only=True, gc=False):
    """A client's idempotency key: scoped by tenant, bound to one body. `body_hash` is of the parsed body (16 bytes)."""

    tenant: str
    text: str
    body_hash: bytes


class NewJob(Struct, frozen=True, kw_only=True, gc=False):
    """A job to be created, SCHEDULED, or QUEUED if it is due already (`queued`). `schedule_id` is the definition's."""

    job_id: str
    line: Line
    priority: int
    fire_at: int
    timeout_ms: int
    queued: bool
    definition: str
    expires_at: int | None = None
    key: Key | None = None
    schedule_id: str | None = None


class Made(Enum):
    """What a create did. REFUSED: no store can hold such a row (a number out of range); the border should have said so."""

    CREATED = "created"
    REPLAYED = "replayed"
    CONFLICT = "conflict"
    REFUSED = "refused"


class Created(Struct, frozen=True, gc=False):
    """The answer for one create. `job_id` is the existing job's when replayed or in conflict; CREATED under another ID than the
    asked one: an earlier create with this key was cut off after its idempotency record, and this one has ended it."""

    made: Made
    job_id: str


class Fired(Enum):
    """What a fire did: WON and ALREADY are pushed; VOID is another version, due later, or a job that is past that."""

    WON = "won"
    ALREADY = "already"
    VOID = "void"
    EXPIRED = "expired"


class Claimed(Struct, frozen=True, kw_only=True, gc=False):
    """A job that this claim got. `due_at` is when this attempt was due."""

    job_id: str
    attempt: int
    tries: int
    due_at: int
    lease_until: int
    lease_ms: int
    fire_at: int
    line: Line
    definition: Definition
    progress: bytes | None


class Beat(Struct, frozen=True, kw_only=True, gc=False):
    """A heartbeat. `progress` is JSON text or None to keep what is there."""

    job_id: str
    attempt: int
    progress: bytes | None = None


class NotYours(Enum):
    """Why a worker's call was refused."""

    SUPERSEDED = "superseded"
    TIMED_OUT = "timed out"
    UNKNOWN = "unknown"


class Beaten(Struct, frozen=True, gc=False):
    """An accepted heartbeat."""

    lease_until: int
    lease_ms: int
    cancel_requested: bool


class Success(Struct, frozen=True, kw_only=True, gc=False):
    """A report of success; `result` is JSON text."""

    job_id: str
    attempt: int
    result: bytes | None = None
    status_code: int | None = None
    response: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """An ended attempt, as history keeps it."""

    attempt: int
    worker: str | None
    claimed_at: int
    finished_at: int
    outcome: Outcome
    error: str | None
    due_at: int
    status_code: int | None = None
    response: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One conditional step in a job's life: from exactly the state that was read, to another.

    Written in this order: the new timer (if `timer`), the attempt record, the job. `before` is the state that the decision was
    based on; the write happens only where status, version, attempt and lease (`lease_until`, `beaten_at`) are still those: a
    heartbeat that was accepted meanwhile is neither undone nor followed by the loss of its attempt. `after` is the whole new
    state. The job moves to `finished` where `after.status` is SUCCEEDED, CANCELLED or SKIPPED, or DEAD with `gone`; a DEAD job
    otherwise stays with its `finished_at`. A timer is written at `after.due_at` and `after.version`.
    """

    before: JobState
    after: JobState
    timer: bool = False
    record: AttemptRecord | None = None
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerRow:
    """A timer as it stands in the store, with the job it looks at where that is still at the timer's version."""

    kind: TimerKind
    bucket: int
    time: int
    tenant: str
    lane: int
    job_id: str
    version: int
    job: JobState | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTimer:
    """A timer to be written by the recheck (watch) or for a job whose line is full (park, see `park`)."""

    job_id: str
    version: int
    time: int
    line: Line


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePage:
    """A page of due times read ahead. `next_key` continues it; None means that the range is exhausted."""

    dues: list[Due]
    next_key: TimerKey | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePage:
    """A page of timers with their jobs. `next_key` continues it; None means that the range is exhausted."""

    timers: list[TimerRow]
    next_key: TimerKey | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """A job that waits outside its full line."""

    due: Due
    score: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """What a list of jobs must match; `None` matches all. `tags` are all required.

    `created_*` are found by the time in the IDs, which for a schedule's job is its occurrence's instant: so beside those of other
    jobs only such are listed of which both are in the range. A list of one schedule goes by their creation alone.
    """

    tenant: str
    queue: str | None = None
    status: Status | None = None
    schedule_id: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    created_after: int | None = None
    created_before: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """A page of jobs, newest first by ID. `after` continues below that ID; None: there is no more."""

    jobs: list[JobState]
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadFilter:
    """Which dead letters of a queue. `job_ids` narrows to these."""

    tenant: str
    queue: str
    job_ids: tuple[str, ...] | None = None
    error_contains: str | None = None
    tag: tuple[str, str] | None = None
    dead_after: int | None = None
    dead_before: int | None = None


# --- the jobs ---------------------------------------------------------------------------------------------------------


class JobStore(Protocol):
    """Jobs, timers, attempts, finished jobs and idempotency records, by partition."""

    partitions: int

    async def create(self, jobs: Sequence[NewJob]) -> list[Created]:
        """Create jobs, each: idempotency record, timer at max(fire_at, now), job at version 1.

        A key that is bound to an equal body replays, to another body conflicts; an expired binding whose job has ended is
        replaced. The same key twice in a batch: the second replays (or conflicts).
        """
        ...

    async def fire(self, dues: Sequence[Due]) -> list[Fired]:
        """SCHEDULED or RETRYING at that version with `due_at` <= the timer's -> QUEUED. A timer earlier than the job's own
        `due_at` is void. An expired job (attempt 0) becomes SKIPPED and is moved, answer EXPIRED."""
        ...

    async def claim(self, job_ids: Sequence[str], worker: str, lease_ms: int) -> list[Claimed | None]:
        """QUEUED -> RUNNING, attempt+1, tries+1, lease from now. None: not waiting any more (or expired: SKIPPED and moved).
        PartlyUnavailable has the answers of the shards that can be used."""
        ...

    async def reclaim(self, jobs: Sequence[tuple[str, int]], worker: str) -> list[Claimed | None]:
        """What `claim` answered for (job, attempt), again, as long as that attempt is still held by `worker`."""
        ...

    async def heartbeat(self, beats: Sequence[Beat]) -> list[Beaten | NotYours]:
        """Renew leases: lease_until = min(now + lease, claimed_at + timeout + 10 s), `beaten_at` = now, where the attempt is
        held. A lease that is over but not yet rescued is renewed; past the timeout's cap TIMED_OUT."""
        ...

    async def succeed(self, reports: Sequence[Success]) -> list[bool]:
        """RUNNING or CANCEL_REQUESTED at that attempt -> SUCCEEDED: the `finished` row (which stands for the attempt's record
        when it is the first), then out of `jobs`. False: not held at that attempt; see `states` for what it is."""
        ...

    async def change(self, changes: Sequence[Change]) -> list[bool]:
        """Conditional steps; see `Change`. False: somebody else was first, read again and decide anew."""
        ...

    async def end_moves(self, job_ids: Sequence[str]) -> None:
        """End the moves to `finished` that a crash has cut: jobs that have ended and still stand in `jobs`. A store that moves
        in one transaction never shows such a job, and has nothing to do."""
        ...

    async def states(self, job_ids: Sequence[str]) -> list[JobState | None]:
        """The jobs as they are now, live or finished."""
        ...

    async def attempts(self, job_id: str) -> list[AttemptRecord]:
        """Ended attempts, oldest first (a first clean success included)."""
        ...

    async def list_jobs(self, wanted: JobFilter, after: str | None, limit: int) -> JobPage:
        """Jobs newest first, at most `limit`, reading at most 5,000 rows (so a page may be short)."""
        ...

    async def list_dead(self, wanted: DeadFilter, after: tuple[int, str] | None, limit: int) -> list[JobState]:
        """Dead letters of a queue, newest death first; `after` continues below (dead_at, job_id)."""
        ...

    async def count_dead(self, wanted: DeadFilter) -> int:
        """How many dead letters match."""
        ...

    # timers

    async def read_due(
        self,
        partition: int,
        first_bucket: int,
        last_bucket: int,
        after: TimerKey | None,
        limit: int,
        *,
        lane: int | None = None,
        tenant: str | None = None,
        from_time: int | None = None,
    ) -> DuePage:
        """Fire timers of a partition in buckets [first, last] whose job is SCHEDULED or RETRYING at their version, in key
        order (bucket, lane, tenant, time, job, version); optionally of one lane and tenant, at or after `from_time`."""
        ...

    async def read_timers(
        self,
        partition: int,
        kind: TimerKind,
        last_bucket: int,
        after: TimerKey | None,
        limit: int,
        *,
        first_bucket: int = 0,
    ) -> StatePage:
        """Timers of a partition in buckets [first, last] in key order, with the state of each job that is at that version."""
        ...

    async def sweep_void(self, partition: int, kind: TimerKind, last_bucket: int, limit: int) -> int:
        """Delete up to `limit` void timers (job gone or at another version) from buckets up to `last_bucket`; how many went."""
        ...

    async def watch(self, timers: Sequence[NewTimer]) -> None:
        """Write watch timers; the same one twice is one."""
        ...

    async def delete_timers(self, timers: Sequence[TimerRow]) -> None:
        """Delete exactly these timers."""
        ...

    async def floors(self) -> dict[int, int]:
        """Per partition the oldest bucket that has not been rechecked (0: never set); without those of a shard that cannot be used."""
        ...

    async def set_floor(self, partition: int, bucket: int) -> None:
        """Raise a partition's floor; a lower bucket than the stored one changes nothing."""
        ...

    # parked jobs

    async def park(self, dues: Sequence[Due]) -> None:
        """Remember jobs whose line was full, by (partition, line, score); the same job and version twice is one."""
        ...

    async def parked(self, partition: int, line: Line | None, limit: int) -> list[Parked]:
        """The first parked jobs of a line (of any line if None), by score."""
        ...

    async def parked_lines(self, partition: int) -> dict[Line, int]:
        """Which lines have parked jobs, and how many."""
        ...

    async def unpark(self, dues: Sequence[Due]) -> None:
        """Forget parked jobs: each gets a watch timer, then its park row goes."""
        ...

    # history and upkeep

    async def live_counts(self) -> dict[tuple[str, str, Status], int]:
        """How many live (and dead) jobs there are by tenant, queue and status: the slow sweep's truth."""
        ...

    async def archive(self, finished_before: int, limit: int) -> int:
        """Delete up to `limit` jobs that finished before that instant, with their attempts; and dead letters likewise. Skips that
        were recorded before it go too, and are not counted."""
        ...

    async def sweep_keys(self, limit: int) -> int:
        """Delete up to `limit` expired idempotency records whose job has ended."""
        ...


# --- all three ------------------------------------------------------------------------------------------------------------


class Store(Protocol):
    """A connected store: its parts and its life."""

    @property
    def jobs(self) -> JobStore: ...

    @property
    def schedules(self) -> ScheduleStore: ...

    @property
    def settings(self) -> SettingsStore: ...

    async def ping(self) -> None:
        """Write something durable (on every shard); raises StoreUnavailable, PartlyUnavailable where some shards cannot."""
        ...

    async def now_ms(self) -> int:
        """The clock of the store's server (of the home shard); this process's own where there is no server."""
        ...

    async def oldest_snapshot_s(self) -> float | None:
        """How long ago the oldest open transaction of anybody began: until it ends, rows that went are not cleared away. None where
        others cannot have any."""
        ...

    async def close(self) -> None: ...
