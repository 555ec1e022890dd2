"""A move in the store without transactions: cut anywhere, it is nothing or it is paid in full by whoever comes next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from msgspec import structs

from tests.conformance.yard import PARTITIONS, START, Yard, due, fired, skip, step
from tests.life.disk import Crashed, Disk, Fault
from tests.life.stepstore import StepStore
from tocsin.clock import ManualClock
from tocsin.errors import StoreUnavailable
from tocsin.model.partition import partition_of
from tocsin.store.port import Change, NewJob
from tocsin.store.schedules import Move, Moved, ScheduleFilter, ScheduleRow
from tocsin.wire import Status

MINUTE_MS = 60_000
MOST_POINTS = 60


class Place:
    """A disk, and processes that come and go on it."""

    def __init__(self) -> None:
        self.clock, self.disk = ManualClock(START), Disk()

    def boot(self, *, yielding: bool = False) -> tuple[Yard, Fault]:
        fault = Fault()
        return Yard(StepStore(self.disk, self.clock, PARTITIONS, fault, yielding=yielding), self.clock), fault


async def rich(yard: Yard) -> tuple[ScheduleRow, NewJob, NewJob, NewJob, Move]:
    """A schedule with two waiting jobs and a move that fires one, skips the other, makes a third and records why."""
    row, first = await yard.begun()
    second, third = yard.occurrence(row, 1_000), yard.occurrence(row, MINUTE_MS)
    await yard.jobs.create([second])
    waits = await yard.state(second.job_id)
    ended = replace(waits, status=Status.SKIPPED, finished_at=yard.now, last_error="overlap")
    move = structs.replace(
        fired(row, first, third, state="moved", look_at=yard.now - 1),
        changes=(Change(before=waits, after=ended),),
        skips=(skip(row, second.fire_at, "overlap"),),
    )
    return row, first, second, third, move


READERS: dict[str, Callable[[Yard, ScheduleRow, NewJob], Awaitable[object]]] = {
    "get": lambda yard, row, _: yard.schedules.get([row.schedule_id]),
    "named": lambda yard, row, _: yard.schedules.named("acme", [row.name]),
    "of_jobs": lambda yard, _, job: yard.schedules.of_jobs([job.job_id]),
    "list": lambda yard, _, __: yard.schedules.list_schedules(ScheduleFilter(tenant="acme"), None, 9),
    "overdue": lambda yard, row, _: yard.schedules.overdue(
        [partition_of(row.schedule_id, PARTITIONS)], yard.now + 1, 9
    ),
    "walk": lambda yard, row, _: yard.schedules.walk(partition_of(row.schedule_id, PARTITIONS), "", 9),
    "going": lambda yard, row, _: yard.schedules.going([row.schedule_id]),
    "waiting": lambda yard, row, _: yard.schedules.waiting(row.schedule_id),
    "skips": lambda yard, row, _: yard.schedules.skips(row.schedule_id, None, 9),
    "next move": lambda yard, row, _: yard.move(Move(schedule_id=row.schedule_id, serial=9, after=step(row))),
}


@pytest.mark.parametrize("reader", READERS)
async def test_a_cut_move_is_nothing_or_is_paid_by_whoever_comes_next(reader: str) -> None:
    outcomes = set()
    for point in range(MOST_POINTS):
        place = Place()
        yard, fault = place.boot()
        row, first, second, third, move = await rich(yard)
        fault.after(point)
        try:
            await yard.move(move)
        except Crashed:
            pass
        else:
            assert point > 12, "it has more points than that"
            break
        yard, _ = place.boot()
        await READERS[reader](yard, row, first)
        wrote = next(iter(place.disk.schedules.values()))
        assert wrote.row is not None
        assert wrote.owes is None
        moved = wrote.row.serial == 2
        outcomes.add(moved)
        states = await yard.jobs.states([first.job_id, second.job_id, third.job_id])
        if moved:
            assert [job and job.status for job in states] == [Status.QUEUED, Status.SKIPPED, Status.SCHEDULED]
            assert await yard.schedules.skips(row.schedule_id, None, 9) == list(move.skips)
        else:
            assert [job and job.status for job in states] == [Status.SCHEDULED, Status.SCHEDULED, None]
            assert await yard.schedules.skips(row.schedule_id, None, 9) == []
        expected = [step(row, state="moved", look_at=yard.now - 1)] if moved else [row]
        assert await yard.schedules.get([row.schedule_id]) == expected
        assert await yard.move(move) is (Moved.LOST if moved else Moved.WON)
        timed = {timer.job_id for timer in await yard.timers()}
        assert timed == {first.job_id, second.job_id, third.job_id}
    else:
        raise AssertionError("the move never came to its end")
    assert outcomes == {False, True}


@pytest.mark.parametrize("reader", ["get", "named", "walk", "skips"])
async def test_a_cut_deletion_is_nothing_or_is_ended_by_whoever_comes_next(reader: str) -> None:
    for point in range(MOST_POINTS):
        place = Place()
        yard, fault = place.boot()
        row, job = await yard.begun()
        await yard.schedules.add_skips([skip(row, 1)])
        waits = await yard.state(job.job_id)
        ended = replace(waits, status=Status.CANCELLED, finished_at=yard.now)
        change = Change(before=waits, after=ended)
        move = Move(schedule_id=row.schedule_id, serial=1, after=None, changes=(change,))
        fault.after(point)
        try:
            await yard.move(move)
        except Crashed:
            pass
        else:
            break
        yard, _ = place.boot()
        await READERS[reader](yard, row, job)
        gone = await yard.schedules.get([row.schedule_id]) == [None]
        assert bool(place.disk.schedules) != gone
        assert await yard.status(job.job_id) is (Status.CANCELLED if gone else Status.SCHEDULED)
        assert len(await yard.schedules.skips(row.schedule_id, None, 9)) == (not gone)
        if gone:
            again, _ = await yard.begun()
            assert await yard.schedules.named("acme", [row.name]) == [again]
    else:
        raise AssertionError("the move never came to its end")


async def test_a_store_that_fails_in_a_move_ends_it_later() -> None:
    yard, fault = Place().boot()
    row, first, _, third, move = await rich(yard)
    fault.at("after schedules put", StoreUnavailable("once"))
    with pytest.raises(StoreUnavailable):
        await yard.move(move)
    assert await yard.status(first.job_id) is Status.SCHEDULED
    assert await yard.move(move) is Moved.LOST
    assert await yard.status(first.job_id) is Status.QUEUED
    assert await yard.status(third.job_id) is Status.SCHEDULED
    assert (await yard.row(row.schedule_id)).serial == 2


async def test_movers_and_readers_at_once_pay_once() -> None:
    place = Place()
    yard, _ = place.boot(yielding=True)
    row, first, second, third, move = await rich(yard)
    others = [structs.replace(move, after=step(row, state=f"{number}")) for number in range(5)]
    reads = [READERS[name](yard, row, first) for name in READERS if name != "next move"]
    answers = await asyncio.gather(*(yard.move(one) for one in [move, *others]), *reads)
    assert answers[:6].count(Moved.WON) == 1
    assert set(answers[:6]) == {Moved.WON, Moved.LOST}
    states = await yard.jobs.states([first.job_id, second.job_id, third.job_id])
    assert [job and job.status for job in states] == [Status.QUEUED, Status.SKIPPED, Status.SCHEDULED]


async def test_a_slow_payer_undoes_nothing_that_came_after() -> None:
    """One process pays an edit of the waiting job, another pays it too and goes on; the first wakes up late."""
    place = Place()
    yard, _ = place.boot(yielding=True)
    row, job = await yard.begun(at_in_ms=MINUTE_MS)
    read = await yard.state(job.job_id)
    texts = ["one", "two", "three"]
    for number, text in enumerate(texts):
        before = await yard.state(job.job_id)
        after = replace(before, definition=structs.replace(before.definition, name=text))
        longer = skip(row, 1, last=10 + number, count=10 + number)
        move = Move(
            schedule_id=row.schedule_id,
            serial=1 + number,
            after=step(await yard.row(row.schedule_id)),
            changes=(Change(before=before, after=after),),
            skips=(longer,),
        )
        slow = [asyncio.ensure_future(READERS["get"](yard, row, job)) for _ in range(4)]
        assert await yard.move(move) is Moved.WON
        slow += [asyncio.ensure_future(READERS["skips"](yard, row, job)) for _ in range(4)]
        if number == len(texts) - 1:
            await asyncio.gather(*slow)
    found = await yard.state(job.job_id)
    assert (found.definition.name, found.version) == ("three", read.version)
    assert [one.last for one in await yard.schedules.skips(row.schedule_id, None, 9)] == [12]


@pytest.mark.parametrize("point", ["after jobs put", "before skips put", "after skips put", "after finished put"])
async def test_a_cut_expiry_leaves_its_skip_in_the_end(point: str) -> None:
    place = Place()
    yard, fault = place.boot()
    row = yard.schedule()
    job = yard.occurrence(row, expires_in_ms=1_000)
    await yard.move(Move(schedule_id=row.schedule_id, serial=0, after=row, jobs=(job,)))
    place.clock.advance(2)
    fault.at(point)
    with pytest.raises(Crashed):
        await yard.jobs.fire([due(job)])
    yard, _ = place.boot()
    await yard.jobs.end_moves([job.job_id])
    assert await yard.status(job.job_id) is Status.SKIPPED
    assert [one.first for one in await yard.schedules.skips(row.schedule_id, None, 9)] == [job.fire_at]
