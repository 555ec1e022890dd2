"""Retry-After in all its notations, and everything that is none."""

import pytest

from tocsin.executor.retry_after import retry_after_s

NOW_MS = 784_111_777_000  # Sun, 06 Nov 1994 08:49:37 GMT, the date of RFC 9110's examples


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("300", 300.0),
        ("0", 0.0),
        (" 120 ", 120.0),
        ("0000000000300", 300.0),
        ("86400", 86_400.0),
        ("86401", 86_400.0),
        ("1000000000000", 86_400.0),
        ("9" * 5000, 86_400.0),
        ("Sun, 06 Nov 1994 08:49:47 GMT", 10.0),
        ("Sunday, 06-Nov-94 08:49:47 GMT", 10.0),
        ("Sun Nov  6 08:49:47 1994", 10.0),
        ("Sun, 06 Nov 1994 08:49:60 GMT", 23.0),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Mon, 01 Jan 2099 00:00:00 GMT", 86_400.0),
        ("Friday, 01-Jan-45 00:00:00 GMT", 0.0),
    ],
)
def test_a_valid_header_is_a_wait_of_at_most_a_day(value, seconds):
    assert retry_after_s(value, NOW_MS) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "-5",
        "+5",
        "1.5",
        "1e12",
        "soon",
        "NaN",
        "٣٠",
        "300 s",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 CET",
        "Sun, 31 Feb 1994 08:49:37 GMT",
        "Sun, 06 Foo 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 25:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT",
        "Sun, 06 Nov 0000 08:49:37 GMT",
        "1994-11-06T08:49:37Z",
    ],
)
def test_anything_else_is_ignored(value):
    assert retry_after_s(value, NOW_MS) is None


def test_no_header_is_no_wait():
    assert retry_after_s(None, NOW_MS) is None
