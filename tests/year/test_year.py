"""The year of a thousand schedules, shortened to the days around the changes of clocks: a third of them, all with `make test-long`.

`make year` lives through all of it.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest

from tests.amount import LONG
from tests.place import memory_folder
from tests.year.plans import around_clock_changes
from tests.year.year import BEGIN, Year
from tocsin.clock import ms_of


@pytest.mark.timeout(600)
async def test_every_occurrence_around_the_clock_changes_runs_once_or_is_skipped_as_the_model_says():
    changes = slice(None) if LONG else slice(random.randrange(3), None, 3)
    outages, end = around_clock_changes(BEGIN.year, changes)
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        year = Year(Path(folder), outages, crash_every=30, length_ms=end - ms_of(BEGIN))
        try:
            done = await year.run()
            await year.check()
        finally:
            await year.close()
    assert len(year.entries) == 1_000
    stretches = len(outages) + 1
    assert done.occurrences > 1_500 * stretches, done
    assert done.crashes > 2.5 * stretches, done
