"""Opening a store file: where it may be, what it must be, and how SQLite is told to keep it.

WAL with `synchronous=FULL`: a commit is on the disk when it returns (sqlite.org/pragma.html#pragma_synchronous). SQLite never
checkpoints by itself here, `checkpoint.py` does.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from sqlite3 import Connection

from tocsin.errors import ConfigError, StoreCorrupt, StoreUnavailable

APPLICATION_ID = 0x7463736E  # "tcsn"
BUSY_MS = 5_000
ALONE_S = 1.0
OLDEST_SQLITE = (3, 37, 0)  # STRICT tables
WAL_KEPT_BYTES = 64 * 1024 * 1024
_MAGIC = b"SQLite format 3\0"
_OUTAGE = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def is_outage(exc: sqlite3.Error) -> bool:
    """Whether the store cannot do anything at the moment, whatever it is asked."""
    code = getattr(exc, "sqlite_errorcode", None)
    return isinstance(exc, sqlite3.OperationalError) if code is None else code & 0xFF in _OUTAGE


def is_damage(exc: sqlite3.Error) -> bool:
    """Whether the file's contents are broken."""
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF in _DAMAGE


def _text(raw: bytes) -> str:
    """A stored text; what is not UTF-8 (no program of ours writes it) is replaced, so that it can only spoil its own row."""
    return raw.decode("utf-8", "replace")


def check_place(path: Path) -> None:
    """Raise ConfigError unless a store can be kept at `path`, StoreCorrupt if another kind of file is there."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise ConfigError(
            f"this Python has SQLite {sqlite3.sqlite_version}, the store needs {oldest} or newer; use a newer Python"
        )
    folder = path.parent
    if not folder.is_dir():
        raise ConfigError(f"the store's folder {folder} does not exist; create it, or name another place for the store")
    if path.is_dir():
        raise ConfigError(f"the store's path {path} is a folder; name a file in it")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(
            f"the store's folder {folder} cannot be written to; give this user the right, or choose another"
        )
    if not path.exists():
        return
    if not os.access(path, os.R_OK | os.W_OK):
        raise ConfigError(f"the store {path} cannot be written to; give this user the right")
    with path.open("rb") as file:
        head = file.read(len(_MAGIC))
    if head and head != _MAGIC:
        raise StoreCorrupt(
            f"{path} is not a Tocsin store: it does not begin as a SQLite file; restore a backup or name another path"
        )


def open_writer(path: Path) -> Connection:
    """The connection of the writer: read and write, explicit transactions."""
    try:
        conn = sqlite3.connect(
            path, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False, cached_statements=512
        )
        mode = conn.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    except sqlite3.Error as exc:
        raise opening_failed(path, exc) from exc
    if mode != "wal":
        conn.close()
        raise ConfigError(f"the store {path} cannot keep a write-ahead log there (mode {mode}); use a local disk")
    conn.text_factory = _text
    for pragma in (
        "synchronous = FULL",
        "wal_autocheckpoint = 0",
        f"journal_size_limit = {WAL_KEPT_BYTES}",
        "cache_size = -65536",
        "temp_store = MEMORY",
        "trusted_schema = OFF",
    ):
        conn.execute(f"PRAGMA {pragma}")
    return conn


def open_alone(path: Path) -> Connection:
    """A connection that nobody else can have beside it. Raises SQLITE_BUSY where another process has the file open.

    In this mode the first access takes the file's own lock, which every other connection holds a share of while it is open.
    """
    conn = sqlite3.connect(path, timeout=ALONE_S, isolation_level=None, check_same_thread=False, cached_statements=512)
    try:
        conn.text_factory = _text
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL", "cache_size = -65536"):
            conn.execute(f"PRAGMA {pragma}").fetchall()
        conn.execute("PRAGMA trusted_schema = OFF")
        conn.execute("BEGIN IMMEDIATE")
        conn.execute("ROLLBACK")
    except BaseException:
        conn.close()
        raise
    return conn


def open_reader(path: Path, expired: Callable[[], bool]) -> Connection:
    """A connection that cannot write and whose statements end with SQLITE_INTERRUPT once `expired` says so."""
    conn = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        timeout=BUSY_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=128,
    )
    conn.text_factory = _text
    for pragma in ("query_only = ON", "cache_size = -16384", "temp_store = MEMORY", "trusted_schema = OFF"):
        conn.execute(f"PRAGMA {pragma}")
    conn.set_progress_handler(expired, 20_000)
    return conn


def open_checkpointer(path: Path) -> Connection:
    """The connection of the checkpoint thread."""
    conn = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    conn.execute("PRAGMA synchronous = FULL")
    conn.execute("PRAGMA wal_autocheckpoint = 0")
    return conn


def opening_failed(path: Path, exc: sqlite3.Error) -> Exception:
    """What an error means that came while the file was being opened."""
    if is_damage(exc):
        return StoreCorrupt(
            f"{path} is damaged or not a Tocsin store ({exc}); restore the last backup, or name another path"
        )
    if getattr(exc, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        return ConfigError(f"the store {path} cannot be opened for writing ({exc}); check its folder and rights")
    return StoreUnavailable(f"the store {path} cannot be opened now ({exc}); try again")
