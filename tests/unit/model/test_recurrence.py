"""What becomes of occurrences: missed and late ones, deadlines, quotas, overlap and what waits, the end of a schedule, windows."""

import pytest

from tests.unit.model.ledger import DAY, HOUR, MINUTE, T0, Ledger, spec
from tocsin.model.recurrence import Step
from tocsin.wire import Status


def hour(number: float) -> int:
    return T0 + round(number * HOUR)


# --- in time, late, missed --------------------------------------------------------------------------------------------


def test_each_occurrence_fires_at_its_instant_and_the_next_one_is_ahead():
    kept = Ledger(spec())
    kept.until(hour(3))
    assert (kept.hours(), kept.next_hour, kept.state.runs) == ([1, 2, 3], 4, 3)
    assert kept.skips == {}


@pytest.mark.parametrize("policy", ["run_latest", "run_all", "skip"])
def test_one_that_is_merely_late_runs_under_every_policy(policy):
    kept = Ledger(spec(missed=policy))
    kept.jump(hour(2) - 1)
    assert (kept.hours(), kept.next_hour, kept.skips) == ([1], 2, {})


def test_run_latest_runs_the_newest_and_leaves_one_skip_for_the_rest():
    kept = Ledger(spec())
    kept.jump(hour(5.5))
    assert (kept.hours(), kept.shown(), kept.next_hour) == ([5], [(1, 4, 4, "missed")], 6)
    kept.until(hour(6))
    assert kept.hours() == [5, 6]


def test_skip_leaves_out_all_that_was_missed():
    kept = Ledger(spec(missed="skip"))
    kept.jump(hour(5.5))
    assert (kept.hours(), kept.shown(), kept.next_hour) == ([], [(1, 5, 5, "missed")], 6)


def test_run_all_runs_them_in_order_one_after_another():
    kept = Ledger(spec(missed="run_all"))
    kept.jump(hour(4.5))
    seen: list[int] = []
    while going := kept.going():
        assert len(going) == 1
        seen += kept.hours()[len(seen) :]
        kept.run(going[0])
        kept.end(going[0])
    assert (seen, kept.next_hour, kept.state.runs) == ([1, 2, 3, 4], 5, 4)
    assert (kept.state.backlogs, kept.skips) == ((), {})


def test_each_occurrence_that_is_caught_up_with_has_one_job():
    kept = Ledger(spec(missed="run_all"))
    kept.jump(hour(4.5))
    while going := kept.going():
        kept.run(going[0])
        kept.end(going[0])
    assert sorted(job.at for job in kept.jobs.values()) == [hour(number) for number in range(1, 6)]


def test_of_too_many_missed_ones_the_oldest_are_left_out():
    kept = Ledger(spec(missed="run_all", most=3))
    kept.jump(hour(9.5))
    assert kept.shown() == [(1, 6, 6, "catch_up_limit")]
    while going := kept.going():
        kept.run(going[0])
        kept.end(going[0])
    assert kept.hours() == [7, 8, 9]


def test_a_million_missed_ones_cost_no_more_than_a_few():
    kept = Ledger(spec(cron=None, every_ms=1_000, missed="run_all", most=5))
    kept.jump(T0 + 14 * DAY)
    (skip,) = kept.skips.values()
    assert (skip.count, skip.reason) == (14 * 86_400 - 5, "catch_up_limit")
    assert kept.state.runs == 5


