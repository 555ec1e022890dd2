"""What must be true after every scenario with schedules, whatever it was about.

- No accepted job is missing, and none that is due has been left where it is.
- No occurrence has two runs, and none is silent: each one since the schedule began has a run, or is in a skip, or is still to come.
- Nothing is RUNNING without a live lease.
- Every active schedule has a next run in the future, as one waiting job; no other schedule's has.
- Counters in metrics, API and store agree.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.asgi import Http
from tocsin.clock import rfc3339
from tocsin.model.job import FINISHED, HELD, PENDING, JobState
from tocsin.model.schedule import Backlog, Plan, Spec, State, decode_spec, decode_state, plan_of
from tocsin.model.zones import Zones, pinned_zones
from tocsin.store.port import JobFilter, Store
from tocsin.store.schedules import ScheduleFilter, ScheduleRow, SkipRow
from tocsin.telemetry import REGISTRY
from tocsin.wire import ScheduleStatus, Status

PAGE = 1_000
# A rescue waits two seconds beyond the end of a lease.
LEASE_GRACE_MS = 2_000
EVENTS = {
    "succeeded": Status.SUCCEEDED,
    "skipped": Status.SKIPPED,
    "cancelled": Status.CANCELLED,
}
STATUSES: tuple[ScheduleStatus, ...] = ("active", "paused", "finished", "broken")
REASONS = ("paused", "overlap", "deadline", "missed", "catch_up_limit", "skipped_by_user", "expired", "quota")


class Books:
    """How metrics stood when a scenario began. `deleted`: schedules were deleted since, and their skips with them."""

    def __init__(self) -> None:
        self._before = {name: self._read(*name) for name in self._names()}
        self.deleted = False

    def since(self, metric: str, label: str, value: str) -> int:
        """How far a counter has come."""
        return round(self._read(metric, label, value) - self._before[metric, label, value])

    @staticmethod
    def gauge(metric: str, label: str, value: str) -> int:
        """A gauge as it stands."""
        return round(Books._read(metric, label, value))

    @staticmethod
    def _names() -> list[tuple[str, str, str]]:
        jobs = [("tocsin_jobs_total", "event", event) for event in ("created", *EVENTS)]
        return [*jobs, *(("tocsin_schedule_skips_total", "reason", reason) for reason in REASONS)]

    @staticmethod
    def _read(metric: str, label: str, value: str) -> float:
        return REGISTRY.get_sample_value(metric, {label: value}) or 0.0


@dataclass
class Scheduled:
    """A schedule, and all there is of it."""

    row: ScheduleRow
    spec: Spec
    state: State
    plan: Plan
    jobs: list[JobState] = field(default_factory=list)
    skips: list[SkipRow] = field(default_factory=list)

    @property
    def chains(self) -> list[Backlog]:
        return [backlog for backlog in self.state.backlogs if backlog.kind == "schedule"]


async def sound(
    store: Store,
    now: int,
    tenant: str,
    *,
    zones: Zones | None = None,
    retimed: bool = False,
    since: int | None = None,
    accepted: Iterable[str] = (),
    books: Books | None = None,
    http: Http | None = None,
) -> None:
    """Look at everything a tenant has. `retimed`: timings were changed, so occurrences are accounted for from the last change on, or
    from `since`."""
    jobs = {job.job_id: job for job in await all_jobs(store, tenant)}
    missing = [job_id for job_id in accepted if job_id not in jobs]
    assert not missing, f"accepted, and not there: {missing}"
    for job in jobs.values():
        _must_be_looked_after(job, now)
    rows = await _all_rows(store, tenant)
    for row in rows:
        if row.status == "broken":
            continue
        found = await _look(store, row, jobs, zones or pinned_zones())
        _has_what_is_ahead(found, now)
        begin = since or (found.state.updated_at if retimed else found.state.created_at)
        _accounts(found, now, begin, whole=not retimed and since is None)
    if books is not None:
        await _agree(store, rows, jobs.values(), books)
    if http is not None:
        await _shows(http, rows, jobs.values())


async def all_jobs(store: Store, tenant: str) -> list[JobState]:
    """Every job of a tenant."""
    found: list[JobState] = []
    after: str | None = None
    while True:
        page = await store.jobs.list_jobs(JobFilter(tenant=tenant), after, PAGE)
        found += page.jobs
        if (after := page.after) is None:
            return found


async def _all_rows(store: Store, tenant: str) -> list[ScheduleRow]:
    found: list[ScheduleRow] = []
    while True:
        after = found[-1].schedule_id if found else None
        rows = await store.schedules.list_schedules(ScheduleFilter(tenant=tenant), after, PAGE)
        found += rows
        if len(rows) < PAGE:
            return found


async def _look(store: Store, row: ScheduleRow, jobs: dict[str, JobState], zones: Zones) -> Scheduled:
    spec, state = decode_spec(row.spec), decode_state(row.state)
    found = Scheduled(row, spec, state, plan_of(spec, zones))
    found.jobs = [job for job in jobs.values() if job.definition.schedule_id == row.schedule_id]
    key = None
    while page := await store.schedules.skips(row.schedule_id, key, PAGE):
        found.skips += page
        key = (page[-1].first, page[-1].reason)
    return found


def _must_be_looked_after(job: JobState, now: int) -> None:
    if job.status in HELD:
        assert job.lease_until is not None, job
        assert job.lease_until + LEASE_GRACE_MS >= now, f"{job.status} without a live lease: {job}"
    if job.status in PENDING:
        assert job.due_at > now, f"due, and nobody fires it: {job}"


def _has_what_is_ahead(found: Scheduled, now: int) -> None:
    row, state = found.row, found.state
    held = {one.job_id for one in state.held}
    waiting = [
        job
        for job in found.jobs
        if job.status is Status.SCHEDULED and job.definition.origin == "schedule" and job.job_id not in held
    ]
    if row.status == "active" and not state.owing:
        assert state.next_at is not None, f"active with nothing ahead: {row}"
        assert (state.fire_at or 0) > now, f"its next run is in the past: {row}"
    if state.next_at is None:
        assert waiting == [], f"{row.status} and still something waits: {waiting}"
        return
    ahead = [(job.job_id, job.definition.occurrence_at) for job in waiting]
    assert ahead == [(state.job_id, state.next_at)], f"not exactly one occurrence ahead of {row}: {waiting}"


def _accounts(found: Scheduled, now: int, since: int, *, whole: bool) -> None:
    """Each occurrence since then has come to exactly one thing."""
    state, plan = found.state, found.plan
    ran: dict[int, list[JobState]] = defaultdict(list)
    for job in found.jobs:
        if job.definition.origin == "schedule" and _is_a_run(job):
            ran[job.definition.occurrence_at or 0].append(job)
    twice = {rfc3339(at): jobs for at, jobs in ran.items() if len(jobs) > 1}
    assert not twice, f"occurrences with two runs: {twice}"
    held = {one.at for one in state.held}
    run = plan.next(since)
    while run is not None and run.at <= now:
        at = run.at
        skips = [skip for skip in found.skips if skip.first <= at <= skip.last]
        comes = (
            at in held
            or (at == state.next_at)
            or any(chain.low < at < chain.high and chain.left for chain in found.chains)
            or (found.row.status == "paused" and state.paused_from is not None and at >= state.paused_from)
        )
        waits = comes and at not in ran and not skips
        assert len(ran[at]) + len(skips) + waits == 1, (
            f"{rfc3339(at)} of {found.row.name}: runs {ran[at]}, skips {skips}, still to come {comes}"
        )
        run = plan.next(at)
    if not whole:
        return
    for skip in found.skips:
        assert skip.count == plan.count(skip.first - 1, skip.last), f"its count is wrong: {skip}"
    fired = [job for job in found.jobs if job.definition.origin == "schedule" and job.queued_at is not None]
    sure = [
        job
        for job in found.jobs
        if job.status is Status.SCHEDULED and job.definition.origin == "schedule" and job.job_id != state.job_id
    ]
    expected = len(fired) + len(sure) + sum(chain.left for chain in found.chains)
    assert state.runs == expected, f"runs is {state.runs}, and {len(fired)} fired, {len(sure)} will: {state}"


def _is_a_run(job: JobState) -> bool:
    """Whether a job has been started or may still be; not what only waits for its time."""
    if job.status in (Status.SKIPPED, Status.SCHEDULED):
        return False
    return job.status is not Status.CANCELLED or job.attempt > 0


async def _agree(store: Store, rows: Iterable[ScheduleRow], jobs: Iterable[JobState], books: Books) -> None:
    """Metrics tell of what is in the store."""
    states = Counter(job.status for job in jobs)
    assert books.since("tocsin_jobs_total", "event", "created") == states.total(), "created"
    for event, status in EVENTS.items():
        assert books.since("tocsin_jobs_total", "event", event) == states[status], event
    if not books.deleted:
        reasons: Counter[str] = Counter()
        for row in rows:
            key = None
            while page := await store.schedules.skips(row.schedule_id, key, PAGE):
                reasons.update(dict.fromkeys(REASONS, 0))
                for skip in page:
                    reasons[skip.reason] += skip.count
                key = (page[-1].first, page[-1].reason)
        told = {reason: books.since("tocsin_schedule_skips_total", "reason", reason) for reason in REASONS}
        assert told == {reason: reasons[reason] for reason in REASONS}
    counts = Counter(row.status for row in rows)
    for one in STATUSES:
        assert books.gauge("tocsin_schedules", "status", one) == counts[one], one


async def _shows(http: Http, rows: Iterable[ScheduleRow], jobs: Iterable[JobState]) -> None:
    """The API shows what is in the store."""
    shown, cursor = [], None
    while True:
        page = await http("GET", "/v1/schedules", query=[("limit", "200"), *([("cursor", cursor)] if cursor else [])])
        shown += page.json["items"]
        if (cursor := page.json["next_cursor"]) is None:
            break
    assert {one["schedule_id"]: one["status"] for one in shown} == {row.schedule_id: row.status for row in rows}
    runs = {row.schedule_id: decode_state(row.state).runs for row in rows if row.status != "broken"}
    assert {one["schedule_id"]: one["runs"] for one in shown if one["status"] != "broken"} == runs
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    names = {Status.QUEUED: "ready", Status.CANCEL_REQUESTED: "running"}
    for job in jobs:
        if job.status not in FINISHED:
            counts[job.line.queue][names.get(job.status, job.status.value.lower())] += 1
    for queue, expected in counts.items():
        stats = (await http("GET", f"/v1/queues/{queue}")).json["stats"]
        told = {name: stats[name] for name in ("scheduled", "ready", "running", "retrying", "dead")}
        assert told == {name: expected[name] for name in told}, queue
