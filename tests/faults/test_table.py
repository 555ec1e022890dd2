"""The table of faults names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_in_the_table_of_faults_exists():
    table = (ROOT / "docs" / "faults.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", table)
    assert named
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not (ROOT / file).exists() or not re.search(rf"def {test}\(", (ROOT / file).read_text())
    ]
    assert missing == []


def test_every_fault_in_the_table_is_listed_once_with_at_least_one_test():
    rows = [line for line in (ROOT / "docs" / "faults.md").read_text().splitlines() if line.startswith("| F-")]
    numbers = [row.split("|")[1].strip() for row in rows]
    assert numbers == sorted(set(numbers))
    assert all("::test_" in row for row in rows)
