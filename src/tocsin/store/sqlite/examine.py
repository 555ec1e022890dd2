"""Looking at a store file without changing it: is it ours, which schema has it, is it whole."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from tocsin.errors import StoreCorrupt
from tocsin.store.sqlite.connection import APPLICATION_ID, opening_failed
from tocsin.store.sqlite.migrate import migrations

MOST_FAULTS = 20


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found. `faults` are SQLite's own words (PRAGMA quick_check)."""

    version: int
    newest: int
    faults: tuple[str, ...]


def examine(path: Path) -> Examination:
    """Examine the file at `path`. Raises StoreCorrupt if it is not a store, StoreUnavailable if it cannot be read."""
    try:
        conn = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            application = conn.execute("PRAGMA application_id").fetchone()[0]
            if application != APPLICATION_ID:
                raise StoreCorrupt(f"{path} is a database of another program; name another path for the store")
            version = int(conn.execute("PRAGMA user_version").fetchone()[0])
            found = [str(row[0]) for row in conn.execute(f"PRAGMA quick_check({MOST_FAULTS})")]
        finally:
            conn.close()
    except sqlite3.Error as exc:
        raise opening_failed(path, exc) from exc
    return Examination(version, len(migrations()), tuple(fault for fault in found if fault != "ok"))
