"""Bounds, names and the small words that all bodies and answers are made of."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw

DAY_S = 86_400
HORIZON_S = 366 * DAY_S
MAX_PAYLOAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 256 * 1024
MAX_BATCH_BYTES = 16 * 1024 * 1024
MAX_BATCH_JOBS = 5_000
MAX_BATCH_ATTEMPTS = 5_000
MAX_CLAIM = 1_000
MAX_ERROR_BYTES = 8 * 1024
MAX_RESULT_BYTES = 16 * 1024
MAX_PROGRESS_BYTES = 4 * 1024
MAX_RESPONSE_BYTES = 4 * 1024
MAX_JSON_DEPTH = 100
MASK = "***"  # what answers show of a header's value
ERROR_CUT_MARK = "… (cut)"

# `$(?!\n)`: "$" alone also matches before a final line break in Python.
Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$(?!\n)",
        description="A name: letters, digits, `.`, `_`, `-`; starts with a letter or digit; at most 128.",
    ),
]
FreeName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f-\x9f]*$(?!\n)",
        description="1-200 characters without control characters.",
    ),
]
ClientKey = Annotated[
    str,
    Meta(
        min_length=1, max_length=255, pattern=r"^[\x20-\x7e]*$(?!\n)", description="1-255 printable ASCII characters."
    ),
]
TagKey = Annotated[str, Meta(min_length=1, max_length=64)]
TagValue = Annotated[str, Meta(max_length=256)]
Tags = Annotated[dict[TagKey, TagValue], Meta(max_length=20)]
Moment = Annotated[datetime, Meta(tz=True)]
Delay = Annotated[float, Meta(ge=0, le=HORIZON_S)]
Window = Annotated[float, Meta(ge=1, le=DAY_S)]
Backoff = Annotated[float, Meta(ge=0, le=DAY_S)]
Attempts = Annotated[int, Meta(ge=1, le=100)]
Expiry = Annotated[float, Meta(gt=0, le=HORIZON_S)]
LeaseSeconds = Annotated[float, Meta(ge=5, le=600)]

_NULL = Raw(b"null")

Method = Literal["POST", "PUT", "PATCH", "GET", "DELETE"]
Priority = Literal["high", "normal", "low"]


def _null() -> Raw:
    # A default that is a Raw itself could not be shown in a JSON schema.
    return _NULL


class Status(StrEnum):
    """Where a job stands in its life."""

    SCHEDULED = "SCHEDULED"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    RETRYING = "RETRYING"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    SUCCEEDED = "SUCCEEDED"
    DEAD = "DEAD"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"


class Outcome(StrEnum):
    """How an attempt ended. The last two are only ever recorded by Tocsin."""

    SUCCEEDED = "succeeded"
    RETRYABLE_FAILURE = "retryable_failure"
    FATAL_FAILURE = "fatal_failure"
    CANCELLED = "cancelled"
    RELEASED = "released"
    LOST = "lost"
    TIMED_OUT = "timed_out"


ReportedOutcome = Literal["succeeded", "retryable_failure", "fatal_failure", "cancelled", "released"]


def raw(text: bytes | None) -> Raw:
    """JSON text as it stands in an answer; None is null."""
    return _NULL if text is None else Raw(text)


def encode(value: object) -> bytes:
    """The JSON of a struct."""
    return _ENCODER.encode(value)


_ENCODER = msgspec.json.Encoder()
