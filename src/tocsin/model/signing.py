"""Signatures on callbacks, after Standard Webhooks (https://www.standardwebhooks.com, specification 1.0.0).

The server signs when it hands a callback to an executor, which therefore never holds a key. A tenant may have two active
keys: while one replaces the other every callback carries both signatures, and receivers may change over at leisure.

A receiver checks with `verify`, or with any library that knows Standard Webhooks.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterable, Mapping

SECRET_PREFIX = "whsec_"
SECRET_BYTES = 32
MIN_SECRET_BYTES = 24
MAX_SECRET_BYTES = 64
TOLERANCE_S = 300

ID_HEADER = "Webhook-Id"
TIMESTAMP_HEADER = "Webhook-Timestamp"
SIGNATURE_HEADER = "Webhook-Signature"

_BODILESS = frozenset({"GET", "DELETE"})


def new_secret(random: bytes) -> str:
    """The text of a secret made of 24 to 64 random bytes."""
    if not MIN_SECRET_BYTES <= len(random) <= MAX_SECRET_BYTES:
        raise ValueError(f"a signing secret has {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes, not {len(random)}")
    return SECRET_PREFIX + base64.b64encode(random).decode("ascii")


def key_of(secret: str) -> bytes:
    """The key inside a `whsec_…` text. Raises ValueError, which does not repeat the secret."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"a signing secret is {SECRET_PREFIX} followed by base64") from None
    if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
        raise ValueError(f"a signing secret has {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes, not {len(key)}")
    return key


def body_of(method: str, payload: bytes) -> bytes:
    """The body of a callback: the payload as it was sent; none for GET, DELETE or an absent payload (null)."""
    return b"" if method in _BODILESS or payload == b"null" else payload


def sign(secrets: Iterable[str], message_id: str, timestamp_s: int, body: bytes) -> str:
    """The value of `Webhook-Signature`: one `v1,<base64>` for each active secret, separated by spaces."""
    return " ".join(_signature(key_of(secret), message_id, str(timestamp_s), body) for secret in secrets)


def signature_headers(secrets: Iterable[str], message_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """The three headers of one attempt; without an active secret there is no signature, but still ID and time."""
    headers = {ID_HEADER: message_id, TIMESTAMP_HEADER: str(timestamp_s)}
    if signature := sign(secrets, message_id, timestamp_s, body):
        headers[SIGNATURE_HEADER] = signature
    return headers


def verify(
    secrets: Iterable[str], headers: Mapping[str, str], body: bytes, now_s: float, tolerance_s: float = TOLERANCE_S
) -> bool:
    """Whether a callback was signed with one of `secrets` not longer than `tolerance_s` ago (or ahead).

    The names of `headers` may be in any case. Takes the same time wherever a signature differs.
    """
    given = {name.lower(): value for name, value in headers.items()}
    message_id, timestamp = given.get(ID_HEADER.lower()), given.get(TIMESTAMP_HEADER.lower())
    signatures = given.get(SIGNATURE_HEADER.lower())
    if message_id is None or timestamp is None or signatures is None:
        return False
    # Twelve digits are enough for any time and keep int() from growing with what a stranger sends.
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return False
    if abs(now_s - int(timestamp)) > tolerance_s:
        return False
    expected = [_signature(key_of(secret), message_id, timestamp, body).encode() for secret in secrets]
    received = [signature.encode("utf-8", "replace") for signature in signatures.split(" ")]
    # Every pair is compared, so that the time does not tell which key or which signature matched.
    return sum(hmac.compare_digest(one, other) for one in expected for other in received) > 0


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    message = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, message, "sha256")).decode("ascii")
