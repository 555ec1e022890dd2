"""The form of a target: its URL and its headers."""

import pytest

from tocsin.model.urls import HostKey, errors_of, host_key, url_error
from tocsin.wire import HttpTarget


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://example.com", ("https", "example.com", 443)),
        ("HTTP://Example.COM:8080/a?b=c#d", ("http", "example.com", 8080)),
        ("http://example.com:/", ("http", "example.com", 80)),
        ("http://localhost:3000/x", ("http", "localhost", 3000)),
        ("http://my_service/x", ("http", "my_service", 80)),
        ("https://reminders.internal./v1", ("https", "reminders.internal.", 443)),
        ("http://10.0.0.1/x", ("http", "10.0.0.1", 80)),
        ("http://[::1]:8000/", ("http", "::1", 8000)),
        ("http://[FE80:0:0::1]/", ("http", "fe80::1", 80)),
        ("https://bücher.example/ü", ("https", "xn--bcher-kva.example", 443)),
        ("https://example.com/@path?x=@y&u=http://other", ("https", "example.com", 443)),
        ("https://example.com/a%20b%zz?q=%", ("https", "example.com", 443)),
        ("https://3com.example", ("https", "3com.example", 443)),
    ],
)
def test_a_valid_url_tells_where_it_goes(url, key):
    assert host_key(url) == HostKey(*key)
    assert url_error(url) is None


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("", "absolute"),
        ("/v1/send", "absolute"),
        ("example.com/x", "absolute"),
        ("//example.com", "absolute"),
        ("http:/example.com", "absolute"),
        ("ftp://example.com", "http or https"),
        ("file:///etc/passwd", "http or https"),
        ("gopher://x", "http or https"),
        ("javascript:alert(1)", "absolute"),
        ("http://", "name a host"),
        ("http:///path", "name a host"),
        ("http://?x", "name a host"),
        ("http://:80/", "not a valid name"),
        ("http://user:pass@example.com/", "user information"),
        ("http://example.com@evil.example/", "user information"),
        ("http://@example.com/", "user information"),
        ("http://example.com\\@evil.example/", "backslashes"),
        ("http://example.com/a b", "spaces"),
        (" http://example.com/", "spaces"),
        ("http://example.com/\r\nHost: evil", "U+000D"),
        ("http://example.com/\x00", "U+0000"),
        ("http://exa\tmple.com/", "U+0009"),
        ("http://example.com/\n", "U+000A"),
        ("http://example.com/\x7f", "U+007F"),
        ("http://example.com/\ud800", "U+D800"),
        ("http://example.com:0/", "port"),
        ("http://example.com:65536/", "port"),
        ("http://example.com:http/", "port"),
        ("http://example.com:-1/", "port"),
        ("http://example.com:٨٠/", "port"),
        ("http://example.com:" + "9" * 5000, "port"),
        ("http://a:80:90/", "port"),
        ("http://[::1/", "IPv6"),
        ("http://[::1]x/", "IPv6"),
        ("http://[]/", "IPv6"),
        ("http://[1.2.3.4]/", "IPv6"),
        ("http://[fe80::1%25eth0]/", "zone"),
        ("http://127.1/", "four decimal"),
        ("http://2130706433/", "four decimal"),
        ("http://0x7f.0.0.1/", "four decimal"),
        ("http://0x7f000001/", "four decimal"),
        ("http://0177.0.0.1/", "four decimal"),
        ("http://127.0.0.1./", "four decimal"),
        ("http://1.2.3.256/", "four decimal"),
        ("http://a..b/", "not a valid name"),
        ("http://-a.example/", "not a valid name"),
        ("http://a%2eb/", "not a valid name"),
        ("http://exa$mple/", "not a valid name"),
        ("http://" + "a" * 64 + ".example/", "not a valid name"),
        ("http://" + "a." * 127 + "example/", "not a valid name"),
        ("http://" + "ü" * 80 + ".example/", "international"),
    ],
)
def test_a_url_that_cannot_be_called_or_read_in_two_ways_is_refused(url, part):
    detail = url_error(url)
    assert detail is not None
    assert part in detail


def test_a_fullwidth_host_is_the_plain_host():
    assert host_key("http://\uff45xample.com/").host == "example.com"
    # Digits and dots of other scripts make an address like any other.
    assert host_key("http://\uff11\uff12\uff17\u30020\u30020\u30021/").host == "127.0.0.1"


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "CONNECTION",
        "Keep-Alive",
        "Upgrade",
        "TE",
        "Trailer",
        "Expect",
        "Proxy-Authorization",
        "Idempotency-Key",
        "idempotency-key",
        "Webhook-Signature",
        "webhook-anything",
        "Tocsin-Job-Id",
        "tocsin-x",
    ],
)
def test_headers_that_are_not_the_users_are_refused(name):
    [(pointer, detail)] = errors_of(HttpTarget(url="https://example.com", headers={name: "x"}))
    assert pointer == f"/target/headers/{name}"
    assert "cannot be given" in detail


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "ä", "a(b)", 'a"b'])
def test_malformed_header_names_are_refused(name):
    assert errors_of(HttpTarget(url="https://example.com", headers={name: "x"}))


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\n", "a\rb", "a\x00b", "a\x1fb", "a\x7f", "€", "\ud800", "x" * 8193])
def test_malformed_header_values_are_refused(value):
    [(pointer, _)] = errors_of(HttpTarget(url="https://example.com", headers={"X-A": value}))
    assert pointer == "/target/headers/X-A"


def test_usual_headers_pass():
    headers = {"Authorization": "Bearer x", "content-type": "text/plain", "X-Ünot": "y"}
    del headers["X-Ünot"]
    assert (
        errors_of(HttpTarget(url="https://example.com", headers=headers | {"X-Latin": "caf\xe9\t1", "X-Empty": ""}))
        == []
    )


def test_names_that_differ_by_case_only_are_given_twice():
    [(pointer, detail)] = errors_of(HttpTarget(url="https://example.com", headers={"X-A": "1", "x-a": "2"}))
    assert pointer == "/target/headers/x-a"
    assert "twice" in detail


def test_all_headers_together_are_bounded():
    headers = {f"X-{number}": "v" * 8000 for number in range(3)}
    [(pointer, _)] = errors_of(HttpTarget(url="https://example.com", headers=headers))
    assert pointer == "/target/headers"


def test_pointers_are_escaped_and_may_have_another_root():
    target = HttpTarget(url="nope", headers={"a/b~c": "x"})
    assert [pointer for pointer, _ in errors_of(target, "/jobs/3/target")] == [
        "/jobs/3/target/url",
        "/jobs/3/target/headers/a~1b~0c",
    ]
