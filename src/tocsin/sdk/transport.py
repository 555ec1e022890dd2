"""One request to a Tocsin server and its answer; how the bytes travel is the adapter's business.

Everything that can go wrong is translated here, once:

    an answer 2xx                                          -> Answer
    503 with a problem of the API ("alive, not now")       -> errors.Overloaded (carries `retry_after_s`)
    502, 503, 504 of something in between, no connection,
    a time-out, an answer cut short                        -> errors.ServerUnavailable: it may or may not have happened
    every other problem of RFC 9457                        -> errors.Refused

The adapters are `HttpTransport` (http.py) and `AsgiTransport` (asgi.py, no socket).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from tocsin import wire
from tocsin.errors import Overloaded, Refused, ServerUnavailable

T = TypeVar("T")
DEFAULT_TIMEOUT_S = 30.0
MAX_RETRY_AFTER_S = 60.0
_ANY = msgspec.json.Decoder()


class Answer(NamedTuple):
    """A good answer (2xx). Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """A way to one server, with one token."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Answer:
        """Send one request and wait for its answer. Raises `Refused` or `ServerUnavailable`; repeats nothing."""
        ...

    def fresh(self) -> Transport | None:
        """The same way with connections of its own, for another thread's event loop; None if that cannot be."""
        ...

    async def close(self) -> None:
        """Let go of all connections. A closed transport opens new ones when it is used again."""
        ...


def accept(status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    """The answer if it is a good one; raises what it stands for otherwise."""
    if 200 <= status < 300:
        return Answer(status, headers, body)
    problem = _problem_of(headers, body)
    retry_after_s = _retry_after_s(headers.get("retry-after"))
    if status in (502, 503, 504):
        detail = f"{problem.title}: {problem.detail}" if problem else "no answer of Tocsin's"
        unavailable = (Overloaded if status == 503 and problem else ServerUnavailable)(f"{status} {detail}")
        if retry_after_s is not None:
            unavailable.retry_after_s = retry_after_s
        raise unavailable
    if problem is None:
        raise Refused(
            status, "not-a-problem", "Unexpected answer", "it is not one of Tocsin's; check the address (TOCSIN_URL)"
        )
    raise refusal(problem, retry_after_s=retry_after_s, extra=_extra_of(body))


def refusal(
    problem: wire.Problem, *, retry_after_s: float | None = None, extra: dict[str, object] | None = None
) -> Refused:
    """The exception that carries a problem."""
    return Refused(
        problem.status,
        problem.type.rsplit("/", 1)[-1],
        problem.title,
        problem.detail,
        errors=tuple((error.get("pointer", ""), error.get("detail", "")) for error in problem.errors or ()),
        retry_after_s=retry_after_s,
        extra=extra,
    )


def decode(body: bytes, kind: type[T]) -> T:
    """An answer's body as `kind`; fields that this version does not know are passed over."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as exc:
        # A payload may hold a number that no double can, such as 1e999: valid JSON, and Python's own reader takes it.
        try:
            return msgspec.convert(json.loads(body), type=kind)
        except (ValueError, RecursionError):
            raise ServerUnavailable(f"the answer cannot be read ({exc}); it may have been cut short") from exc


def json_value(raw: bytes | msgspec.Raw) -> Any:
    """Any JSON value as Python has it. Raises `ValueError` if it is deeper than Python can follow."""
    try:
        return _ANY.decode(raw)
    except msgspec.DecodeError:
        return json.loads(bytes(raw))
    except RecursionError as exc:
        raise ValueError("the JSON is nested too deeply") from exc


def _problem_of(headers: Mapping[str, str], body: bytes) -> wire.Problem | None:
    if not headers.get("content-type", "").startswith("application/problem+json"):
        return None
    try:
        return msgspec.json.decode(body, type=wire.Problem)
    except msgspec.DecodeError:
        return None


def _extra_of(body: bytes) -> dict[str, object]:
    fields: dict[str, object] = msgspec.json.decode(body)
    for known in ("type", "title", "status", "detail", "errors"):
        fields.pop(known, None)
    return fields


def _retry_after_s(value: str | None) -> float | None:
    """`Retry-After` in seconds (the form Tocsin sends; a date or nonsense is passed over), at most a minute."""
    if value is None or not value.strip().isascii():
        return None
    try:
        seconds = float(value)
    except ValueError:
        return None
    return min(seconds, MAX_RETRY_AFTER_S) if seconds >= 0 else None