def test_what_falls_due_during_a_catch_up_waits_for_its_turn():
    kept = Ledger(spec(missed="run_all"))
    kept.jump(hour(3.5))
    kept.until(hour(5))
    assert (kept.hours(), [(held.at - T0) // HOUR for held in kept.state.held]) == ([1], [4, 5])
    while going := kept.going():
        kept.run(going[0])
        kept.end(going[0])
    assert (kept.hours(), kept.state.held, kept.next_hour) == ([1, 2, 3, 4, 5], (), 6)


def test_a_second_outage_during_a_catch_up_keeps_the_order():
    kept = Ledger(spec(missed="run_all"))
    kept.jump(hour(3.5))
    kept.until(hour(4))
    kept.jump(hour(8.5))
    assert len(kept.going()) == 1
    while going := kept.going():
        kept.run(going[0])
        kept.end(going[0])
    assert (kept.hours(), kept.skips) == ([1, 2, 3, 4, 5, 6, 7, 8], {})


def test_what_is_held_counts_against_the_catch_up_limit():
    kept = Ledger(spec(missed="run_all", most=2))
    kept.jump(hour(2.5))
    kept.until(hour(6))
    assert kept.shown() == [(2, 4, 3, "catch_up_limit")]
    while going := kept.going():
        kept.run(going[0])
        kept.end(going[0])
    assert kept.hours() == [1, 5, 6]
    assert kept.state.runs == 3


# --- what may not start -----------------------------------------------------------------------------------------------


def test_one_later_than_its_deadline_is_left_out():
    kept = Ledger(spec(deadline_s=600))
    kept.jump(hour(1) + 600_000)
    assert kept.hours() == [1]
    kept.jump(hour(2) + 600_001)
    assert (kept.hours(), kept.shown(), kept.next_hour) == ([1], [(2, 2, 1, "deadline")], 3)


def test_the_deadline_holds_for_the_newest_of_the_missed_too():
    kept = Ledger(spec(deadline_s=600))
    kept.jump(hour(4.5))
    assert (kept.hours(), kept.shown()) == ([], [(1, 3, 3, "missed"), (4, 4, 1, "deadline")])


def test_the_deadline_is_judged_when_each_of_a_backlog_starts():
    kept = Ledger(spec(missed="run_all", deadline_s=4 * 3600))
    kept.jump(hour(6.5))
    assert kept.shown() == [(1, 2, 2, "deadline")]
    (first,) = kept.going()
    kept.run(first)
    kept.now = hour(8.5)
    kept.end(first)
    assert (kept.hours(), kept.shown()) == ([3, 5], [(1, 2, 2, "deadline"), (4, 4, 1, "deadline")])
    assert kept.state.runs == 3  # with the sixth, which waits


def test_a_deadline_counts_from_the_planned_instant_inside_a_window():
    kept = Ledger(spec(deadline_s=1, window_s=1800))
    kept.until(hour(1) + 1800_000)
    assert (kept.hours(), kept.skips) == ([1], {})


def test_a_job_that_has_expired_does_not_fire():
    kept = Ledger(spec(expires_s=60))
    kept.jump(hour(1) + 60_000)
    assert (kept.hours(), kept.shown(), kept.state.runs) == ([], [(1, 1, 1, "expired")], 0)


def test_over_the_quota_nothing_starts():
    kept = Ledger(spec())
    kept.over_quota = True
    kept.until(hour(2))
    kept.over_quota = False
    kept.until(hour(3))
    assert (kept.hours(), kept.shown(), kept.state.runs) == ([3], [(1, 2, 2, "quota")], 1)


# --- overlap ----------------------------------------------------------------------------------------------------------


def test_with_allow_runs_go_on_beside_each_other():
    kept = Ledger(spec())
    kept.until(hour(3))
    assert len(kept.going()) == 3


@pytest.mark.parametrize("state", ["queued", "running", "retrying", "cancel requested"])
def test_with_forbid_nothing_starts_beside_a_run_in_whatever_state(state):
    kept = Ledger(spec(overlap="forbid"))
    kept.until(hour(1))
    (first,) = kept.going()
    if state != "queued":
        kept.run(first)
    if state == "retrying":
        kept.retry(first)
    if state == "cancel requested":
        kept._put(first, status=Status.CANCEL_REQUESTED)
    kept.until(hour(4))
    assert (kept.hours(), kept.shown(), kept.next_hour) == ([1], [(2, 4, 3, "overlap")], 5)
    kept.end(first)
    kept.until(hour(5))
    assert kept.hours() == [1, 5]


def test_with_forbid_a_catch_up_is_a_run_that_goes_on():
    kept = Ledger(spec(overlap="forbid", missed="run_all"))
    kept.jump(hour(3.5))
    kept.until(hour(4))
    assert kept.shown() == [(4, 4, 1, "overlap")]
    while going := kept.going():
        kept.run(going[0])
        kept.end(going[0])
    assert kept.hours() == [1, 2, 3]


@pytest.mark.parametrize("retrying", [False, True])
def test_with_replace_one_that_does_not_run_just_now_is_replaced_at_once(retrying):
    kept = Ledger(spec(overlap="replace"))
    kept.until(hour(1))
    (first,) = kept.going()
    if retrying:
        kept.run(first)
        kept.retry(first)
    kept.until(hour(2))
    assert (kept.jobs[first].status, kept.hours(), len(kept.going())) == (Status.CANCELLED, [1, 2], 1)
    assert kept.shown() == ([] if retrying else [(1, 1, 1, "overlap")])


def test_with_replace_a_running_one_is_stopped_and_the_newest_starts_when_it_has_ended():
    kept = Ledger(spec(overlap="replace"))
    kept.until(hour(1))
    (first,) = kept.going()
    kept.run(first)
    kept.until(hour(4))
    assert kept.jobs[first].status is Status.CANCEL_REQUESTED
    assert (kept.going(), kept.hours()) == ([first], [1])
    assert [(held.at - T0) // HOUR for held in kept.state.held] == [4]
    assert kept.shown() == [(2, 3, 2, "overlap")]
    kept.end(first)
    assert (kept.hours(), kept.state.held, kept.state.runs) == ([1, 4], (), 2)


def test_with_replace_a_catch_up_makes_way_for_what_is_newer():
    kept = Ledger(spec(overlap="replace", missed="run_all"))
    kept.jump(hour(3.5))
    (first,) = kept.going()
    kept.run(first)
    kept.until(hour(4))
    assert kept.shown() == [(2, 3, 2, "overlap")]
    kept.end(first)
    assert (kept.hours(), kept.state.backlogs, kept.state.runs) == ([1, 4], (), 2)


def test_a_held_one_is_looked_at_again_by_itself():
    kept = Ledger(spec(overlap="replace"))
    kept.until(hour(1))
    (first,) = kept.going()
    kept.run(first)
    kept.until(hour(2))
    kept._put(first, status=Status.CANCELLED)  # nobody tells of it
    kept.until(hour(2) + 31_000)
    assert kept.hours() == [1, 2]


# --- the end ----------------------------------------------------------------------------------------------------------


def test_so_many_runs_and_then_it_is_finished():
    kept = Ledger(spec(max_runs=2))
    kept.until(hour(5))
    assert (kept.hours(), kept.status, kept.next_hour) == ([1, 2], "finished", None)
    kept.edit(max_runs=3)
    assert (kept.status, kept.next_hour) == ("active", 6)
    kept.until(hour(9))
    assert (kept.hours(), kept.status, kept.skips) == ([1, 2, 6], "finished", {})


def test_what_was_left_out_is_no_run():
    kept = Ledger(spec(max_runs=2, missed="skip"))
    kept.jump(hour(3.5))
    kept.skip_next()
    kept.until(hour(9))
    assert (kept.hours(), kept.status) == ([5, 6], "finished")


def test_a_catch_up_ends_with_the_last_run_that_is_allowed():
    kept = Ledger(spec(max_runs=3, missed="run_all"))
    kept.until(hour(1))
    kept.end(kept.going()[0])
    kept.jump(hour(6.5))
    while going := kept.going():
        kept.run(going[0])
        kept.end(going[0])
    assert (kept.hours(), kept.status) == ([1, 2, 3], "finished")


def test_a_held_run_that_is_left_out_revives_a_schedule_that_had_come_to_its_end():
    kept = Ledger(spec(max_runs=2, overlap="replace", deadline_s=60))
    kept.until(hour(1))
    (first,) = kept.going()
    kept.run(first)
    kept.until(hour(2))
    assert (kept.status, len(kept.state.held)) == ("finished", 1)
    kept.now = hour(2.5)
    kept.end(first)
    assert (kept.status, kept.shown(), kept.next_hour) == ("active", [(2, 2, 1, "deadline")], 3)
    kept.until(hour(5))
    assert (kept.hours(), kept.status) == ([1, 3], "finished")


def test_start_and_end_belong_to_the_time_in_which_it_runs():
    kept = Ledger(spec(start_at=hour(3), end_at=hour(5)))
    kept.until(hour(9))
    assert (kept.hours(), kept.status) == ([3, 4, 5], "finished")
    kept.edit(end_at=hour(11))
    kept.until(hour(20))
    assert (kept.hours(), kept.status, kept.skips) == ([3, 4, 5, 10, 11], "finished", {})


def test_one_whose_end_is_over_is_finished_from_the_beginning():
    assert Ledger(spec(end_at=T0)).status == "finished"


# --- windows and catch-up in time -------------------------------------------------------------------------------------


def test_a_window_ends_where_the_following_occurrence_begins():
    for number in range(20):
        kept = Ledger(spec(cron="*/5 * * * *", window_s=86_400), now=T0 + number * HOUR)
        assert kept.state.fire_at is not None
        assert kept.state.next_at is not None
        assert kept.state.next_at <= kept.state.fire_at < kept.state.next_at + 5 * MINUTE
    kept.until(kept.now + HOUR)
    assert (len(kept.fired), kept.skips) == (11, {}) or (len(kept.fired), kept.skips) == (12, {})


def test_runs_that_make_up_for_missed_ones_are_spread():
    kept = Ledger(spec())
    kept.catch_up_at = hour(5.5) + 7_000
    kept.jump(hour(5.5))
    assert (kept.hours(), kept.state.runs) == ([], 1)
    kept.until(hour(5.5) + 7_000)
    assert (kept.hours(), kept.state.runs, kept.next_hour) == ([5], 1, 6)


def test_one_that_makes_up_for_missed_ones_does_not_start_in_a_pause():
    kept = Ledger(spec())
    kept.catch_up_at = hour(5.5) + 7_000
    kept.jump(hour(5.5))
    kept.pause()
    kept.until(hour(7.5))
    kept.resume()
    assert (kept.hours(), kept.state.runs) == ([], 0)
    assert kept.shown() == [(1, 4, 4, "missed"), (5, 7, 3, "paused")]


# --- skips ------------------------------------------------------------------------------------------------------------


def test_skips_that_follow_on_each_other_are_one_range_as_long_as_nothing_runs():
    kept = Ledger(spec(missed="skip"))
    kept.jump(hour(3.5))
    kept.jump(hour(5.5))
    assert kept.shown() == [(1, 5, 5, "missed")]
    kept.until(hour(6))
    kept.jump(hour(8.5))
    assert kept.shown() == [(1, 5, 5, "missed"), (7, 8, 2, "missed")]
    assert kept.counted == {"missed": 7}


def test_an_edit_begins_a_new_range():
    kept = Ledger(spec(missed="skip"))
    kept.jump(hour(3.5))
    kept.edit(end_at=hour(100))
    kept.jump(hour(5.5))
    assert kept.shown() == [(1, 3, 3, "missed"), (4, 5, 2, "missed")]


def _broken_off(step: Step) -> None:
    step.fires.append(step.state.job_id or "")
    step.break_off("why")


def test_one_that_cannot_be_computed_stands_still():
    kept = Ledger(spec())
    kept.step(_broken_off)
    assert (kept.status, kept.state.broken, kept.state.next_at) == ("broken", "why", None)
    kept.revision += 1
    kept.step(lambda step: step.mend(kept.spec, step.plan))
    assert (kept.status, kept.state.broken, kept.next_hour) == ("active", None, 1)


def test_what_is_looked_at_by_when():
    kept = Ledger(spec(overlap="replace", window_s=600))
    assert kept.begin().look_at == kept.state.fire_at
    kept.until(hour(1.5))
    kept.run(kept.going()[0])
    kept.until(hour(2.5))
    assert kept.begin().look_at == kept.now + 30_000
    kept.pause()
    assert kept.begin().look_at is None
    kept.pause(hour(9.5))
    assert kept.begin().look_at == hour(9.5)
    kept.step(Step.resume)
    assert kept.begin().look_at == kept.state.fire_at
