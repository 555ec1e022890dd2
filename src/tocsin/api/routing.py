"""From a path to its operations, in one look-up whatever the number of operations.

A path is a template of literal parts with parameters in the third and fifth place, where an action may follow the parameter
behind a colon: `/v1/queues/{}:claim`. Names and IDs contain no colon, so the last one separates. A parameter `{name}` at the end
is a free name and takes all that is left, slashes and colons included. Routing looks at the decoded path and so does everything
that judges it: there is no second reading that could differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

_PARAMETER = re.compile(r"\{[a-z_]+\}")
_PLACES = (3, 5)
_FREE = "/{name}"


class Routed(Protocol):
    """What the router needs to know of an operation."""

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...


R = TypeVar("R", bound=Routed)


class Router:
    """The operations by path and method."""

    def __init__(self, operations: Iterable[Routed]) -> None:
        self._by_template: dict[str, dict[str, Routed]] = {}
        self._actions: set[str] = set()
        self._by_start: dict[str, dict[str, Routed]] = {}
        for operation in operations:
            if operation.path.endswith(_FREE):
                start = operation.path.removesuffix(_FREE) + "/"
                self._by_start.setdefault(start, {})[operation.method] = operation
                continue
            template = _PARAMETER.sub("{}", operation.path)
            self._by_template.setdefault(template, {})[operation.method] = operation
            if "{}:" in template:
                self._actions.add(template.rpartition(":")[2])

    def find(self, path: str) -> tuple[Mapping[str, Routed], tuple[str, ...]] | None:
        """The operations of a path by method, and the parameters in it; None if nothing is served there."""
        if (literal := self._by_template.get(path)) is not None and "{" not in path:
            return literal, ()
        for start, named in self._by_start.items():
            if path.startswith(start):
                return (named, (path.removeprefix(start),)) if path != start else None
        parts = path.split("/")
        params: list[str] = []
        for place in _PLACES:
            if place < len(parts):
                value, colon, action = parts[place].rpartition(":")
                if colon and place == len(parts) - 1 and action in self._actions:
                    parts[place] = "{}:" + action
                elif colon:
                    return None
                else:
                    value, parts[place] = parts[place], "{}"
                if not value:
                    return None
                params.append(value)
        found = self._by_template.get("/".join(parts))
        return None if found is None else (found, tuple(params))
