"""A service that registers its schedule at each start, and starts again and again.

    python -m tests.processes.registrar NAME QUEUE NUMBER      upserts until it is killed; an even NUMBER tells another pace at times

Each answer is printed: revision, pace and the next run.
"""

from __future__ import annotations

import sys

import tocsin


def main(name: str, queue: str, number: int) -> None:
    with tocsin.Client() as client:
        turn = 0
        while True:
            turn += 1
            every = 1 if number % 2 or turn % 5 else 2
            try:
                shown = client.schedules.upsert(name, every=every, queue=queue, handler="note", overlap="forbid")
            except tocsin.ServerUnavailable:
                continue
            print(shown.revision, shown.every_s, shown.next_run_at, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
