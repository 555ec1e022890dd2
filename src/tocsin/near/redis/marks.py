"""Marks: which of the 64 line tags have callbacks, so that an executor's claim need not ask them all.

Whoever brings callbacks marks their tag afterwards, in the first tag; a look that finds a tag empty takes the mark away, unless it was
renewed meanwhile. A process that dies between bringing and marking, and a pause that ends by itself, mark nothing: so
all tags are looked at about once a second, and marked where that finds something. The same place knows for a minute which
tags a request's callbacks came from, so that its repeat is answered by any process.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tocsin.near.redis.keys import Keys
from tocsin.near.redis.programs import Programs
from tocsin.near.redis.scripts import Call, Script

LOOK_AT_ALL_MS = 1_000
_MARKS, _NOTE = Script("callbacks_marks"), Script("callbacks_note")


@dataclass(frozen=True, slots=True)
class Marked:
    """The tags to look at, each with its mark, '' where it has none."""

    marks: Mapping[str, str]

    @property
    def tags(self) -> list[str]:
        return list(self.marks)

    def wrong(self, busy: Collection[str]) -> list[str]:
        """What `Marks.note` must set right when callbacks were found in the busy tags only: tag and mark by turns."""
        return [part for tag, mark in self.marks.items() if (tag in busy) != bool(mark) for part in (tag, mark)]


class Marks:
    """The marks as one kind of looker reads them."""

    def __init__(self, programs: Programs, keys: Keys) -> None:
        self._programs, self._keys = programs, keys
        self._looked_at_all: int | None = None

    async def read(self, request_id: str = "") -> Marked:
        """The marked tags, the request's own, and once a second all others."""
        home = self._keys.line_tags[0]
        (answer,) = await self._programs.run([self._programs.plain(_MARKS, home, request_id)])
        own, *flat = answer
        marks = dict.fromkeys(own.split(), "")
        now = self._programs.steady.now_ms()
        if self._looked_at_all is None or abs(now - self._looked_at_all) >= LOOK_AT_ALL_MS:
            self._looked_at_all = now
            marks = dict.fromkeys(self._keys.line_tags, "")
        return Marked(marks | dict(zip(flat[::2], flat[1::2], strict=True)))

    def note(self, wrong: Sequence[str], request_id: str = "", until_ms: int = 0, tags: Sequence[str] = ()) -> Call:
        """Set marks right, and remember the tags that a request's callbacks come from."""
        now = self._programs.steady.now_ms()
        return self._programs.plain(_NOTE, self._keys.line_tags[0], now, request_id, until_ms, " ".join(tags), *wrong)
