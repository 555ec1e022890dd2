"""The main job of Tocsin, done for real in under two minutes: `make demo`.

A server with a data folder of its own, a worker and a receiver of callbacks are started on this machine, as separate
processes as they would be anywhere. The worker declares two schedules, one of them for every full minute. Then: a job at once, a
delayed callback whose signature is checked, a handful of tasks, one that fails until it is a dead letter, is mended and redriven; then
the server is killed while jobs wait and started again on the same data. By then a minute is full, or soon will be. At the end stands
what ran when and how late, and whether all of it was as it should be.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from demo.stage import Receiver, Server, Unexpected, tail, wait_until, worker

QUEUE = "demo"
# A queue of their own: the next run of a schedule always waits, so theirs is never empty.
SCHEDULED = "demo-schedules"
INTERVAL_S = 2
WAITING = 200


@dataclass
class Story:
    """What is done, and what was expected and did or did not come about."""

    server: Server
    receiver: Receiver
    folder: Path
    began: float = field(default_factory=time.monotonic)
    missing: list[str] = field(default_factory=list)
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def say(self, text: str) -> None:
        """A line of progress."""
        print(f"{time.monotonic() - self.began:5.1f} s  {text}", flush=True)

    def expect(self, held: bool, what: str) -> None:
        """Note an expectation."""
        self.say(f"       {'ok ' if held else 'NOT'} {what}")
        if not held:
            self.missing.append(what)

    def create(self, what: str, **fields: Any) -> str:
        """Create a job and keep it for the table."""
        job = self.server.call("POST", "/v1/jobs", {"queue": QUEUE, "name": what, **fields})
        return str(job["job_id"])

    def status(self, job_id: str) -> str:
        """A job's status."""
        return str(self.server.call("GET", f"/v1/jobs/{job_id}")["status"])

    def reach(self, job_id: str, status: str, within_s: float) -> bool:
        """Wait for a status; whether it came."""
        try:
            wait_until(lambda: self.status(job_id) == status, f"{job_id} to be {status}", within_s)
        except Unexpected:
            return False
        return True

    def tell(self, job_id: str) -> None:
        """Put a job's attempts into the table."""
        job = self.server.call("GET", f"/v1/jobs/{job_id}")
        for attempt in self.server.call("GET", f"/v1/jobs/{job_id}/attempts")["items"]:
            late_ms = attempt["lateness_s"] * 1000
            claimed = datetime.fromisoformat(attempt["claimed_at"])
            due = claimed - timedelta(seconds=attempt["lateness_s"])
            started, outcome = clock(claimed), str(attempt["outcome"])
            self.rows.append((job["name"], str(attempt["attempt"]), clock(due), started, f"{late_ms:,.0f} ms", outcome))

    def ran(self) -> list[dict[str, Any]]:
        """What the worker noted."""
        path = self.folder / "ran.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def jobs_on_time(story: Story) -> None:
    """One at once, one later as a callback, and a handful on the worker."""
    story.say("A job at once, five more in a second, and a callback in three")
    now = story.create("an order, at once", target=task("orders.confirm"), payload={"order": 8842})
    later = [
        story.create(f"order {n}, in 1 s", delay_s=1, target=task("orders.confirm"), payload={"order": n})
        for n in range(5)
    ]
    callback = story.create(
        "a reminder, in 3 s",
        delay_s=3,
        target={"type": "http", "url": story.receiver.url},
        payload={"invoice_id": "inv_8842", "text": "Grüße"},
    )
    story.expect(story.reach(now, "SUCCEEDED", 5), "the job due at once ran on the worker")
    story.expect(all(story.reach(job, "SUCCEEDED", 5) for job in later), "the five jobs ran on the worker")
    story.expect(story.status(callback) == "SCHEDULED", "the callback still waits for its time")
    story.expect(story.reach(callback, "SUCCEEDED", 10), "the callback was made and answered")
    calls = story.receiver.calls
    story.expect(len(calls) == 1 and calls[0]["signed"], "it came once, with a signature that holds")
    story.expect(bool(calls) and calls[0]["body"]["text"] == "Grüße", "its payload is what was handed over")
    for job in (now, later[0], callback):
        story.tell(job)


