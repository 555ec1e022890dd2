"""Cursors: where a list goes on, sealed so that only the list that gave one takes it back.

A cursor names the last item that was shown, never an offset, so rows that come and go in between neither repeat nor hide others.
The seal covers the tenant, the list and its filter: a cursor that is broken, made up, or of another list is refused.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import TypeVar

import msgspec

from tocsin.api.problems import bad_cursor

_SEAL = 12
_TIMED = re.compile(r"(-?[0-9]{1,18}) (.*)")
Row = TypeVar("Row")


class Cursors:
    """Makes and reads the cursors of an installation."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret[:64]

    def make(self, place: Sequence[str], after: str) -> str:
        """The cursor that continues the list `place` (tenant, operation, filter) behind `after`."""
        text = after.encode()
        return urlsafe_b64encode(self._seal(place, text) + text).rstrip(b"=").decode()

    def read(self, place: Sequence[str], cursor: str | None) -> str | None:
        """What a cursor continues behind; None without one. Raises Refused (400)."""
        if cursor is None:
            return None
        try:
            data = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
            text = data[_SEAL:]
            # Base64 can be written in more than one way; only our own way counts.
            if compare_digest(data[:_SEAL], self._seal(place, text)) and self.make(place, text.decode()) == cursor:
                return text.decode()
        except (UnicodeError, binascii.Error):
            pass
        raise bad_cursor()

    def _seal(self, place: Sequence[str], text: bytes) -> bytes:
        return blake2b(msgspec.json.encode([*place]) + text, key=self._secret, digest_size=_SEAL).digest()


def timed(text: str) -> tuple[int, str]:
    """A place that is an instant (ms) and a text, written `f"{at} {text}"`. Raises Refused (400)."""
    found = _TIMED.fullmatch(text)
    if found is None:
        raise bad_cursor()
    return int(found[1]), found[2]


def page_of(
    rows: Sequence[Row], key: Callable[[Row], str], after: str | None, limit: int, *, newest_first: bool = False
) -> tuple[list[Row], str | None]:
    """A page of a short list by a unique key, and the key to continue behind."""
    ordered = sorted(rows, key=key, reverse=newest_first)
    if after is not None:
        ordered = [row for row in ordered if (key(row) < after if newest_first else key(row) > after)]
    shown = ordered[:limit]
    return shown, key(shown[-1]) if len(ordered) > limit else None
