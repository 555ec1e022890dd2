"""What follows an attempt that did not succeed: another try and when, a dead letter, or the end of a cancelled job.

Backoff is "full jitter": uniform in [0, min(cap, base x 2^(n-1))] (Marc Brooker, "Exponential Backoff And Jitter", AWS
Architecture Blog, 2015). A target's own wish (`Retry-After`) is never undercut and never exceeds a day.
"""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.model.job import JobState, Retrying
from tocsin.wire import ERROR_CUT_MARK, MAX_ERROR_BYTES, Outcome, Status

MAX_RETRY_AFTER_S = 86_400.0
RELEASE_FIRST_S = 1.0
RELEASE_MOST_S = 60.0
LOST_ERROR = "worker lost: its lease ended without a result"
TIMED_OUT_ERROR = "timed out: still running {over_s:g} s past its timeout of {timeout_s:g} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What becomes of a job after an attempt: `due_at` is set exactly when `status` is RETRYING."""

    status: Status
    outcome: Outcome
    due_at: int | None
    tries: int
    losses: int
    releases: int
    error: str | None


def backoff_s(policy: Retrying, tries: int, chance: float) -> float:
    """Seconds to wait before the next try, after `tries` charged ones; `chance` is uniform in [0, 1)."""
    doublings = min(max(tries - 1, 0), 64)
    return chance * min(policy.max_backoff_s, policy.initial_backoff_s * 2.0**doublings)


def release_s(releases: int, asked_s: float | None) -> float:
    """Seconds until a job that was handed back is offered again, after `releases` earlier ones in a row."""
    if asked_s is not None:
        return min(max(asked_s, 0.0), MAX_RETRY_AFTER_S)
    return min(RELEASE_FIRST_S * 2.0 ** min(releases, 16), RELEASE_MOST_S)


def decide(
    job: JobState,
    outcome: Outcome,
    *,
    now_ms: int,
    chance: float,
    error: str | None = None,
    retry_after_s: float | None = None,
    charged: bool = True,
) -> Verdict:
    """What becomes of a held job (RUNNING or CANCEL_REQUESTED) whose attempt ended with `outcome`.

    `charged` is False for an attempt lost in a gap of the server's own: it gives its try back and is no suspicion.
    """
    error = cut(error)
    tries = job.tries if charged and outcome is not Outcome.RELEASED else max(job.tries - 1, 0)
    lost = charged and outcome in (Outcome.LOST, Outcome.TIMED_OUT)
    losses = job.losses + 1 if lost else job.losses
    releases = job.releases + 1 if outcome is Outcome.RELEASED else 0

    def verdict(status: Status, due_at: int | None = None) -> Verdict:
        return Verdict(
            status=status, outcome=outcome, due_at=due_at, tries=tries, losses=losses, releases=releases, error=error
        )

    if outcome is Outcome.SUCCEEDED:
        return verdict(Status.SUCCEEDED)
    if job.status is Status.CANCEL_REQUESTED or outcome is Outcome.CANCELLED:
        return verdict(Status.CANCELLED)
    if outcome is Outcome.RELEASED:
        return verdict(Status.RETRYING, now_ms + round(release_s(job.releases, retry_after_s) * 1000))
    policy = job.definition.retry
    if outcome is Outcome.FATAL_FAILURE or tries >= policy.max_attempts:
        return verdict(Status.DEAD)
    wait_s = 0.0 if not charged or (lost and losses == 1) else backoff_s(policy, tries, chance)
    if outcome is Outcome.RETRYABLE_FAILURE and retry_after_s is not None:
        wait_s = max(wait_s, min(max(retry_after_s, 0.0), MAX_RETRY_AFTER_S))
    return verdict(Status.RETRYING, now_ms + round(wait_s * 1000))


def cut(error: str | None) -> str | None:
    """An error as it is kept: at most 8 KiB of UTF-8, with a mark where it was cut, without NUL and lone surrogates."""
    if error is None:
        return None
    raw = error.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")
    if len(raw) <= MAX_ERROR_BYTES:
        return raw.decode()
    mark = ERROR_CUT_MARK.encode()
    return (raw[: MAX_ERROR_BYTES - len(mark)]).decode("utf-8", "ignore") + ERROR_CUT_MARK
