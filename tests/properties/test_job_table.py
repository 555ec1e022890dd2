"""The table of states: finished is finished, every state is reached and left, and what a job carries is stable."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tocsin.model.job import (
    FINISHED,
    HELD,
    LEADS_TO,
    LIVE,
    PENDING,
    PRIORITY_BOOST_MS,
    TERMINAL,
    WAITING,
    Definition,
    Event,
    allowed,
    decode_definition,
    encode_definition,
    expired,
    idempotency_key,
    ready_score,
)
from tocsin.wire import Status, TaskTarget, Timing

statuses = st.sampled_from(Status)


@given(st.sampled_from(Event), statuses)
def test_nothing_leads_out_of_a_finished_state(event, after):
    for before in FINISHED:
        assert not allowed(event, before, after)


@given(st.sampled_from(Event), statuses)
def test_only_a_redrive_leads_out_of_dead(event, after):
    if after is not Status.DEAD:
        assert allowed(event, Status.DEAD, after) == (event is Event.REDRIVE and after is Status.RETRYING)


def test_every_state_can_be_reached_and_every_living_one_left():
    reached = {Status.SCHEDULED, Status.QUEUED}
    for _ in Status:
        reached |= {
            after
            for leads in LEADS_TO.values()
            for before, afters in leads.items()
            if before in reached
            for after in afters
        }
    assert reached == set(Status)
    left = {before for leads in LEADS_TO.values() for before, afters in leads.items() if afters - {before}}
    assert left >= LIVE


def test_every_living_state_leads_to_an_end():
    """No job can be in a state from which nothing finishes it."""
    ending = set(TERMINAL)
    for _ in Status:
        ending |= {before for leads in LEADS_TO.values() for before, afters in leads.items() if afters & ending}
    assert ending == set(Status)


def test_the_groups_of_states_fit_together():
    assert PENDING < WAITING
    assert LIVE == WAITING | HELD
    assert not LIVE & TERMINAL
    assert set(Status) == LIVE | TERMINAL
    assert FINISHED < TERMINAL


def test_a_worker_only_holds_what_it_claimed():
    """Into the held states leads nothing but a claim, and a cancel request of what was claimed."""
    into = {(event, before) for event, leads in LEADS_TO.items() for before, afters in leads.items() if afters & HELD}
    assert into == {(Event.CLAIM, Status.QUEUED), (Event.CANCEL, Status.RUNNING)}


@given(statuses, st.integers(0, 5), st.one_of(st.none(), st.integers(0, 2_000)), st.integers(0, 2_000))
def test_a_job_expires_only_before_its_first_claim(status, attempt, expires_at, now):
    if expired(status, attempt, expires_at, now):
        assert status in WAITING
        assert attempt == 0
        assert expires_at is not None
        assert now >= expires_at


@given(st.integers(0, 2**44), st.sampled_from(sorted(PRIORITY_BOOST_MS)), st.integers(0, 2**44))
def test_a_waiting_job_overtakes_every_priority_with_time(due, priority, later_by):
    """Ageing: the boost is constant, so the first to be due is ahead of any that is due more than ten minutes later."""
    for other in PRIORITY_BOOST_MS:
        if later_by > 600_000:
            assert ready_score(due, priority) < ready_score(due + later_by, other)


@given(
    st.integers(0, 2**44),
    st.integers(0, 2**44),
    st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=5),
    st.one_of(st.none(), st.text(max_size=20)),
    st.one_of(st.none(), st.floats(0.001, 1e7)),
)
def test_a_definition_is_read_as_it_was_written(run_at, key_at, tags, name, expires):
    made = Definition(
        target=TaskTarget(handler="h", timeout_s=0.1),
        run_at=run_at,
        key_at=key_at,
        payload=Raw(b'{"a":[1,2.50,"\\u00e9"]}'),
        name=name,
        timing=Timing(class_="flexible", window_s=60),
        tags=tags,
        expires_after_s=expires,
    )
    back = decode_definition(encode_definition(made))
    assert bytes(back.payload) == bytes(made.payload)
    for field in Definition.__struct_fields__:
        if field != "payload":
            assert getattr(back, field) == getattr(made, field)


@given(st.integers(0, 2**44))
def test_an_idempotency_key_names_the_job_and_the_whole_second(key_at):
    key = idempotency_key("job_x", key_at)
    assert key == idempotency_key("job_x", key_at // 1_000 * 1_000)
    assert key.startswith("job_x@")
    assert "." not in key
