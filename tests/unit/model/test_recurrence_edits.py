"""What becomes of occurrences when somebody steps in: pauses, edits, skips and early starts, other zone data, repairs."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tests.unit.model.ledger import DAY, HOUR, T0, Ledger, spec
from tests.unit.model.test_recurrence import hour
from tocsin.model.recurrence import Step, begin
from tocsin.model.schedule import plan_of
from tocsin.model.zones import Zones
from tocsin.wire import Status

# --- pause ------------------------------------------------------------------------------------------------------------


def test_what_a_pause_takes_out_is_one_skip_when_it_ends():
    kept = Ledger(spec())
    kept.until(hour(1))
    kept.pause()
    (waiting,) = [job for job in kept.jobs.values() if job.at == hour(2)]
    assert (kept.status, kept.next_hour, waiting.status) == ("paused", None, Status.SKIPPED)
    kept.until(hour(5.5))
    assert kept.skips == {}
    kept.resume()
    assert (kept.status, kept.next_hour, kept.shown()) == ("active", 6, [(2, 5, 4, "paused")])
    kept.until(hour(6))
    assert (kept.hours(), kept.counted) == ([1, 6], {"paused": 4})


def test_a_pause_that_takes_out_nothing_leaves_nothing():
    kept = Ledger(spec())
    kept.pause()
    kept.until(hour(0.5))
    kept.resume()
    assert (kept.next_hour, kept.skips) == (1, {})
    kept.until(hour(1))
    assert kept.hours() == [1]


def test_a_pause_with_an_end_makes_its_first_occurrence_at_once():
    kept = Ledger(spec())
    kept.pause(hour(3.5))
    assert (kept.status, kept.next_hour) == ("paused", 4)
    kept.until(hour(4))
    assert (kept.status, kept.hours(), kept.shown()) == ("active", [4], [(1, 3, 3, "paused")])


def test_a_pause_that_ends_at_an_occurrence_does_not_take_it_out():
    kept = Ledger(spec())
    kept.pause(hour(3))
    kept.until(hour(3))
    assert (kept.hours(), kept.shown()) == ([3], [(1, 2, 2, "paused")])


def test_a_pause_may_be_made_longer_and_shorter_and_without_end():
    kept = Ledger(spec())
    kept.pause(hour(3.5))
    kept.pause(hour(5.5))
    assert kept.next_hour == 6
    kept.pause(hour(2.5))
    assert kept.next_hour == 3
    kept.pause()
    assert kept.next_hour is None
    kept.until(hour(9.5))
    kept.resume()
    assert (kept.hours(), kept.shown(), kept.next_hour) == ([], [(1, 9, 9, "paused")], 10)


def test_a_pause_that_was_over_when_an_edit_came_is_over():
    kept = Ledger(spec())
    kept.pause(hour(3.25))
    kept.now = hour(3.5)
    kept.edit(overlap="forbid")
    assert (kept.status, kept.next_hour, kept.shown()) == ("active", 4, [(1, 3, 3, "paused")])


def test_an_outage_after_a_pause_is_no_pause():
    kept = Ledger(spec())
    kept.pause(hour(3.5))
    kept.jump(hour(6.5))
    assert (kept.hours(), kept.shown()) == ([6], [(1, 3, 3, "paused"), (4, 5, 2, "missed")])


def test_a_pause_takes_out_what_waits_and_lets_go_on_what_has_started():
    kept = Ledger(spec(missed="run_all"))
    kept.jump(hour(3.5))
    kept.until(hour(4))
    (first,) = kept.going()
    kept.pause()
    assert (kept.shown(), kept.state.runs) == ([(2, 4, 3, "paused")], 1)
    kept.end(first) if kept.jobs[first].status is Status.RUNNING else kept.run(first)
    kept.until(hour(6.5))
    kept.resume()
    assert (kept.hours(), kept.shown(), kept.next_hour) == ([1], [(2, 6, 5, "paused")], 7)


def test_paused_at_its_end_it_is_finished_when_it_goes_on():
    kept = Ledger(spec(end_at=hour(2)))
    kept.pause()
    kept.until(hour(4))
    kept.resume()
    assert (kept.status, kept.shown()) == ("finished", [(1, 2, 2, "paused")])


# --- skipped and started ahead of time --------------------------------------------------------------------------------


def test_each_skip_leaves_one_more_out():
    kept = Ledger(spec())
    for _ in range(3):
        kept.skip_next()
    assert (kept.next_hour, kept.shown()) == (4, [(1, 3, 3, "skipped_by_user")])
    kept.until(hour(5))
    assert (kept.hours(), kept.state.runs) == ([4, 5], 2)


def test_one_that_is_started_ahead_of_its_time_has_had_its_run():
    kept = Ledger(spec())
    kept.run_now()
    assert (kept.hours(), kept.next_hour, kept.state.runs) == ([1], 2, 1)
    kept.until(hour(2))
    assert kept.hours() == [1, 2]


@pytest.mark.parametrize("edit", [{"max_runs": 50}, {"end_at": hour(50)}, {"start_at": hour(0.5)}])
def test_what_was_skipped_stays_skipped_whatever_is_edited(edit):
    kept = Ledger(spec())
    kept.skip_next()
    kept.skip_next()
    kept.edit(**edit)
    assert kept.next_hour == 3


def test_what_was_skipped_stays_skipped_also_where_the_new_timing_has_it():
    kept = Ledger(spec())
    kept.skip_next()
    kept.run_now()
    kept.edit(cron="*/30 * * * *")
    kept.until(hour(3.5))
    assert [(at - T0) / HOUR for at in kept.fired] == [2, 0.5, 1.5, 2.5, 3, 3.5]
    assert kept.shown() == [(1, 1, 1, "skipped_by_user")]


def test_what_was_skipped_stays_skipped_after_a_pause():
    kept = Ledger(spec())
    kept.skip_next()
    kept.pause()
    kept.resume()
    assert (kept.next_hour, kept.shown()) == (2, [(1, 1, 1, "skipped_by_user")])


def test_one_that_is_skipped_at_the_end_of_a_pause_stays_skipped_when_that_ends_sooner():
    kept = Ledger(spec())
    kept.pause(hour(3.5))
    kept.skip_next()
    assert (kept.status, kept.next_hour) == ("paused", 5)
    kept.until(hour(2.5))
    kept.resume()
    kept.until(hour(6))
    assert kept.hours() == [3, 5, 6]
    assert kept.shown() == [(1, 2, 2, "paused"), (4, 4, 1, "skipped_by_user")]


def test_one_that_is_skipped_in_a_pause_that_is_made_longer_is_skipped_once():
    kept = Ledger(spec())
    kept.pause(hour(3.5))
    kept.skip_next()
    kept.pause(hour(6.5))
    kept.until(hour(7))
    assert kept.hours() == [7]
    assert kept.shown() == [(1, 3, 3, "paused"), (4, 4, 1, "skipped_by_user"), (5, 6, 2, "paused")]


def test_a_pause_outlives_a_skip_of_the_last_occurrence():
    kept = Ledger(spec(end_at=hour(4)))
    kept.pause(hour(3.5))
    kept.skip_next()
    assert (kept.status, kept.next_hour) == ("paused", None)
    kept.now = hour(3.5)
    kept.step(Step.end_pause)
    assert kept.status == "finished"
    assert kept.shown() == [(1, 3, 3, "paused"), (4, 4, 1, "skipped_by_user")]


def test_a_catch_up_passes_over_what_was_decided_ahead_of_time():
    kept = Ledger(spec(missed="run_all"))
    kept.skip_next()
    kept.skip_next()
    kept.edit(cron="*/30 * * * *")
    kept.jump(hour(2.75))
    while going := kept.going():
        kept.run(going[0])
        kept.end(going[0])
    assert [(at - T0) / HOUR for at in kept.fired] == [0.5, 1.5, 2.5]


# --- edits ------------------------------------------------------------------------------------------------------------


def test_an_edit_moves_the_occurrence_ahead_and_takes_the_old_job_back():
    kept = Ledger(spec())
    old = kept.state.job_id
    assert old is not None
    kept.edit(cron="30 * * * *")
    assert (kept.state.next_at, kept.jobs[old].status, kept.skips) == (hour(0.5), Status.CANCELLED, {})
    kept.until(hour(3))
    assert [(at - T0) / HOUR for at in kept.fired] == [0.5, 1.5, 2.5]


def test_what_was_due_before_an_edit_fires_as_it_was():
    kept = Ledger(spec())
    kept.now = hour(1)
    kept.edit(cron="30 * * * *")
    assert (kept.hours(), kept.state.next_at) == ([1], hour(1.5))


def test_an_edit_never_fires_what_its_timing_had_before_it():
    kept = Ledger(spec(cron="0 8 * * *"), now=T0 + 15 * HOUR)
    kept.edit(cron="0 7 * * *")
    assert (kept.fired, kept.next_hour) == ([], 31)


def test_an_edit_that_leaves_the_next_instant_keeps_its_job():
    kept = Ledger(spec())
    job_id = kept.state.job_id
    kept.edit(cron="0 */1 * * *")
    assert (kept.state.job_id, len(kept.jobs)) == (job_id, 1)


def test_what_is_due_inside_its_window_fires_beside_its_successor():
    kept = Ledger(spec(window_s=1800))
    assert kept.state.fire_at is not None
    assert kept.state.fire_at > hour(1)
    kept.now = hour(1)
    kept.edit(cron="30 * * * *")
    assert kept.state.next_at == hour(1.5)
    kept.until(hour(1.4))
    assert (kept.hours(), kept.state.runs) == ([1], 1)


def test_an_edit_in_a_pause_ends_the_range_and_begins_another():
    kept = Ledger(spec())
    kept.pause()
    kept.now = hour(2.5)
    kept.edit(cron="15 * * * *")
    kept.now = hour(4.5)
    kept.resume()
    first, second = sorted(kept.skips.values(), key=lambda skip: skip.first)
    assert (first.first, first.last, first.count) == (hour(1), hour(2), 2)
    assert (second.first, second.last, second.count) == (hour(3.25), hour(4.25), 2)
    assert kept.state.next_at == hour(5.25)


def test_an_edit_in_a_pause_with_an_end_moves_what_comes_after_it():
    kept = Ledger(spec())
    kept.pause(hour(3.1))
    kept.edit(cron="15 * * * *")
    assert (kept.status, kept.state.next_at) == ("paused", hour(3.25))
    kept.until(hour(3.25))
    assert [(skip.first, skip.last, skip.count) for skip in kept.skips.values()] == [(hour(0.25), hour(2.25), 3)]


def test_a_backlog_goes_on_by_the_timing_that_it_was_missed_by():
    kept = Ledger(spec(missed="run_all"))
    kept.jump(hour(4.5))
    kept.edit(cron="15 * * * *")
    while going := kept.going():
        kept.run(going[0])
        kept.end(going[0])
    assert (kept.hours(), kept.state.next_at) == ([1, 2, 3, 4], hour(5.25))


def test_a_pause_after_such_an_edit_leaves_out_the_right_instants():
    kept = Ledger(spec(missed="run_all"))
    kept.jump(hour(4.5))
    kept.edit(cron="15 * * * *")
    kept.pause()
    (skip,) = kept.skips.values()
    assert (skip.first, skip.last, skip.count) == (hour(2), hour(4), 3)


# --- repairs ----------------------------------------------------------------------------------------------------------


def test_a_job_that_is_missing_is_made_again_and_judged_when_it_fires():
    kept = Ledger(spec())
    assert kept.state.job_id is not None
    del kept.jobs[kept.state.job_id]
    kept.now = hour(3.5)
    kept.step(Step.make_again)
    assert (kept.next_hour, kept.hours()) == (1, [])
    kept.fire()
    assert (kept.hours(), kept.shown()) == ([3], [(1, 2, 2, "missed")])


@pytest.mark.parametrize(
    ("status", "runs", "skips"),
    [
        (Status.QUEUED, 2, [(2, 2, 1, "missed")]),
        (Status.CANCELLED, 1, [(1, 1, 1, "skipped_by_user"), (2, 2, 1, "missed")]),
        (Status.SKIPPED, 1, [(1, 1, 1, "expired"), (2, 2, 1, "missed")]),
    ],
)
def test_a_job_that_has_left_its_state_alone_is_passed_over_and_nothing_else(status, runs, skips):
    kept = Ledger(spec())
    assert kept.state.job_id is not None
    kept._put(kept.state.job_id, status=status)
    kept.now = hour(3.5)
    kept.step(lambda step: step.lost_ahead(status))
    assert (kept.hours(), kept.state.runs, kept.next_hour) == ([3], runs, 4)
    assert kept.shown() == skips


# --- zone data --------------------------------------------------------------------------------------------------------


def zones(version: str, offset_h: float) -> Zones:
    zone = timezone(timedelta(hours=offset_h))
    return Zones(version, lambda name: zone)


def local(kept: Ledger, offset_h: float) -> list[str]:
    zone = timezone(timedelta(hours=offset_h))
    return [datetime.fromtimestamp(at / 1000, zone).strftime("%d %H:%M") for at in kept.fired]


NINE: dict[str, Any] = {"cron": "0 9 * * *", "zone": "America/Vancouver"}


def test_new_zone_data_moves_what_is_ahead():
    kept = Ledger(spec(**NINE), zones=zones("2026.1", -8))
    kept.until(hour(20))
    old = kept.state.job_id
    assert (local(kept, -8), kept.next_hour) == (["01 09:00"], 41)
    kept.zones = zones("2026.2", -7)
    kept.step(Step.rezone)
    assert (kept.next_hour, kept.state.zone_data) == (40, "2026.2")
    assert old is not None
    assert kept.jobs[old].status is Status.CANCELLED
    kept.until(hour(70))
    assert local(kept, -7)[1:] == ["02 09:00", "03 09:00"]
    assert kept.skips == {}


def test_a_local_time_that_has_had_its_run_gets_no_second_one():
    kept = Ledger(spec(**NINE), zones=zones("2026.1", -7))
    kept.until(hour(16))
    kept.zones = zones("2026.2", -8)
    kept.step(Step.rezone)
    kept.until(hour(45))
    assert [(at - T0) / HOUR for at in kept.fired] == [16, 24 + 17]


def test_what_is_due_by_older_data_is_computed_anew_before_it_fires():
    kept = Ledger(spec(**NINE), zones=zones("2026.1", -7))
    kept.zones = zones("2026.2", -8)
    kept.until(hour(45))
    assert [(at - T0) / HOUR for at in kept.fired] == [17, 24 + 17]


def test_one_that_by_the_new_data_has_passed_already_is_due_now():
    kept = Ledger(spec(**NINE), zones=zones("2026.1", -8))
    kept.now = hour(16.5)
    kept.zones = zones("2026.2", -7)
    kept.step(Step.rezone)
    assert ([(at - T0) / HOUR for at in kept.fired], kept.next_hour, kept.skips) == ([16], 40, {})


def test_data_that_changes_to_and_fro_loses_nothing():
    kept = Ledger(spec(**NINE), zones=zones("2026.1", -8))
    for version, offset in (("2026.2", -7), ("2026.3", -8), ("2026.4", -7), ("2026.5", -8)):
        kept.zones = zones(version, offset)
        kept.step(Step.rezone)
    kept.until(hour(17))
    assert kept.hours() == [17]


def test_data_that_changes_nothing_keeps_the_job():
    kept = Ledger(spec(**NINE), zones=zones("2026.1", -8))
    kept.zones = zones("2026.2", -8)
    kept.step(Step.rezone)
    assert (len(kept.jobs), kept.state.zone_data) == (1, "2026.2")


def test_elapsed_time_is_kept_whatever_the_clocks_say():
    kept = Ledger(spec(cron="0 * * * *", zone="Asia/Kolkata"), zones=zones("2026.1", 5.5))
    kept.until(hour(1.6))
    kept.zones = zones("2026.2", 6)
    kept.step(Step.rezone)
    assert [(at - T0) / HOUR for at in kept.fired] == [0.5, 1.5]
    assert kept.state.next_at == hour(2)


def test_an_older_node_fires_what_is_due_and_owes_the_next():
    kept = Ledger(spec(**NINE), zones=zones("2026.2", -7))
    kept.zones = zones("2026.1", -8)
    kept.until(hour(16))
    assert (kept.hours(), kept.state.owing, kept.state.next_at) == ([16], True, None)
    kept.zones = zones("2026.2", -7)
    kept.step(Step.pay)
    assert (kept.next_hour, kept.state.owing) == (40, False)


def test_what_has_passed_while_it_was_owing_is_missed():
    kept = Ledger(spec(**NINE), zones=zones("2026.2", -7))
    kept.zones = zones("2026.1", -8)
    kept.until(hour(16))
    kept.zones = zones("2026.2", -7)
    kept.now = T0 + 4 * DAY
    kept.step(Step.pay)
    assert (kept.hours(), kept.shown()) == ([16, 88], [(40, 64, 2, "missed")])


def test_an_older_node_skips_and_starts_and_owes_the_next():
    for take_out in (lambda step: step.skip_ahead(None), Step.run_ahead_now):
        kept = Ledger(spec(**NINE), zones=zones("2026.2", -7))
        step = begin(
            kept.schedule_id, 1, "active", kept.spec, kept.state, plan_of(kept.spec, zones("2026.1", -8)),
            kept.begin().look, zones("2026.1", -8),
        )  # fmt: skip
        take_out(step)
        assert (step.state.owing, step.state.next_at, step.look_at) == (True, None, T0)


def test_a_schedule_that_owes_may_be_paused():
    kept = Ledger(spec(**NINE), zones=zones("2026.2", -7))
    kept.zones = zones("2026.1", -8)
    kept.until(hour(16))
    kept.zones = zones("2026.2", -7)
    kept.now = T0 + 2 * DAY
    kept.pause()
    kept.now = T0 + 3 * DAY
    kept.resume()
    assert (kept.shown(), kept.next_hour) == ([(40, 64, 2, "paused")], 88)
