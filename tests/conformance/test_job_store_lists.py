"""Lists of jobs, dead letters, counts, and what retention deletes."""

import asyncio
from dataclasses import replace

import pytest

from tests.conformance.yard import LINE, Yard, due
from tocsin.store.port import FIRE, Change, DeadFilter, JobFilter, JobPage, Success
from tocsin.wire import Status

HTML = LINE._replace(queue="html")
OTHER = LINE._replace(tenant="other")


async def listed(yard: Yard, wanted: JobFilter, limit: int) -> list[str]:
    found: list[str] = []
    after: str | None = None
    for _ in range(10_000):
        page: JobPage = await yard.jobs.list_jobs(wanted, after, limit)
        assert len(page.jobs) <= limit
        found += [job.job_id for job in page.jobs]
        after = page.after
        if after is None:
            return found
    raise AssertionError("the pages do not end")


async def spread(yard: Yard) -> list[str]:
    """Jobs of two queues in every state, oldest first."""
    made: list[str] = []
    for number in range(12):
        line = (LINE, HTML)[number % 2]
        yard.clock.advance(0.001 * (number % 3))
        match number % 4:
            case 0:
                made += [job.job_id for job in await yard.made(1, 5_000, line=line)]
            case 1:
                (job,) = await yard.running(line=line)
                await yard.jobs.succeed([Success(job_id=job.job_id, attempt=1)])
                made.append(job.job_id)
            case 2:
                made.append((await yard.dead(line=line)).job_id)
            case _:
                made.append((await yard.running(line=line))[0].job_id)
    await yard.made(3, line=OTHER)
    return made


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
async def test_a_list_is_newest_first_over_all_queues_of_the_tenant(yard: Yard, limit: int) -> None:
    made = await spread(yard)
    assert await listed(yard, JobFilter(tenant="acme"), limit) == sorted(made, reverse=True)
    assert await listed(yard, JobFilter(tenant="nobody"), limit) == []


@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_lists_can_be_narrowed(yard: Yard, limit: int) -> None:
    made = await spread(yard)
    states = [job for job in await yard.jobs.states(sorted(made, reverse=True)) if job is not None]
    for queue in ("mail", "html", "none"):
        wanted = [job.job_id for job in states if job.line.queue == queue]
        assert await listed(yard, JobFilter(tenant="acme", queue=queue), limit) == wanted
    for status in Status:
        wanted = [job.job_id for job in states if job.status is status]
        assert await listed(yard, JobFilter(tenant="acme", status=status), limit) == wanted


async def test_a_list_by_tags_needs_all_of_them(yard: Yard) -> None:
    both = (await yard.made(1, tags={"a": "1", "b": "2"}))[0].job_id
    await yard.made(1, tags={"a": "1"})
    await yard.made(1, tags={"a": "2", "b": "2"})
    assert await listed(yard, JobFilter(tenant="acme", tags=(("a", "1"), ("b", "2"))), 10) == [both]


async def test_a_list_by_schedule(yard: Yard) -> None:
    mine = (await yard.made(1, schedule_id="sch_1"))[0].job_id
    await yard.made(1, schedule_id="sch_2")
    await yard.made(1)
    assert await listed(yard, JobFilter(tenant="acme", schedule_id="sch_1"), 10) == [mine]


async def test_a_list_by_creation_takes_in_its_first_instant_but_not_its_last(yard: Yard) -> None:
    made = []
    for _ in range(4):
        made.append((yard.now, (await yard.made(1))[0].job_id))
        yard.clock.advance(1)
    wanted = JobFilter(tenant="acme", created_after=made[1][0], created_before=made[3][0])
    assert await listed(yard, wanted, 10) == [made[2][1], made[1][1]]


async def test_each_job_is_listed_exactly_once_while_all_are_moving(yard: Yard) -> None:
    jobs = await yard.running(60)
    made = {job.job_id for job in jobs}

    async def finish() -> None:
        for job in jobs:
            await yard.jobs.succeed([Success(job_id=job.job_id, attempt=1)])

    moving = asyncio.create_task(finish())
    rounds = 0
    while not moving.done() or not rounds:
        found = await listed(yard, JobFilter(tenant="acme"), 7)
        assert len(found) == len(made)
        assert set(found) == made
        rounds += 1
        await asyncio.sleep(0)  # an adapter that never waits would not let the others move
    await moving


async def test_a_new_job_does_not_disturb_a_list_being_paged(yard: Yard) -> None:
    made = sorted((job.job_id for job in await yard.made(6)), reverse=True)
    first = await yard.jobs.list_jobs(JobFilter(tenant="acme"), None, 3)
    yard.clock.advance(1)
    await yard.made(3)
    second = await yard.jobs.list_jobs(JobFilter(tenant="acme"), first.after, 3)
    assert [job.job_id for job in first.jobs + second.jobs] == made


# dead letters


