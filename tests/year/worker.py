"""A worker that outlives the server: it claims what is ready, completes it, and keeps a journal of what it has completed.

What it could not report because the server died it reports again; a claim whose answer was lost is its lease's business.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from tests.life.world import World
from tocsin import wire
from tocsin.clock import ms_of
from tocsin.store.port import NotYours
from tocsin.wire import Status

TENANTS = ("acme", "bolt")
MOST = 1_000


class Worker:
    """Completes everything; `ran` has the instants of the occurrences that have run, by schedule."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held: list[wire.ClaimedJob] = []
        self._jobs: dict[tuple[str, int], str] = {}
        self.ran: dict[str, list[int]] = defaultdict(list)
        self.completed = self.refused = 0

    async def work(self) -> bool:
        """Claim what there is and complete it; whether there was anything. Raises what the server raises, and goes on next time."""
        for tenant in TENANTS:
            while got := await self._world.claim(MOST, worker="w", tenant=tenant):
                self._held += got
                if len(got) < MOST:
                    break
        if not self._held:
            return False
        read, held = self._world.on.tokens.read, self._held
        reports = [(read(job.lease_token), wire.Completion(outcome="succeeded")) for job in held]
        answers = await self._world.on.complete.complete(reports)  # type: ignore[arg-type]
        self._held = []
        for job, answer in zip(held, answers, strict=True):
            if isinstance(answer, NotYours):
                self.refused += 1  # its lease was over: whoever has it now reports it
            else:
                assert answer is Status.SUCCEEDED, f"{job.job_id} became {answer}"
                self._done(job)
        return True

    def _done(self, job: wire.ClaimedJob) -> None:
        assert job.schedule_id is not None, f"{job.job_id} is no schedule's"
        at = ms_of(datetime.fromisoformat(job.run_at))
        first = self._jobs.setdefault((job.schedule_id, at), job.job_id)
        assert first == job.job_id, f"{job.run_at} of {job.schedule_id} had two jobs: {first}, {job.job_id}"
        self.ran[job.schedule_id].append(at)
        self.completed += 1
