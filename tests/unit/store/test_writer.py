"""The writer: shared commits, the order of service, bounds, and what goes wrong with an item, the disk or the process."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from tests.conformance.yard import LEASE_MS, Yard, due, key
from tests.unit.store.conftest import Opener
from tocsin.clock import ManualClock
from tocsin.errors import Overloaded, StoreCorrupt, StoreError, StoreUnavailable
from tocsin.store.port import Beat, Beaten, Change, Created, Due, Fired, Made, NotYours, Success
from tocsin.store.sqlite import jobs as kinds
from tocsin.store.sqlite.writer import GROUP_ROWS, Crash
from tocsin.wire import Status


class Steps:
    """The writer's steps, as `on_step` hears them; `then` may act at one of them, in the writer's thread."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.then: Callable[[str], None] = lambda _: None

    def __call__(self, name: str) -> None:
        self.heard.append(name)
        self.then(name)

    def groups(self) -> list[list[str]]:
        """The batches of each commit."""
        found: list[list[str]] = []
        for name in self.heard:
            if name == "before begin":
                found.append([])
            elif name.startswith("after ") and name != "after commit":
                found[-1].append(name.removeprefix("after "))
        return found


class Gate:
    """Holds the writer at the beginning of its next group until opened, so that a test says what is queued then."""

    def __init__(self, steps: Steps) -> None:
        self._reached, self._open = threading.Event(), threading.Event()
        self._steps = steps
        steps.then = self._wait

    def _wait(self, name: str) -> None:
        if name == "before begin":
            self._reached.set()
            assert self._open.wait(30)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 30)

    def open(self, then: Callable[[str], None] = lambda _: None) -> None:
        self._steps.then = then
        self._open.set()


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
async def watched(opener: Opener, clock: ManualClock, steps: Steps) -> Yard:
    """A store whose writer's steps are heard."""
    return Yard(await opener(on_step=steps), clock)


async def held(yard: Yard, steps: Steps, *requests) -> list:
    """Queue these while the writer stands before a group; their results."""
    gate = Gate(steps)
    first = asyncio.create_task(yard.store.ping())
    await gate.reached()
    waiting = [asyncio.ensure_future(request) for request in requests]
    await asyncio.sleep(0)
    steps.heard[:] = ["before begin"]
    gate.open()
    await first
    return await asyncio.gather(*waiting, return_exceptions=True)


# groups


async def test_what_queued_meanwhile_shares_a_commit_and_kinds_share_a_batch(watched: Yard, steps: Steps) -> None:
    running = await watched.running(3)
    singles = [watched.jobs.create([watched.new()]) for _ in range(64)]
    reports = [watched.jobs.succeed([Success(job_id=job.job_id, attempt=1)]) for job in running[:2]]
    beat = watched.jobs.heartbeat([Beat(job_id=running[2].job_id, attempt=1)])
    results = await held(watched, steps, *singles, *reports, beat)
    assert not any(isinstance(result, BaseException) for result in results)
    (batches,) = steps.groups()
    assert sorted(batches) == ["create", "heartbeat", "ping", "succeed"]


async def test_the_urgent_is_served_first(watched: Yard, steps: Steps) -> None:
    (made,) = await watched.made(1)
    (queued,) = await watched.queued(1)
    (one, two) = await watched.running(2)
    before = await watched.state(two.job_id)
    await held(
        watched,
        steps,
        watched.jobs.sweep_void(0, "fire", 0, 10),
        watched.jobs.create([watched.new()]),
        watched.jobs.claim([queued], "w", LEASE_MS),
        watched.jobs.fire([due(made)]),
        watched.jobs.change([Change(before=before, after=replace(before, status=Status.CANCEL_REQUESTED))]),
        watched.jobs.succeed([Success(job_id=one.job_id, attempt=1)]),
        watched.jobs.heartbeat([Beat(job_id=two.job_id, attempt=1)]),
    )
    order = [batch for group in steps.groups() for batch in group]
    assert set(order[:2]) == {"ping", "heartbeat"}
    assert set(order[2:4]) == {"succeed", "change"}
    assert [batch for batch in order[4:] if batch != "upkeep"] == ["fire", "claim", "create"]


async def test_upkeep_is_served_though_urgent_work_never_ends(watched: Yard, steps: Steps) -> None:
    jobs = [watched.new() for _ in range(20_000)]
    creates = [watched.jobs.create(jobs[at : at + 5_000]) for at in range(0, 20_000, 5_000)]
    await held(watched, steps, *creates, *(watched.jobs.sweep_void(0, "fire", 0, 10) for _ in range(2)))
    batches = [batch for group in steps.groups() for batch in group]
    assert "upkeep" in batches[:10]
    assert batches.index("upkeep") < len(batches) - 10


