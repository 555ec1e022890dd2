"""What commands print: tables and facts for people, the API's own JSON for scripts, progress on standard error.

Names, errors and payloads come from other people. They are printed as plain text with control characters taken out, so that
a job's error cannot move the cursor, set the title or colour of somebody's terminal, or pass for markup.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

if TYPE_CHECKING:
    from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of a table.")]

# C0 and C1 controls, and the characters that reverse the direction of what follows them (Unicode UAX #9).
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# What would be of no use in two pieces: IDs, instants, and whatever is short.
_WHOLE = re.compile(r"(?:job|sch)_\w+|(?:\w{3} )?\d{4}-\d\d-\d\d[T ]\S+|.{0,14}")
_FOLDED = 10
_STYLES = {
    "SUCCEEDED": "green",
    "DEAD": "red",
    "CANCELLED": "dim",
    "SKIPPED": "dim",
    "RUNNING": "cyan",
    "RETRYING": "yellow",
    "CANCEL_REQUESTED": "yellow",
    "ok": "green",
    "problem": "red",
    "note": "yellow",
}


def clean(text: str) -> str:
    """`text` on one line, without anything that a terminal would obey."""
    return _UNPRINTABLE.sub(" ", text)


def shown(value: object) -> str:
    """A value of JSON as a cell of a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, (dict, list)):
        return clean(json.dumps(value, ensure_ascii=False)) if value else "-"
    return clean(str(value))


def raw_json(body: bytes) -> None:
    """Print an answer's body as it came."""
    sys.stdout.buffer.write(body.rstrip(b"\n") + b"\n")
    sys.stdout.flush()


def as_json(value: object) -> None:
    """Print a value as one line of JSON, on a terminal indented."""
    print(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, none: str) -> None:
    """Print rows under their headings; `none` is said where there are none."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    cells = [[shown(value) for value in row] for row in rows]
    screen = console()
    whole = _whole(columns, cells, screen.width)
    for column, together in zip(columns, whole, strict=True):
        grid.add_column(column, overflow="fold", no_wrap=together)
    for texts in cells:
        grid.add_row(*(Text(text, style=_STYLES.get(text, "")) for text in texts))
    if grid.row_count:
        screen.print(grid)
    else:
        print(none)


def _whole(columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[bool]:
    """Which columns stay in one piece while the others are folded; none where there is no room, as they would be cut."""
    whole = [all(_WHOLE.fullmatch(texts[place]) for texts in cells) for place in range(len(columns))]
    widths = [max(len(column), *(len(texts[place]) for texts in cells), 0) for place, column in enumerate(columns)]
    least = sum(each if together else min(each, _FOLDED) for each, together in zip(widths, whole, strict=True))
    return whole if least + 2 * (len(columns) - 1) <= width else [False] * len(columns)


def facts(values: Mapping[str, object]) -> None:
    """Print names and values, one a line, nothing cut."""
    width = max(map(len, values), default=0)
    for name, value in values.items():
        print(f"{name:<{width}}  {shown(value)}")


def console() -> Console:
    """A console as wide as the terminal; into a pipe wide enough that no line is broken."""
    from rich.console import Console

    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 240)


class Bar(Protocol):
    """A progress bar."""

    def __call__(self, done: float) -> None:
        """So much is done now."""
        ...


@contextmanager
def progress(what: str, total: float | None, *, quiet: bool = False) -> Iterator[Bar]:
    """A progress bar on standard error while the block runs; nothing where that is no terminal, or `quiet`."""
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=total)

        def move(done: float) -> None:
            bars.update(task, completed=done)

        yield move
