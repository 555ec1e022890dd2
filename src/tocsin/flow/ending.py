"""How an attempt ends: the one step that completion and rescue share.

Decides by `model.retry` from the state that was read, and builds the conditional change: attempt record, new state and, for
another try, the new timer at version+1. The store writes it only where the state, version and attempt are still those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tocsin import telemetry
from tocsin.clock import Clock, Entropy
from tocsin.flow.ends import Ends
from tocsin.flow.horizon import Horizon, due_of
from tocsin.flow.retell import Owed
from tocsin.flow.tally import Tally
from tocsin.flow.telling import told
from tocsin.model.job import HELD, TERMINAL, JobState, Status
from tocsin.model.retry import decide
from tocsin.near.port import NearTier
from tocsin.store.port import AttemptRecord, Change, JobStore
from tocsin.wire import Outcome

_EVENT = {
    Status.SUCCEEDED: telemetry.SUCCEEDED,
    Status.RETRYING: telemetry.RETRIED,
    Status.DEAD: telemetry.DIED,
    Status.CANCELLED: telemetry.CANCELLED,
}


class Ender:
    """Ends attempts of held jobs."""

    def __init__(
        self,
        store: JobStore,
        near: NearTier,
        ends: Ends,
        tally: Tally,
        clock: Clock,
        entropy: Entropy,
        owed: Owed | None = None,
    ) -> None:
        self._owed = owed or Owed()
        self._store, self._near, self._ends, self._horizon = store, near, ends, Horizon(near, clock)
        self._tally, self._clock, self._entropy = tally, clock, entropy

    def change(
        self,
        job: JobState,
        outcome: Outcome,
        *,
        error: str | None = None,
        retry_after_s: float | None = None,
        charged: bool = True,
        result: bytes | None = None,
        status_code: int | None = None,
        response: bytes | None = None,
    ) -> Change:
        """The step that ends a held job's current attempt."""
        assert job.status in HELD, "only a held job has an attempt to end"
        assert job.claimed_at is not None, "a held job was claimed"
        now = self._clock.now_ms()
        verdict = decide(
            job,
            outcome,
            now_ms=now,
            chance=self._entropy.uniform(),
            error=error,
            retry_after_s=retry_after_s,
            charged=charged,
        )
        again = verdict.status is Status.RETRYING
        line = job.line._replace(suspect=verdict.losses > 0) if again else job.line
        after = replace(
            job,
            status=verdict.status,
            line=line,
            version=job.version + 1 if again else job.version,
            tries=verdict.tries,
            due_at=verdict.due_at if verdict.due_at is not None else job.due_at,
            losses=verdict.losses,
            releases=verdict.releases,
            lease_until=None,
            worker=None if again else job.worker,
            finished_at=None if again else now,
            last_error=verdict.error if verdict.error is not None else job.last_error,
            result=result,
            outcome=outcome,
        )
        record = AttemptRecord(
            attempt=job.attempt,
            worker=job.worker,
            claimed_at=job.claimed_at,
            finished_at=now,
            outcome=outcome,
            error=verdict.error,
            due_at=job.due_at,
            status_code=status_code,
            response=response,
        )
        return Change(before=job, after=after, timer=again, record=record)

    async def write(self, changes: Sequence[Change]) -> list[bool]:
        """Write the steps; those that won are told to the near tier and the tally."""
        won = await self._store.change(changes)
        done = [change for change, ok in zip(changes, won, strict=True) if ok]
        await told("ended", self._near.unlease([(change.before.job_id, change.before.attempt) for change in done]))
        again = [due_of(change.after) for change in done if change.timer]
        if again and not await told("retried", self._horizon.offer(again)):
            self._owed.add(again)
        self._ends.tell(change.after.job_id for change in done if change.after.status in TERMINAL)
        for change in done:
            before, after = change.before, change.after
            self._tally.moved(after.line, before.status, after.status)
            _EVENT[after.status].inc()
            match after.outcome:
                case Outcome.RELEASED:
                    telemetry.RELEASED.inc()
                case Outcome.LOST | Outcome.TIMED_OUT:
                    telemetry.LOST.inc()
                case _:
                    pass
        return won