async def test_a_large_request_is_cut_and_answered_whole(watched: Yard, steps: Steps) -> None:
    jobs = [watched.new() for _ in range(5_000)]
    (answers,) = await held(watched, steps, watched.jobs.create(jobs))
    assert answers == [Created(Made.CREATED, job.job_id) for job in jobs]
    groups = steps.groups()
    assert len(groups) >= 5_000 // GROUP_ROWS
    assert all(group.count("create") * 500 <= GROUP_ROWS for group in groups)


async def test_a_request_that_nobody_waits_for_any_more_disturbs_no_other(watched: Yard, steps: Steps) -> None:
    gate = Gate(steps)
    first = asyncio.create_task(watched.store.ping())
    await gate.reached()
    left = asyncio.create_task(watched.jobs.create([watched.new()]))
    other = asyncio.create_task(watched.jobs.create([watched.new()]))
    await asyncio.sleep(0)
    left.cancel()
    gate.open()
    await first
    assert (await other)[0].made is Made.CREATED
    with pytest.raises(asyncio.CancelledError):
        await left


async def test_a_close_writes_what_is_queued(opener: Opener, clock: ManualClock, steps: Steps) -> None:
    store = await opener(on_step=steps)
    yard = Yard(store, clock)
    jobs = [yard.new() for _ in range(3)]
    gate = Gate(steps)
    writing = [asyncio.create_task(yard.jobs.create([job])) for job in jobs]
    await gate.reached()
    closing = asyncio.create_task(store.close())
    gate.open()
    await closing
    assert all(answer.made is Made.CREATED for answers in await asyncio.gather(*writing) for answer in answers)
    again = Yard(await opener(), clock)
    assert None not in await again.jobs.states([job.job_id for job in jobs])


# bounds


async def test_past_the_bound_creates_are_refused_first_and_heartbeats_never(watched: Yard, steps: Steps) -> None:
    running = await watched.running(2)
    (made,) = await watched.made(1)
    bound = kinds.CREATE.bound
    assert bound is not None
    results = await held(
        watched,
        steps,
        watched.jobs.create([watched.new() for _ in range(bound - 1)]),
        watched.jobs.create([watched.new()]),
        watched.jobs.fire([due(made)]),
        watched.jobs.succeed([Success(job_id=running[0].job_id, attempt=1)]),
        watched.jobs.heartbeat([Beat(job_id=running[1].job_id, attempt=1)]),
    )
    assert len(results[0]) == bound - 1
    assert isinstance(results[1], Overloaded)
    assert results[2] == [Fired.WON]
    assert results[3] == [True]
    assert isinstance(results[4][0], Beaten)
    assert [
        kind.bound or 10**9 for kind in (kinds.BEAT, kinds.SUCCEED, kinds.FIRE, kinds.CLAIM, kinds.CREATE)
    ] == sorted(
        [kind.bound or 10**9 for kind in (kinds.BEAT, kinds.SUCCEED, kinds.FIRE, kinds.CLAIM, kinds.CREATE)],
        reverse=True,
    )


# bad items


async def test_a_job_that_cannot_be_written_fails_alone(watched: Yard, steps: Steps) -> None:
    good = [watched.new(key=key(f"k{number}")) for number in range(40)]
    bad = [
        structs.replace(watched.new(key=key("too late")), fire_at=2**63),
        structs.replace(watched.new(), priority=-(2**64)),
        structs.replace(watched.new(), definition="lone \ud800"),
        structs.replace(watched.new(), fire_at=None),
    ]
    mixed = [*good[:10], bad[0], *good[10:20], bad[1], bad[2], *good[20:30], bad[3], *good[30:]]
    answers = await watched.jobs.create(mixed)
    refused = [job for job, answer in zip(mixed, answers, strict=True) if answer.made is Made.REFUSED]
    assert refused == bad
    assert None not in await watched.jobs.states([job.job_id for job in good])
    assert await watched.jobs.states([job.job_id for job in bad]) == [None] * 4
    assert watched.store.jobs.refused == 4  # type: ignore[attr-defined]
    assert len(await watched.timers()) == 40
    # What was refused has bound nothing.
    again = watched.new(key=key("too late"))
    assert await watched.jobs.create([again]) == [Created(Made.CREATED, again.job_id)]


