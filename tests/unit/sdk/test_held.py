"""How long an attempt is trusted, and which reason to stop it counts."""

from __future__ import annotations

from typing import Any

import pytest

from tocsin.sdk.held import Held, Stop, beat_timeout_s, hold


class Job:
    lease_token = "t"

    def __init__(self, lease_s: float = 30.0, timeout_s: float = 3600.0) -> None:
        self.lease_s, self.timeout_s = lease_s, timeout_s


def held(*, sent_at: float = 100.0, received_at: float = 100.0, **job: float) -> Held[Any]:
    (one,) = hold([Job(**job)], sent_at=sent_at, received_at=received_at)  # type: ignore[type-var]
    return one


def test_a_new_lease_is_trusted_from_when_the_claim_was_sent():
    one = held(sent_at=100, received_at=101.5)
    assert (one.fence_at, one.renew_at) == (124, 107.5)


@pytest.mark.parametrize(("waited_s", "fence_after_s"), [(10, 14), (20, 4), (60, 4)])
def test_after_a_long_poll_it_is_trusted_shortly_and_renewed_at_once(waited_s, fence_after_s):
    one = held(sent_at=100, received_at=100 + waited_s)
    assert one.renew_at == one.received_at
    assert one.fence_at == one.received_at + fence_after_s


def test_each_lease_of_a_claim_counts_for_itself():
    short, long = hold([Job(5.0), Job(600.0)], sent_at=0.0, received_at=0.1)  # type: ignore[type-var]
    assert (short.fence_at, long.fence_at) == (4, 480)


def test_a_renewal_counts_from_when_it_was_sent_and_never_takes_trust_away():
    one = held()
    one.renewed(107.5)
    assert (one.fence_at, one.renew_at) == (131.5, 115)
    one.renewed(101)
    assert one.fence_at == 131.5


def test_the_time_out_counts_from_the_start_but_ends_before_the_servers_own():
    one = held(timeout_s=60)
    one.started(103)
    assert one.deadline == 163
    one.started(150)
    assert one.deadline == 168


@pytest.mark.parametrize(
    ("reasons", "stop"),
    [
        ([Stop.CANCELLED, Stop.TIMED_OUT], Stop.TIMED_OUT),
        ([Stop.TIMED_OUT, Stop.CANCELLED], Stop.TIMED_OUT),
        ([Stop.TIMED_OUT, Stop.HANDED_BACK], Stop.TIMED_OUT),
        ([Stop.CANCELLED, Stop.HANDED_BACK, Stop.LOST], Stop.LOST),
        ([Stop.LOST, Stop.HANDED_BACK], Stop.LOST),
    ],
)
def test_the_gravest_reason_to_stop_counts(reasons, stop):
    one = held()
    told = [one.mark(why) for why in reasons]
    assert told[0]
    assert one.stop is stop
    assert one.cancel_requested == (Stop.CANCELLED in reasons)


def test_a_heartbeat_may_take_an_eighth_of_the_lease_and_two_seconds_at_most():
    assert [beat_timeout_s(lease_s) for lease_s in (5, 16, 30, 600)] == [0.625, 2, 2, 2]
