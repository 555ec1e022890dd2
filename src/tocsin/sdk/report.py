"""What a worker says about an attempt that has ended: the body of one completion, as the sending side builds it.

The same fields as `wire.TokenCompletion`, but only those that say something travel: most reports are
`{"token": …, "outcome": "succeeded"}`.
"""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import Any

import msgspec
from msgspec import Raw, Struct

from tocsin import wire
from tocsin.errors import Fatal

_ENCODER = msgspec.json.Encoder()
_CUT_MARK = wire.ERROR_CUT_MARK.encode()


class Report(Struct, omit_defaults=True, gc=False):
    """How an attempt ended. `status_code` and `response` are for executors; `token` is filled in by the engine."""

    outcome: wire.ReportedOutcome
    error: str | None = None
    result: Raw | None = None
    retry_after_s: float | None = None
    status_code: int | None = None
    response: wire.Response | None = None
    token: str | None = None

    def body(self, token: str) -> bytes:
        """The JSON of this report about the attempt that `token` names (a token is part of a path: it needs no quoting)."""
        if self is SUCCEEDED:
            return b'{"outcome":"succeeded","token":"' + token.encode() + b'"}'
        self.token = token
        return _ENCODER.encode(self)


# Shared by all attempts that have nothing more to say, which are most.
SUCCEEDED = Report("succeeded")


def succeeded(result: Any = None) -> Report:
    """The attempt did its work. Raises `Fatal` for a result that cannot be sent: repeating would not mend it."""
    if result is None:
        return SUCCEEDED
    try:
        encoded = _ENCODER.encode(result)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise Fatal(f"the handler's result cannot be written as JSON: {exc}") from exc
    if len(encoded) > wire.MAX_RESULT_BYTES:
        raise Fatal(
            f"the handler's result has {len(encoded)} bytes of JSON, at most {wire.MAX_RESULT_BYTES} are kept; "
            "store it elsewhere and return where it is"
        )
    return Report("succeeded", result=Raw(encoded))


def failed(error: str, *, retry_after_s: float | timedelta | None = None) -> Report:
    """The attempt failed and may be tried again, not before `retry_after_s`; a pause that makes no sense is ignored."""
    if isinstance(retry_after_s, timedelta):
        retry_after_s = retry_after_s.total_seconds()
    if not isinstance(retry_after_s, int | float) or not 0 <= retry_after_s < inf:
        retry_after_s = None
    return Report("retryable_failure", error=cut(error), retry_after_s=retry_after_s)


def fatal(error: str) -> Report:
    """The job cannot succeed."""
    return Report("fatal_failure", error=cut(error))


def cancelled(error: str | None = None) -> Report:
    """The attempt was stopped because the job's cancellation was asked for."""
    return Report("cancelled", error=None if error is None else cut(error))


def released(retry_after_s: float | None = None) -> Report:
    """The job is handed back as it came; its try is not counted."""
    return Report("released", retry_after_s=retry_after_s)


def cut(error: str) -> str:
    """`error` in at most 8 KiB of UTF-8 that is valid JSON text, with a mark where it was cut."""
    encoded = error.encode("utf-8", "backslashreplace").replace(b"\x00", b"\\x00")
    if len(encoded) > wire.MAX_ERROR_BYTES:
        encoded = encoded[: wire.MAX_ERROR_BYTES - len(_CUT_MARK)]
        return encoded.decode("utf-8", "ignore") + wire.ERROR_CUT_MARK
    return encoded.decode("utf-8")
