"""The command line run in this process, against a script or nothing."""

import pytest

from tests.cli.stand_in import Script
from tocsin.cli import main, reach


@pytest.fixture
def server(monkeypatch):
    """The server that commands reach."""
    script = Script()
    monkeypatch.setattr(reach, "connect", lambda: script)
    return script


@pytest.fixture
def tocsin(capfdbinary):
    """Runs a command: its exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        out = capfdbinary.readouterr()
        return code, out.out.decode(), out.err.decode()

    return run
