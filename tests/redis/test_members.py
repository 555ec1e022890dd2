"""A member as text comes back as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.model.job import Lane, Line
from tocsin.model.timer import Due
from tocsin.near.redis.members import due_of, text_of

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
LINES = st.builds(Line, NAMES, NAMES, st.sampled_from(Lane), NAMES, st.just("") | NAMES, st.booleans())
DUES = st.builds(
    Due, st.integers(-(10**12), 10**15), st.just("job_x"), st.integers(1, 10**9), LINES, st.integers(-100, 100)
)


@given(DUES)
def test_a_member_comes_back_as_it_was(due: Due) -> None:
    again = due_of(due.job_id, text_of(due))
    assert again == due
    assert [type(part) for part in again] == [type(part) for part in due]
    assert isinstance(again.line.lane, Lane)


def test_a_hold_may_contain_what_separates_the_other_parts() -> None:
    due = Due(1, "job_x", 1, Line("acme", "mail", Lane.PRECISE, "send", "a\x1fb\x1f", True), 0)
    assert due_of("job_x", text_of(due)) == due
