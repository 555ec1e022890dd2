"""The file lock of a data folder: what it says, and that no crash leaves it behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tocsin
from tocsin.errors import ConfigError, LeaseHeld
from tocsin.lease.local import LocalLeases

HOLD = """
import asyncio, pathlib, sys
from tocsin.lease.local import LocalLeases
asyncio.run(LocalLeases(pathlib.Path(sys.argv[1]), 4).acquire())
print("held", flush=True)
sys.stdin.read()
"""


async def test_the_refusal_names_the_holder_and_the_folder(tmp_path: Path) -> None:
    first = LocalLeases(tmp_path, 4)
    await first.acquire()
    with pytest.raises(LeaseHeld, match=f"process {os.getpid()}") as refusal:
        await LocalLeases(tmp_path, 4).acquire()
    assert str(tmp_path) in str(refusal.value)
    await first.release()


async def test_the_process_id_of_a_dead_process_blocks_nobody(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("999999999 and more text than the next one writes\n")
    leases = LocalLeases(tmp_path, 4)
    await leases.acquire()
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    await leases.release()
    assert (tmp_path / "lock").read_text() == ""


async def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    leases = LocalLeases(tmp_path / "new" / "data", 4)
    await leases.acquire()
    assert (tmp_path / "new" / "data" / "lock").exists()
    await leases.release()


async def test_a_folder_that_is_a_file_is_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(ConfigError, match="data"):
        await LocalLeases(tmp_path / "data", 4).acquire()


async def test_the_lock_file_is_for_its_owner_only(tmp_path: Path) -> None:
    leases = LocalLeases(tmp_path, 4)
    await leases.acquire()
    assert (tmp_path / "lock").stat().st_mode & 0o077 == 0
    await leases.release()


@pytest.mark.processes
def test_a_killed_process_leaves_no_lock_behind(tmp_path: Path) -> None:
    source = str(Path(tocsin.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": source},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        leases = LocalLeases(tmp_path, 4)
        with pytest.raises(LeaseHeld, match=f"process {holder.pid}"):
            asyncio.run(leases.acquire())
        holder.kill()
        holder.wait()
        asyncio.run(leases.acquire())
        assert leases.owned() == (0, 1, 2, 3)
        asyncio.run(leases.release())
