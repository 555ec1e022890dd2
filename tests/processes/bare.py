"""A worker without the SDK's care: claims one job, and reports about it whenever the test says so, however late.

    python -m tests.processes.bare QUEUE FOLDER      reports when FOLDER/report-1 is there, then FOLDER/report-2

What the server answers is printed, one line for each report.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tocsin
from tests.processes.waiting import wait_until


def say(client: tocsin.Client, token: str) -> None:
    calls = {
        "heartbeat": lambda: client.attempts.heartbeat(token, progress="late"),
        "success": lambda: client.attempts.complete(token, "succeeded", result="late"),
        "failure": lambda: client.attempts.complete(token, "retryable_failure", error="late"),
        "fatal": lambda: client.attempts.complete(token, "fatal_failure", error="late"),
    }
    for name, call in calls.items():
        try:
            print(name, "accepted", call())
        except tocsin.Refused as refused:
            print(name, refused.status, refused.kind)


def main(queue: str, folder: Path) -> None:
    with tocsin.Client() as client:
        (job,) = wait_until(lambda: client.queues.claim(queue, worker="bare", lease_s=5, wait_s=5), "a job")
        print("claimed", job.job_id)
        for report in ("report-1", "report-2"):
            wait_until((folder / report).exists, report, 60)
            say(client, job.lease_token)
            print("done", report)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
