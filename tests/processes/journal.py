"""What handlers in worker processes did: one line of JSON for each thing, in a file that survives their end."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One thing that a handler did."""

    what: str
    job_id: str
    attempt: int
    key: str
    payload: Any
    pid: int


class Journal:
    """The file, seen from the test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def entries(self, what: str = "begin", job_id: str | None = None) -> list[Entry]:
        """What happened, in order."""
        lines = self.path.read_text().splitlines()
        found = [Entry(**json.loads(line)) for line in lines]
        return [each for each in found if each.what == what and job_id in (None, each.job_id)]


def write(entry: dict[str, Any]) -> None:
    """Add a line, in one write that no other process's can mix with. For handlers; the file is named by JOURNAL."""
    file = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, json.dumps(entry).encode() + b"\n")
    finally:
        os.close(file)
