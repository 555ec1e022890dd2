"""What people type: durations, JSON, pairs. Wrong input is a wrong use (exit 2) that names the option."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tocsin.errors import UsageError

if TYPE_CHECKING:
    from msgspec import Raw

_UNITS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|h|d|)")


def seconds(text: str, option: str) -> float:
    """A duration such as `90`, `1.5h` or `3d` in seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{option} {text!r} is not a duration; give seconds, or a number with ms, s, m, h or d: 90, 15m, 1.5h"
        )
    return float(match[1]) * _UNITS_S[match[2]]


def json_text(text: str, option: str) -> Raw:
    """A JSON value: given as such, as `@FILE`, or `-` for standard input. It is sent exactly as it was written."""
    from msgspec import Raw

    if text == "-":
        data = sys.stdin.buffer.read()
    elif text.startswith("@"):
        try:
            data = Path(text[1:]).read_bytes()
        except OSError as exc:
            raise UsageError(f"{option}: {text[1:]} cannot be read: {exc.strerror or exc}") from exc
    else:
        data = text.encode("utf-8", "surrogateescape")
    try:
        json.loads(data, parse_constant=_no_constant)
    except RecursionError as exc:
        raise UsageError(f"{option} is JSON nested too deeply") from exc
    except ValueError as exc:
        raise UsageError(f"{option} is not JSON ({exc}); text needs quotes of its own: '\"text\"'") from exc
    return Raw(data)


def pairs(texts: list[str], option: str, separator: str) -> dict[str, str]:
    """`KEY=VALUE` (or `NAME: VALUE`), each key once."""
    found: dict[str, str] = {}
    for text in texts:
        key, mark, value = text.partition(separator)
        key, value = key.strip(), value.strip()
        if not mark or not key:
            raise UsageError(f"{option} {text!r} must be KEY{separator}VALUE")
        if key in found:
            raise UsageError(f"{option} {key!r} is given twice")
        found[key] = value
    return found


def tag(text: str) -> str:
    """A filter by tag, typed as `KEY=VALUE`, as the API takes it."""
    ((key, value),) = pairs([text], "--tag", "=").items()
    return f"{key}:{value}"


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
