"""Spread: a flexible job fires inside its window less the reserve, evenly, and always at the same place."""

from hypothesis import given
from hypothesis import strategies as st

from tocsin.clock import SeededEntropy
from tocsin.model.ids import new_ids
from tocsin.model.spread import spread_ms

job_ids = st.integers(0, 2**40).map(lambda seed: new_ids(1, 1_800_000_000_000, SeededEntropy(seed))[0])


@given(job_ids, st.integers(0, 86_400_000))
def test_it_is_inside_the_window_less_its_last_twentieth_and_at_least_five_seconds(job_id, window_ms):
    at = spread_ms(job_id, window_ms)
    assert at >= 0
    if window_ms <= 5_000:
        assert at == 0
    else:
        assert at < window_ms - 5_000 + 1
        assert at <= window_ms * 0.95


@given(job_ids, st.integers(1, 86_400_000))
def test_it_depends_on_the_job_alone(job_id, window_ms):
    assert spread_ms(job_id, window_ms) == spread_ms(job_id, window_ms)
    assert 0 <= spread_ms(job_id, window_ms, whole=True) < window_ms


def test_it_is_even():
    ids = new_ids(10_000, 1_800_000_000_000, SeededEntropy(1))
    tenths = [0] * 10
    for job_id in ids:
        tenths[spread_ms(job_id, 600_000) * 10 // 570_000] += 1
    assert max(tenths) < 1.15 * 1_000
    assert min(tenths) > 0.85 * 1_000
