"""`python -m benchmarks [CASE …]`: measure, print JSON, and keep it in `benchmarks/results/`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import burst, callbacks, cluster, creates, idle, machine, schedules, steady, waiting

CASES: dict[str, tuple[str, Callable[[], dict[str, object]]]] = {
    "burst": ("50,000 jobs due at one second, beside graphile-worker", burst.against_peer),
    "burst-25k": ("25,000 jobs due at one second: p99 lateness", lambda: burst.alone(25_000)),
    "creates": ("jobs accepted a second: batches, keyed batches, singles", creates.run),
    "callbacks": ("HTTP callbacks a second, the executor in its own process", callbacks.run),
    "idle": ("lateness of single jobs on an idle machine", idle.run),
    "start-up": ("start with a million waiting jobs, and their memory", waiting.run),
    "crowded": ("CPU per job of a burst beside a million waiting jobs", burst.with_waiting),
    "schedules": ("30,000 schedules every minute for ten minutes", lambda: schedules.every_minute(30_000, 10)),
    "schedules-100k": ("100,000 schedules every minute for five", lambda: schedules.every_minute(100_000, 5)),
    "schedules-next": ("next runs computed a second, and the worst call", schedules.compute),
    "schedules-at-rest": ("what a million schedules cost that wait", schedules.at_rest),
    "fleet": ("50,000 jobs due at one second on PostgreSQL and Valkey, beside graphile-worker", cluster.burst),
    "fleet-fires": ("what one node fires a second", cluster.fires),
    "fleet-steady": ("2,000 jobs a second for eight minutes on a fleet", cluster.steady),
    "fleet-crowded": ("CPU per job of a burst on a fleet beside five million waiting jobs", cluster.with_waiting),
    "fleet-soak": ("2,000 jobs a second for half an hour across midnight (waits for it)", cluster.soak),
    "steady": ("3,000 jobs a second for eight minutes: lateness and what grows", steady.run),
}


# Not among "all": it waits for midnight.
WAITS = {"fleet-soak"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.epilog = "cases:\n" + "\n".join(f"  {name:10} {text}" for name, (text, _) in CASES.items())
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all but those that wait, about two hours")
    chosen = parser.parse_args().cases or [name for name in CASES if name not in WAITS]
    if unknown := [name for name in chosen if name not in CASES]:
        parser.error(f"no such case: {', '.join(unknown)}")
    here = machine.describe(Path(tempfile.gettempdir()))
    print(json.dumps({"machine": here}), flush=True)
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    for name in chosen:
        print(f"… {name}: {CASES[name][0]}", file=sys.stderr, flush=True)
        result = CASES[name][1]()
        print(json.dumps(result), flush=True)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        (folder / f"{name}-{stamp}.json").write_text(json.dumps({"machine": here, "result": result}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
