"""The fingerprint of a body under a client's idempotency key: equal exactly where the parsed JSON is equal.

White space and the order of keys do not matter, nor whether a number is written `5` or `5.0`; `delay_s` counts as it is
written, so a repeated request is the same request whenever it comes.
"""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder(order="sorted").encode
# A number written with a point or an exponent, or something inside of a text that looks like one.
_FRACTION = re.compile(rb"[0-9](?:\.0|\.[0-9]+[eE]|[eE])")
_EXACT = 2.0**53


def body_hash(raw: bytes, path: str = "") -> bytes:
    """16 bytes that stand for a job's body, its `idempotency_key` left out, and for the path where the body alone does not say
    what is asked for. The body has passed its checks."""
    try:
        value = _decode(raw)
    except msgspec.DecodeError:
        # A number that no machine number can hold: compared as it is written. NUL cannot occur in a body.
        value = json.loads(raw, parse_int=_as_written, parse_float=_as_written)
    if isinstance(value, dict):
        value.pop("idempotency_key", None)
    if _FRACTION.search(raw):
        value = _plain(value)
    return blake2b(_encode(value) + path.encode(), digest_size=16).digest()


def _as_written(number: str) -> str:
    return "\0" + number


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= _EXACT else value
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value
