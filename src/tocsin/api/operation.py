"""What the API knows of one operation; the operations themselves are in `operations.py`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from msgspec import Struct

from tocsin import wire
from tocsin.api.auth import Rule
from tocsin.api.call import Answer, Call
from tocsin.api.desk import Desk
from tocsin.api.query import NoQuery
from tocsin.api.reading import Reader

Handler = Callable[[Desk, Call], Awaitable[Answer]]
NAMED = frozenset({"queue", "tenant"})
FREE = "name"  # a free name; it ends its path
_PARAMETER = re.compile(r"\{([a-z_]+)\}")


class Nothing(Struct, forbid_unknown_fields=True):
    """A body without fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path.

    `statuses` are the good answers, `problems` the bad ones beyond those that every call can get. `page_of` is what the items of
    a list are. An action may come without a body (`may_be_empty`), which is then as good as `{}`. With `by_item` a fault in one
    item of the body is that item's alone.
    """

    method: str
    path: str
    run: Handler
    rule: Rule
    summary: str
    group: str
    body: type[Struct] | None = None
    may_be_empty: bool = False
    limit: int = wire.MAX_BODY_BYTES
    by_item: bool = False
    query: type[Struct] = NoQuery
    answer: type[Struct] | None = None
    page_of: type[Struct] | None = None
    media: str = "application/json"
    statuses: tuple[int, ...] = (200,)
    problems: tuple[int, ...] = ()
    headers: tuple[str, ...] = ()
    waits: bool = False
    changes_tokens: bool = False
    dev_only: bool = False
    params: tuple[str, ...] = field(init=False)
    reader: Reader | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", tuple(_PARAMETER.findall(self.path)))
        object.__setattr__(self, "reader", None if self.body is None else Reader(self.body))