def fails_and_is_mended(story: Story) -> None:
    """Three tries with backoff, a dead letter, the fix, the redrive."""
    story.say("A job whose handler has a fault: three tries, half a second apart at most")
    job = story.create(
        "an invoice with a fault",
        target=task("invoices.render"),
        payload={"invoice": 17},
        retry={"max_attempts": 3, "initial_backoff_s": 0.5, "max_backoff_s": 1},
    )
    story.expect(story.reach(job, "DEAD", 15), "after three tries it is a dead letter")
    dead = story.server.call("GET", f"/v1/queues/{QUEUE}/dead-letters")["items"]
    story.expect([each["job_id"] for each in dead] == [job], "the queue lists it")
    story.expect("missing bracket" in str(dead and dead[0]["last_error"]), "with the error that the handler raised")
    story.say("The fault is mended, the dead letter is redriven")
    (story.folder / "fixed").touch()
    answer = story.server.call("POST", f"/v1/queues/{QUEUE}/dead-letters:redrive", {"job_ids": [job]})
    story.expect(answer["redriven"] == 1, "one job is redriven")
    story.expect(story.reach(job, "SUCCEEDED", 10), "and succeeds")
    runs = [each for each in story.ran() if each["job"] == job]
    story.expect([each["attempt"] for each in runs] == [1, 2, 3, 4], "attempts counted on: 1, 2, 3, 4")
    story.expect(len({each["key"] for each in runs}) == 1, "under one idempotency key")
    story.tell(job)


def survives_a_kill(story: Story) -> None:
    """kill -9 while jobs wait; some fall due while nobody is there."""
    server = story.server
    down_at = datetime.now(UTC) + timedelta(seconds=1)
    story.say(f"{WAITING} jobs, due from one to seven seconds from now; then the server is killed (kill -9)")
    jobs = [
        {
            "queue": QUEUE,
            "target": task("orders.confirm"),
            "payload": {"n": n},
            "run_at": (down_at + timedelta(seconds=0.2 + 6 * n / WAITING)).isoformat(),
        }
        for n in range(WAITING)
    ]
    results = server.call("POST", "/v1/jobs:batch", {"jobs": jobs})["results"]
    accepted = {each["job_id"] for each in results if "job_id" in each}
    story.expect(len(accepted) == WAITING, f"all {WAITING} were accepted")
    server.kill()
    story.say("The server is dead")
    took_s = server.start()
    story.say(f"The server is back on the same data and port after {took_s:.1f} s")
    with suppress(Unexpected):
        wait_until(lambda: len({each["job"] for each in story.ran()} & accepted) == WAITING, "all jobs to run", 30)
        wait_until(lambda: unfinished(server) == 0, "all jobs to be finished", 30)
    counts = Counter(each["job"] for each in story.ran() if each["job"] in accepted)
    story.expect(len(counts) == WAITING, f"none was lost: {len(counts)} of {WAITING} ran")
    story.expect(all(count == 1 for count in counts.values()), "none ran twice")
    story.expect(unfinished(server) == 0, "none is left unfinished")
    statuses = Counter(story.status(job) for job in list(accepted)[:20])
    story.expect(statuses == {"SUCCEEDED": 20}, "those looked at are SUCCEEDED")
    lates = sorted(lateness(server, job) for job in accepted)
    for which, late_s, how in (("punctual", lates[0], "succeeded"), ("late", lates[-1], "due while it was down")):
        story.rows.append(
            (f"{WAITING} jobs over a kill, the most {which}", "1", "", "", f"{late_s * 1000:,.0f} ms", how)
        )


def declares_schedules(story: Story) -> None:
    """What a schedule would do, and what the worker has declared."""
    story.say("When is '0 2 * * *' in Kolkata? A preview, without making anything")
    asked = {"cron": "0 2 * * *", "time_zone": "Asia/Kolkata", "count": 3}
    seen = story.server.call("POST", "/v1/schedules:preview", asked)
    story.say(f"       {seen['explanation']}")
    for run in seen["runs"]:
        story.say(f"       {run['local']}  =  {run['at']}")
    story.expect(all("T02:00:00+05:30" in run["local"] for run in seen["runs"]), "each is at two at night there")
    wait_until(lambda: len(story.server.call("GET", "/v1/schedules")["items"]) == 2, "the schedules", 10)
    story.expect(True, "the worker has declared two schedules, one for every full minute, one for every 2 s")


