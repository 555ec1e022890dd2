"""How the programs of the ready lines are called: each with the shared part of `lua/lines.lua` in front, and with both clocks.

Redis lets no program call another one's functions, so the shared part becomes the head of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any

from tocsin.clock import Clock
from tocsin.near.redis.scripts import Call, Script, Scripts
from tocsin.near.redis.steady import SteadyClock

_SHARED = (files("tocsin.near.redis") / "lua" / "lines.lua").read_text(encoding="utf-8")


class LineScript(Script):
    """A program that stands behind the shared part."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name)
        shebang, rest = self.text.split("\n", 1)
        self.text = f"{shebang}\n{_SHARED}{rest}"
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class Programs:
    """Runs `LineScript`s."""

    def __init__(self, scripts: Scripts, clock: Clock) -> None:
        self._scripts, self._clock = scripts, clock
        self.steady = SteadyClock(clock)

    def plain(self, script: Script, tag: str, *args: str | int) -> Call:
        """A call of a program that stands without the shared part, as those do that are asked of all tags at once."""
        return Call(script, tag, args)

    def call(self, script: LineScript, tag: str, *args: str | int, now_ms: int | None = None) -> Call:
        """A call with the clocks in front of its arguments; `now_ms` in place of what the wall clock shows."""
        return Call(script, tag, (self.steady.now_ms(), self._clock.now_ms() if now_ms is None else now_ms, *args))

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        """Many programs' answers in one round trip."""
        return await self._scripts.run(calls)

    async def run_one(self, script: LineScript, tag: str, *args: str | int, now_ms: int | None = None) -> Any:
        """One program's answer."""
        (answer,) = await self._scripts.run([self.call(script, tag, *args, now_ms=now_ms)])
        return answer
