"""Standard Webhooks signatures."""

import base64

import pytest

from tocsin.model.signing import (
    body_of,
    key_of,
    new_secret,
    sign,
    signature_headers,
    verify,
)

OLD, NEW = new_secret(b"o" * 32), new_secret(b"n" * 32)
NOW_S = 1_614_265_330
BODY = b'{"test": 2432232314}'


def test_the_published_example_of_the_standard_is_reproduced():
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    signature = sign([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", NOW_S, BODY)
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_two_active_keys_make_two_signatures_and_either_verifies():
    headers = signature_headers([OLD, NEW], "job_1@t", NOW_S, BODY)
    assert headers["Webhook-Id"] == "job_1@t"
    assert headers["Webhook-Timestamp"] == str(NOW_S)
    assert [part[:3] for part in headers["Webhook-Signature"].split(" ")] == ["v1,", "v1,"]
    assert verify([OLD], headers, BODY, NOW_S)
    assert verify([NEW], headers, BODY, NOW_S)
    assert not verify([new_secret(b"x" * 32)], headers, BODY, NOW_S)


def test_without_a_key_there_is_no_signature_header():
    assert signature_headers([], "id", NOW_S, BODY).keys() == {"Webhook-Id", "Webhook-Timestamp"}


@pytest.mark.parametrize(
    "change",
    [
        {"Webhook-Id": "other"},
        {"Webhook-Timestamp": str(NOW_S + 1)},
        {"Webhook-Timestamp": "soon"},
        {"Webhook-Timestamp": "9" * 5000},
        {"Webhook-Signature": "v1,AAAA"},
        {"Webhook-Signature": ""},
        {"Webhook-Signature": "v1,\xfc€"},
    ],
)
def test_a_changed_header_does_not_verify(change):
    assert not verify([OLD], signature_headers([OLD], "id", NOW_S, BODY) | change, BODY, NOW_S)


def test_a_changed_body_a_missing_header_and_an_old_message_do_not_verify():
    headers = signature_headers([OLD], "id", NOW_S, BODY)
    assert verify([OLD], {name.lower(): value for name, value in headers.items()}, BODY, NOW_S)
    assert not verify([OLD], headers, BODY + b" ", NOW_S)
    assert not verify([OLD], {"Webhook-Id": "id"}, BODY, NOW_S)
    assert not verify([OLD], headers, BODY, NOW_S + 301)
    assert not verify([OLD], headers, BODY, NOW_S - 301)
    assert verify([OLD], headers, BODY, NOW_S + 299)


def test_a_signature_without_a_body_is_over_the_empty_body():
    headers = signature_headers([OLD], "id", NOW_S, b"")
    assert verify([OLD], headers, b"", NOW_S)


@pytest.mark.parametrize("count", [23, 65])
def test_secrets_have_24_to_64_bytes(count):
    with pytest.raises(ValueError, match="24 to 64"):
        new_secret(b"x" * count)
    with pytest.raises(ValueError, match="24 to 64"):
        key_of("whsec_" + base64.b64encode(b"x" * count).decode())


def test_a_malformed_secret_is_not_repeated_in_the_error():
    with pytest.raises(ValueError, match="base64") as caught:
        key_of("whsec_not!base64")
    assert "not!base64" not in str(caught.value)


def test_the_body_is_the_payload_as_sent_or_nothing():
    assert body_of("POST", b'{ "a" : 1 }') == b'{ "a" : 1 }'
    assert body_of("POST", b"null") == b""
    assert body_of("GET", b'{"a":1}') == b""
    assert body_of("DELETE", b'{"a":1}') == b""
    assert body_of("PATCH", b"0") == b"0"
