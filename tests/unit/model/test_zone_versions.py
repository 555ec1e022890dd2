import pytest

from tocsin.model.schedule import older
from tocsin.model.zones import pinned_zones


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2026a", "2026b"),
        ("2026z", "2027a"),
        ("2026z", "2026za"),
        ("2026", "2026a"),
        ("", "2026a"),
        ("2026.9", "2026.10"),
    ],
)
def test_a_version_of_the_zone_data_is_older_than_the_next(one, other):
    assert older(one, other)
    assert not older(other, one)


def test_a_version_is_not_older_than_itself():
    version = pinned_zones().version
    assert not older(version, version)


def test_the_pinned_version_is_newer_than_that_of_years_ago():
    assert older("2019c", pinned_zones().version)
