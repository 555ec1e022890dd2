"""The near-tier port: what is due soon and what is ready now, in memory (embedded) or Redis (fleet).

Nothing here is the truth. Losing all of it loses nothing: it is rebuilt from timers. So every call may be repeated, a member
may be here twice or not at all, and whoever acts on one makes a conditional write in the store first.

Due sets are kept per partition, lane and tenant and hold the earliest members only; ready lines per `Line`. The way of a
member: `offer` -> `take` (stays marked until) -> `push` to its line -> `drop`; then `pop` -> `settle`.

A call that cannot be answered raises `NearUnavailable`: nothing is known to have happened. All that is here belongs to one
`generation`; a new one begins empty, and whoever owns a partition then calls `begin` for it and fills it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tocsin.model.job import Line
from tocsin.model.timer import Due, TimerKey
from tocsin.wire import Status

CountKey = tuple[str, str, Status]  # (tenant, queue, status)

DUE_PER_TENANT_LANE = 200_000
LINE_LIMIT = 100_000
TENANT_LIMIT = 500_000
IN_HAND_MS = 10_000
REMEMBER_REQUEST_MS = 60_000
WORKERS_KEPT_MS = 86_400_000
WORKERS_SHOWN = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGate:
    """What a queue's settings say about handing out its jobs."""

    paused: bool = False
    paused_until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where a due set ends that holds only its earliest members: all of the partition, lane and tenant before it is held.

    The loader reads on at `from_time` (ms, that instant included), or exactly behind `after`, the store's own key, where the
    cut has one; then `move_cut`, then `offer`. `token` tells this cut from a later one of the same set.
    """

    partition: int
    lane: int
    tenant: str
    from_time: int
    after: TimerKey | None = None
    token: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pop:
    """A worker's wish. `queue` None: callbacks of all tenants, in fair order (the executor's claim)."""

    request_id: str
    tenant: str | None
    queue: str | None
    handlers: tuple[str, ...] | None
    most: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Popped:
    """What a pop got. `repeated`: the request was answered before; `attempts` are then the jobs it got, with attempts.

    `again`: the request has had `dues` in hand since an earlier pop, so a claim of them may be written already.
    `ask` names queues whose settings the near tier lacks: configure them and pop again. Never treated as open.
    """

    dues: list[Due]
    again: bool = False
    repeated: bool = False
    attempts: tuple[tuple[str, int], ...] = ()
    ask: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NearFigures:
    """How much is here: members waiting for their time and leases (of the partitions asked for), jobs in lines and in hand (of all).

    `bytes_used` and `bytes_limit` are the server's memory and what it may use, where there is a server and a limit."""

    due: int
    ready: int
    in_hand: int
    leases: int
    bytes_used: int | None = None
    bytes_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeen:
    """A worker as its last claim showed it: the jobs it was given since this process first saw it, and when it last asked (ms)."""

    tenant: str
    worker: str
    queue: str
    seen_at: int
    claimed: int


