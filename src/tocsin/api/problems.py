"""Problems (RFC 9457): every way in which a request can be refused by the API itself.

Each is a `Refused` that is raised, or stands as the answer for one item of a batch. Details say what to do about it and never
repeat a secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from tocsin import wire
from tocsin.errors import Overloaded, Refused, ServerUnavailable
from tocsin.store.port import NotYours

JSON_PROBLEM = b"application/problem+json"
Fault = tuple[str, str]
"""A JSON pointer (RFC 6901) and what is wrong there."""


def step(name: str) -> str:
    """One step of a JSON pointer, escaped as RFC 6901 says."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def problem_of(refused: Refused) -> wire.Problem:
    """The body that tells a client about a refusal."""
    schedule_id, quota = refused.extra.get("schedule_id"), refused.extra.get("quota")
    return wire.Problem(
        type=f"/problems/{refused.kind}",
        title=refused.title,
        status=refused.status,
        detail=refused.detail,
        errors=[{"pointer": pointer, "detail": detail} for pointer, detail in refused.errors] or None,
        schedule_id=schedule_id if isinstance(schedule_id, str) else None,
        quota=quota if isinstance(quota, str) else None,
    )


def retry_after(seconds: float) -> bytes:
    """The value of a `Retry-After` header: whole seconds, at least one."""
    return str(max(1, ceil(min(seconds, 86_400.0)))).encode()


def unauthorized(detail: str) -> Refused:
    return Refused(401, "unauthorized", "No valid token", detail)


def no_such_path() -> Refused:
    return Refused(404, "no-such-path", "No such path", "nothing is served under this path; see /openapi.json")


def method_not_allowed(method: str, allowed: Iterable[str]) -> Refused:
    allow = ", ".join(allowed)
    return Refused(
        405,
        "method-not-allowed",
        "Method not allowed",
        f"{method[:20]} is not served under this path; allowed: {allow}",
        extra={"allow": allow},
    )


def forbidden(needed: str) -> Refused:
    return Refused(403, "forbidden", "Scope missing", f"this call needs a token with {needed}")


def unsupported_media_type(detail: str) -> Refused:
    return Refused(415, "unsupported-media-type", "Unsupported media type", detail)


def too_large(detail: str, pointer: str | None = None) -> Refused:
    errors = ((pointer, detail),) if pointer is not None else ()
    return Refused(413, "too-large", "Too large", detail, errors=errors)


def unreadable(detail: str) -> Refused:
    return Refused(400, "unreadable", "Not readable", detail)


def bad_cursor() -> Refused:
    return Refused(
        400,
        "bad-cursor",
        "Not a cursor of this list",
        "take next_cursor from the last page of the same list with the same filter, or start again without a cursor",
    )


def invalid(faults: Iterable[Fault]) -> Refused:
    errors = tuple(faults)
    first = f"{errors[0][0] or 'the body'}: {errors[0][1]}"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return Refused(422, "invalid", "Invalid request", first + more, errors=errors)


def not_found(what: str) -> Refused:
    return Refused(404, "not-found", "Not found", f"there is no such {what}")


def conflict(detail: str) -> Refused:
    return Refused(409, "conflict", "Conflict", detail)


def not_yours(why: NotYours) -> Refused:
    """The refusal of a worker's call for an attempt."""
    match why:
        case NotYours.SUPERSEDED:
            return Refused(
                409,
                "attempt-superseded",
                "Attempt superseded",
                "the attempt has ended or a newer one has taken its place; stop working on it",
            )
        case NotYours.TIMED_OUT:
            return Refused(
                409, "attempt-timed-out", "Attempt timed out", "the attempt ran past its timeout; stop working on it"
            )
        case NotYours.UNKNOWN:
            return not_found("attempt")


def unavailable(why: ServerUnavailable) -> Refused:
    """The refusal that says: nothing is known to have happened, repeat the request."""
    kind, title = ("overloaded", "Overloaded") if isinstance(why, Overloaded) else ("unavailable", "Unavailable")
    return Refused(503, kind, title, why.told or str(why) or "repeat the request", retry_after_s=why.retry_after_s)


def internal() -> Refused:
    return Refused(500, "internal", "Internal error", "a fault of the server; it has been logged")