def ran_on_schedule(story: Story) -> None:
    """What the two schedules did all the while; for the first full minute it may still have to wait."""
    schedules = {each["name"]: each for each in story.server.call("GET", "/v1/schedules")["items"]}
    cron = f"/v1/schedules/{schedules['every full minute']['schedule_id']}"
    interval = f"/v1/schedules/{schedules['every 2 seconds']['schedule_id']}"
    if not ended(story.server, cron):
        due = datetime.fromisoformat(schedules["every full minute"]["next_run_at"])
        story.say(
            f"The cron schedule's minute is full in {(due - datetime.now(UTC)).total_seconds():.0f} s: waiting for it"
        )
        wait_until(lambda: bool(ended(story.server, cron)), "the cron schedule to run", 75)
    minutes = ended(story.server, cron)
    story.expect(
        all(each["occurrence_at"].endswith(":00Z") for each in minutes),
        f"the cron schedule ran at {' and '.join(each['occurrence_at'][11:] for each in reversed(minutes))}",
    )
    story.expect(len({each["occurrence_at"] for each in minutes}) == len(minutes), "once each")
    story.tell(minutes[-1]["job_id"])

    wait_until(lambda: not going_on(story.server, interval), "the runs under way to end", 30)
    ticks = ended(story.server, interval)
    times = sorted(datetime.fromisoformat(each["occurrence_at"]) for each in ticks)
    skips = [
        each
        for each in story.server.call("GET", f"{interval}/skips?limit=200")["items"]
        if times[0] <= datetime.fromisoformat(each["from"]) <= times[-1]
    ]
    skipped = sum(each["count"] for each in skips)
    due_count = round((times[-1] - times[0]).total_seconds() / INTERVAL_S) + 1
    story.expect(
        len(ticks) + skipped == due_count,
        f"of {due_count} intervals of 2 s {len(ticks)} ran"
        + (
            f" and {skipped} did not, which is on record with the reason: {' and '.join({each['reason'] for each in skips})}"
            if skips
            else ""
        ),
    )
    story.expect(len(set(times)) == len(times), "none ran twice")
    lates = sorted(lateness(story.server, each["job_id"]) for each in ticks)
    for which, late_s in (("median", lates[len(lates) // 2]), ("the most late", lates[-1])):
        story.rows.append(
            (f"interval: {len(ticks)} runs, {which}", "1", "", "", f"{late_s * 1000:,.0f} ms", "succeeded")
        )


def going_on(server: Server, schedule: str) -> list[dict[str, Any]]:
    """A schedule's jobs that fell due and have not ended."""
    jobs = server.call("GET", f"{schedule}/jobs?limit=200")["items"]
    return [each for each in jobs if each["finished_at"] is None and each["status"] != "SCHEDULED"]


def ended(server: Server, schedule: str) -> list[dict[str, Any]]:
    """A schedule's jobs that ran to their end, newest first."""
    jobs = server.call("GET", f"{schedule}/jobs?limit=200")["items"]
    return [each for each in jobs if each["status"] == "SUCCEEDED"]


def task(handler: str) -> dict[str, str]:
    """A target on the worker."""
    return {"type": "task", "handler": handler}


def unfinished(server: Server) -> int:
    """How many jobs of the queue (at most 200 in each state) are neither finished nor dead. Read from the jobs themselves: a
    queue's figures may be behind for a minute after a start."""
    states = ("SCHEDULED", "QUEUED", "RUNNING", "RETRYING")
    lists = [server.call("GET", f"/v1/jobs?queue={QUEUE}&status={state}&limit=200")["items"] for state in states]
    return sum(map(len, lists))


def lateness(server: Server, job_id: str) -> float:
    """How late a job's first attempt was."""
    return float(server.call("GET", f"/v1/jobs/{job_id}/attempts")["items"][0]["lateness_s"])


def main() -> int:
    """Tell the story; 0 if all was as it should be."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tocsin-demo-")))
        server, receiver = Server(folder), Receiver()
        story = Story(server, receiver, folder)
        stack.callback(receiver.server.shutdown)
        stack.callback(server.stop)
        try:
            took_s = server.start()
            receiver.secret = server.secret
            story.say(f"The server is up on port {server.port} after {took_s:.1f} s, with a data folder of its own")
            stack.enter_context(worker(server, folder))
            # A short lease, so that even a job that was being handed over when the server died is soon tried again.
            for queue in (QUEUE, SCHEDULED):
                server.call("PUT", f"/v1/queues/{queue}", {"lease_s": 5})
            for part in (declares_schedules, jobs_on_time, fails_and_is_mended, survives_a_kill, ran_on_schedule):
                part(story)
        except Unexpected as error:
            story.missing.append(str(error))
            print(tail(folder / "worker.log"), file=sys.stderr)
        table(story.rows)
        if story.missing:
            print(f"\nNot as it should be ({len(story.missing)}):", *story.missing, sep="\n  - ")
            return 1
        print(f"\nAll as it should be, in {time.monotonic() - story.began:.0f} s.")
        return 0


def table(rows: list[tuple[str, ...]]) -> None:
    """What ran when, and how late."""
    head = ("job", "attempt", "due", "started", "late", "outcome")
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    print()
    for row in [head, tuple("-" * width for width in widths), *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def clock(at: datetime) -> str:
    """An instant as a table shows it: local time with milliseconds."""
    return at.astimezone().strftime("%H:%M:%S.%f")[:-3]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
