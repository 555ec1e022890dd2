"""What a server will not start on: said in one line with what to do, exit code 1, and nothing is changed."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path

import pytest

from tests.processes.program import Program, Programs, Server


def refused(program: Program) -> str:
    """The one thing that a refused start says."""
    assert program.end() == 1
    assert program.output == ""
    assert "Traceback" not in program.errors
    said = [line for line in program.errors.splitlines() if line]
    assert len(said) == 1, said
    return said[0]


def start(programs: Programs, data: Path) -> Program:
    return programs.tocsin("refused", "dev", "--port", "0", "--data", str(data))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a server that has ended in order."""
    programs = Programs(tmp_path_factory.mktemp("whole"))
    try:
        server = programs.server()
        server.program.process.terminate()
        assert server.program.end() == 0
        return (server.data / "tocsin.db").read_bytes()
    finally:
        programs.end_all()


@pytest.mark.parametrize(
    ("damage", "to_do"),
    [
        pytest.param(lambda whole: b"not a database, but long enough to look at" * 200, "name another", id="text"),
        pytest.param(lambda whole: whole[:100] + os.urandom(len(whole) - 100), "backup", id="scrambled"),
        pytest.param(lambda whole: whole[: len(whole) // 2], "backup", id="cut"),
    ],
)
def test_a_damaged_file_is_refused(programs, tmp_path, whole, damage, to_do):
    file = tmp_path / "data" / "tocsin.db"
    file.parent.mkdir()
    file.write_bytes(damage(whole))
    before = file.read_bytes()
    said = refused(start(programs, tmp_path / "data"))
    assert str(file) in said
    assert to_do in said
    assert file.read_bytes() == before


def test_another_programs_database_is_refused(programs, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    with sqlite3.connect(data / "tocsin.db") as other:
        other.execute("CREATE TABLE invoices (number INTEGER)")
    other.close()
    said = refused(start(programs, data))
    assert re.search(r"database of another program; name another path", said)
    with sqlite3.connect(data / "tocsin.db") as other:
        assert other.execute("SELECT name FROM sqlite_schema").fetchall() == [("invoices",)]
    other.close()


def test_a_newer_file_is_refused(programs, tmp_path, whole):
    data = tmp_path / "data"
    data.mkdir()
    (data / "tocsin.db").write_bytes(whole)
    with sqlite3.connect(data / "tocsin.db") as newer:
        newer.execute("PRAGMA user_version = 9999")
    newer.close()
    assert re.search(r"schema 9999.*start a newer version of Tocsin, or restore", refused(start(programs, data)))


def test_a_second_process_on_the_same_folder_is_refused_with_the_firsts_process_id(server: Server, programs):
    said = refused(start(programs, server.data))
    assert f"in use by process {server.program.pid}" in said
    assert "choose another folder" in said


def test_a_port_in_use_is_refused_and_the_folder_stays_free(server: Server, programs, tmp_path):
    data = tmp_path / "data"
    taken = programs.tocsin("taken", "dev", "--port", str(server.port), "--data", str(data))
    assert f"port {server.port} is in use" in refused(taken)
    programs.server(data)
