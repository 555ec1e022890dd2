"""Retry: full jitter within its bounds, whatever the numbers; what follows an attempt is what the table of states allows."""

import math

from hypothesis import example, given
from hypothesis import strategies as st

from tocsin.model.job import Definition, Event, JobState, Lane, Line, Retrying, allowed
from tocsin.model.retry import MAX_RETRY_AFTER_S, backoff_s, cut, decide, release_s
from tocsin.wire import MAX_ERROR_BYTES, Outcome, Status, TaskTarget

NOW = 1_800_000_000_000
DAY_S = 86_400.0

chances = st.floats(0, 1, exclude_max=True)
seconds = st.floats(0, DAY_S, allow_nan=False)
policies = st.builds(
    lambda attempts, low, high: Retrying(attempts, min(low, high), max(low, high)),
    st.integers(1, 100),
    seconds,
    seconds,
)
outcomes = st.sampled_from(Outcome)


def held(
    policy: Retrying, *, tries: int = 1, attempt: int = 1, losses: int = 0, releases: int = 0, asked: bool = False
) -> JobState:
    """A job in a worker's hands."""
    return JobState(
        job_id="job_x",
        line=Line("t", "q", Lane.PRECISE, "h", ""),
        priority=0,
        status=Status.CANCEL_REQUESTED if asked else Status.RUNNING,
        version=1,
        attempt=max(attempt, tries),
        tries=tries,
        due_at=NOW,
        fire_at=NOW,
        created_at=NOW,
        claimed_at=NOW,
        losses=losses,
        releases=releases,
        definition=Definition(target=TaskTarget(handler="h"), run_at=NOW, key_at=NOW, retry=policy),
    )


@given(policies, st.integers(0, 10**9), chances)
@example(Retrying(100, DAY_S, DAY_S), 200, 0.999)
@example(Retrying(100, 1e-300, DAY_S), 2**62, 0.5)
def test_the_backoff_is_within_zero_and_the_cap(policy, tries, chance):
    wait = backoff_s(policy, tries, chance)
    assert math.isfinite(wait)
    assert 0 <= wait <= policy.max_backoff_s
    exact = min(policy.max_backoff_s, policy.initial_backoff_s * 2 ** min(max(tries - 1, 0), 64))
    assert wait <= exact


@given(st.floats(0.001, 100), st.integers(1, 20))
def test_the_backoff_doubles_until_the_cap(initial, tries):
    policy = Retrying(100, initial, DAY_S)
    assert backoff_s(policy, tries, 0.5) == 0.5 * min(DAY_S, initial * 2.0 ** (tries - 1))


def test_the_backoff_uses_the_whole_range():
    policy = Retrying(6, 10, 600)
    waits = [backoff_s(policy, 3, n / 1_000) for n in range(1_000)]
    assert min(waits) == 0
    assert max(waits) > 39.9


@given(policies, chances, st.floats(allow_nan=False, allow_infinity=True, min_value=-1e308), st.booleans())
@example(Retrying(), 0.0, 1e308, False)
@example(Retrying(), 0.999, -5.0, False)
@example(Retrying(), 0.5, math.inf, False)
def test_a_targets_wish_is_never_undercut_and_never_longer_than_a_day(policy, chance, asked, lost):
    if policy.max_attempts == 1:
        policy = Retrying(2, policy.initial_backoff_s, policy.max_backoff_s)
    verdict = decide(held(policy), Outcome.RETRYABLE_FAILURE, now_ms=NOW, chance=chance, retry_after_s=asked)
    assert verdict.due_at is not None
    wait = (verdict.due_at - NOW) / 1_000
    assert wait >= min(max(asked, 0), MAX_RETRY_AFTER_S) - 0.001
    assert 0 <= wait <= max(MAX_RETRY_AFTER_S, policy.max_backoff_s) + 0.001


@given(
    policies,
    outcomes,
    chances,
    st.integers(1, 100),
    st.integers(0, 1_000),
    st.integers(0, 50),
    st.integers(0, 10**6),
    st.booleans(),
    st.booleans(),
)
def test_what_follows_an_attempt_is_in_the_table_of_states(
    policy, outcome, chance, tries, extra, losses, releases, asked, charged
):
    job = held(policy, tries=tries, attempt=tries + extra, losses=losses, releases=releases, asked=asked)
    verdict = decide(job, outcome, now_ms=NOW, chance=chance, charged=charged)
    event = {
        Status.SUCCEEDED: Event.SUCCEED,
        Status.RETRYING: Event.RELEASE if outcome is Outcome.RELEASED else Event.RETRY,
        Status.DEAD: Event.DIE,
        Status.CANCELLED: Event.END_CANCELLED,
    }[verdict.status]
    if not (outcome is Outcome.CANCELLED and not asked):  # refused at the border: nobody asked
        assert allowed(event, job.status, verdict.status)
    assert (verdict.due_at is not None) == (verdict.status is Status.RETRYING)
    assert 0 <= verdict.tries <= job.tries
    assert job.tries - verdict.tries <= 1
    if verdict.due_at is not None:
        assert NOW <= verdict.due_at <= NOW + round(DAY_S * 1_000)


@given(policies, st.integers(1, 200), chances)
def test_only_charged_attempts_use_up_the_tries(policy, tries, chance):
    outcome = Outcome.RETRYABLE_FAILURE
    verdict = decide(held(policy, tries=tries), outcome, now_ms=NOW, chance=chance)
    assert (verdict.status is Status.DEAD) == (tries >= policy.max_attempts)
    released = decide(held(policy, tries=tries), Outcome.RELEASED, now_ms=NOW, chance=chance)
    assert released.status is Status.RETRYING
    assert released.tries == tries - 1


@given(policies, chances)
def test_the_first_loss_retries_at_once(policy, chance):
    if policy.max_attempts == 1:
        return
    verdict = decide(held(policy), Outcome.LOST, now_ms=NOW, chance=chance)
    assert (verdict.due_at, verdict.losses) == (NOW, 1)
    spared = decide(held(policy, losses=3), Outcome.LOST, now_ms=NOW, chance=chance, charged=False)
    assert (spared.due_at, spared.losses, spared.tries) == (NOW, 3, 0)


@given(st.integers(0, 10**9), st.one_of(st.none(), st.floats(-1e308, 1e308)))
def test_a_release_waits_between_nothing_and_its_cap(releases, asked):
    wait = release_s(releases, asked)
    assert 0 <= wait <= (60 if asked is None else MAX_RETRY_AFTER_S)


def test_releases_double_from_a_second_to_a_minute():
    assert [release_s(n, None) for n in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]


@given(st.one_of(st.text(), st.text(min_size=3_000).map(lambda text: text * 4)))
@example("\ud800\0")
@example("é" * 5_000)
def test_an_error_is_cut_to_what_is_kept_and_stays_text(error):
    kept = cut(error)
    assert kept is not None
    raw = kept.encode("utf-8")
    assert len(raw) <= MAX_ERROR_BYTES
    assert "\0" not in kept
    assert cut(kept) == kept