class NearTier(Protocol):
    """Due soon and ready now."""

    # generations

    async def generation(self) -> str:
        """The name of what is here. Another one than before: what was here is lost (a restart, a failover, evictions), and each
        partition must be begun and filled anew. Looks at the server, so it also says whether that answers."""
        ...

    async def begin(self, partitions: Sequence[int]) -> None:
        """Open these partitions in the present generation, before they are filled. Members that are there already stay: they are
        dispatched meanwhile."""
        ...

    # due sets

    async def offer(self, dues: Sequence[Due]) -> list[Due]:
        """Remember members until their time; idempotent by job and version. Answers those that lie behind a set's cut and were
        refused (they stay in their buckets; the loader reads on from the cut). A new earliest member wakes `wait_due`."""
        ...

    async def take(self, partitions: Sequence[int], now_ms: int, most: int) -> list[Due]:
        """Up to `most` members whose time has come: the precise lane before the flexible one, tenants by deficit round robin
        with weights, each tenant's earliest first. They stay until `drop` or `restore` and are not taken twice meanwhile,
        unless neither comes within a minute or two: then the pass that took them has died and they are due again."""
        ...

    async def drop(self, dues: Sequence[Due]) -> None:
        """Forget members that were taken (pushed, void or parked); a newer version of the job that came meanwhile stays."""
        ...

    async def restore(self, dues: Sequence[Due]) -> None:
        """Put taken members back: their fire write failed and will be tried again."""
        ...

    async def next_due(self, partitions: Sequence[int]) -> int | None:
        """The earliest time in the due sets."""
        ...

    async def wait_due(self, timeout_s: float) -> None:
        """Sleep until a new earliest member is offered, at most `timeout_s`. A hint: returning early is allowed."""
        ...

    async def cuts(self, partitions: Sequence[int]) -> list[Cut]:
        """The cut sets that can take more (under half full, or with nothing as early as their cut), the earliest first.

        Until the answer (`move_cut`) such a set accepts offers behind its cut too, so that nothing written while the loader
        reads falls between its page and the moved cut."""
        ...

    async def move_cut(self, cut: Cut, from_time: int | None, after: TimerKey | None = None) -> None:
        """The loader has read on and offers the page next: the set now ends just behind `from_time` (the page's latest time,
        that instant included), the next page begins behind `after` (the page's `next_key`). None: it holds all that there is.

        Without effect if the set has been trimmed since `cuts` answered; then offers behind the new cut are refused and the
        range is read again. A page of at most half a set's limit always makes progress, also within a single millisecond."""
        ...

    async def forget(self, partitions: Sequence[int]) -> None:
        """This process no longer owns these partitions: drop what it keeps of them itself. What others can reach stays theirs."""
        ...

    async def set_weight(self, tenant: str, weight: float) -> None:
        """A tenant's share in both lanes."""
        ...

    # ready lines

    async def push(self, dues: Sequence[Due], *, unpark: bool = False) -> list[Due]:
        """Put fired jobs into their lines, idempotent by job; answers those refused because a line or a tenant's lines are
        full (a small reserve of each line apart), or because the line has parked jobs (`set_parked`) and these are not the
        parked ones themselves (`unpark`). Wakes waiting claims: one per job, the longest waiting first."""
        ...

    async def pop(self, wish: Pop) -> Popped:
        """Take jobs out of the lines that the wish allows into the request's in-hand set, best score first, precise before
        flexible; jobs of suspect lines only alone. In hand for 10 s, then back in line. A repeat within 60 s gets the same."""
        ...

    async def settle(self, request_id: str, claimed: Sequence[tuple[str, int]]) -> None:
        """The claim is written: the request's jobs leave the in-hand set; `claimed` (job, attempt) is remembered for repeats."""
        ...

    async def unpop(self, request_id: str) -> None:
        """Put a request's in-hand jobs back at once: the claim could not be written."""
        ...

    async def wait_ready(self, wish: Pop, timeout_s: float) -> bool:
        """Sleep until a job for the wish may be there, at most `timeout_s` and never longer than a second. A hint.

        False: this tier is closed, and whoever waits must give up rather than look again at once."""
        ...

    async def remove(self, job_ids: Sequence[str]) -> None:
        """Forget jobs wherever they are (cancelled, patched): due sets and lines. A courtesy to memory, not a promise."""
        ...

    async def configure(self, tenant: str, queue: str, gate: QueueGate) -> None:
        """A queue's gate; opening it wakes waiting claims."""
        ...

    async def set_parked(self, line: Line, partition: int, parked: bool) -> None:
        """Whether a line has parked jobs in a partition: while it has in any, `push` refuses for it, so that order is kept."""
        ...

    async def lines_with_room(self, partitions: Sequence[int]) -> list[Line]:
        """Lines with parked jobs in any of these partitions that are under half full."""
        ...

    # leases

    async def lease(self, leases: Sequence[tuple[str, int, int]], *, rechecked_soon: bool = False) -> None:
        """(job, attempt, lease_until ms): remember or renew for rescue. `rechecked_soon`: these jobs' timers will be rechecked within
        two minutes, so that it does no lasting harm to remember them some seconds later and to die before."""
        ...

    async def unlease(self, leases: Sequence[tuple[str, int]]) -> None:
        """Forget the lease of an attempt that has ended."""
        ...

    async def leases_over(self, partitions: Sequence[int], before_ms: int, most: int) -> list[tuple[str, int]]:
        """(job, attempt) of these partitions whose lease was over before that instant; they stay until `unlease` or a renewal."""
        ...

    async def next_lease_end(self, partitions: Sequence[int]) -> int | None:
        """The earliest lease_until of these partitions."""
        ...

    # what all processes know together

    async def add_counts(self, changes: Mapping[CountKey, int]) -> None:
        """Add to the shared counts of jobs by (tenant, queue, status). Approximate: a repeat counts twice, a loss is set right by
        `reset_counts`."""
        ...

    async def counts(self) -> dict[CountKey, int]:
        """The shared counts; what is zero may be missing."""
        ...

    async def reset_counts(self, counts: Mapping[CountKey, int]) -> None:
        """Put the store's own count in their place."""
        ...

    async def note_workers(self, seen: Sequence[WorkerSeen]) -> None:
        """Remember workers, the latest look of each (tenant, worker, queue); forgotten a day after the last."""
        ...

    async def workers(self) -> list[WorkerSeen]:
        """The workers of all tenants seen within the last day, at most 10,000, the latest first."""
        ...

    # all

    async def figures(self, partitions: Sequence[int]) -> NearFigures:
        """How much is here."""
        ...

    async def ready_count(self, tenant: str, queue: str) -> tuple[int, int | None]:
        """How many jobs of a queue are ready, and the smallest due_at among them."""
        ...

    async def quiesce(self) -> None:
        """Wake everybody who waits; claims can wait no more, while `wait_due` still sleeps (stages end by their loops)."""
        ...

    async def close(self) -> None:
        """`quiesce`, and let go of every connection."""
        ...
