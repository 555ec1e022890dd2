"""Recurring work that could not run at its time: while the last run goes on, after an outage, and long ago."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import tocsin
import tocsin.testing
from tests.guide.conftest import NOON


async def test_runs_may_go_on_beside_one_another(server, client):
    await client.schedules.create("hourly", cron="@hourly", queue="billing", handler="slow")
    await server.advance(hours=2)
    both = await client.queues.claim("billing", worker="by hand", max=10)
    assert [job.run_at[11:16] for job in both] == ["13:00", "14:00"]


async def test_with_forbid_a_run_is_left_out_while_the_last_one_goes_on(server, client):
    schedule = await client.schedules.create(
        "hourly", cron="@hourly", queue="billing", handler="slow", overlap="forbid", timeout_s=7200
    )
    await server.advance(hours=1)
    (running,) = await client.queues.claim("billing", worker="by hand", lease_s=600)
    for _ in range(8):
        await server.advance(minutes=9)
        await client.attempts.heartbeat(running.lease_token)
    assert await client.queues.claim("billing", worker="by hand") == []
    await client.attempts.complete(running.lease_token, "succeeded")
    await server.advance(hours=1)
    assert len(await client.queues.claim("billing", worker="by hand", max=10)) == 1
    (skip,) = [skip async for skip in client.schedules.skips(schedule.schedule_id)]
    assert (skip.reason, skip.count, skip.from_) == ("overlap", 1, "2030-03-17T14:00:00Z")


async def test_with_replace_the_last_run_is_asked_to_stop_and_the_new_one_follows(server, client):
    await client.schedules.create(
        "hourly", cron="@hourly", queue="billing", handler="slow", overlap="replace", timeout_s=7200
    )
    await server.advance(hours=1)
    (running,) = await client.queues.claim("billing", worker="by hand", lease_s=600)
    for _ in range(7):
        await server.advance(minutes=9)
        beat = await client.attempts.heartbeat(running.lease_token)
    assert beat.cancel_requested
    assert await client.queues.claim("billing", worker="by hand") == []
    assert await client.attempts.complete(running.lease_token, "cancelled") == "CANCELLED"
    await server.advance()
    (next_one,) = await client.queues.claim("billing", worker="by hand", max=10)
    assert next_one.run_at == "2030-03-17T14:00:00Z"


async def run_over_an_outage(folder, **rules):
    """An hourly schedule, and a server that is away from half past twelve to a quarter to five; what ran when, and the skips."""
    ran: list[tuple[str, datetime]] = []
    async with tocsin.testing.server(start=NOON, data=folder, token="tcs_guide") as server:
        schedule = await server.client.schedules.create(
            "hourly", cron="@hourly", queue="billing", handler="note", **rules
        )
        await server.advance(minutes=30)
    back = NOON + timedelta(hours=4, minutes=45)
    async with tocsin.testing.server(start=back, data=folder, token="tcs_guide") as server:
        worker = tocsin.Worker("billing", transport=server.transport())

        @worker.task("note")
        async def note(payload, ctx):
            ran.append((ctx.job.run_at, server.now))

        async with server.running(worker):
            await server.advance(minutes=10)
        skips = [skip async for skip in server.client.schedules.skips(schedule.schedule_id)]
    assert all(back <= time <= back + timedelta(minutes=10) for _, time in ran)
    return [run_at[11:16] for run_at, _ in ran], [(skip.reason, skip.count) for skip in skips]


async def test_after_an_outage_the_newest_missed_run_is_made_up_for(tmp_path):
    ran, skips = await run_over_an_outage(tmp_path)
    assert ran == ["16:00"]
    assert skips == [("missed", 3)]


async def test_or_all_of_them_one_after_another(tmp_path):
    ran, skips = await run_over_an_outage(tmp_path, missed_runs="run_all")
    assert ran == ["13:00", "14:00", "15:00", "16:00"]
    assert skips == []


async def test_or_none(tmp_path):
    ran, skips = await run_over_an_outage(tmp_path, missed_runs="skip")
    assert ran == []
    assert sum(count for _, count in skips) == 4


async def test_a_past_stretch_can_be_run(server, client, worker_of):
    filled = []

    async def note(payload, ctx):
        filled.append(ctx.job.run_at[:10])

    schedule = await client.schedules.create("nightly", cron="@daily", queue="billing", handler="note")
    start = datetime(2030, 3, 1, tzinfo=UTC)
    answer = await client.schedules.backfill(schedule.schedule_id, start, start + timedelta(days=3))
    assert answer.count == 3
    async with server.running(worker_of(note=note)):
        await server.advance(minutes=5)
    jobs = [job async for job in client.schedules.jobs(schedule.schedule_id) if job.origin == "backfill"]
    assert sorted(job.occurrence_at for job in jobs) == [f"2030-03-0{day}T00:00:00Z" for day in (1, 2, 3)]
    assert {job.status for job in jobs} == {"SUCCEEDED"}
    assert filled == ["2030-03-01", "2030-03-02", "2030-03-03"], "the oldest first, and each knows which day it is for"
