"""IDs: in order of creation, with the slice and so the partition in the text."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.clock import SeededEntropy
from tocsin.errors import ConfigError
from tocsin.model.ids import (
    ALPHABET,
    SLICES,
    id_bound,
    is_job_id,
    keyed_id,
    made_at_ms,
    new_ids,
    slice_of,
    slice_of_key,
)
from tocsin.model.partition import bucket_of, check_partitions, partition_of

times = st.integers(0, (1 << 48) - 1)
seeds = st.integers(0, 2**32)
powers = st.integers(0, 12).map(lambda n: 2**n)


def made(at_ms: int, seed: int) -> str:
    return new_ids(1, at_ms, SeededEntropy(seed))[0]


@given(times, seeds)
def test_an_id_is_an_id_and_tells_when_it_was_made(at_ms, seed):
    job_id = made(at_ms, seed)
    assert is_job_id(job_id)
    assert made_at_ms(job_id) == at_ms
    assert 0 <= slice_of(job_id) < SLICES


@given(times, times, seeds, seeds)
def test_the_order_of_ids_is_the_order_of_creation(first, second, one, two):
    if first < second:
        assert made(first, one) < made(second, two)


@given(times, times, seeds)
def test_a_bound_parts_the_ids_by_time(at_ms, bound, seed):
    assert (made(at_ms, seed) >= id_bound(bound)) == (at_ms >= bound)


@given(times, seeds, powers)
def test_the_partition_is_the_slices_share(at_ms, seed, partitions):
    job_id = made(at_ms, seed)
    partition = partition_of(job_id, partitions)
    assert 0 <= partition < partitions
    assert partition == slice_of(job_id) * partitions // SLICES
    if partitions > 1:
        assert partition // 2 == partition_of(job_id, partitions // 2), "half as many partitions are pairs of these"


@given(times, seeds, st.text(max_size=20), st.text(min_size=1, max_size=30))
def test_a_keyed_id_is_in_the_slice_of_its_tenant_and_key(at_ms, seed, tenant, key):
    job_id = keyed_id(at_ms, SeededEntropy(seed), tenant, key)
    assert is_job_id(job_id)
    assert made_at_ms(job_id) == at_ms
    assert slice_of(job_id) == slice_of_key(tenant, key)


def test_fresh_ids_are_spread_over_all_slices_and_never_the_same():
    ids = new_ids(40_000, 1_800_000_000_000, SeededEntropy(3))
    assert len(set(ids)) == len(ids)
    per_partition = [0] * 16
    for job_id in ids:
        per_partition[partition_of(job_id, 16)] += 1
    assert max(per_partition) < 1.1 * 2_500
    assert min(per_partition) > 0.9 * 2_500


@given(st.text(alphabet=string.printable, max_size=40))
def test_any_text_is_judged_without_an_error(text):
    if is_job_id(text):
        assert len(text) == 30
        assert set(text[4:]) <= set(ALPHABET)


@given(times, seeds, st.integers(0, 29), st.sampled_from("ilouIU~ é\0"))
def test_a_mangled_id_is_none(at_ms, seed, place, char):
    job_id = made(at_ms, seed)
    mangled = job_id[:place] + char + job_id[place + 1 :]
    assert not is_job_id(mangled) or mangled == job_id


@given(st.integers(-10, 5_000))
def test_the_number_of_partitions_is_a_power_of_two(count):
    if count in {2**n for n in range(13)}:
        check_partitions(count)
    else:
        with pytest.raises(ConfigError):
            check_partitions(count)


@given(st.integers(0, 2**45))
def test_a_bucket_is_a_minute(at_ms):
    assert bucket_of(at_ms) * 60_000 <= at_ms < (bucket_of(at_ms) + 1) * 60_000
