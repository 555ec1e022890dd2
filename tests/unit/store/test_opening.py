"""Opening a store file: what is refused, with what to do about it, and what is migrated."""

import sqlite3
from pathlib import Path

import pytest

from tests.unit.store.conftest import Opener
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.errors import ConfigError, StoreCorrupt, StoreTooNew, StoreUnavailable
from tocsin.store.migrations import Migration
from tocsin.store.sqlite import examine, open_store
from tocsin.store.sqlite.connection import APPLICATION_ID, open_writer
from tocsin.store.sqlite.migrate import migrate, migrations


async def opened(path: Path, clock: ManualClock, partitions: int = 4):
    return await open_store(path, clock, partitions=partitions, entropy=SeededEntropy(1))


def pragma(path: Path, text: str) -> object:
    with sqlite3.connect(path) as conn:
        row = conn.execute(f"PRAGMA {text}").fetchone()
    conn.close()
    return None if row is None else row[0]


def read(path: Path) -> bytes:
    return path.read_bytes()


def write(path: Path, content: bytes | bytearray) -> None:
    path.write_bytes(content)


async def test_a_new_file_is_marked_as_ours(path: Path, clock: ManualClock) -> None:
    store = await opened(path, clock)
    await store.close()
    assert pragma(path, "application_id") == APPLICATION_ID
    assert pragma(path, "user_version") == len(migrations())
    assert pragma(path, "journal_mode") == "wal"
    assert examine(path).faults == ()


async def test_a_closed_store_leaves_one_file(path: Path, opener: Opener) -> None:
    store = await opener()
    await store.ping()
    await store.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


async def test_a_closed_store_refuses_in_words(opener: Opener) -> None:
    store = await opener()
    await store.close()
    with pytest.raises(StoreUnavailable, match="closing"):
        await store.ping()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.jobs.floors()


async def test_a_missing_folder_is_a_matter_of_configuration(tmp_path: Path, clock: ManualClock) -> None:
    with pytest.raises(ConfigError, match="does not exist; create it"):
        await opened(tmp_path / "nowhere" / "store.db", clock)


async def test_a_folder_is_no_store(tmp_path: Path, clock: ManualClock) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        await opened(tmp_path, clock)


async def test_a_place_that_cannot_be_written_is_a_matter_of_configuration(clock: ManualClock) -> None:
    with pytest.raises(ConfigError, match="cannot be"):
        await opened(Path("/proc/tocsin.db"), clock)


async def test_too_old_a_library_is_refused_in_words(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(ConfigError, match=r"needs 3\.37\.0 or newer"):
        await opened(path, clock)


async def test_a_file_of_another_kind_is_refused_and_kept(path: Path, clock: ManualClock) -> None:
    write(path, b"dear diary, " * 1000)
    with pytest.raises(StoreCorrupt, match="not a Tocsin store"):
        await opened(path, clock)
    assert read(path).startswith(b"dear diary")


async def test_a_database_of_another_program_is_refused_and_kept(path: Path, clock: ManualClock) -> None:
    with sqlite3.connect(path) as conn:
        conn.execute("CREATE TABLE books (title TEXT)")
    conn.close()
    with pytest.raises(StoreCorrupt, match="another program"):
        await opened(path, clock)
    assert pragma(path, "application_id") == 0


async def test_a_damaged_file_is_refused_with_what_to_do(path: Path, clock: ManualClock) -> None:
    store = await opened(path, clock)
    await store.close()
    content = bytearray(read(path))
    for at in range(100, 4096 * 2):
        content[at] = 0xA5
    write(path, content)
    with pytest.raises(StoreCorrupt, match="restore"):
        await opened(path, clock)


async def test_a_file_cut_short_is_refused(path: Path, clock: ManualClock) -> None:
    store = await opened(path, clock)
    await store.close()
    write(path, read(path)[:4096])
    with pytest.raises(StoreCorrupt, match="damaged"):
        await opened(path, clock)


async def test_a_file_of_a_newer_version_is_refused_and_kept(path: Path, clock: ManualClock) -> None:
    store = await opened(path, clock)
    await store.close()
    pragma(path, "user_version = 99")
    with pytest.raises(StoreTooNew, match="newer version"):
        await opened(path, clock)
    assert pragma(path, "user_version") == 99


async def test_the_number_of_partitions_is_chosen_once(path: Path, clock: ManualClock) -> None:
    store = await opened(path, clock, 4)
    await store.close()
    with pytest.raises(ConfigError, match=r"4 partitions .* 8; set partitions to 4"):
        await opened(path, clock, 8)
    with pytest.raises(ConfigError, match="power of two"):
        await opened(path, clock, 3)


async def test_an_altered_migration_is_noticed(path: Path, clock: ManualClock) -> None:
    store = await opened(path, clock)
    await store.close()
    with sqlite3.connect(path) as conn:
        conn.execute("UPDATE migrations SET checksum = 'x' WHERE number = 1")
    conn.close()
    with pytest.raises(StoreCorrupt, match="another text of migration"):
        await opened(path, clock)


def test_a_migration_that_fails_leaves_the_file_as_it_was(path: Path) -> None:
    conn = open_writer(path)
    known = migrations()
    broken = Migration(len(known) + 1, "9999_broken", "CREATE TABLE extra (a INTEGER); CREATE TABLE jobs (a INTEGER);")
    migrate(conn, path, 0, known)
    with pytest.raises(StoreUnavailable):
        migrate(conn, path, 0, [*known, broken])
    assert conn.execute("PRAGMA user_version").fetchone()[0] == len(known)
    assert conn.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'extra'").fetchone()[0] == 0
    whole = Migration(broken.number, broken.name, "CREATE TABLE extra (a INTEGER);")
    migrate(conn, path, 0, [*known, whole])
    assert conn.execute("PRAGMA user_version").fetchone()[0] == len(known) + 1
    conn.close()


def test_migrations_are_numbered_without_gaps() -> None:
    assert [step.number for step in migrations()] == list(range(1, len(migrations()) + 1))
