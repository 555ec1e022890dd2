"""Dispatch: what is due fires. Takes members whose time has come, writes QUEUED, pushes them into their lines.

One bounded pass: take (fair between tenants, precise before flexible) -> fire -> push -> drop. The fire write answers for each
member: won, already QUEUED at this version, or void; the first two are pushed, then all leave the near tier. A crash after the
write: the next dispatcher sees "already" and pushes. A crash after the push: pushed again, which changes nothing.

Members that are jobs of schedules are handed to `flow.recur`, which fires, skips or holds them in one move with the making of the next
occurrence.

Two dispatchers that hold the same member are harmless: one write wins, both push the same job, the line holds it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tocsin import telemetry
from tocsin.clock import Clock
from tocsin.errors import ServerUnavailable
from tocsin.flow.park import Parker
from tocsin.flow.recur import Recurer, Recurred
from tocsin.flow.tally import LANE_NAME, Tally
from tocsin.lease.port import Leases
from tocsin.model.ids import is_schedules
from tocsin.model.job import Line, Status
from tocsin.near.port import NearTier
from tocsin.store.port import Due, Fired, JobStore

BUDGET = 1_000
LONGEST_SLEEP_S = 0.5


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What one pass fired."""

    taken: int = 0
    pushed: int = 0
    void: int = 0

    @property
    def more(self) -> bool:
        return self.taken > 0


class Dispatcher:
    """Fires what is due in the partitions that this node owns."""

    name = "dispatch"
    rhythmic = False

    def __init__(
        self,
        store: JobStore,
        near: NearTier,
        leases: Leases,
        parker: Parker,
        recurer: Recurer,
        tally: Tally,
        clock: Clock,
        budget: int = BUDGET,
    ) -> None:
        self._store, self._near, self._leases, self._parker, self._recurer = store, near, leases, parker, recurer
        self._tally, self._clock, self._budget = tally, clock, budget

    async def step(self) -> Dispatched:
        """Fire one batch. Raises ServerUnavailable after putting the batch back."""
        dues = await self._near.take(self._leases.owned(), self._clock.now_ms(), self._budget)
        if not dues:
            return Dispatched()
        plain = [due for due in dues if not is_schedules(due.job_id)]
        recurred = Recurred()
        try:
            answers = await self._store.fire(plain) if plain else []
            ready = [due for due, fired in zip(plain, answers, strict=True) if fired in (Fired.WON, Fired.ALREADY)]
            await self._parker.push(ready)
            if len(plain) < len(dues):
                recurred = await self._recurer.fire([due for due in dues if is_schedules(due.job_id)])
                await self._parker.push(recurred.ready)
                ready += recurred.ready
        except ServerUnavailable:
            await self._near.restore(dues)
            raise
        again = set(recurred.again)
        await self._near.drop([due for due in dues if due not in again] if again else dues)
        if again:
            await self._near.restore(recurred.again)
        answered = [*zip(plain, answers, strict=True), *recurred.answers]
        self._count(answered)
        if expired := [due for due, fired in answered if fired is Fired.EXPIRED]:
            await self._parker.have_expired(expired, Status.SCHEDULED)
        now = self._clock.now_ms()
        for lane, name in LANE_NAME.items():
            late = [(now - due.due_at) / 1000 for due in recurred.fired if due.line.lane == lane]
            telemetry.FIRE_LATENESS.observe(name, late)
        return Dispatched(len(dues), len(ready), len(dues) - len(ready))

    async def next_at(self) -> int | None:
        return await self._near.next_due(self._leases.owned())

    async def rest(self, timeout_s: float) -> None:
        await self._near.wait_due(min(timeout_s, LONGEST_SLEEP_S))

    def _count(self, answered: Sequence[tuple[Due, Fired]]) -> None:
        now = self._clock.now_ms()
        groups: dict[tuple[Line, Fired], list[int]] = {}
        for due, fired in answered:
            groups.setdefault((due.line, fired), []).append(due.due_at)
        for (line, fired), due_at in groups.items():
            match fired:
                case Fired.WON:
                    telemetry.FIRED.inc(len(due_at))
                    telemetry.FIRE_LATENESS.observe(LANE_NAME[line.lane], [(now - at) / 1000 for at in due_at])
                    # A first fire leaves SCHEDULED, a retry RETRYING; which one is not known here without a read.
                    self._tally.fired(line, len(due_at))
                case Fired.VOID:
                    telemetry.VOIDED.inc(len(due_at))
                case Fired.ALREADY | Fired.EXPIRED:
                    pass
