"""Queues: their settings, cached for at most five seconds, and their figures.

A queue comes into being with its first job or its first setting; a row is written only for settings, so that a create does not
cost one. What a queue's settings forbid is also told to the near tier (its gate), which gives nothing from a queue that it
knows nothing about.
"""

from __future__ import annotations

from tocsin.clock import Clock
from tocsin.flow.tally import Tally
from tocsin.flow.telling import told
from tocsin.model.job import Retrying, Status
from tocsin.near.port import NearTier, QueueGate
from tocsin.store.settings import QueueRow, SettingsStore
from tocsin.wire import QueueStats

FRESH_S = 5.0
TELL_AGAIN_S = 15.0
ROUNDS = 4
MOST_CACHED = 50_000
DEFAULT_LEASE_MS = 30_000


class QueueBook:
    """The settings and figures of queues."""

    def __init__(self, settings: SettingsStore, near: NearTier, tally: Tally, clock: Clock) -> None:
        self._settings, self._near, self._tally, self._clock = settings, near, tally, clock
        self._cache: dict[tuple[str, str], tuple[float, QueueRow | None]] = {}
        self._told_s: dict[tuple[str, str], float] = {}
        # Changes made here that the near tier has not been told: it was away.
        self._untold: set[tuple[str, str]] = set()

    async def get(self, tenant: str, queue: str) -> QueueRow:
        """A queue's settings; the defaults where it has none of its own."""
        return await self._look(tenant, queue) or QueueRow(tenant=tenant, queue=queue)

    async def known(self, tenant: str, queue: str) -> bool:
        """Whether the queue has settings or has ever had a job that is remembered."""
        if await self._look(tenant, queue) is not None:
            return True
        return queue in {row.queue for row in await self._settings.queues(tenant)}

    async def all(self, tenant: str) -> list[QueueRow]:
        """A tenant's queues by name, those without settings of their own included."""
        return sorted(await self._settings.queues(tenant), key=lambda row: row.queue)

    async def put(self, row: QueueRow) -> None:
        """Change a queue's settings, here and in the near tier at once, elsewhere within five seconds."""
        await self._settings.put_queue(row)
        self._cache[row.tenant, row.queue] = (self._clock.elapsed_s(), row)
        await told("queue changed", self._tell(row))

    async def open_gate(self, tenant: str, queue: str) -> None:
        """Tell the near tier what the settings of a queue say; it asked."""
        await self._tell_newest(tenant, queue)

    async def assure(self, tenant: str, queue: str) -> None:
        """Tell the near tier now and then what a queue's settings say, whoever told it before: a change that it was not told of,
        because it was away or the process that made it died, must not keep a queue open or closed for ever."""
        if len(self._told_s) > MOST_CACHED:
            self._told_s.clear()
        now_s = self._clock.elapsed_s()
        told_s = self._told_s.setdefault((tenant, queue), now_s)
        if (tenant, queue) in self._untold or now_s - told_s >= TELL_AGAIN_S:
            await self._tell_newest(tenant, queue)

    async def assure_changes(self) -> None:
        """Tell the near tier the changes made here that it has not been told; for a claim that names no queue."""
        for tenant, queue in list(self._untold):
            await self._tell_newest(tenant, queue)

    async def _tell_newest(self, tenant: str, queue: str) -> None:
        """Tell the near tier what the store says now. What is told holds for all processes: a row that this one has cached, or has
        read just before another changed it, must not undo what the other told."""
        told_row: QueueRow | None = None
        for _ in range(ROUNDS):
            self._cache.pop((tenant, queue), None)
            row = await self.get(tenant, queue)
            if row == told_row:
                return
            await self._tell(row)
            told_row = row

    async def _tell(self, row: QueueRow) -> None:
        key = row.tenant, row.queue
        # Until it has been told, it has to be told again as soon as somebody looks.
        self._untold.add(key)
        await self._near.configure(row.tenant, row.queue, gate_of(row))
        self._untold.discard(key)
        self._told_s[key] = self._clock.elapsed_s()

    async def stats(self, tenant: str, queue: str) -> QueueStats:
        """A queue's figures, approximate by what is under way."""
        now = self._clock.now_ms()
        count = self._tally.count
        _, oldest = await self._near.ready_count(tenant, queue)
        late = self._tally.lateness(tenant, queue)
        return QueueStats(
            scheduled=count(tenant, queue, Status.SCHEDULED),
            ready=count(tenant, queue, Status.QUEUED),
            running=count(tenant, queue, Status.RUNNING) + count(tenant, queue, Status.CANCEL_REQUESTED),
            retrying=count(tenant, queue, Status.RETRYING),
            dead=count(tenant, queue, Status.DEAD),
            oldest_ready_s=None if oldest is None else max(now - oldest, 0) / 1000,
            completed_per_s=self._tally.completed_per_s(tenant, queue, now),
            lateness_p50_s=None if late is None else round(late[0], 3),
            lateness_p99_s=None if late is None else round(late[1], 3),
        )

    async def _look(self, tenant: str, queue: str) -> QueueRow | None:
        now = self._clock.elapsed_s()
        cached = self._cache.get((tenant, queue))
        if cached is not None and now - cached[0] < FRESH_S:
            return cached[1]
        row = await self._settings.queue(tenant, queue)
        newer = self._cache.get((tenant, queue))
        if newer is not None and newer is not cached:
            # Written while we read: a gate set from what we have read would undo a pause, until the next change.
            return newer[1]
        if len(self._cache) > MOST_CACHED:
            self._cache.clear()
        self._cache[tenant, queue] = (now, row)
        return row


def gate_of(row: QueueRow) -> QueueGate:
    """What the near tier must know of a queue."""
    return QueueGate(paused=row.paused, paused_until=row.pause_until)


def retrying_of(row: QueueRow) -> Retrying:
    """The retry policy of a queue's jobs that ask for nothing else."""
    plain = Retrying()
    return Retrying(
        max_attempts=plain.max_attempts if row.max_attempts is None else row.max_attempts,
        initial_backoff_s=plain.initial_backoff_s if row.initial_backoff_s is None else row.initial_backoff_s,
        max_backoff_s=plain.max_backoff_s if row.max_backoff_s is None else row.max_backoff_s,
    )
