"""Callbacks to addresses that only the server can reach: checked where the connection is made, on every path (F-06)."""

from __future__ import annotations

import socket

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from tests.executor.conftest import plain
from tests.faults.conftest import executing
from tocsin.executor.guard import Guard, parse_allowances
from tocsin.wire import RetryPolicy

PRIVATE = ["169.254.169.254", "127.0.0.1", "10.1.2.3", "::1", "::ffff:10.0.0.1"]


class Names(AbstractResolver):
    """A name server that changes its mind: the answers in order, the last one for ever."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        address = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        inet6 = ":" in address
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if inet6 else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
        ]

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("private", PRIVATE)
async def test_a_name_that_turns_private_is_blocked_on_its_retry_and_on_its_redrive(server, client, endpoints, private):
    """The public address of the first answer is played by a port of this machine that the operator has allowed."""
    port = await endpoints.serve(plain(503, body=b"secret of the first", Connection="close"))
    names = Names("127.0.0.1", private if private != "127.0.0.1" else "127.0.0.2")
    job = await client.jobs.create(
        queue="q", url=f"http://rebind.example:{port}/hook", retry=RetryPolicy(initial_backoff_s=1, max_backoff_s=1)
    )
    async with executing(server, Guard(parse_allowances(f"127.0.0.1:{port}")), resolver=names):
        await server.advance(minutes=1)
        blocked = await client.jobs.get(job.job_id)
        assert (blocked.status, blocked.attempt) == ("DEAD", 2)
        assert blocked.last_error.startswith("blocked: ")
        assert endpoints.connections == 1
        await client.dead.redrive("q", filter={})
        await server.advance(minutes=1)
    again = await client.jobs.get(job.job_id)
    assert (again.status, again.attempt) == ("DEAD", 3)
    assert endpoints.connections == 1
    retried, second, third = await client.jobs.attempts(job.job_id)
    assert retried.outcome == "retryable_failure"
    for attempt in (second, third):
        assert attempt.outcome == "fatal_failure"
        assert attempt.response is None
        assert attempt.status_code is None


@pytest.mark.parametrize("private", PRIVATE)
async def test_an_address_is_blocked_however_it_came_into_the_job(server, client, endpoints, private):
    port = await endpoints.serve(plain(200, body=b"secret"))
    host = f"[{private}]" if ":" in private else private
    url = f"http://{host}:{port}/"
    created = await client.jobs.create(queue="q", url=url)
    edited = await client.jobs.create(queue="q", url="https://hooks.example/", delay=60)
    await client.jobs.patch(edited.job_id, url=url)
    run_now = await client.jobs.create(queue="q", url=url, delay=3600)
    await client.jobs.run_now(run_now.job_id)
    (batched,) = await client.jobs.create_batch([{"queue": "q", "url": url}])
    async with executing(server, Guard()):
        await server.advance(minutes=2)
    for job_id in (created.job_id, edited.job_id, run_now.job_id, batched.job_id):
        job = await client.jobs.get(job_id)
        assert (job.status, job.attempt) == ("DEAD", 1)
        assert job.last_error.startswith("blocked: ")
    assert endpoints.connections == 0
