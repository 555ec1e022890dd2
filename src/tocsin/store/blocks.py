"""Named blocks of SQL, from the `.sql` files of an adapter.

A block starts with `-- name: <name>` and ends at the next one. `{{file.block}}` stands for another block's text. Nothing else is
ever put into a statement, so no value can become SQL.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import LiteralString

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_INCLUDE = re.compile(r"\{\{(\w+)\.(\w+)\}\}")
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)


@cache
def blocks(package: str, file: str) -> dict[str, LiteralString]:
    """The named blocks of `sql/<file>.sql` in a package, without comments and with their inclusions in place."""
    text = (resources.files(package) / "sql" / f"{file}.sql").read_text("utf-8")
    parts = _NAME.split(text)
    own = {parts[at]: _COMMENT.sub("", parts[at + 1]).strip().removesuffix(";") for at in range(1, len(parts), 2)}

    def included(found: re.Match[str]) -> str:
        return whole(own[found[2]]) if found[1] == file else blocks(package, found[1])[found[2]]

    def whole(body: str) -> str:
        return _INCLUDE.sub(included, body)

    # The files are part of the program: their text is as literal as one in the source.
    return {name: whole(body) for name, body in own.items()}