async def test_dead_letters_are_listed_newest_death_first(yard: Yard) -> None:
    dead = []
    for number in range(5):
        dead.append(await yard.dead(f"error {number}"))
        yard.clock.advance(number % 2)
    await yard.dead(line=HTML)
    await yard.dead(line=OTHER)
    await yard.running()
    wanted = DeadFilter(tenant="acme", queue="mail")
    everything = await yard.jobs.list_dead(wanted, None, 100)
    order = sorted(dead, key=lambda job: (job.finished_at, job.job_id), reverse=True)
    assert everything == order
    assert await yard.jobs.count_dead(wanted) == 5
    paged, after = [], None
    while page := await yard.jobs.list_dead(wanted, after, 2):
        assert page[-1].finished_at is not None
        paged += page
        after = (page[-1].finished_at, page[-1].job_id)
    assert paged == order


async def test_dead_letters_can_be_narrowed(yard: Yard) -> None:
    first = await yard.dead("no route to host", tags={"team": "x"})
    yard.clock.advance(10)
    second = await yard.dead("bad payload", tags={"team": "y", "x": "team"})
    filters = [
        (DeadFilter(tenant="acme", queue="mail", error_contains="route"), [first]),
        (DeadFilter(tenant="acme", queue="mail", error_contains="%"), []),
        (DeadFilter(tenant="acme", queue="mail", tag=("team", "y")), [second]),
        (DeadFilter(tenant="acme", queue="mail", tag=("team", "z")), []),
        (DeadFilter(tenant="acme", queue="mail", dead_after=second.finished_at), [second]),
        (DeadFilter(tenant="acme", queue="mail", dead_before=second.finished_at), [first]),
        (DeadFilter(tenant="acme", queue="mail", job_ids=(second.job_id, "job_nothing")), [second]),
        (DeadFilter(tenant="acme", queue="mail", job_ids=()), []),
        (DeadFilter(tenant="acme", queue="other"), []),
        (DeadFilter(tenant="other", queue="mail"), []),
    ]
    for wanted, expected in filters:
        assert await yard.jobs.list_dead(wanted, None, 10) == expected
        assert await yard.jobs.count_dead(wanted) == len(expected)


async def test_a_redriven_or_discarded_job_is_no_dead_letter_any_more(yard: Yard) -> None:
    redriven, discarded = await yard.dead(), await yard.dead()
    back = replace(redriven, status=Status.RETRYING, version=2, tries=0, finished_at=None)
    await yard.jobs.change([Change(before=redriven, after=back, timer=True)])
    await yard.jobs.change([Change(before=discarded, after=discarded, gone=True)])
    wanted = DeadFilter(tenant="acme", queue="mail")
    assert await yard.jobs.list_dead(wanted, None, 10) == []
    assert await yard.jobs.count_dead(wanted) == 0


# counts and retention


async def test_live_jobs_are_counted_by_queue_and_status(yard: Yard) -> None:
    await spread(yard)
    assert await yard.jobs.live_counts() == {
        ("acme", "mail", Status.SCHEDULED): 3,
        ("acme", "mail", Status.DEAD): 3,
        ("acme", "html", Status.RUNNING): 3,
        ("other", "mail", Status.SCHEDULED): 3,
    }


async def test_retention_deletes_what_ended_before_with_all_that_belongs_to_it(yard: Yard) -> None:
    (ended,) = await yard.running()
    retried = await yard.retrying()
    await yard.jobs.succeed([Success(job_id=ended.job_id, attempt=1)])
    await yard.cancelled(retried.job_id)
    dead = await yard.dead()
    yard.clock.advance(10)
    (fresh,) = await yard.running()
    await yard.jobs.succeed([Success(job_id=fresh.job_id, attempt=1)])
    (waiting,) = await yard.made(1)
    assert await yard.jobs.archive(yard.now, 100) == 3
    old = [ended.job_id, retried.job_id, dead.job_id]
    assert await yard.jobs.states(old) == [None] * 3
    assert [await yard.jobs.attempts(job_id) for job_id in old] == [[], [], []]
    assert sorted(await listed(yard, JobFilter(tenant="acme"), 10)) == sorted([fresh.job_id, waiting.job_id])
    assert await yard.jobs.archive(yard.now, 100) == 0
    assert await yard.status(fresh.job_id) is Status.SUCCEEDED


async def test_retention_keeps_to_its_limit(yard: Yard) -> None:
    for job in await yard.running(7):
        await yard.jobs.succeed([Success(job_id=job.job_id, attempt=1)])
    await yard.dead()
    yard.clock.advance(1)
    assert [await yard.jobs.archive(yard.now, 3) for _ in range(4)] == [3, 3, 2, 0]


async def test_a_job_made_long_ago_that_ended_lately_is_kept(yard: Yard) -> None:
    (old,) = await yard.made(1, 86_400_000)
    yard.clock.advance(86_400)
    await yard.jobs.fire([due(old)])
    await yard.jobs.claim([old.job_id], "w", 30_000)
    await yard.jobs.succeed([Success(job_id=old.job_id, attempt=1)])
    assert await yard.jobs.archive(yard.now - 3_600_000, 10) == 0
    yard.clock.advance(7_200)
    assert await yard.jobs.archive(yard.now - 3_600_000, 10) == 1


async def test_the_timer_of_a_deleted_job_is_void(yard: Yard) -> None:
    (job,) = await yard.running()
    await yard.jobs.succeed([Success(job_id=job.job_id, attempt=1)])
    yard.clock.advance(1)
    await yard.jobs.archive(yard.now, 10)
    assert [timer.job for timer in await yard.timers(FIRE)] == [None]
