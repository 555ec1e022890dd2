"""The end of an attempt, and every other conditional step in a job's life."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from msgspec import Raw

from tests.conformance.yard import LINE, WORKER, Yard, due_of
from tocsin.model.job import JobState
from tocsin.store.port import FIRE, AttemptRecord, Beat, Change, NotYours, Success
from tocsin.wire import Outcome, Status, TaskTarget


async def test_a_success_ends_the_job_and_keeps_what_it_was(yard: Yard) -> None:
    (job,) = await yard.running(tags={"a": "b"})
    before = await yard.state(job.job_id)
    yard.clock.advance(2)
    report = Success(job_id=job.job_id, attempt=1, result=b'{"sent":1}', status_code=204, response=b'{"body":""}')
    assert await yard.jobs.succeed([report]) == [True]
    after = await yard.state(job.job_id)
    assert (after.status, after.outcome, after.finished_at) == (Status.SUCCEEDED, Outcome.SUCCEEDED, yard.now)
    assert after.result == b'{"sent":1}'
    kept = ["line", "priority", "version", "attempt", "tries", "due_at", "fire_at", "created_at", "queued_at"]
    kept += ["started_at", "claimed_at", "worker", "expires_at", "progress", "definition"]
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]


async def test_a_success_counts_once(yard: Yard) -> None:
    (job,) = await yard.running()
    report = Success(job_id=job.job_id, attempt=1)
    answers = await asyncio.gather(*(yard.jobs.succeed([report]) for _ in range(20)))
    assert sorted(done for (done,) in answers) == [False] * 19 + [True]
    assert await yard.jobs.succeed([report, report]) == [False, False]


async def test_the_same_report_twice_in_a_batch_counts_once(yard: Yard) -> None:
    one, two = await yard.running(2)
    reports = [Success(job_id=one.job_id, attempt=1), Success(job_id=two.job_id, attempt=1, result=b"1")]
    assert await yard.jobs.succeed([*reports, reports[0], reports[1]]) == [True, True, False, False]


async def test_reports_with_and_without_results_travel_together(yard: Yard) -> None:
    jobs = await yard.running(5)
    reports = [
        Success(job_id=job.job_id, attempt=1, result=None if number % 2 else b"%d" % number)
        for number, job in enumerate(jobs)
    ]
    assert await yard.jobs.succeed(reports) == [True] * 5
    results = [job and job.result for job in await yard.jobs.states([job.job_id for job in jobs])]
    assert results == [b"0", None, b"2", None, b"4"]


@pytest.mark.parametrize("attempt", [0, 2])
async def test_a_stale_worker_cannot_end_a_newer_attempt(yard: Yard, attempt: int) -> None:
    (job,) = await yard.running()
    (other,) = await yard.running()
    reports = [Success(job_id=job.job_id, attempt=attempt), Success(job_id=other.job_id, attempt=1)]
    assert await yard.jobs.succeed(reports) == [False, True]
    assert await yard.status(job.job_id) is Status.RUNNING


async def test_only_held_jobs_succeed(yard: Yard) -> None:
    waiting = await yard.retrying()
    dead = await yard.dead()
    (queued,) = await yard.queued()
    never = yard.new()
    asked = [waiting.job_id, dead.job_id, queued, never.job_id]
    assert await yard.jobs.succeed([Success(job_id=job_id, attempt=1) for job_id in asked]) == [False] * 4


async def test_a_cancel_that_comes_too_late_is_a_success(yard: Yard) -> None:
    (job,) = await yard.running()
    before = await yard.state(job.job_id)
    await yard.jobs.change([Change(before=before, after=replace(before, status=Status.CANCEL_REQUESTED))])
    assert await yard.jobs.succeed([Success(job_id=job.job_id, attempt=1)]) == [True]
    assert await yard.status(job.job_id) is Status.SUCCEEDED


# attempts


async def test_a_first_clean_success_is_an_attempt_too(yard: Yard) -> None:
    (job,) = await yard.running()
    assert await yard.jobs.attempts(job.job_id) == []
    yard.clock.advance(1)
    await yard.jobs.succeed([Success(job_id=job.job_id, attempt=1, status_code=200, response=b'{"body":"ok"}')])
    assert await yard.jobs.attempts(job.job_id) == [
        AttemptRecord(
            attempt=1,
            worker=WORKER,
            claimed_at=yard.now - 1_000,
            finished_at=yard.now,
            outcome=Outcome.SUCCEEDED,
            error=None,
            due_at=job.due_at,
            status_code=200,
            response=b'{"body":"ok"}',
        )
    ]


async def test_attempts_are_listed_oldest_first(yard: Yard) -> None:
    job = await yard.retrying()
    yard.clock.advance(2)
    await yard.jobs.fire([due_of(job)])
    await yard.jobs.claim([job.job_id], "w-2", 30_000)
    assert [record.attempt for record in await yard.jobs.attempts(job.job_id)] == [1]
    await yard.jobs.succeed([Success(job_id=job.job_id, attempt=2)])
    first, second = await yard.jobs.attempts(job.job_id)
    assert (first.attempt, first.outcome, first.error, first.worker) == (1, Outcome.RETRYABLE_FAILURE, "boom", WORKER)
    assert (second.attempt, second.outcome, second.error, second.worker) == (2, Outcome.SUCCEEDED, None, "w-2")
    assert second.due_at == job.due_at


async def test_a_jobs_attempts_are_its_own(yard: Yard) -> None:
    dead = await yard.dead()
    (job,) = await yard.running()
    assert len(await yard.jobs.attempts(dead.job_id)) == 1
    assert await yard.jobs.attempts(job.job_id) == []
    assert await yard.jobs.attempts(yard.new().job_id) == []


# change


async def test_a_change_writes_the_whole_state_it_was_given(yard: Yard) -> None:
    (made,) = await yard.made(1, 1_000, expires_in_ms=9_000)
    before = await yard.state(made.job_id)
    after = replace(
        before,
        line=LINE._replace(handler="other", hold="https://b.example:443", suspect=True),
        priority=-1,
        status=Status.RUNNING,
        version=5,
        attempt=4,
        tries=3,
        due_at=before.due_at + 1,
        fire_at=before.fire_at + 2,
        queued_at=11,
        started_at=12,
        claimed_at=13,
        lease_until=14,
        lease_ms=15,
        beaten_at=16,
        worker="w-ü",
        losses=1,
        releases=2,
        expires_at=None,
        last_error="schlimm\n☂",
        progress=b'{"p":[1,2]}',
        outcome=Outcome.LOST,
        definition=replace_definition(before),
    )
    assert await yard.jobs.change([Change(before=before, after=after)]) == [True]
    assert await yard.state(made.job_id) == after


def replace_definition(job: JobState):
    definition = job.definition
    return type(definition)(
        target=TaskTarget(handler="other", timeout_s=7.5),
        run_at=1,
        key_at=definition.key_at,
        payload=Raw(b'"new"'),
        tags={"x": "y"},
    )


async def test_a_changed_timeout_bounds_the_lease(yard: Yard) -> None:
    (job,) = await yard.running()
    before = await yard.state(job.job_id)
    after = replace(before, definition=replace_definition(before))
    await yard.jobs.change([Change(before=before, after=after)])
    yard.clock.advance(17)
    await yard.jobs.heartbeat([Beat(job_id=job.job_id, attempt=1)])
    assert (await yard.state(job.job_id)).lease_until == yard.now + 500
    yard.clock.advance(0.5)
    assert await yard.jobs.heartbeat([Beat(job_id=job.job_id, attempt=1)]) == [NotYours.TIMED_OUT]


@pytest.mark.parametrize("differs", ["status", "version", "attempt"])
async def test_a_change_from_a_state_that_has_passed_is_refused(yard: Yard, differs: str) -> None:
    job = await yard.retrying()
    others: dict[str, Any] = {"status": Status.SCHEDULED, "version": 1, "attempt": 2}
    stale = replace(job, **{differs: others[differs]})
    after = replace(job, status=Status.QUEUED, version=9, due_at=yard.now)
    record = yard.record(job, Outcome.LOST)
    record = replace(record, attempt=7)
    assert await yard.jobs.change([Change(before=stale, after=after, timer=True, record=record)]) == [False]
    assert await yard.state(job.job_id) == job
    assert len(await yard.jobs.attempts(job.job_id)) == 1
    assert all(timer.version != 9 for timer in await yard.timers(FIRE) if timer.job is not None)


async def test_a_heartbeat_that_came_first_is_not_undone(yard: Yard) -> None:
    beaten, silent = await yard.running(2)
    before = [await yard.state(job.job_id) for job in (beaten, silent)]
    await yard.jobs.heartbeat([Beat(job_id=beaten.job_id, attempt=1, progress=b"7")])
    changes = [
        Change(before=job, after=replace(job, status=Status.RETRYING, version=2, lease_until=None), timer=True)
        for job in before
    ]
    assert await yard.jobs.change(changes) == [False, True]
    job = await yard.state(beaten.job_id)
    assert (job.status, job.beaten_at, job.progress) == (Status.RUNNING, yard.now, b"7")


async def test_of_many_changes_at_once_one_is_first(yard: Yard) -> None:
    (made,) = await yard.made(1, 60_000)
    before = await yard.state(made.job_id)
    changes = [
        Change(before=before, after=replace(before, version=2, due_at=before.due_at + n), timer=True) for n in range(20)
    ]
    answers = await asyncio.gather(*(yard.jobs.change([one]) for one in changes))
    assert sum(first for (first,) in answers) == 1


async def test_within_a_batch_the_later_change_sees_the_earlier(yard: Yard) -> None:
    (made,) = await yard.made(1, 60_000)
    before = await yard.state(made.job_id)
    middle, last = replace(before, version=2), replace(before, version=3)
    changes = [
        Change(before=before, after=middle, timer=True),
        Change(before=before, after=last, timer=True),
        Change(before=middle, after=last, timer=True),
    ]
    assert await yard.jobs.change(changes) == [True, False, True]
    assert (await yard.state(made.job_id)).version == 3


async def test_a_change_with_a_timer_writes_it_at_the_new_time_and_version(yard: Yard) -> None:
    job = await yard.retrying()
    timers = [(timer.version, timer.time, timer.job is not None) for timer in await yard.timers(FIRE)]
    assert sorted(timers) == [(1, job.fire_at, False), (2, job.due_at, True)]


async def test_a_change_without_a_timer_writes_none(yard: Yard) -> None:
    (job_id,) = await yard.queued()
    await yard.cancelled(job_id)
    assert len(await yard.timers(FIRE)) == 1


@pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.CANCELLED, Status.SKIPPED])
async def test_what_ends_is_finished_and_cannot_be_changed_any_more(yard: Yard, status: Status) -> None:
    (job,) = await yard.running()
    before = await yard.state(job.job_id)
    after = replace(
        before, status=status, lease_until=None, lease_ms=None, finished_at=yard.now, last_error="why", result=b"7"
    )
    assert await yard.jobs.change([Change(before=before, after=after)]) == [True]
    ended = await yard.state(job.job_id)
    assert (ended.status, ended.finished_at, ended.last_error, ended.result) == (status, yard.now, "why", b"7")
    back = replace(ended, status=Status.RETRYING, version=2)
    assert await yard.jobs.change([Change(before=ended, after=back, timer=True)]) == [False]
    assert await yard.jobs.change([Change(before=before, after=after)]) == [False]


async def test_a_dead_letter_stays_and_can_be_redriven(yard: Yard) -> None:
    dead = await yard.dead("no route")
    assert (dead.status, dead.finished_at, dead.last_error) == (Status.DEAD, yard.now, "no route")
    after = replace(dead, status=Status.RETRYING, version=2, tries=0, due_at=yard.now, finished_at=None)
    assert await yard.jobs.change([Change(before=dead, after=after, timer=True)]) == [True]
    await yard.jobs.fire([due_of(after)])
    (again,) = await yard.jobs.claim([dead.job_id], WORKER, 30_000)
    assert again is not None
    assert (again.attempt, again.tries) == (2, 1)


async def test_a_discarded_dead_letter_is_finished_as_dead(yard: Yard) -> None:
    dead = await yard.dead()
    assert await yard.jobs.change([Change(before=dead, after=dead, gone=True)]) == [True]
    assert await yard.status(dead.job_id) is Status.DEAD
    after = replace(dead, status=Status.RETRYING, version=2)
    assert await yard.jobs.change([Change(before=dead, after=after, timer=True)]) == [False]
    assert len(await yard.jobs.attempts(dead.job_id)) == 1


async def test_states_are_in_the_order_asked_for(yard: Yard) -> None:
    (ended,) = await yard.running()
    await yard.jobs.succeed([Success(job_id=ended.job_id, attempt=1)])
    (waiting,) = await yard.made(1, 5_000)
    never = yard.new()
    asked = [waiting.job_id, never.job_id, ended.job_id, waiting.job_id]
    found = await yard.jobs.states(asked)
    assert [job and job.job_id for job in found] == [waiting.job_id, None, ended.job_id, waiting.job_id]
    assert await yard.jobs.states([]) == []


@pytest.mark.parametrize(
    "text", ["\x1e", "\x1e\x1e", "", 'a"b\\c', "line\r\nbreak\t\x01\x7f", "☂ \U0001f600", "\u2028"]
)
async def test_any_text_comes_back_as_it_was_sent(yard: Yard, text: str) -> None:
    worker = text or "w"
    (job,) = await yard.running(worker=worker, name=text, tags={text: text})
    beside = await yard.dead(text)
    found, dead = await yard.jobs.states([job.job_id, beside.job_id])
    assert found is not None
    assert dead is not None
    assert (found.worker, found.definition.name, found.definition.tags) == (worker, text, {text: text})
    assert dead.last_error == text
    assert [record.error for record in await yard.jobs.attempts(beside.job_id)] == [text]
