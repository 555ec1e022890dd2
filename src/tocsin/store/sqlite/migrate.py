"""Migrations: numbered plain SQL files, forward only, each in one transaction, with its checksum kept in the store.

`PRAGMA application_id` says that the file is ours, `user_version` is the number of the last migration. A crash in the middle
leaves the file at the migration before.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from sqlite3 import Connection

from tocsin.errors import ConfigError, StoreCorrupt, StoreTooNew
from tocsin.store.migrations import Migration, read_migrations
from tocsin.store.sqlite.connection import APPLICATION_ID, is_damage, opening_failed
from tocsin.store.sqlite.statements import block

_TABLE = block("identity", "migrations_table")
_DONE = block("identity", "migrations")
_ADD = block("identity", "add_migration")
_IDENTITY = block("identity", "identity")
_ADD_IDENTITY = block("identity", "add_identity")


def migrations() -> list[Migration]:
    """All steps that this program knows, in order."""
    assert __package__ is not None
    return read_migrations(__package__)


def migrate(conn: Connection, path: Path, now_ms: int, steps: list[Migration] | None = None) -> None:
    """Bring the file to this program's schema."""
    steps = migrations() if steps is None else steps
    try:
        conn.execute("BEGIN IMMEDIATE")
        version = _check(conn, path, steps)
        conn.execute("COMMIT")
        for step in steps[version:]:
            _take(conn, step, now_ms)
    except sqlite3.Error as exc:
        raise opening_failed(path, exc) from exc
    finally:
        if conn.in_transaction:
            conn.rollback()


def _check(conn: Connection, path: Path, steps: list[Migration]) -> int:
    """The number of the file's last migration, once it is known to be ours and unchanged."""
    application = conn.execute("PRAGMA application_id").fetchone()[0]
    version = int(conn.execute("PRAGMA user_version").fetchone()[0])
    tables = conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if not tables and not version and application in (0, APPLICATION_ID):
        conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        conn.execute(_TABLE)
        return 0
    if application != APPLICATION_ID:
        raise StoreCorrupt(f"{path} is a database of another program; name another path for the store")
    if version > len(steps):
        raise StoreTooNew(
            f"{path} has schema {version}, this program knows {len(steps)}; start a newer version of Tocsin, or restore "
            "a backup from before the upgrade"
        )
    for (number, checksum), step in zip(conn.execute(_DONE).fetchall(), steps, strict=False):
        if (number, checksum) != (step.number, step.checksum):
            raise StoreCorrupt(
                f"{path} was made with another text of migration {step.name}; start the version of Tocsin that made it, "
                "or restore a backup"
            )
    return version


def _take(conn: Connection, step: Migration, now_ms: int) -> None:
    conn.execute("BEGIN IMMEDIATE")
    for statement in _statements(step.text):
        conn.execute(statement)
    conn.execute(_ADD, (step.number, step.name, step.checksum, now_ms))
    conn.execute(f"PRAGMA user_version = {step.number}")
    conn.execute("COMMIT")


def _statements(text: str) -> list[str]:
    found, open_ = [], ""
    for part in text.split(";"):
        open_ += part + ";"
        if sqlite3.complete_statement(open_):
            found.append(open_)
            open_ = ""
    return [statement for statement in found if statement.strip(" \n;")]


def identify(conn: Connection, path: Path, partitions: int, installation: str, now_ms: int) -> None:
    """Write the identity of a new store; refuse one of another number of partitions."""
    try:
        conn.execute("BEGIN IMMEDIATE")
        conn.execute(_ADD_IDENTITY, (installation, partitions, now_ms))
        row = conn.execute(_IDENTITY).fetchone()
        conn.execute("COMMIT")
    except sqlite3.Error as exc:
        if conn.in_transaction:
            conn.rollback()
        if is_damage(exc) or getattr(exc, "sqlite_errorcode", 0) == sqlite3.SQLITE_ERROR:
            raise StoreCorrupt(f"{path} is damaged ({exc}); restore the last backup") from exc
        raise opening_failed(path, exc) from exc
    if row[0] != partitions:
        raise ConfigError(
            f"{path} was made with {row[0]} partitions and this program is configured for {partitions}; set partitions to "
            f"{row[0]} (the number is chosen once; changing it means moving to another installation)"
        )
