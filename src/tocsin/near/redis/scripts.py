"""Scripts: how the adapter's Lua programs are loaded and called, many tags in one round trip.

Each program stands in `lua/`, begins with its contract, and is called from exactly one typed function. All of them are given the
tag's alive key and the epoch first and answer LOST when the tag does not hold that epoch. Then the epoch is read anew and
those calls are repeated once; still LOST means that nobody has begun the tag in the present epoch yet, or that its content
has just been lost: `NearUnavailable`.

A server that does not know a program (a restart, SCRIPT FLUSH, a new primary) answers NOSCRIPT: it is loaded and those calls are
repeated. Programs are idempotent, since an answer may be lost on its way.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any, NamedTuple

from redis.exceptions import NoScriptError

from tocsin.errors import NearUnavailable
from tocsin.near.redis.connection import Connection
from tocsin.near.redis.keys import alive_key

LOST = "LOST"
_SOURCES = files("tocsin.near.redis") / "lua"
_INCLUDE = re.compile(r"^--@ (\w+)$", re.MULTILINE)


class Script:
    """One program of `lua/`; a line `--@ name` in it stands for the text of `name.lua`, which is no program of its own."""

    __slots__ = ("name", "sha", "text")

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = _INCLUDE.sub(lambda found: _source(found[1]), _source(name))
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class Call(NamedTuple):
    """A program run for one tag, with its arguments behind the epoch."""

    script: Script
    tag: str
    args: Sequence[str | int]


class Scripts:
    """Runs programs in the present epoch.

    `epoch` answers its name, `refresh` reads it anew; `mark` and `doubt` are told which tags were LOST for good, and since when.
    """

    def __init__(
        self,
        connection: Connection,
        epoch: Callable[[], Awaitable[str]],
        refresh: Callable[[], Awaitable[str]],
        mark: Callable[[], int],
        doubt: Callable[[Sequence[str], int], None],
    ) -> None:
        self._connection, self._epoch, self._refresh = connection, epoch, refresh
        self._mark, self._doubt = mark, doubt

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        """The programs' answers in the same order, in one round trip if all is well."""
        if not calls:
            return []
        answers = await self._round(calls, await self._epoch())
        if LOST not in answers:
            return answers
        lost = [at for at, answer in enumerate(answers) if answer == LOST]
        epoch, mark = await self._refresh(), self._mark()
        again = await self._round([calls[at] for at in lost], epoch)
        still = [calls[at].tag for at, answer in zip(lost, again, strict=True) if answer == LOST]
        if still:
            self._doubt(still, mark)
            raise NearUnavailable(
                f"{still[0]} and {len(still) - 1} more tags hold nothing of epoch {epoch}; they are filled anew from the store"
            )
        for at, answer in zip(lost, again, strict=True):
            answers[at] = answer
        return answers

    async def run_one(self, script: Script, tag: str, *args: str | int) -> Any:
        """One program for one tag."""
        (answer,) = await self.run([Call(script, tag, args)])
        return answer

    async def _round(self, calls: Sequence[Call], epoch: str) -> list[Any]:
        return await run_scripts(
            self._connection, [(call.script, alive_key(call.tag), (epoch, *call.args)) for call in calls]
        )


async def run_scripts(connection: Connection, calls: Sequence[tuple[Script, str, Sequence[str | int]]]) -> list[Any]:
    """Run (program, its one key, its arguments), loading programs that the server does not know."""
    commands = [("EVALSHA", script.sha, 1, key, *args) for script, key, args in calls]
    answers = await connection.run(commands)
    unknown = [at for at, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
    if unknown:
        for text in {calls[at][0].text for at in unknown}:
            await connection.on_every_server("SCRIPT", "LOAD", text)
        again = await connection.run([commands[at] for at in unknown])
        for at, answer in zip(unknown, again, strict=True):
            answers[at] = answer
    for (script, *_), answer in zip(calls, answers, strict=True):
        if isinstance(answer, NoScriptError):
            raise NearUnavailable(f"the server forgot {script.name}.lua as soon as it was loaded; will be tried again")
        if isinstance(answer, Exception):
            raise answer
    return answers


def _source(name: str) -> str:
    return (_SOURCES / f"{name}.lua").read_text(encoding="utf-8")
