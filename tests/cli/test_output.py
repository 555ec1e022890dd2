"""What a table looks like on a terminal that is too narrow for it."""

from __future__ import annotations

import pytest
from rich.console import Console

from tocsin.cli import output


@pytest.fixture
def narrow(monkeypatch):
    """Makes the terminal so many columns wide."""

    def make(width: int) -> None:
        monkeypatch.setattr(output, "console", lambda: Console(highlight=False, markup=False, width=width))

    return make


def test_an_id_and_an_instant_stay_in_one_piece(narrow, capsys):
    narrow(80)
    job_id, at = "job_01M8QEB995XDH6N7F2AHSAVW10", "2026-12-05T20:30:00.125Z"
    output.table(("job", "due at", "error"), [(job_id, at, "no such file " * 10), (job_id, None, None)], none="")
    out = capsys.readouterr().out
    assert out.count(job_id) == 2
    assert out.count(at) == 1
    assert all(len(line) <= 80 for line in out.splitlines())


def test_nothing_is_cut_where_there_is_no_room(narrow, capsys):
    narrow(24)
    output.table(("job", "status"), [("job_01M8QEB995XDH6N7F2AHSAVW10", "SUCCEEDED")], none="")
    pieces = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert "".join(first for first, *_ in pieces) == "job_01M8QEB995XDH6N7F2AHSAVW10"


def test_without_rows_it_says_so(capsys):
    output.table(("job",), [], none="no jobs")
    assert capsys.readouterr().out == "no jobs\n"
