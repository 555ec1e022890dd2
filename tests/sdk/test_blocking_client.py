"""The synchronous client: threads, forks, its end; and the repetitions that both clients make."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

import tocsin
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.errors import Overloaded
from tocsin.sdk.transport import Answer

ME = b'{"tenant":"dev","scopes":[],"quotas":{},"usage":{}}'
JOB = {
    "job_id": "job_1", "queue": "q", "name": None, "status": "QUEUED", "version": 1, "run_at": "x", "fire_at": "x",
    "attempt": 0, "tries": 0, "max_attempts": 6, "priority": "normal", "timing": {"class": "precise"},
    "target": {"type": "task", "handler": "h"}, "payload": None, "retry": {}, "tags": {}, "expires_after_s": None,
    "idempotency_key": "k", "schedule_id": None, "occurrence_at": None, "origin": "api", "worker": None,
    "lease_until": None, "progress": None, "result": None, "created_at": "x", "queued_at": None, "started_at": None,
    "finished_at": None, "next_attempt_at": None, "last_error": None,
}  # fmt: skip


class Scripted:
    """A transport that fails as often as it is told to and then answers."""

    def __init__(self, *failures: Exception, body: bytes = ME) -> None:
        self.failures, self.body = list(failures), body
        self.requests: list[tuple[str, str, dict[str, str], bytes | None]] = []

    async def request(self, method, path, *, query=None, body=None, headers=None, timeout_s=0.0):
        self.requests.append((method, path, dict(headers or {}), body))
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        if path.startswith("/v1/queues"):
            cursor = dict(query or []).get("cursor")
            return Answer(200, {}, json.dumps({"items": [], "next_cursor": None if cursor else "more"}).encode())
        return Answer(200, {}, self.body)

    def fresh(self):
        return None

    async def close(self):
        pass


class QuickClock(ManualClock):
    """Waits pass at once and are noted."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    async def wait(self, event, timeout_s):
        self.waits.append(timeout_s)
        return event.is_set()


def away(times: int) -> list[Exception]:
    return [tocsin.ServerUnavailable("away") for _ in range(times)]


def made(transport: Scripted) -> tuple[tocsin.AsyncClient, QuickClock]:
    clock = QuickClock()
    return tocsin.AsyncClient(transport=transport, clock=clock, entropy=SeededEntropy(1)), clock


async def test_a_create_is_repeated_under_one_key_that_the_client_makes():
    transport = Scripted(*away(3), body=json.dumps(JOB).encode())
    client, clock = made(transport)
    await client.jobs.create(queue="q", handler="h")
    keys = {headers["Idempotency-Key"] for _, _, headers, _ in transport.requests}
    assert (len(transport.requests), len(keys), len(clock.waits)) == (4, 1, 3)
    await client.jobs.create(queue="q", handler="h")
    assert transport.requests[-1][2]["Idempotency-Key"] not in keys


async def test_it_gives_up_after_the_fourth_time():
    transport = Scripted(*away(9))
    client, _ = made(transport)
    with pytest.raises(tocsin.ServerUnavailable):
        await client.me()
    assert len(transport.requests) == 4


async def test_what_cannot_be_done_twice_is_sent_once():
    transport = Scripted(*away(9), body=b"{}")
    client, _ = made(transport)
    for call in (
        client.jobs.run_now("job_1"),
        client.dead.redrive("q", filter={}),
        client.signing_keys.rotate("dev"),
        client.jobs.create_batch(
            [{"queue": "q", "handler": "h"}, {"queue": "q", "handler": "h", "idempotency_key": "k"}]
        ),
    ):
        before = len(transport.requests)
        with pytest.raises(tocsin.ServerUnavailable):
            await call
        assert len(transport.requests) == before + 1


async def test_a_batch_whose_jobs_all_have_keys_is_repeated():
    transport = Scripted(*away(2), body=b'{"results":[{"job_id":"job_1","status":"QUEUED","replayed":true}]}')
    client, _ = made(transport)
    (result,) = await client.jobs.create_batch([{"queue": "q", "handler": "h", "idempotency_key": "k"}])
    assert result.replayed
    assert len(transport.requests) == 3


async def test_a_busy_server_gets_the_pause_that_it_asked_for():
    busy = Overloaded("busy")
    busy.retry_after_s = 4
    client, clock = made(Scripted(busy))
    await client.me()
    assert clock.waits == [4]


async def test_a_refusal_is_not_repeated():
    transport = Scripted(tocsin.Refused(409, "conflict", "Conflict", "no"))
    client, _ = made(transport)
    with pytest.raises(tocsin.Refused):
        await client.me()
    assert len(transport.requests) == 1


def test_the_blocking_client_answers_from_any_thread():
    transport = Scripted()
    answers = []
    with tocsin.Client(transport=transport) as client:
        threads = [threading.Thread(target=lambda: answers.append(client.me().tenant)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert list(client.queues.list()) == []
    assert answers == ["dev"] * 20
    assert [path for _, path, _, _ in transport.requests].count("/v1/queues") == 2


def test_a_closed_client_says_so_and_leaves_no_thread():
    client = tocsin.Client(transport=Scripted())
    client.me()
    client.close()
    client.close()
    assert not any(thread.name == "tocsin-client" for thread in threading.enumerate())
    with pytest.raises(tocsin.TocsinError, match="closed"):
        client.me()


def test_a_forgotten_client_leaves_no_thread():
    client = tocsin.Client(transport=Scripted())
    client.me()
    del client
    gc.collect()
    assert not any(thread.name == "tocsin-client" for thread in threading.enumerate())


def test_an_unused_client_has_no_thread_and_can_be_closed():
    tocsin.Client(transport=Scripted()).close()


def test_a_fork_gets_a_thread_of_its_own():
    client = tocsin.Client(transport=Scripted())
    client.me()
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if client.me().tenant == "dev" else 1)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    assert client.me().tenant == "dev"
    client.close()


async def test_an_error_reaches_the_caller_with_its_type():
    refusing = Scripted(tocsin.Refused(404, "not-found", "Not found", "no"))
    with tocsin.Client(transport=refusing) as client, pytest.raises(tocsin.Refused):
        await asyncio.to_thread(client.jobs.get, "job_1")


def test_a_script_that_forgets_to_close_its_client_ends_quietly():
    code = """
import tocsin
client = tocsin.Client("http://127.0.0.1:1", "t")
try:
    client.jobs.run_now("job_1")
except tocsin.ServerUnavailable:
    print("away")
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    ended = subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "away\n", "")


def test_both_clients_have_the_same_calls_with_the_same_arguments():
    client, twin = tocsin.Client(transport=Scripted()), tocsin.AsyncClient(transport=Scripted())
    groups = [name for name in vars(twin) if not name.startswith("_") and name != "transport"]
    assert len(groups) == 8
    for group in groups:
        theirs, ours = getattr(twin, group), getattr(client, group)
        names = {name for name in dir(theirs) if not name.startswith("_")}
        assert names == {name for name in dir(ours) if not name.startswith("_")}
        for name in names:
            assert inspect.signature(getattr(ours, name)) == inspect.signature(getattr(theirs, name))
            assert getattr(ours, name).__doc__ == getattr(theirs, name).__doc__
            assert not inspect.iscoroutinefunction(getattr(ours, name))


def test_a_job_has_every_field_of_the_contract():
    assert {field.name for field in msgspec.structs.fields(tocsin.sdk.answers.Job)} == {*JOB, "replayed"}
