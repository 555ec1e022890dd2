"""What the API works with: the stages of the flow and the settings, handed over as one value by the composition root."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tocsin import wire
from tocsin.clock import Clock, Entropy
from tocsin.errors import Refused
from tocsin.flow.admit import Admitted, Wanted
from tocsin.flow.tokens import Lease
from tocsin.model.job import JobState
from tocsin.store.port import Beaten, JobFilter, JobPage, NotYours
from tocsin.store.settings import QueueRow, SettingsStore


class Admits(Protocol):
    """Takes new jobs."""

    async def create(self, tenant: str, wanted: Sequence[Wanted]) -> Sequence[Admitted | Refused]: ...


class Claims(Protocol):
    """Hands out due jobs; waits for one as long as the request allows."""

    async def claim(self, tenant: str, queue: str, request: wire.ClaimRequest) -> list[wire.ClaimedJob]: ...

    async def claim_callbacks(self, request: wire.ClaimRequest) -> list[wire.ExecutorJob]: ...


class ReadsTokens(Protocol):
    """Knows which attempt a lease token speaks for."""

    def read(self, token: str) -> Lease | None: ...


class Beats(Protocol):
    """Renews leases."""

    async def beat(self, beats: Sequence[tuple[Lease, bytes | None]]) -> Sequence[Beaten | NotYours]: ...


class Completes(Protocol):
    """Takes the ends of attempts."""

    async def complete(
        self, items: Sequence[tuple[Lease, wire.Completion]]
    ) -> Sequence[wire.Status | NotYours | Refused]: ...


class Changes(Protocol):
    """Changes one job; raises Refused (404, 409, 412, 422)."""

    async def patch(self, tenant: str, job_id: str, patch: wire.JobPatch, if_match: int | None) -> JobState: ...

    async def cancel(self, tenant: str, job_id: str) -> JobState: ...

    async def run_now(self, tenant: str, job_id: str) -> JobState: ...


class Redrives(Protocol):
    """Sends dead letters on their way again, or away."""

    async def redrive(self, tenant: str, queue: str, body: wire.Redrive) -> wire.Redriven: ...

    async def discard(self, tenant: str, queue: str, body: wire.DeadSelection) -> wire.Discarded: ...


class Looks(Protocol):
    """Reads jobs. `get` and `attempts` raise Refused (404)."""

    async def get(self, tenant: str, job_id: str) -> JobState: ...

    async def attempts(self, tenant: str, job_id: str) -> list[wire.Attempt]: ...

    async def page(self, wanted: JobFilter, after: str | None, limit: int) -> JobPage: ...

    async def dead(
        self, tenant: str, queue: str, after: tuple[int, str] | None, limit: int
    ) -> tuple[list[JobState], tuple[int, str] | None]: ...


class Defines(Protocol):
    """Makes and changes schedules; raises Refused (404, 409, 412, 422). Header values in what it answers are not masked."""

    async def create(self, tenant: str, body: wire.ScheduleCreate) -> wire.Schedule: ...

    async def upsert(self, tenant: str, name: str, body: wire.SchedulePut) -> tuple[wire.Schedule, bool]:
        """The schedule of that name, and whether it has been made."""
        ...

    async def patch(
        self, tenant: str, schedule_id: str, body: wire.SchedulePatch, if_match: int | None
    ) -> wire.Schedule: ...

    async def delete(self, tenant: str, schedule_id: str) -> None: ...


class Directs(Protocol):
    """Acts on schedules beside their own course; raises Refused (404, 409, 422, 429)."""

    async def trigger(
        self, tenant: str, schedule_id: str, body: wire.Trigger, key: str | None, body_hash: bytes
    ) -> tuple[JobState, bool]:
        """The job, and whether it is that of an earlier request with the same key."""
        ...

    async def skip_next(self, tenant: str, schedule_id: str) -> wire.Schedule: ...

    async def backfill(self, tenant: str, schedule_id: str, body: wire.Backfill) -> wire.Backfilled: ...


class ShowsSchedules(Protocol):
    """Shows schedules; raises Refused (404, 422). Header values are not masked."""

    async def get(self, tenant: str, schedule_id: str) -> wire.Schedule: ...

    async def page(
        self, tenant: str, status: wire.ScheduleStatus | None, name: str | None, after: str | None, limit: int
    ) -> tuple[Sequence[wire.Schedule], str | None]: ...

    async def jobs(self, tenant: str, schedule_id: str, after: str | None, limit: int) -> JobPage: ...

    async def skips(
        self, tenant: str, schedule_id: str, after: tuple[int, str] | None, limit: int
    ) -> tuple[Sequence[wire.Skip], tuple[int, str] | None]: ...

    async def preview(self, body: wire.Preview) -> wire.Previewed: ...


class KeepsQueues(Protocol):
    """The settings and figures of queues."""

    async def get(self, tenant: str, queue: str) -> QueueRow: ...

    async def known(self, tenant: str, queue: str) -> bool: ...

    async def all(self, tenant: str) -> list[QueueRow]: ...

    async def put(self, row: QueueRow) -> None: ...

    async def stats(self, tenant: str, queue: str) -> wire.QueueStats: ...


class KnowsQuotas(Protocol):
    """A tenant's limits and their use."""

    def usage(self, tenant: str) -> dict[str, float]: ...

    async def limits(self, tenant: str) -> wire.Quotas: ...


class KnowsHealth(Protocol):
    """Says why this process is not ready; an empty list means that it is."""

    async def reasons(self) -> list[str]: ...


class ShowsFleet(Protocol):
    """Nodes, partitions and workers."""

    async def nodes(self) -> Sequence[wire.Node]: ...

    async def partitions(self) -> Sequence[wire.Partition]: ...

    async def moves(self, limit: int) -> Sequence[wire.PartitionMove]: ...

    async def workers(self, tenant: str | None) -> Sequence[wire.Worker]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Everything that the operations of the API need.

    `cursor_secret` seals the cursors of lists; every process of an installation must use the same one. `metrics` gives the
    exposition text of Prometheus where `/metrics` is served with the API. `advance` lets the manual clock of `tocsin dev` run
    on and answers the time, in milliseconds, when all due work has been done; without it the path does not exist.
    """

    admit: Admits
    claim: Claims
    tokens: ReadsTokens
    heart: Beats
    complete: Completes
    change: Changes
    define: Defines
    direct: Directs
    schedules: ShowsSchedules
    redrive: Redrives
    look: Looks
    queues: KeepsQueues
    quotas: KnowsQuotas
    health: KnowsHealth
    fleet: ShowsFleet
    settings: SettingsStore
    clock: Clock
    entropy: Entropy
    cursor_secret: bytes
    zone_data: str = ""
    metrics: Callable[[], bytes] | None = None
    advance: Callable[[float], Awaitable[int]] | None = None
