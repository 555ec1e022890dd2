"""A request on its way to its handler, and the answer on its way back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from tocsin import wire
from tocsin.api.auth import Caller
from tocsin.api.problems import JSON_PROBLEM, problem_of, retry_after
from tocsin.errors import Refused
from tocsin.flow.tokens import Lease

Headers = list[tuple[bytes, bytes]]

# No answer may be kept by a cache or be taken for something that it is not.
_JSON: Headers = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]
_PROBLEM: Headers = [(b"content-type", JSON_PROBLEM), *_JSON[1:]]
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True, kw_only=True)
class Call:
    """One request that has passed the door: who asks, for what, with which body.

    `body` and `query` are of the types that the operation names; `raw` is the body's text. `lease` is what the token in the
    path speaks for, where the operation has one.
    """

    caller: Caller
    params: tuple[str, ...] = ()
    body: Any = None
    query: Any = None
    raw: bytes = b""
    nul: bool = False
    headers: dict[bytes, bytes] = field(default_factory=dict)
    lease: Lease | None = None


class Answer(NamedTuple):
    """What goes back: a status, headers and a whole body."""

    status: int
    headers: Headers
    body: bytes


def ok(value: object, status: int = 200, extra: Headers | None = None) -> Answer:
    """A JSON answer."""
    return Answer(status, _JSON if extra is None else [*_JSON, *extra], _encode(value))


def nothing() -> Answer:
    """Done, and there is nothing to show."""
    return Answer(204, _JSON[1:], b"")


def other(content_type: bytes, body: bytes, extra: Headers | None = None) -> Answer:
    """An answer that is not JSON."""
    return Answer(200, [(b"content-type", content_type), *_JSON[1:], *(extra or [])], body)


def refused(why: Refused, problem: wire.Problem | None = None) -> Answer:
    """The answer of a refusal, with the headers that belong to its status."""
    headers = _PROBLEM
    if why.retry_after_s is not None:
        headers = [*headers, (b"retry-after", retry_after(why.retry_after_s))]
    if why.status == 401:
        headers = [*headers, (b"www-authenticate", b'Bearer realm="tocsin"')]
    elif why.status == 405:
        headers = [*headers, (b"allow", str(why.extra.get("allow", "")).encode())]
    return Answer(why.status, headers, _encode(problem or problem_of(why)))
