"""Schedules over real processes: servers, workers and clients that are killed in the middle of what schedules do."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import tocsin
from tests.processes.program import Programs
from tests.processes.waiting import wait_until
from tocsin.sdk.answers import Job

GOING = ("QUEUED", "RUNNING", "RETRYING", "CANCEL_REQUESTED")


def instant(text: str | None) -> datetime:
    assert text is not None
    return datetime.fromisoformat(text)


def going(client: tocsin.Client, schedule_id: str) -> list[Job]:
    """Its jobs under way."""
    return [job for job in client.schedules.jobs(schedule_id) if job.status in GOING]


def sound(client: tocsin.Client, schedule_id: str) -> None:
    """What must be true whatever happened: each occurrence has one run or is in a skip, and one is ahead."""
    shown = client.schedules.get(schedule_id)
    jobs = [job for job in client.schedules.jobs(schedule_id) if job.origin == "schedule"]
    ran = [job.occurrence_at for job in jobs if job.status not in ("SKIPPED", "CANCELLED", "SCHEDULED")]
    assert len(ran) == len(set(ran)), "an occurrence has two runs"
    if shown.status == "active":
        ahead = [job.occurrence_at for job in jobs if job.status == "SCHEDULED"]
        assert ahead == [shown.next_run_at]
    assert all(job.lease_until is not None for job in jobs if job.status == "RUNNING")


def accounted(client: tocsin.Client, schedule_id: str) -> bool:
    """Whether every whole interval from the first occurrence to the next has its run or its skip."""
    shown = client.schedules.get(schedule_id)
    assert shown.every_s is not None
    every = timedelta(seconds=shown.every_s)
    ran = {
        instant(job.occurrence_at)
        for job in client.schedules.jobs(schedule_id)
        if job.origin == "schedule" and job.status not in ("SKIPPED", "CANCELLED", "SCHEDULED")
    }
    skips = [(instant(skip.from_), instant(skip.to), skip.count) for skip in client.schedules.skips(schedule_id)]
    moment, end = instant(shown.anchor) + every, instant(shown.next_run_at)
    while moment < end:
        found = (moment in ran) + sum(first <= moment <= last for first, last, _ in skips)
        assert found <= 1, f"{moment} has come to {found} things"
        if found == 0:
            return False
        moment += every
    return sum(count for _, _, count in skips) + len(ran) == round((end - instant(shown.anchor)) / every) - 1


def live_runs_overlap(journal) -> bool:
    """Whether two of the runs that handlers wrote of were going on at once."""
    begins = [entry.job_id for entry in journal.entries()]
    ends = {entry.job_id for entry in journal.entries("end")}
    distinct = list(dict.fromkeys(begins))
    return any(first not in ends for first, _ in pairwise(distinct))


def test_no_kill_of_a_server_or_of_a_worker_starts_a_second_run_beside_a_live_one(
    programs: Programs, journal, tmp_path
):
    until = tmp_path / "release"
    server = programs.server()
    workers = {name: programs.worker(server, "q", journal.path, "--concurrency", "5") for name in ("one", "other")}
    with server.client() as client:
        client.queues.put("q", lease_s=5)
        made = client.schedules.create(
            "report", every=1, queue="q", handler="hold", payload={"until": str(until)}, overlap="forbid"
        )
        wait_until(journal.entries, "the first run to begin")
        pid = journal.entries()[0].pid
        # The server dies while the run goes on, and occurrences are due every second.
        server.program.kill()
    server = programs.server(server.data, port=server.port)
    with server.client() as client:
        wait_until(lambda: list(client.schedules.skips(made.schedule_id)), "occurrences to be left out")
        assert len(going(client, made.schedule_id)) == 1
        idle = next(worker for worker in workers.values() if worker.pid != pid)
        busy = next(worker for worker in workers.values() if worker.pid == pid)
        # The worker that has nothing to do with it is started again, then the one that does the work dies.
        idle.kill()
        programs.worker(server, "q", journal.path, "--concurrency", "5")
        busy.kill()
        wait_until(lambda: len(journal.entries()) > 1, "another attempt of the same run", 15)
        assert {entry.job_id for entry in journal.entries()} == {journal.entries()[0].job_id}
        assert len(going(client, made.schedule_id)) == 1
        until.touch()
        wait_until(lambda: len({entry.job_id for entry in journal.entries()}) > 2, "the next ones to run")
        assert {skip.reason for skip in client.schedules.skips(made.schedule_id)} <= {"overlap", "missed"}
        assert not live_runs_overlap(journal)
        client.schedules.pause(made.schedule_id)
        sound(client, made.schedule_id)


def test_clients_that_register_at_once_and_are_killed_leave_one_schedule_and_one_next_run(programs: Programs, journal):
    luck = random.Random(35)
    server = programs.server()
    programs.worker(server, "q", journal.path)
    clients = []

    def register(number: int) -> None:
        arguments = ("tests.processes.registrar", "report", "q", str(number))
        clients.append(programs.start("registrar", *arguments, **server.environ))

    for number in range(4):
        register(number)
    clients[0].says(".", 20)
    for number in range(4, 8):
        luck.choice([one for one in clients if one.running]).kill()
        register(number)
    clients[-1].says(".", 20)
    server.program.kill()
    server = programs.server(server.data, port=server.port)
    with server.client() as client:
        wait_until(lambda: any(one.running and len(one.output) for one in clients), "registrations")
        for one in clients:
            if one.running:
                one.kill()
        (shown,) = list(client.schedules.list())
        sound(client, shown.schedule_id)
        told = {tuple(line.split()[:2]) for one in clients for line in one.output.splitlines() if line.count(" ") == 2}
        assert len({revision for revision, _ in told}) == len(told), "each revision stands for one definition"
        newest = max(told, key=lambda one: int(one[0]))
        assert int(newest[0]) <= shown.revision
        before = shown.runs
        wait_until(lambda: client.schedules.get(shown.schedule_id).runs >= before + 2, "it to go on")
        client.schedules.pause(shown.schedule_id)
        sound(client, shown.schedule_id)
    runs = [entry.job_id for entry in journal.entries()]
    assert len(runs) == len(set(runs))


def test_a_pause_of_a_schedule_and_of_a_queue_outlives_a_kill(programs: Programs, journal):
    server = programs.server()
    programs.worker(server, "q", journal.path)
    with server.client() as client:
        paused = client.schedules.create("paused", every=1, queue="q", handler="note", payload="paused")
        resting = client.schedules.create("resting", every=1, queue="resting", handler="note")
        client.queues.put("resting", paused=True)
        wait_until(journal.entries, "it to run")
        client.schedules.pause(paused.schedule_id, note="quiet")
        runs = client.schedules.get(paused.schedule_id).runs
    for _ in range(2):
        server.program.kill()
        server = programs.server(server.data, port=server.port)
    with server.client() as client:
        before = client.schedules.get(resting.schedule_id).runs
        # The other one goes on meanwhile, so time has passed for both.
        wait_until(lambda: client.schedules.get(resting.schedule_id).runs >= before + 2, "the other one to go on")
        shown = client.schedules.get(paused.schedule_id)
        assert (shown.status, shown.pause_note, shown.runs) == ("paused", "quiet", runs)
        assert len(journal.entries()) == runs
        assert list(client.jobs.list(queue="resting", status="RUNNING")) == []
        assert client.queues.claim("resting", worker="w") == []
        client.schedules.resume(paused.schedule_id)
        client.queues.put("resting", paused=False)
        wait_until(lambda: len(journal.entries()) > runs, "it to run again")
        assert client.queues.claim("resting", worker="w", max=50) != []
        for made in (paused, resting):
            client.schedules.pause(made.schedule_id)
            sound(client, made.schedule_id)


def test_an_idle_server_fires_a_new_schedule_on_time_and_an_outage_is_told_of(programs: Programs, journal):
    server = programs.server()
    programs.worker(server, "q", journal.path)
    with server.client() as client:
        made = client.schedules.create("soon", every=2, queue="q", handler="note")
        first = wait_until(lambda: going_or_done(client, made.schedule_id), "it to fire", 10)
        late = instant(first.queued_at) - instant(first.occurrence_at)
        assert late < timedelta(seconds=1)
        server.program.kill()
        down = datetime.now(UTC)
        wait_until(lambda: datetime.now(UTC) - down > timedelta(seconds=4), "two occurrences to be missed")
    server = programs.server(server.data, port=server.port)
    with server.client() as client:
        runs = client.schedules.get(made.schedule_id).runs
        wait_until(lambda: client.schedules.get(made.schedule_id).runs > runs, "it to go on")
        wait_until(lambda: accounted(client, made.schedule_id), "each occurrence to have come to something")
        assert {skip.reason for skip in client.schedules.skips(made.schedule_id)} <= {"missed"}
        sound(client, made.schedule_id)


def going_or_done(client: tocsin.Client, schedule_id: str) -> Job | None:
    """Its first job that has fired."""
    return next((job for job in client.schedules.jobs(schedule_id) if job.queued_at), None)
