"""The SQL of this adapter, from the `.sql` files beside it, in blocks that begin with `-- name: <name>`. Nothing is ever put into them."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)


@cache
def blocks(file: str) -> dict[str, str]:
    """The named blocks of `sql/<file>.sql`, without comments."""
    parts = _NAME.split((resources.files(__package__) / "sql" / f"{file}.sql").read_text("utf-8"))
    return {parts[at]: _COMMENT.sub("", parts[at + 1]).strip() for at in range(1, len(parts), 2)}


def block(file: str, name: str) -> str:
    """One statement."""
    return blocks(file)[name]


def migrations() -> list[tuple[int, str, str]]:
    """Number, name and text of every step of the schema, in order."""
    folder = resources.files(__package__) / "migrations"
    found = sorted((file.name, file.read_text("utf-8")) for file in folder.iterdir() if file.name.endswith(".sql"))
    return [(int(name[:4]), name.removesuffix(".sql"), text) for name, text in found]