async def test_a_bad_item_of_one_request_costs_the_others_nothing(watched: Yard, steps: Steps) -> None:
    bad = structs.replace(watched.new(), fire_at=2**70)
    requests = [watched.jobs.create([watched.new()]) for _ in range(9)]
    results = await held(watched, steps, *requests, watched.jobs.create([bad, watched.new()]))
    assert [result[0].made for result in results[:9]] == [Made.CREATED] * 9
    assert [answer.made for answer in results[9]] == [Made.REFUSED, Made.CREATED]


async def test_the_lines_of_a_refused_job_are_forgotten_with_it(watched: Yard) -> None:
    line = watched.new().line._replace(tenant="new", queue="new")
    bad = structs.replace(watched.new(line=line), fire_at=2**63)
    good = watched.new(line=line._replace(queue="other"))
    assert [answer.made for answer in await watched.jobs.create([bad, good])] == [Made.REFUSED, Made.CREATED]
    later = watched.new(line=line)
    await watched.jobs.create([later])
    assert (await watched.state(later.job_id)).line == line
    assert (await watched.state(good.job_id)).line == good.line


async def test_each_kind_has_its_answer_for_what_cannot_be_written(watched: Yard) -> None:
    one, two, three = await watched.running(3)
    before = await watched.state(two.job_id)
    member = Due(2**80, one.job_id, 1, one.line, 0)
    assert await watched.jobs.fire([member]) == [Fired.VOID]
    absurd = replace(before, status=Status.RETRYING, due_at=2**63, version=2)
    fine = await watched.state(three.job_id)
    changes = [
        Change(before=before, after=absurd, timer=True),
        Change(before=fine, after=replace(fine, status=Status.CANCEL_REQUESTED)),
    ]
    assert await watched.jobs.change(changes) == [False, True]
    assert await watched.state(two.job_id) == before
    reports = [Success(job_id=two.job_id, attempt=2**64), Success(job_id=one.job_id, attempt=1)]
    assert await watched.jobs.succeed(reports) == [False, True]
    assert await watched.jobs.heartbeat([Beat(job_id="\ud800", attempt=1)]) == [NotYours.UNKNOWN]
    with pytest.raises(StoreError, match="refused"):
        await watched.jobs.set_floor(0, 2**64)


# a failing disk


def io_error(name: str) -> sqlite3.OperationalError:
    return sqlite3.OperationalError(f"disk I/O error {name}")


@pytest.mark.parametrize("at", ["before begin", "after create", "before commit"])
async def test_an_outage_fails_the_group_whole_and_is_over_when_it_is_over(
    watched: Yard, steps: Steps, at: str
) -> None:
    jobs = [watched.new() for _ in range(5)]

    def fail(name: str) -> None:
        if name == at or (at == "after create" and name == "before begin" and steps.heard.count("before begin") > 1):
            raise io_error(name)

    steps.heard.clear()
    steps.then = fail
    with pytest.raises(StoreUnavailable, match="nothing was done"):
        await watched.jobs.create(jobs)
    steps.then = lambda _: None
    assert await watched.jobs.states([job.job_id for job in jobs]) == [None] * 5
    assert all(answer.made is Made.CREATED for answer in await watched.jobs.create(jobs))


async def test_after_an_outage_each_request_is_tried_once_more_by_itself(watched: Yard, steps: Steps) -> None:
    failed: list[str] = []

    def fail(name: str) -> None:
        if name == "before commit" and not failed:
            failed.append(name)
            raise io_error(name)

    requests = [watched.jobs.create([watched.new()]) for _ in range(5)]

    async def all_of() -> list:
        gate = Gate(steps)
        first = asyncio.create_task(watched.store.ping())
        await gate.reached()
        waiting = [asyncio.ensure_future(request) for request in requests]
        await asyncio.sleep(0)
        gate.open(fail)
        await first
        return await asyncio.gather(*waiting)

    assert [answers[0].made for answers in await all_of()] == [Made.CREATED] * 5
    assert failed == ["before commit"]


