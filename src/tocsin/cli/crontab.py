"""Reading a user's crontab: which lines become schedules, with what command, and which cannot be taken and why.

The format is that of crontab(5) as Debian's cron and cronie read it: comments, blank lines, `NAME = value` for the lines below,
five fields or an `@` word and a command to the end of the line, in which an unescaped `%` ends the command and the rest is its
standard input. `CRON_TZ` (else `TZ`) is the zone of the lines below. Whether an expression means anything, the server says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256

# Said to cron itself, not to the commands: what is ignored, and what to do instead.
_FOR_CRON = {
    "MAILTO": "output is mailed to nobody; a job's result and errors are kept with its attempts",
    "MAILFROM": "nothing is mailed",
    "CONTENT_TYPE": "nothing is mailed",
    "CONTENT_TRANSFER_ENCODING": "nothing is mailed",
    "RANDOM_DELAY": "give the schedules a --window instead",
    "START_HOURS_RANGE": "it belongs to anacron",
}
# Accounts that crontabs of the system name in their sixth column, and that are no commands.
_ACCOUNTS = frozenset({"root", "nobody", "daemon", "www-data", "apache", "postgres"})
_SYSTEM_FILES = re.compile(r"(^|/)etc/(crontab|anacrontab|cron\.d/[^/]+)$")
_SETTING = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([^\s"'=]+))\s*=\s*(.*?)\s*""")
_TIMES = re.compile(r"(@\S+|\S+[ \t]+\S+[ \t]+\S+[ \t]+\S+[ \t]+\S+)(?:[ \t]+(.*))?", re.DOTALL)
_FIELD = re.compile(r"[0-9*?][0-9*,/?LW#-]*")
_SLUG_LENGTH = 48


@dataclass(frozen=True, slots=True)
class Line:
    """One line that asks for a schedule."""

    number: int
    cron: str
    command: str
    stdin: str | None
    env: dict[str, str]
    time_zone: str | None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """A line that cannot be taken."""

    number: int
    text: str
    reason: str


@dataclass(slots=True)
class Crontab:
    """What a file says."""

    lines: list[Line] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read(data: bytes, source: str = "-", *, prefix: str = "") -> Crontab:
    """Read a crontab. `source` is its path: files of the system have a column more, which is refused."""
    found, env = Crontab(), dict[str, str]()
    zone: str | None = None
    cron_zone: str | None = None
    system = _SYSTEM_FILES.search(source) is not None
    for number, raw in enumerate(data.split(b"\n"), 1):
        try:
            text = raw.decode().removesuffix("\r").lstrip(" \t")
        except UnicodeDecodeError:
            found.faults.append(Fault(number, raw.decode("utf-8", "replace"), "it is not UTF-8"))
            continue
        if not text.strip() or text.startswith("#"):
            continue
        setting = _SETTING.fullmatch(text)
        if setting is None:
            match _line(number, text, cron_zone or zone, env, system=system):
                case Line() as line:
                    found.lines.append(line)
                case fault:
                    found.faults.append(fault)
            continue
        name, value = setting[1] or setting[2] or setting[3], _unquoted(setting[4])
        if name == "CRON_TZ":
            cron_zone = value.removeprefix(":") or None
        elif name in _FOR_CRON:
            found.notes.append(f"line {number}: {name} is ignored: {_FOR_CRON[name]}")
        else:
            env[name] = value
            zone = (value.removeprefix(":") or None) if name == "TZ" else zone
    found.lines = _named(found.lines, prefix)
    return found


def _line(number: int, text: str, zone: str | None, env: dict[str, str], *, system: bool) -> Line | Fault:
    times = _TIMES.fullmatch(text)
    if times is None:
        return Fault(number, text, "it has fewer than five time fields and is no NAME=value")
    cron, rest = " ".join(times[1].split()), times[2] or ""
    reason = _why_not(cron, rest, system=system)
    if reason is not None:
        return Fault(number, text, reason)
    command, stdin = _split(rest)
    if not command.strip():
        return Fault(number, text, "it has no command")
    return Line(number, cron, command, stdin, dict(env), zone)


def _why_not(cron: str, rest: str, *, system: bool) -> str | None:
    if cron.lower() == "@reboot":
        return "@reboot is the start of a machine, not a time; start such a program as a service"
    if "\0" in rest:
        return "its command has a NUL character"
    first, *more = rest.split(maxsplit=1) or [""]
    if more and (system or first in _ACCOUNTS):
        return f"{first!r} looks like the user's column of a system crontab; take it out (the worker's user runs the command)"
    if _FIELD.fullmatch(first) and not cron.startswith("@"):
        return f"{first!r} looks like a sixth time field; give five: minute, hour, day of month, month, day of week"
    return None


def _split(rest: str) -> tuple[str, str | None]:
    """The command and its standard input. In the command `\\%` is `%`; in the input also, and an unescaped `%` is a new line."""
    command, at, escaped = "", 0, False
    for at, char in enumerate(rest):
        if escaped:
            command = command[:-1] + char if char == "%" else command + char
            escaped = False
        elif char == "%":
            return command.rstrip(), _input(rest[at + 1 :])
        else:
            command += char
            escaped = char == "\\"
    return command.rstrip(), None


def _input(text: str) -> str:
    """What cron(8) writes to the command: it ends with a new line, as the last `%` alone would not make it."""
    lines = re.sub(r"(\\?)%", lambda match: "%" if match[1] else "\n", text)
    return lines + "\n" if lines and not lines.endswith("\n") else lines


def _named(lines: list[Line], prefix: str) -> list[Line]:
    """Each line with a name made of its command alone: it stays when lines are reordered or a time is changed.

    A command that stands in several lines is numbered, in the order of their times.
    """
    by_command: dict[tuple[str, str | None], list[Line]] = {}
    for line in lines:
        by_command.setdefault((line.command, line.stdin), []).append(line)
    names: dict[int, str] = {}
    for (command, stdin), same in by_command.items():
        digest = sha256(f"{command}\0{stdin or ''}".encode()).hexdigest()[:8]
        ordered = sorted(
            same, key=lambda line: (line.cron, line.time_zone or "", sorted(line.env.items()), line.number)
        )
        for place, line in enumerate(ordered, 1):
            names[line.number] = f"{prefix}{_slug(command)}-{digest}" + (f"-{place}" if place > 1 else "")
    return [
        Line(each.number, each.cron, each.command, each.stdin, each.env, each.time_zone, names[each.number])
        for each in lines
    ]


def _slug(command: str) -> str:
    """The words of a command that tell it from others: no folders, no options' dashes."""
    words: Iterable[str] = (word.rsplit("/", 1)[-1] or word for word in command.split())
    slug = re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")
    return slug[:_SLUG_LENGTH].rstrip("-") or "command"


def _unquoted(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
