"""What is said to etcd's JSON gateway and what it answers: protobuf in JSON (etcd.io/docs/v3.5/dev-guide/api_reference_v3).

Keys and values travel in base64, 64-bit numbers as texts, and what is zero or empty is left out. Nothing is sent from here.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar, assert_never

import msgspec

_S = TypeVar("_S", bound=msgspec.Struct)


# --- what callers say and get -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key as it stands; `lease` is 0 if it hangs on none."""

    key: str
    value: bytes
    lease: int


@dataclass(frozen=True, slots=True)
class Get:
    """Read a key, or all from it up to `end`."""

    key: str
    end: str | None = None


@dataclass(frozen=True, slots=True)
class Put:
    """Write a key; with a lease it goes when that ends."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a key, or all from it up to `end`."""

    key: str
    end: str | None = None


@dataclass(frozen=True, slots=True)
class Exists:
    """Holds if there is such a key."""

    key: str


@dataclass(frozen=True, slots=True)
class Absent:
    """Holds if there is no such key."""

    key: str


@dataclass(frozen=True, slots=True)
class Holds:
    """Holds if the key has this value."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Bound:
    """Holds if the key hangs on this lease."""

    key: str
    lease: int


Compare = Exists | Absent | Holds | Bound


@dataclass(frozen=True, slots=True)
class If:
    """An operation under a condition of its own, which is judged on what stood before the transaction."""

    compare: Compare
    then: Put | Delete


Operation = Get | Put | Delete | If


@dataclass(frozen=True, slots=True)
class Txn:
    """Which branch ran, and what its reads found, one entry per operation (empty for writes).

    `lease_gone`: neither ran, because a lease that a write names is gone. `repeated`: it was asked more than once, so an
    earlier try may have taken effect and be what stands in the way of this one.
    """

    succeeded: bool
    found: tuple[tuple[KeyValue, ...], ...] = ()
    lease_gone: bool = False
    repeated: bool = False


def prefix_end(prefix: str) -> str:
    """The end of the range of all keys that begin with `prefix`, which must end in an ASCII character below DEL."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


# --- what goes out ----------------------------------------------------------------------------------------------------


def range_body(get: Get) -> dict[str, object]:
    """The body of a range request."""
    return _span(get.key, get.end)


def txn_body(
    compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation]
) -> dict[str, object]:
    """The body of a transaction."""
    return {
        "compare": [_compare(each) for each in compares],
        "success": [_operation(each) for each in then],
        "failure": [_operation(each) for each in otherwise],
    }


def _compare(compare: Compare) -> dict[str, object]:
    key = _base64(compare.key.encode())
    match compare:
        case Exists():
            return {"key": key, "target": "CREATE", "result": "GREATER", "create_revision": 0}
        case Absent():
            return {"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": 0}
        case Holds():
            return {"key": key, "target": "VALUE", "result": "EQUAL", "value": _base64(compare.value)}
        case Bound():
            return {"key": key, "target": "LEASE", "result": "EQUAL", "lease": compare.lease}
        case _:
            assert_never(compare)


def _operation(operation: Operation) -> dict[str, object]:
    match operation:
        case Get():
            return {"request_range": _span(operation.key, operation.end)}
        case Delete():
            return {"request_delete_range": _span(operation.key, operation.end)}
        case Put():
            key = {"key": _base64(operation.key.encode()), "value": _base64(operation.value)}
            return {"request_put": {**key, "lease": operation.lease}}
        case If():
            return {"request_txn": txn_body((operation.compare,), (operation.then,), ())}
        case _:
            assert_never(operation)


def _span(key: str, end: str | None) -> dict[str, object]:
    span: dict[str, object] = {"key": _base64(key.encode())}
    return span if end is None else {**span, "range_end": _base64(end.encode())}


def _base64(content: bytes) -> str:
    return b64encode(content).decode("ascii")


# --- what comes back --------------------------------------------------------------------------------------------------


class WireKeyValue(msgspec.Struct):
    key: bytes
    value: bytes = b""
    lease: int = 0


class RangeAnswer(msgspec.Struct):
    kvs: list[WireKeyValue] = []


class WireResponse(msgspec.Struct):
    response_range: RangeAnswer | None = None


class TxnAnswer(msgspec.Struct):
    succeeded: bool = False
    responses: list[WireResponse] = []


class GrantAnswer(msgspec.Struct):
    ID: int


class KeepAlive(msgspec.Struct):
    TTL: int = 0


class KeepAliveAnswer(msgspec.Struct):
    """The first and only message of the stream; without `result` it says why the stream was broken off."""

    result: KeepAlive | None = None


class TokenAnswer(msgspec.Struct):
    token: str


class Nothing(msgspec.Struct):
    pass


class Error(msgspec.Struct):
    code: int
    message: str


def decode(content: bytes, kind: type[_S]) -> _S:
    """One answer. Raises msgspec.MsgspecError for what is none."""
    # Not strict: the gateway writes 64-bit numbers as texts, because JavaScript has none.
    return msgspec.json.decode(content, type=kind, strict=False)


def key_values(answer: RangeAnswer) -> tuple[KeyValue, ...]:
    """What a range found."""
    return tuple(KeyValue(each.key.decode("utf-8", "replace"), each.value, each.lease) for each in answer.kvs)


def txn(answer: TxnAnswer, *, repeated: bool) -> Txn:
    """What a transaction did."""
    found = tuple(key_values(each.response_range) if each.response_range else () for each in answer.responses)
    return Txn(answer.succeeded, found, repeated=repeated)