async def test_a_full_disk_refuses_writes_keeps_reads_and_recovers(watched: Yard, steps: Steps) -> None:
    (made,) = await watched.made(1)
    conn = watched.store._writer._work.conn  # type: ignore[attr-defined]
    pages: list[int] = []

    def limit(name: str) -> None:
        if name == "before begin" and not pages:
            pages.append(conn.execute("PRAGMA page_count").fetchone()[0])
            conn.execute(f"PRAGMA max_page_count = {pages[0] + 20}")

    steps.then = limit
    big = [watched.new(name="x" * 50_000, key=key(f"big {number}")) for number in range(40)]
    with pytest.raises(StoreUnavailable, match="full"):
        await watched.jobs.create(big)
    assert await watched.jobs.states([job.job_id for job in big]) == [None] * 40
    assert await watched.jobs.fire([due(made)]) == [Fired.WON], "what needs no room goes on"
    small = watched.new()
    assert (await watched.jobs.create([small]))[0].made is Made.CREATED

    def unlimited(name: str) -> None:
        if name == "before begin":
            conn.execute("PRAGMA max_page_count = 1073741823")

    steps.then = unlimited
    assert [answer.made for answer in await watched.jobs.create(big)] == [Made.CREATED] * 40


async def test_beside_a_request_that_does_not_fit_the_others_are_written(watched: Yard, steps: Steps) -> None:
    conn = watched.store._writer._work.conn  # type: ignore[attr-defined]
    await watched.made(1)

    def limit(name: str) -> None:
        if name == "after ping":
            count = conn.execute("PRAGMA page_count").fetchone()[0]
            conn.execute(f"PRAGMA max_page_count = {count + 10}")

    big = watched.jobs.create([watched.new(name="x" * 200_000)])
    small = [watched.jobs.create([watched.new()]) for _ in range(3)]

    gate = Gate(steps)
    first = asyncio.create_task(watched.store.ping())
    await gate.reached()
    waiting = [asyncio.ensure_future(request) for request in (small[0], big, *small[1:])]
    await asyncio.sleep(0)
    gate.open(limit)
    await first
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(results[1], StoreUnavailable)
    answers = [result for result in results if not isinstance(result, BaseException)]
    assert [answer.made for (answer,) in answers] == [Made.CREATED] * 3


async def test_a_damaged_page_is_told_as_damage(watched: Yard, steps: Steps) -> None:
    def corrupt(name: str) -> None:
        if name == "after create":
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error

    steps.then = corrupt
    with pytest.raises(StoreCorrupt, match="restore the last backup"):
        await watched.jobs.create([watched.new()])


# a crash


CRASHES: Sequence[tuple[str, bool]] = [("before begin", False), ("after create", False), ("before commit", False)]


@pytest.mark.parametrize(("at", "there"), [*CRASHES, ("after commit", True)])
async def test_a_crash_leaves_whole_groups_and_the_repeat_is_safe(
    opener: Opener, clock: ManualClock, steps: Steps, at: str, there: bool
) -> None:
    store = await opener(on_step=steps)
    yard = Yard(store, clock)
    (before,) = await yard.made(1)

    def crash(name: str) -> None:
        if name == at:
            raise Crash

    steps.then = crash
    jobs = [yard.new(key=key(f"k{number}")) for number in range(3)]
    with pytest.raises(StoreUnavailable, match="crashed"):
        await yard.jobs.create(jobs)
    with pytest.raises(StoreUnavailable, match="crashed"):
        await store.ping()
    await store.close()

    again = Yard(await opener(), clock)
    assert await again.status(before.job_id) is Status.SCHEDULED
    found = await again.jobs.states([job.job_id for job in jobs])
    assert [job is not None for job in found] == [there] * 3
    assert len(await again.timers()) == (4 if there else 1)
    assert await again.jobs.create(jobs) == [Created(Made.CREATED, job.job_id) for job in jobs]
    assert len(await again.timers()) == 4


async def test_everybody_who_waits_hears_of_the_crash(watched: Yard, steps: Steps) -> None:
    gate = Gate(steps)
    waiting = [asyncio.ensure_future(watched.jobs.create([watched.new()])) for _ in range(3)]
    waiting.append(asyncio.ensure_future(watched.jobs.fire([due(watched.new())])))  # type: ignore[arg-type]
    await gate.reached()

    def crash(name: str) -> None:
        if name == "before commit":
            raise Crash

    gate.open(crash)
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, StoreUnavailable) for result in results)


async def test_the_time_of_a_write_is_taken_inside_it(watched: Yard, steps: Steps, clock: ManualClock) -> None:
    gate = Gate(steps)
    claiming = asyncio.create_task(watched.queued(1))
    await gate.reached()
    clock.advance(5)
    gate.open()
    (job_id,) = await claiming
    assert (await watched.state(job_id)).queued_at == watched.now
