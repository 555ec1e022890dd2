"""Heartbeat: a worker keeps what it holds.

Renews lease_until where the attempt matches, never past claimed_at + timeout + 10 s: the lease finds a dead worker, the timeout
ends a runaway. Nothing is left half-done by a crash; the worker asks again.
"""

from __future__ import annotations

from collections.abc import Sequence

from tocsin import telemetry
from tocsin.flow.telling import told
from tocsin.flow.tokens import Lease
from tocsin.near.port import NearTier
from tocsin.store.port import Beat, Beaten, JobStore, NotYours


class Heart:
    """Renews leases."""

    def __init__(self, store: JobStore, near: NearTier) -> None:
        self._store, self._near = store, near

    async def beat(self, beats: Sequence[tuple[Lease, bytes | None]]) -> list[Beaten | NotYours]:
        """Renew; each beat is an attempt and the progress to keep (JSON text), or None."""
        answers = await self._store.heartbeat(
            [Beat(job_id=lease.job_id, attempt=lease.attempt, progress=progress) for lease, progress in beats]
        )
        renewed = [
            (lease.job_id, lease.attempt, answer.lease_until)
            for (lease, _), answer in zip(beats, answers, strict=True)
            if isinstance(answer, Beaten)
        ]
        if renewed:
            await told("renewed", self._near.lease(renewed))
        if len(renewed) < len(answers):
            for answer in answers:
                if isinstance(answer, NotYours):
                    telemetry.REFUSED.labels(f"heartbeat {answer.value}").inc()
        return answers
