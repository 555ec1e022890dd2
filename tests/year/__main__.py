"""Live through the whole year: a thousand schedules, about a million occurrences, hundreds of crashes.

    python -m tests.year [--seed N] [--days N]

Prints how far it has come and, at the end, what it was; exits 1 where what ran is not what the model says.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

import structlog

from tests.place import memory_folder
from tests.year.plans import all_year
from tests.year.year import BEGIN, DAY_MS, Result, Year
from tocsin.clock import datetime_of, ms_of

TELL_EVERY_S = 10


async def live(seed: int, days: int) -> int:
    """The year, or the first of its days; the exit status."""
    began_s = told_s = time.perf_counter()

    def tell(now: int, result: Result) -> None:
        nonlocal told_s
        if time.perf_counter() - told_s >= TELL_EVERY_S:
            told_s = time.perf_counter()
            print(f"{datetime_of(now):%d %b} {_figures(result, told_s - began_s)}", flush=True)

    begin = ms_of(BEGIN)
    end = begin + days * DAY_MS
    outages = [outage for outage in all_year(begin, seed) if outage.up < end]
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        year = Year(Path(folder), outages, crash_every=100, length_ms=end - begin, seed=seed)
        try:
            result = await year.run(tell)
            await year.check()
        except AssertionError as error:
            print(f"seed {seed}: {error}")
            return 1
        finally:
            await year.close()
    print(
        f"done   {_figures(result, time.perf_counter() - began_s)}; each ran once, or is in the skip that the model says"
    )
    return 0


def _figures(result: Result, took_s: float) -> str:
    return (
        f"{result.occurrences:>9,} occurrences, {result.crashes} crashes, {result.outages} outages, "
        f"{took_s:.0f} s, {result.occurrences / took_s:,.0f}/s"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.year")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--days", type=int, default=365)
    asked = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    sys.exit(asyncio.run(live(asked.seed, asked.days)))
