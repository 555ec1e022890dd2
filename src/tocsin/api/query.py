"""What may stand after the `?` of a path. Unknown and repeated parameters are refused: a misspelt filter must not match all."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct

from tocsin.api.problems import Fault, invalid, step, unreadable
from tocsin.api.reading import fault_of
from tocsin.wire import FreeName, Moment, Name, ScheduleStatus, Status

MOST_PARAMETERS = 100
Tag = Annotated[str, Meta(pattern="^[^:]{1,64}:", max_length=321, description="A tag as key:value.")]
Limit = Annotated[int, Meta(ge=1, le=200)]
Cursor = str


class NoQuery(Struct, forbid_unknown_fields=True, frozen=True):
    """Nothing."""


class ListQuery(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A page of a list."""

    cursor: Cursor | None = None
    limit: Limit = 50


class JobQuery(ListQuery, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A page of jobs that match."""

    queue: Name | None = None
    status: Status | None = None
    schedule_id: Annotated[str, Meta(max_length=128)] | None = None
    tag: Annotated[list[Tag], Meta(max_length=20)] = []
    created_after: Moment | None = None
    created_before: Moment | None = None


class ScheduleQuery(ListQuery, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A page of schedules that match."""

    status: ScheduleStatus | None = None
    name: FreeName | None = None


def read_query(kind: type[Struct], text: bytes) -> Any:
    """The parameters of a query as a struct. Raises Refused (400 for what is not UTF-8, 422)."""
    if not text:
        return kind()
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_PARAMETERS)
    except UnicodeDecodeError:
        raise unreadable("the query is not UTF-8") from None
    except ValueError:
        raise invalid([("", f"a query has at most {MOST_PARAMETERS} parameters")]) from None
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    given: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, value in pairs:
        if "\0" in name or "\0" in value:
            faults.append((step(name), "must not contain the character NUL (U+0000)"))
        elif name not in fields:
            faults.append((step(name), "is not a known query parameter"))
        elif name == "tag":
            given.setdefault(name, []).append(value)
        elif name in given:
            faults.append((step(name), "is given more than once"))
        else:
            given[name] = int(value) if name == "limit" and re.fullmatch(r"[0-9]{1,9}", value) else value
    for name, value in given.items():
        try:
            given[name] = msgspec.convert(value, fields[name].type)
        except msgspec.ValidationError as exc:
            pointer, detail = fault_of(str(exc))
            faults.append((step(name) + pointer, detail))
    if faults:
        raise invalid(faults)
    return kind(**given)
