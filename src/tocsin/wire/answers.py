"""What answers of every kind share: pages of lists, and problems (RFC 9457)."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Page(Struct, kw_only=True):
    """A list's answer. A page may be short or empty and still have a cursor."""

    items: list[Any]
    next_cursor: str | None


class Problem(Struct, kw_only=True, omit_defaults=True):
    """RFC 9457, `application/problem+json`."""

    type: str
    title: str
    status: int
    detail: str = ""
    errors: list[dict[str, str]] | None = None
    schedule_id: str | None = None
    quota: str | None = None
