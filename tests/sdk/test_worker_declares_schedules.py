"""`@worker.cron` and `@worker.every`: what the server is told, when, and what becomes of the worker if it declines."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

import tocsin
from tests.sdk.stand_in import wait_until
from tocsin import wire
from tocsin.errors import UsageError


async def declared(server, worker, start, count=1):
    task = start(worker)
    await wait_until(lambda: len(server.schedules) == count and not worker.holding, "the schedules")
    assert not task.done()
    return server.schedules


async def test_a_schedule_is_declared_beside_its_handler(server, make_worker, start):
    worker = make_worker("books", "reports")

    @worker.cron(
        "0 2 * * *",
        time_zone="Asia/Kolkata",
        payload={"region": "IN"},
        missed_runs="run_all",
        overlap="forbid",
        retry=wire.RetryPolicy(max_attempts=2),
        timeout_s=60,
        end_at=datetime(2030, 1, 1, tzinfo=UTC),
    )
    @worker.task("books.close")
    async def close(payload):
        pass

    assert await declared(server, worker, start) == {
        "books.close": {
            "cron": "0 2 * * *",
            "time_zone": "Asia/Kolkata",
            "job_template": {
                "queue": "books",
                "target": {"type": "task", "handler": "books.close", "timeout_s": 60},
                "payload": {"region": "IN"},
                "retry": {"max_attempts": 2},
            },
            "missed_runs": {"policy": "run_all"},
            "overlap": "forbid",
            "end_at": "2030-01-01T00:00:00Z",
        }
    }


async def test_the_decorators_may_stand_in_any_order(server, make_worker, start):
    worker = make_worker()

    @worker.task("close")
    @worker.cron("0 2 * * *")
    @worker.every(timedelta(minutes=5), name="close too", queue="other")
    async def close(payload):
        pass

    assert worker.handlers == ["close"]
    told = await declared(server, worker, start, 2)
    assert told["close"]["job_template"] == {"queue": "q", "target": {"type": "task", "handler": "close"}}
    assert told["close too"] == {
        "every_s": 300.0,
        "job_template": {"queue": "other", "target": {"type": "task", "handler": "close"}},
    }


@pytest.mark.parametrize(
    ("name", "schedule", "handler"),
    [
        (None, "q.tidy", "q.tidy"),
        ("nightly.tidy", "nightly.tidy", "nightly.tidy"),
        ("Tidy up, nightly", "Tidy up, nightly", "q.tidy"),
    ],
)
async def test_alone_it_registers_the_handler_as_well(server, make_worker, start, name, schedule, handler):
    worker = make_worker()
    ran = []

    @worker.cron("@daily", name=name)
    def tidy(payload):
        ran.append(payload)

    assert worker.handlers == [handler]
    told = await declared(server, worker, start)
    assert told[schedule]["job_template"]["target"]["handler"] == handler
    job = server.add(handler, 5)
    await wait_until(lambda: job.status == "SUCCEEDED", "the job")
    assert ran == [5]


async def test_two_schedules_alone_on_a_function_share_its_handler(server, make_worker, start):
    worker = make_worker()

    @worker.cron("0 8 * * sat,sun", name="late")
    @worker.cron("0 6 * * mon-fri", name="early")
    def wake(payload):
        pass

    assert worker.handlers == ["early"]
    told = await declared(server, worker, start, 2)
    assert {each["job_template"]["target"]["handler"] for each in told.values()} == {"early"}


async def test_a_method_can_have_a_schedule(server, make_worker, start):
    class Books:
        async def close(self, payload):
            pass

    books, worker = Books(), make_worker()
    worker.task("books.close")(books.close)
    worker.cron("@daily")(books.close)
    assert list(await declared(server, worker, start)) == ["books.close"]
    assert worker.handlers == ["books.close"]


async def test_while_the_server_is_away_other_work_goes_on_and_the_schedule_follows(
    server, make_worker, start, clock, caplog
):
    caplog.set_level(logging.INFO)
    worker = make_worker()
    server.fault["declare"] = "proxy"

    @worker.cron("@daily", name="tidy")
    async def tidy(payload):
        pass

    job = server.add("tidy")
    task = start(worker)
    await wait_until(lambda: job.status == "SUCCEEDED", "the job")
    for _ in range(60):
        clock.advance(1)
        await asyncio.sleep(0.001)
    assert server.schedules == {}
    assert 5 <= server.count("by-name/tidy") <= 40, "pauses grow"
    assert "the schedule 'tidy' is not declared yet" in caplog.text
    server.fault.clear()
    for _ in range(20):
        clock.advance(1)
        await asyncio.sleep(0.001)
    await wait_until(lambda: list(server.schedules) == ["tidy"], "the declaration")
    assert "the schedule 'tidy' is made: next run at 2026-12-05T20:30:00Z" in caplog.text
    assert not task.done()


async def test_a_lost_answer_is_asked_for_again(server, make_worker, start, clock):
    worker = make_worker()
    worker.cron("@daily", name="tidy")(lambda payload: None)
    server.lose_answers_of.add("declare")
    start(worker)
    await wait_until(lambda: server.count("by-name/tidy") == 1, "the first try")
    assert worker.holding
    clock.advance(1)
    await wait_until(lambda: server.count("by-name/tidy") == 2 and not worker.holding, "the second")


async def test_a_schedule_that_is_declined_ends_the_worker_with_its_name_and_the_reason(
    server, make_worker, start, caplog
):
    worker = make_worker()
    server.fault["declare"] = "invalid"

    @worker.cron("0 25 * * *")
    async def tidy(payload):
        pass

    with pytest.raises(tocsin.Refused) as refused:
        await asyncio.wait_for(start(worker), 5)
    assert refused.value.status == 422
    assert "the schedule 'q.tidy' (@worker.cron on " in refused.value.detail
    assert "as the test asked" in refused.value.detail
    assert "the worker ends: 422" in caplog.text
    assert not worker.holding


async def test_a_token_that_may_not_declare_is_told_which_scope_it_needs(server, make_worker, start):
    worker = make_worker()
    server.fault["declare"] = "forbidden"
    worker.every(60, name="tidy", queue="books")(lambda payload: None)
    with pytest.raises(tocsin.Refused, match=r"needs the scope write or work:books") as refused:
        await asyncio.wait_for(start(worker), 5)
    assert refused.value.status == 403


async def test_what_runs_may_end_when_a_schedule_is_declined(server, make_worker, start, clock):
    worker = make_worker()
    server.fault["declare"] = "proxy"
    going_on, end = asyncio.Event(), asyncio.Event()

    @worker.cron("@daily", name="tidy")
    async def tidy(payload):
        going_on.set()
        await end.wait()

    job = server.add("tidy")
    task = start(worker)
    await going_on.wait()
    server.fault["declare"] = "invalid"
    clock.advance(1)
    await wait_until(lambda: not worker.holding or not worker.connected, "the worker to drain")
    assert job.status == "RUNNING"
    end.set()
    with pytest.raises(tocsin.Refused, match="422"):
        await asyncio.wait_for(task, 5)
    assert job.status == "SUCCEEDED"


async def test_a_stop_does_not_wait_for_a_server_that_is_away(server, make_worker, start):
    worker = make_worker()
    server.fault["declare"] = "silent"
    worker.cron("@daily", name="tidy")(lambda payload: None)
    task = start(worker)
    await wait_until(lambda: server.count("by-name/tidy") == 1, "the request")
    await asyncio.wait_for(worker.stop(), 5)
    await task
    assert not worker.holding


async def test_a_worker_that_was_stopped_before_it_began_declares_nothing_more(server, make_worker):
    worker = make_worker()
    worker.cron("@daily", name="tidy")(lambda payload: None)
    worker.ask_to_stop()
    await asyncio.wait_for(worker.serve(), 5)
    assert not worker.holding


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda worker: worker.cron("@daily", tz="UTC")(print), "tz is not an argument of @worker.cron"),
        (lambda worker: worker.cron("@daily", handler="x")(print), "handler is not an argument of @worker.cron"),
        (lambda worker: worker.every(5, paused=True)(print), "paused is not an argument of @worker.every"),
        (lambda worker: worker.cron("@daily")(partial(print, 1)), "name its handler with @worker.task"),
        (lambda worker: worker.cron("@daily")(lambda payload: None), "not a handler's name"),
        (lambda worker: worker.cron("@daily", name="n")(lambda: None), r"callable as handler\(payload\)"),
        (lambda worker: worker.cron("@daily", start_at=datetime(2030, 1, 1))(_f), "start_at=.* is not an instant"),  # noqa: DTZ001
        (lambda worker: worker.cron("@daily")(worker.every(5)(_f)), "would both be the schedule 'q._f'"),
        (lambda worker: worker.cron("@daily")(worker.task("a")(worker.task("b")(_f))), "registered as b and a"),
    ],
)
async def test_a_wrong_declaration_is_told_at_the_start_at_the_latest(make_worker, declare, said):
    worker = make_worker()

    async def begin():
        declare(worker)
        await worker.serve()

    with pytest.raises(UsageError, match=said):
        await begin()


async def test_a_schedule_cannot_be_declared_while_the_worker_runs(server, make_worker, start):
    worker = make_worker()
    worker.cron("@daily", name="tidy")(lambda payload: None)
    await declared(server, worker, start)
    with pytest.raises(UsageError, match="after the worker was started"):
        worker.cron("@hourly", name="more")(lambda payload: None)


def _f(payload):
    pass
