"""Answers as users of the client see them: the structs of `wire`, with JSON values as Python values."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from msgspec import Struct

from tocsin import wire

T = TypeVar("T")


class Job(wire.Job, kw_only=True):
    """A job. `replayed` is true when a create found the job that an earlier one with the same key had made."""

    payload: Any
    progress: Any
    result: Any
    replayed: bool = False


class Attempt(wire.Attempt, kw_only=True):
    """One try of a job."""

    response: Any = None


class JobTemplate(wire.JobTemplate, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """What each occurrence's job is made of."""

    payload: Any = None


class Schedule(wire.Schedule, kw_only=True):
    """A schedule. `made` is true when the create or upsert that this answers made it."""

    job_template: JobTemplate | None
    made: bool = False


class Items(Struct, Generic[T], kw_only=True):
    """One page of a list."""

    items: list[T]
    next_cursor: str | None = None


class Statused(Struct, kw_only=True):
    """What a completion answers: the job's status."""

    status: str
