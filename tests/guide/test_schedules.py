"""Recurring work: when it runs, also on odd nights, how it is declared, and who may stop it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

import tocsin
from tests.guide.conftest import NOON

KOLKATA = timezone(timedelta(hours=5, minutes=30))


@pytest.fixture
def starts(server):
    """The instants at which the handler `note` ran, and the handler."""
    times: list[datetime] = []

    async def note(payload):
        times.append(server.now)

    return times, note


async def test_a_schedule_runs_at_its_local_time(server, client, worker_of, starts):
    times, note = starts
    schedule = await client.schedules.create(
        "nightly", cron="0 2 * * *", time_zone="Asia/Kolkata", queue="billing", handler="note"
    )
    assert schedule.status == "active"
    assert schedule.next_run_at == "2030-03-17T20:30:00Z"
    async with server.running(worker_of(note=note)):
        await server.advance(days=3)
    at_two = [datetime(2030, 3, day, 2, 0, tzinfo=KOLKATA) for day in (18, 19, 20)]
    assert times == at_two


async def test_each_run_is_an_ordinary_job(server, client, worker_of):
    seen = []

    async def report(payload, ctx):
        seen.append((payload, ctx.attempt, ctx.job.schedule_id))
        if ctx.attempt == 1:
            raise RuntimeError("the printer is on fire")

    schedule = await client.schedules.create(
        "hourly", cron="@hourly", queue="billing", handler="report", payload={"of": "IN"}, job_name="report"
    )
    async with server.running(worker_of(report=report)):
        await server.advance(minutes=90)
    waiting, done = [job async for job in client.schedules.jobs(schedule.schedule_id)]
    assert (done.status, done.name, done.attempt, done.origin) == ("SUCCEEDED", "report", 2, "schedule")
    assert (done.schedule_id, done.occurrence_at) == (schedule.schedule_id, "2030-03-17T13:00:00Z")
    assert (waiting.status, waiting.occurrence_at) == ("SCHEDULED", "2030-03-17T14:00:00Z")
    assert seen == [({"of": "IN"}, 1, schedule.schedule_id), ({"of": "IN"}, 2, schedule.schedule_id)]


async def test_when_it_would_run_is_shown_before_there_is_a_schedule(client):
    seen = await client.schedules.preview(cron="0 2 * * mon-fri", time_zone="Asia/Kolkata", after=NOON, count=6)
    assert [run.local for run in seen.runs] == [
        f"2030-03-{day}T02:00:00+05:30" for day in ("18", "19", "20", "21", "22", "25")
    ]
    assert seen.runs[0].at == "2030-03-17T20:30:00Z"
    assert "02:00" in seen.explanation
    assert [schedule async for schedule in client.schedules.list()] == []


async def test_a_time_that_the_clocks_skip_runs_once_at_the_first_instant_after_it(server, client, worker_of, starts):
    times, note = starts
    # On 31 March 2030 Berlin goes from 02:00 to 03:00.
    schedule = await client.schedules.create(
        "half past two", cron="30 2 * * *", time_zone="Europe/Berlin", queue="billing", handler="note"
    )
    seen = await client.schedules.preview(
        cron="30 2 * * *", time_zone="Europe/Berlin", after=datetime(2030, 3, 30, 12, tzinfo=UTC), count=2
    )
    assert [(run.local, run.note) for run in seen.runs] == [
        ("2030-03-31T03:00:00+02:00", "gap"),
        ("2030-04-01T02:30:00+02:00", None),
    ]
    async with server.running(worker_of(note=note)):
        await server.advance(days=16)
    assert [time for time in times if time.day in (30, 31) or time.month == 4][:3] == [
        datetime(2030, 3, 30, 1, 30, tzinfo=UTC),
        datetime(2030, 3, 31, 1, 0, tzinfo=UTC),
        datetime(2030, 4, 1, 0, 30, tzinfo=UTC),
    ]
    assert [skip async for skip in client.schedules.skips(schedule.schedule_id)] == []


async def test_a_time_that_the_clocks_go_through_twice_runs_once(client):
    # On 27 October 2030 Berlin goes from 03:00 back to 02:00.
    eve = datetime(2030, 10, 26, 12, tzinfo=UTC)
    seen = await client.schedules.preview(cron="30 2 * * *", time_zone="Europe/Berlin", after=eve, count=2)
    assert [(run.local, run.note) for run in seen.runs] == [
        ("2030-10-27T02:30:00+02:00", "repeat"),
        ("2030-10-28T02:30:00+01:00", None),
    ]


async def test_every_hour_means_every_hour_also_while_the_clocks_change(client):
    eve = datetime(2030, 10, 26, 23, 45, tzinfo=UTC)
    seen = await client.schedules.preview(cron="0 * * * *", time_zone="Europe/Berlin", after=eve, count=3)
    assert [run.local[11:] for run in seen.runs] == ["02:00:00+02:00", "02:00:00+01:00", "03:00:00+01:00"]


async def test_an_interval_is_elapsed_time(server, client, worker_of, starts):
    times, note = starts
    await client.schedules.create("often", every=timedelta(minutes=20), queue="billing", handler="note")
    async with server.running(worker_of(note=note)):
        await server.advance(hours=1)
    assert times == [NOON + timedelta(minutes=minutes) for minutes in (20, 40, 60)]


async def test_an_interval_can_be_anchored(server, client, worker_of, starts):
    times, note = starts
    anchor = NOON - timedelta(days=1, minutes=5)
    await client.schedules.create("often", every=1200, anchor=anchor, queue="billing", handler="note")
    async with server.running(worker_of(note=note)):
        await server.advance(hours=1)
    assert times == [NOON + timedelta(minutes=minutes) for minutes in (15, 35, 55)]


async def test_the_same_definition_again_changes_nothing(client):
    definition = {"cron": "0 2 * * *", "queue": "billing", "handler": "note", "payload": {"a": 1}}
    first = await client.schedules.upsert("nightly", **definition)
    again = await client.schedules.upsert("nightly", **definition)
    assert (first.made, again.made) == (True, False)
    assert (again.schedule_id, again.revision) == (first.schedule_id, first.revision)
    other = await client.schedules.upsert("nightly", **{**definition, "payload": {"a": 2}})
    assert other.schedule_id == first.schedule_id
    assert other.revision > first.revision


async def test_a_name_is_taken_once(client):
    first = await client.schedules.create("nightly", cron="@daily", queue="billing", handler="note")
    with pytest.raises(tocsin.Refused) as refused:
        await client.schedules.create("nightly", cron="@hourly", queue="billing", handler="note")
    assert (refused.value.status, refused.value.extra["schedule_id"]) == (409, first.schedule_id)
    assert (await client.schedules.get_by_name("nightly")).cron == "@daily"


async def test_a_worker_declares_the_schedule_beside_its_handler(server, client):
    ran = []

    def make_worker(name):
        worker = tocsin.Worker("billing", transport=server.transport(), name=name)

        @worker.cron("0 * * * *", payload="books")
        @worker.task("billing.close")
        async def close(payload, ctx):
            ran.append((payload, server.now))

        return worker

    async with server.running(make_worker("one"), make_worker("two")):
        (schedule,) = [each async for each in client.schedules.list()]
        await server.advance(hours=2)
    async with server.running(make_worker("one, restarted")):
        (again,) = [each async for each in client.schedules.list()]
    assert (schedule.name, schedule.cron) == ("billing.close", "0 * * * *")
    assert (again.schedule_id, again.revision) == (schedule.schedule_id, schedule.revision)
    assert ran == [("books", NOON + timedelta(hours=1)), ("books", NOON + timedelta(hours=2))]


async def test_a_worker_that_declares_every_so_often_needs_no_more(server, client):
    ran = []
    worker = tocsin.Worker("billing", transport=server.transport())

    @worker.every(600)
    async def refresh(payload):
        ran.append(server.now)

    async with server.running(worker):
        await server.advance(minutes=30)
    assert [(time - NOON).total_seconds() for time in ran] == [600, 1200, 1800]
    assert (await client.schedules.get_by_name("billing.refresh")).runs == 3


async def test_a_declaration_that_is_wrong_ends_the_worker_with_the_field_and_the_reason(server):
    worker = tocsin.Worker("billing", transport=server.transport())
    worker.cron("0 25 * * *", name="wrong")(lambda payload: None)
    with pytest.raises(tocsin.Refused, match="the schedule 'wrong'") as refused:
        await worker.serve()
    assert refused.value.status == 422
    assert refused.value.errors[0][0] == "/cron"
    assert "hour" in refused.value.errors[0][1]


async def test_a_worker_may_declare_schedules_of_the_queue_that_it_works_for(server):
    token = await server.client.tokens.create("dev", name="worker", scopes=["work:billing"])

    async def declare(queue):
        worker = tocsin.Worker("billing", transport=server.transport(token.token))
        worker.cron("@daily", name="nightly", queue=queue)(lambda payload: None)
        async with server.running(worker):
            pass

    await declare("billing")
    with pytest.raises(tocsin.Refused, match="write or work:reports") as refused:
        await declare("reports")
    assert refused.value.status == 403


async def test_a_paused_schedule_starts_nothing_and_says_what_it_left_out(server, client, worker_of, starts):
    times, note = starts
    schedule = await client.schedules.create("hourly", cron="@hourly", queue="billing", handler="note")
    async with server.running(worker_of(note=note)):
        paused = await client.schedules.pause(schedule.schedule_id, note="month end")
        assert (paused.status, paused.pause_note) == ("paused", "month end")
        await server.advance(hours=2, minutes=30)
        assert times == []
        resumed = await client.schedules.resume(schedule.schedule_id)
        assert (resumed.status, resumed.pause_note) == ("active", None)
        await server.advance(hours=1)
    assert times == [NOON + timedelta(hours=3)]
    (skip,) = [skip async for skip in client.schedules.skips(schedule.schedule_id)]
    assert (skip.reason, skip.count) == ("paused", 2)
    assert (skip.from_, skip.to) == ("2030-03-17T13:00:00Z", "2030-03-17T14:00:00Z")


async def test_a_pause_of_a_schedule_can_end_by_itself(server, client, worker_of, starts):
    times, note = starts
    schedule = await client.schedules.create("hourly", cron="@hourly", queue="billing", handler="note")
    await client.schedules.pause(schedule.schedule_id, until=NOON + timedelta(hours=2, minutes=30))
    async with server.running(worker_of(note=note)):
        await server.advance(hours=4)
    assert times == [NOON + timedelta(hours=3), NOON + timedelta(hours=4)]


async def test_a_declaration_undoes_nobodys_pause(client):
    definition = {"cron": "@hourly", "queue": "billing", "handler": "note"}
    schedule = await client.schedules.upsert("hourly", **definition)
    await client.schedules.pause(schedule.schedule_id, note="leave it")
    again = await client.schedules.upsert("hourly", **definition)
    assert (again.paused, again.pause_note) == (True, "leave it")


async def test_the_next_run_can_be_left_out(server, client, worker_of, starts):
    times, note = starts
    schedule = await client.schedules.create("hourly", cron="@hourly", queue="billing", handler="note")
    await client.schedules.skip_next(schedule.schedule_id)
    after = await client.schedules.skip_next(schedule.schedule_id)
    assert after.next_run_at == "2030-03-17T15:00:00Z"
    async with server.running(worker_of(note=note)):
        await server.advance(hours=3)
    assert times == [NOON + timedelta(hours=3)]
    skips = [skip async for skip in client.schedules.skips(schedule.schedule_id)]
    assert sum(skip.count for skip in skips) == 2
    assert {skip.reason for skip in skips} == {"skipped_by_user"}


async def test_cancelling_the_waiting_job_leaves_out_that_run_alone(server, client, worker_of, starts):
    times, note = starts
    schedule = await client.schedules.create("hourly", cron="@hourly", queue="billing", handler="note")
    (waiting,) = [job async for job in client.schedules.jobs(schedule.schedule_id)]
    await client.jobs.cancel(waiting.job_id)
    async with server.running(worker_of(note=note)):
        await server.advance(hours=2)
    assert times == [NOON + timedelta(hours=2)]


async def test_the_waiting_job_cannot_be_moved(client):
    schedule = await client.schedules.create("hourly", cron="@hourly", queue="billing", handler="note")
    (waiting,) = [job async for job in client.schedules.jobs(schedule.schedule_id)]
    with pytest.raises(tocsin.Refused) as refused:
        await client.jobs.patch(waiting.job_id, delay=60)
    assert refused.value.status == 409


async def test_it_can_be_run_by_hand_also_while_it_is_paused(server, client, worker_of):
    given = []

    async def note(payload):
        given.append((payload, server.now))

    schedule = await client.schedules.create(
        "nightly", cron="@daily", queue="billing", handler="note", payload="of the plan"
    )
    await client.schedules.pause(schedule.schedule_id)
    async with server.running(worker_of(note=note)):
        first = await client.schedules.trigger(schedule.schedule_id)
        again = await client.schedules.trigger(schedule.schedule_id, payload="by hand", idempotency_key="k")
        await server.advance(seconds=1)
        assert (await client.schedules.trigger(schedule.schedule_id, payload="by hand", idempotency_key="k")).replayed
    assert first.origin == again.origin == "manual"
    assert given == [("of the plan", NOON), ("by hand", NOON)]


async def test_a_changed_time_holds_from_then_on(server, client, worker_of, starts):
    times, note = starts
    schedule = await client.schedules.create("nightly", cron="0 13 * * *", queue="billing", handler="note")
    changed = await client.schedules.update(schedule.schedule_id, cron="30 14 * * *", if_match=schedule.revision)
    assert changed.next_run_at == "2030-03-17T14:30:00Z"
    async with server.running(worker_of(note=note)):
        await server.advance(hours=12)
    assert times == [NOON + timedelta(hours=2, minutes=30)]
    assert [skip async for skip in client.schedules.skips(schedule.schedule_id)] == []
    with pytest.raises(tocsin.Refused) as refused:
        await client.schedules.update(schedule.schedule_id, cron="@daily", if_match=schedule.revision)
    assert refused.value.status == 412


async def test_a_schedule_ends_after_so_many_runs_or_at_an_instant(server, client, worker_of, starts):
    times, note = starts
    counted = await client.schedules.create("twice", cron="@hourly", queue="billing", handler="note", max_runs=2)
    dated = await client.schedules.create(
        "until three", cron="30 * * * *", queue="billing", handler="note", end_at=NOON + timedelta(hours=2)
    )
    async with server.running(worker_of(note=note)):
        await server.advance(hours=6)
    assert sorted((time - NOON).total_seconds() / 3600 for time in times) == [0.5, 1, 1.5, 2]
    for schedule in (counted, dated):
        ended = await client.schedules.get(schedule.schedule_id)
        assert (ended.status, ended.runs, ended.next_run_at) == ("finished", 2, None)


async def test_a_deleted_schedule_runs_no_more_and_its_name_is_free(server, client, worker_of, starts):
    times, note = starts
    schedule = await client.schedules.create("hourly", cron="@hourly", queue="billing", handler="note")
    (waiting,) = [job async for job in client.schedules.jobs(schedule.schedule_id)]
    await client.schedules.delete(schedule.schedule_id)
    async with server.running(worker_of(note=note)):
        await server.advance(hours=3)
    assert times == []
    assert (await client.jobs.get(waiting.job_id)).status == "CANCELLED"
    with pytest.raises(tocsin.Refused) as refused:
        await client.schedules.get(schedule.schedule_id)
    assert refused.value.status == 404
    again = await client.schedules.create("hourly", cron="@hourly", queue="billing", handler="note")
    assert again.schedule_id != schedule.schedule_id


@pytest.mark.parametrize(
    ("definition", "field", "said"),
    [
        ({"cron": "0 25 * * *"}, "/cron", "hour"),
        ({"cron": "0 0 31 2 *"}, "/cron", ""),
        ({"cron": "0 2 * *"}, "/cron", ""),
        ({"cron": "0 2 * * *", "time_zone": "Mars/Olympus"}, "/time_zone", "Mars/Olympus"),
        ({"cron": "0 2 * * *", "time_zone": "+05:30"}, "/time_zone", ""),
        ({"every": 0}, "/every_s", ""),
        ({"cron": "@daily", "every": 60}, "", ""),
        ({}, "", ""),
        ({"cron": "@daily", "start_at": NOON, "end_at": NOON - timedelta(days=1)}, "/end_at", ""),
        ({"cron": "@daily", "url": "ftp://example.com"}, "/job_template/target/url", ""),
    ],
)
async def test_a_definition_that_cannot_be_is_refused_with_the_field_and_the_reason(client, definition, field, said):
    aim = {} if "url" in definition else {"handler": "note"}
    with pytest.raises(tocsin.Refused) as refused:
        await client.schedules.create("wrong", queue="billing", **aim, **definition)
    assert refused.value.status == 422
    pointer, detail = refused.value.errors[0]
    assert pointer.startswith(field)
    assert said in detail
