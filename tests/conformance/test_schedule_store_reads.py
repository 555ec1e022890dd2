"""Reading schedules, their jobs and their skips."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from tests.conformance.yard import LEASE_MS, LINE, PARTITIONS, WORKER, Yard, due_of, fired, skip, step
from tocsin.model.ids import made_at_ms
from tocsin.model.partition import partition_of
from tocsin.store.port import Change, Created, JobFilter, Made, Success
from tocsin.store.schedules import Move, Moved, ScheduleFilter, ScheduleRow
from tocsin.wire import Outcome, ScheduleStatus, Status

MINUTE_MS = 60_000


async def many(yard: Yard, count: int, **fields: object) -> list[ScheduleRow]:
    """Schedules without jobs, each made a millisecond after the one before."""
    rows = []
    for number in range(count):
        yard.clock.advance(0.001)
        rows.append(yard.schedule(f"s{number}", **fields))  # type: ignore[arg-type]
    moves = [Move(schedule_id=row.schedule_id, serial=0, after=row) for row in rows]
    assert await yard.schedules.move(moves) == [Moved.WON] * count
    return rows


# rows


async def test_rows_are_read_by_id_and_by_name_in_the_order_asked_for(yard: Yard) -> None:
    rows = await many(yard, 5)
    ids = [row.schedule_id for row in rows]
    unknown = yard.schedule("unknown").schedule_id
    assert await yard.schedules.get([ids[3], unknown, ids[0], ids[3], "sch_1", ""]) == [
        rows[3],
        None,
        rows[0],
        rows[3],
        None,
        None,
    ]
    assert await yard.schedules.named("acme", ["s2", "nothing", "s2", "", "S2"]) == [rows[2], None, rows[2], None, None]
    assert await yard.schedules.named("nobody", ["s2"]) == [None]
    assert await yard.schedules.get([]) == []
    assert await yard.schedules.named("acme", []) == []


async def test_a_list_is_the_newest_first_page_by_page(yard: Yard) -> None:
    rows = await many(yard, 7)
    await yard.begun("foreign", tenant="bolt")
    found: list[ScheduleRow] = []
    after = None
    while page := await yard.schedules.list_schedules(ScheduleFilter(tenant="acme"), after, 3):
        found += page
        after = page[-1].schedule_id
    assert found == rows[::-1]
    assert await yard.schedules.list_schedules(ScheduleFilter(tenant="nobody"), None, 3) == []


async def test_a_list_is_narrowed_by_status_and_name(yard: Yard) -> None:
    rows = await many(yard, 8)
    statuses: list[ScheduleStatus] = ["active", "paused", "finished", "broken"]
    for number, row in enumerate(rows):
        rows[number] = step(row, status=statuses[number % 4])
        await yard.move(Move(schedule_id=row.schedule_id, serial=1, after=rows[number]))
    for status in statuses:
        expected = [row for row in rows[::-1] if row.status == status]
        assert await yard.schedules.list_schedules(ScheduleFilter(tenant="acme", status=status), None, 10) == expected
    by_name = ScheduleFilter(tenant="acme", name="s5")
    assert await yard.schedules.list_schedules(by_name, None, 10) == [rows[5]]
    assert await yard.schedules.list_schedules(by_name, rows[5].schedule_id, 10) == []
    assert await yard.schedules.list_schedules(ScheduleFilter(tenant="acme", name="s"), None, 10) == []
    both = ScheduleFilter(tenant="acme", name="s5", status="paused")
    assert await yard.schedules.list_schedules(both, None, 10) == [rows[5]]
    assert await yard.schedules.list_schedules(replace(both, status="active"), None, 10) == []
    assert await yard.schedules.list_schedules(ScheduleFilter(tenant="bolt", name="s5"), None, 10) == []
    assert await yard.schedules.counts() == dict.fromkeys(statuses, 2)


async def test_there_are_no_schedules_at_first(yard: Yard) -> None:
    assert not any((await yard.schedules.counts()).values())
    assert await yard.schedules.crowd(0, 3) == [0, 0, 0]


# the sweeps


async def test_what_nobody_has_looked_at_is_found_the_oldest_first(yard: Yard) -> None:
    rows = await many(yard, 20)
    looks = [yard.now + 1_000 * ((number * 7) % 20) for number in range(20)]
    for number, row in enumerate(rows):
        look_at = None if number == 4 else looks[number]
        rows[number] = step(row, look_at=look_at)
        await yard.move(Move(schedule_id=row.schedule_id, serial=1, after=rows[number]))
    before = yard.now + 12_000
    found = []
    for partition in range(PARTITIONS):
        mine = [
            row for row in rows if partition_of(row.schedule_id, PARTITIONS) == partition and row.look_at is not None
        ]
        expected = sorted((row for row in mine if (row.look_at or 0) < before), key=lambda row: row.look_at or 0)
        page = await yard.schedules.overdue([partition], before, 100)
        assert page == expected
        assert await yard.schedules.overdue([partition], before, 1) == expected[:1]
        found += page
    assert await yard.schedules.overdue(range(PARTITIONS), before, 100) == found
    assert len(found) in (11, 12)


async def test_a_walk_meets_every_schedule_of_a_partition_once(yard: Yard) -> None:
    rows = await many(yard, 30)
    seen: list[ScheduleRow] = []
    for partition in range(PARTITIONS):
        after = ""
        while page := await yard.schedules.walk(partition, after, 4):
            assert {partition_of(row.schedule_id, PARTITIONS) for row in page} == {partition}
            seen += page
            after = page[-1].schedule_id
            gone = Move(schedule_id=after, serial=1, after=None)
            assert await yard.move(gone) is Moved.WON, "where a walk goes on from may be gone"
    assert sorted(row.schedule_id for row in seen) == sorted(row.schedule_id for row in rows)


async def test_a_crowd_is_counted_by_minutes(yard: Yard) -> None:
    first = (yard.now // MINUTE_MS + 10) * MINUTE_MS
    rows = await many(yard, 6)
    for row, look_at in zip(rows, (0, 0, 59_999, 60_000, 120_000, -1), strict=True):
        await yard.move(Move(schedule_id=row.schedule_id, serial=1, after=step(row, look_at=first + look_at)))
    assert await yard.schedules.crowd(first, 4) == [3, 1, 1, 0]


# jobs


async def test_a_job_is_read_with_its_schedule(yard: Yard) -> None:
    row, job = await yard.begun()
    (plain,) = await yard.made(1)
    orphan = yard.new(schedule_id=yard.schedule("gone").schedule_id)
    await yard.jobs.create([orphan])
    found = await yard.schedules.of_jobs([job.job_id, plain.job_id, yard.new().job_id, orphan.job_id, job.job_id])
    state = await yard.state(job.job_id)
    assert found == [(state, row), None, None, (await yard.state(orphan.job_id), None), (state, row)]


async def test_what_is_going_on_and_what_waits(yard: Yard) -> None:
    row, waiting = await yard.begun(at_in_ms=MINUTE_MS)
    other, _ = await yard.begun("other")
    jobs = [yard.occurrence(row, -at, queued=True, origin="backfill") for at in range(1, 8)]
    await yard.jobs.create(jobs)
    queued, running, asked, retrying, dead, ended, cancelled = (job.job_id for job in jobs)
    await yard.jobs.claim([running, asked, retrying, dead, ended], WORKER, LEASE_MS)

    async def change(job_id: str, **fields: object) -> None:
        before = await yard.state(job_id)
        after = replace(before, **fields)  # type: ignore[arg-type]
        assert await yard.jobs.change([Change(before=before, after=after, timer=after.version > before.version)]) == [
            True
        ]

    over = {"lease_until": None, "lease_ms": None}
    await change(asked, status=Status.CANCEL_REQUESTED)
    await change(retrying, status=Status.RETRYING, version=2, **over)
    await change(dead, status=Status.DEAD, finished_at=yard.now, outcome=Outcome.FATAL_FAILURE, **over)
    await yard.jobs.succeed([Success(job_id=ended, attempt=1)])
    await yard.cancelled(cancelled)

    going = await yard.schedules.going([row.schedule_id, other.schedule_id, "sch_1"])
    assert {job.job_id: job.status for job in going[row.schedule_id]} == {
        queued: Status.QUEUED,
        running: Status.RUNNING,
        asked: Status.CANCEL_REQUESTED,
        retrying: Status.RETRYING,
    }
    assert going[other.schedule_id] == going["sch_1"] == []
    assert [job.job_id for job in await yard.schedules.waiting(row.schedule_id)] == [waiting.job_id]
    assert await yard.schedules.going([]) == {}

    await change(dead, status=Status.RETRYING, version=2, finished_at=None)
    again = {job.job_id for job in (await yard.schedules.going([row.schedule_id]))[row.schedule_id]}
    assert again == {queued, running, asked, retrying, dead}, "a redriven job is going on again"
    await yard.jobs.fire([due_of(await yard.state(dead))])
    assert [one and one.job_id for one in await yard.jobs.claim([dead], WORKER, LEASE_MS)] == [dead]
    await yard.jobs.succeed([Success(job_id=dead, attempt=2)])
    again = {job.job_id for job in (await yard.schedules.going([row.schedule_id]))[row.schedule_id]}
    assert again == {queued, running, asked, retrying}


async def test_the_jobs_of_a_schedule_are_listed_by_their_occurrences(yard: Yard) -> None:
    row, first = await yard.begun()
    await yard.begun("other")
    await yard.made(3)
    jobs = [yard.occurrence(row, at * MINUTE_MS) for at in (5, -3, 700_000, 1)]
    assert await yard.jobs.create(jobs) == [Created(Made.CREATED, job.job_id) for job in jobs]
    await yard.move(fired(row, first))
    await yard.jobs.claim([first.job_id], WORKER, LEASE_MS)
    await yard.jobs.succeed([Success(job_id=first.job_id, attempt=1)])
    wanted = JobFilter(tenant="acme", schedule_id=row.schedule_id)
    found, after = [], None
    while True:
        page = await yard.jobs.list_jobs(wanted, after, 2)
        found += [job.job_id for job in page.jobs]
        after = page.after
        if after is None:
            break
    expected = sorted([first.job_id, *(job.job_id for job in jobs)], reverse=True)
    assert found == expected
    assert [made_at_ms(job_id) for job_id in found] == sorted((job.fire_at for job in (first, *jobs)), reverse=True)

    ended = await yard.jobs.list_jobs(replace(wanted, status=Status.SUCCEEDED), None, 10)
    assert [job.job_id for job in ended.jobs] == [first.job_id]
    for strange in (replace(wanted, tenant="bolt"), replace(wanted, queue="x"), replace(wanted, tags=(("a", "b"),))):
        assert (await yard.jobs.list_jobs(strange, None, 10)).jobs == []
    assert len((await yard.jobs.list_jobs(replace(wanted, queue="mail"), None, 10)).jobs) == 5


async def test_a_schedules_list_goes_by_when_its_jobs_were_made(yard: Yard) -> None:
    row, first = await yard.begun(at_in_ms=50 * MINUTE_MS)
    began = yard.now
    yard.clock.advance(10)
    second = yard.occurrence(row, -30 * MINUTE_MS)
    await yard.jobs.create([second])
    wanted = JobFilter(tenant="acme", schedule_id=row.schedule_id)

    async def listed(**bounds: int) -> list[str]:
        return [job.job_id for job in (await yard.jobs.list_jobs(replace(wanted, **bounds), None, 10)).jobs]  # type: ignore[arg-type]

    assert await listed() == [first.job_id, second.job_id]
    assert await listed(created_after=began + 1) == [second.job_id]
    assert await listed(created_before=began + 1) == [first.job_id]
    assert await listed(created_before=began) == []
    assert await listed(created_after=began, created_before=yard.now) == [first.job_id]


async def test_no_list_shows_a_job_that_was_made_at_another_time(yard: Yard) -> None:
    await yard.begun(at_in_ms=50 * MINUTE_MS)
    (plain,) = await yard.made(1)
    later = yard.now + 20 * MINUTE_MS
    assert (await yard.jobs.list_jobs(JobFilter(tenant="acme", created_after=later), None, 10)).jobs == []
    page = await yard.jobs.list_jobs(JobFilter(tenant="acme", created_before=later), None, 10)
    assert [job.job_id for job in page.jobs] == [plain.job_id]


async def test_archived_jobs_leave_their_schedules_list(yard: Yard) -> None:
    row, first = await yard.begun()
    second = yard.occurrence(row, MINUTE_MS)
    dead = yard.occurrence(row, 2 * MINUTE_MS, queued=True)
    assert await yard.move(structs.replace(fired(row, first, second), jobs=(second, dead))) is Moved.WON
    await yard.jobs.claim([first.job_id, dead.job_id], WORKER, LEASE_MS)
    await yard.jobs.succeed([Success(job_id=first.job_id, attempt=1)])
    before = await yard.state(dead.job_id)
    died = replace(before, status=Status.DEAD, finished_at=yard.now, lease_until=None, lease_ms=None)
    assert await yard.jobs.change([Change(before=before, after=died)]) == [True]
    yard.clock.advance(3_600)
    assert await yard.jobs.archive(yard.now, 100) == 2
    page = await yard.jobs.list_jobs(JobFilter(tenant="acme", schedule_id=row.schedule_id), None, 10)
    assert [job.job_id for job in page.jobs] == [second.job_id]
    # Nothing remembers an archived job: it could be made again.
    assert await yard.move(structs.replace(fired(step(row), second), jobs=(first,))) is Moved.WON
    assert await yard.status(first.job_id) is Status.SCHEDULED


# skips


async def test_skips_are_the_newest_first_page_by_page(yard: Yard) -> None:
    row, _ = await yard.begun()
    other, _ = await yard.begun("other")
    rows = [
        skip(row, 1_000, "missed", last=5_000, count=5, detail="the server was down"),
        skip(row, 3_000, "deadline"),
        skip(row, 3_000, "overlap"),
        skip(row, -7_000, "quota", recorded_at=9),
        skip(row, 9_000, "skipped_by_user"),
    ]
    await yard.schedules.add_skips([*rows, skip(other, 4_000)])
    expected = [rows[4], rows[2], rows[1], rows[0], rows[3]]
    assert await yard.schedules.skips(row.schedule_id, None, 10) == expected
    found, after = [], None
    while page := await yard.schedules.skips(row.schedule_id, after, 2):
        found += page
        after = (page[-1].first, page[-1].reason)
    assert found == expected
    assert await yard.schedules.skips("sch_1", None, 10) == []


async def test_the_same_skip_again_replaces(yard: Yard) -> None:
    row, _ = await yard.begun()
    longer = skip(row, 1_000, last=9_000, count=9)
    longest = skip(row, 1_000, last=10_000, count=10)
    await yard.schedules.add_skips([skip(row, 1_000)])
    await yard.schedules.add_skips([skip(row, 1_000, last=2_000), longer])
    assert await yard.schedules.skips(row.schedule_id, None, 10) == [longer]
    assert await yard.move(Move(schedule_id=row.schedule_id, serial=1, after=step(row), skips=(longest,))) is Moved.WON
    assert await yard.schedules.skips(row.schedule_id, None, 10) == [longest]


async def test_old_skips_are_archived(yard: Yard) -> None:
    row, _ = await yard.begun(at_in_ms=MINUTE_MS)
    old = [skip(row, number, recorded_at=yard.now + number % 10) for number in range(1_200)]
    await yard.schedules.add_skips(old)
    assert await yard.jobs.archive(yard.now + 7, 10) == 0
    found = await yard.schedules.skips(row.schedule_id, None, 2_000)
    assert found == [one for one in reversed(old) if one.recorded_at >= yard.now + 7]


async def test_of_a_schedule_that_is_gone_no_skip_is_kept(yard: Yard) -> None:
    row, _ = await yard.begun()
    await yard.move(Move(schedule_id=row.schedule_id, serial=1, after=None))
    await yard.schedules.add_skips([skip(row, 1)])
    assert await yard.schedules.skips(row.schedule_id, None, 10) == []


@pytest.mark.parametrize("line", [LINE, LINE._replace(queue="other", handler="")])
async def test_a_job_made_outside_a_move_is_its_schedules_too(yard: Yard, line: object) -> None:
    row, _ = await yard.begun(at_in_ms=MINUTE_MS)
    manual = yard.occurrence(row, 0, origin="manual", queued=True, line=line)
    assert await yard.jobs.create([manual]) == [Created(Made.CREATED, manual.job_id)]
    assert await yard.jobs.create([manual]) == [Created(Made.CREATED, manual.job_id)]
    going = await yard.schedules.going([row.schedule_id])
    assert [job.job_id for job in going[row.schedule_id]] == [manual.job_id]
    page = await yard.jobs.list_jobs(JobFilter(tenant="acme", schedule_id=row.schedule_id), None, 10)
    assert len(page.jobs) == 2
