"""What must be true of the store after every step of a job's life, whatever happened before.

Timers: each unfinished job has a timer at its version, or a park row, so that somebody looks at it again.
States: every change is in `model.job.LEADS_TO`; a finished job stays as it is; version and attempt never decrease; a version
fires once.
Runs: the idempotency key of a job never changes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.life.world import World
from tocsin.model.job import FINISHED, LEADS_TO, LIVE, JobState, idempotency_key
from tocsin.store.port import FAR, FIRE, WATCH, JobFilter, TimerRow
from tocsin.wire import Status


@dataclass(slots=True)
class Snapshot:
    """The whole store."""

    jobs: dict[str, JobState] = field(default_factory=dict)
    timers: dict[str, list[TimerRow]] = field(default_factory=lambda: defaultdict(list))
    parked: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))


async def look(world: World) -> Snapshot:
    """Read everything through the port."""
    store, found = world.on.store.jobs, Snapshot()
    for tenant in ("acme", "bolt"):
        page = await store.list_jobs(JobFilter(tenant=tenant), None, 5_000)
        found.jobs |= {job.job_id: job for job in page.jobs}
    for partition in range(world.partitions):
        for kind in (FIRE, WATCH):
            for timer in (await store.read_timers(partition, kind, FAR, None, 5_000)).timers:
                found.timers[timer.job_id].append(timer)
        for row in await store.parked(partition, None, 5_000):
            found.parked[row.due.job_id].add(row.due.version)
    return found


def _reachable() -> dict[Status, frozenset[Status]]:
    """From each state, all that any events lead to, in any number of steps."""
    direct: dict[Status, set[Status]] = {status: {status} for status in Status}
    for leads in LEADS_TO.values():
        for before, after in leads.items():
            direct[before] |= after
    grown = True
    while grown:
        grown = False
        for found in direct.values():
            more = set().union(*(direct[status] for status in found)) - found
            found |= more
            grown = grown or bool(more)
    return {status: frozenset(found) for status, found in direct.items()}


REACHABLE = _reachable()
STEPS = {(before, after) for leads in LEADS_TO.values() for before, afters in leads.items() for after in afters}


class Ledger:
    """What was seen so far, to compare with what is seen now."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen: dict[str, JobState] = {}
        self._keys: dict[str, str] = {}
        self._fired: set[tuple[str, int]] = set()
        world.disk.watchers.append(self.wrote)

    def tenant(self, job_id: str) -> str:
        """Whose a job is."""
        return self._seen[job_id].line.tenant

    def same_key(self, job_id: str, key: str) -> None:
        """A worker was told this idempotency key."""
        assert self._keys.setdefault(job_id, key) == key, f"the idempotency key of {job_id} has changed"

    def must_hold(self, job_id: str, attempt: int) -> None:
        """A worker was told that it holds this attempt."""
        before = self._seen.get(job_id)
        assert before is None or before.attempt <= attempt, f"attempt {attempt} of {job_id} was given out again"

    async def must_be_recorded(self, job_id: str, attempt: int, outcome: str) -> None:
        """A report was accepted, so the attempt's record says the same."""
        records = {record.attempt: record for record in await self._world.on.store.jobs.attempts(job_id)}
        assert attempt in records, f"attempt {attempt} of {job_id} was accepted as {outcome} and has no record"
        assert records[attempt].outcome.value == outcome, f"{job_id} accepted {outcome} and recorded {records[attempt]}"

    def wrote(self, before: JobState | None, after: JobState) -> None:
        """One row of a job was written (stores that can tell)."""
        if before is None:
            assert after.status in (Status.SCHEDULED, Status.QUEUED), after
            return
        if before.status is not after.status:
            assert (before.status, after.status) in STEPS, f"{before.status} -> {after.status}: {after.job_id}"
        fires = after.status is Status.QUEUED and before.status is not Status.QUEUED
        if fires:
            name = (after.job_id, after.version)
            assert name not in self._fired, f"fired twice: {name}"
            self._fired.add(name)
        self._compare(before, after)

    async def check(self, accepted: list[str]) -> Snapshot:
        """Look at everything."""
        found = await look(self._world)
        for job_id in accepted:
            assert job_id in found.jobs or job_id in self._gone(), f"{job_id} was accepted and is not there"
        for job_id, job in found.jobs.items():
            before = self._seen.get(job_id)
            if before is not None:
                self._compare(before, job)
            self._seen[job_id] = job
            self.same_key(job_id, idempotency_key(job_id, job.definition.key_at))
            if job.status in LIVE:
                at_version = [timer for timer in found.timers[job_id] if timer.version == job.version]
                assert at_version or job.version in found.parked[job_id], f"nobody will look at {job_id} again: {job}"
        return found

    def _compare(self, before: JobState, after: JobState) -> None:
        name = after.job_id
        assert after.status in REACHABLE[before.status], f"{before.status} became {after.status}: {name}"
        assert after.attempt >= before.attempt, f"attempt went from {before.attempt} to {after.attempt}: {name}"
        assert after.version >= before.version, f"version went from {before.version} to {after.version}: {name}"
        if after.due_at != before.due_at:
            assert after.version > before.version, f"the timer of {name} was replaced under the same version"
        assert after.definition.key_at == before.definition.key_at, f"the key of {name} has changed"
        if before.status in FINISHED:
            assert after.status is before.status, f"a finished job was revived: {name}"
            assert after.attempt == before.attempt, f"a finished job went on: {name}"
        assert 0 <= after.tries <= after.attempt, after

    def _gone(self) -> set[str]:
        """Finished long enough to have been archived."""
        until = self._world.clock.now_ms()
        return {
            job_id
            for job_id, job in self._seen.items()
            if job.finished_at is not None and job.finished_at < until - 29 * 86_400_000
        }
