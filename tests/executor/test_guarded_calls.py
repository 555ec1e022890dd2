"""The address check at the connect: names that change their mind, literals, redirects, proxies, kept connections."""

import socket

import pytest
from aiohttp.abc import AbstractResolver

from tests.executor.conftest import job, plain
from tocsin.executor.guard import Guard, Resolver, parse_allowances
from tocsin.executor.http import call, open_session


class Answers(AbstractResolver):
    """A name server that answers differently each time."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def resolve(self, host, port=0, family=socket.AF_INET):
        addresses = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        return [
            {"hostname": host, "host": one, "port": port, "family": family, "proto": 0, "flags": socket.AI_NUMERICHOST}
            for one in addresses
        ]

    async def close(self):
        pass


@pytest.fixture
async def strict():
    """A session that may call public addresses only."""
    async with open_session(Guard()) as opened:
        yield opened


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "127.0.0.1",
        "10.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[fd00:ec2::254]",
        "localhost",
        "0.0.0.0",
    ],
)
async def test_a_private_address_is_blocked_for_good_and_nothing_reaches_it(endpoints, strict, clock, host):
    port = await endpoints.serve(plain(200, body=b"secret"))
    done = await call(strict, job(f"http://{host}:{port}/"), clock)
    assert done.outcome == "fatal_failure"
    assert done.error is not None
    assert done.error.startswith("blocked: ")
    assert "is not a public address; the operator may allow it" in done.error
    assert (done.response, done.status_code) == (None, None)
    assert endpoints.connections == 0


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "127.0.0.1", "10.1.2.3", "::1", "::ffff:10.0.0.1", "2002:7f00:1::1"]
)
async def test_a_name_that_turns_private_between_two_attempts_is_blocked(endpoints, clock, address):
    port = await endpoints.serve(plain(503))
    # The stand-in for a public address is one that the operator allowed.
    names = Answers(["127.0.0.1"], [address])
    async with open_session(Guard(parse_allowances(f"127.0.0.1:{port}")), names) as session:
        first = await call(session, job(f"http://rebind.example:{port}/"), clock)
        assert first.outcome == "retryable_failure"
        assert first.status_code == 503
        other = port + 1 if port < 65_535 else port - 1
        retry = await call(session, job(f"http://rebind.example:{other}/", attempt=4), clock)
    assert names.asked == 2
    assert retry.outcome == "fatal_failure"
    assert retry.error is not None
    assert retry.error.startswith(f"blocked: {address} ")
    assert retry.response is None


async def test_a_name_is_looked_up_anew_for_every_connection(endpoints, clock):
    port = await endpoints.serve(plain(200, Connection="close"))
    names = Answers(["127.0.0.1"], ["10.1.2.3"], ["127.0.0.1"])
    async with open_session(Guard(parse_allowances(f"127.0.0.1:{port}")), names) as session:
        outcomes = [(await call(session, job(f"http://rebind.example:{port}/"), clock)).outcome for _ in range(3)]
    assert outcomes == ["succeeded", "fatal_failure", "succeeded"]


async def test_a_kept_connection_stays_with_the_address_that_was_checked(endpoints, clock):
    port = await endpoints.serve(plain(200, body=b"ok"))
    names = Answers(["127.0.0.1"], ["169.254.169.254"])
    async with open_session(Guard(parse_allowances(f"127.0.0.1:{port}")), names) as session:
        for _ in range(3):
            assert (await call(session, job(f"http://rebind.example:{port}/"), clock)).outcome == "succeeded"
    assert endpoints.connections == names.asked == 1


async def test_of_a_mixed_answer_the_allowed_address_is_called(endpoints, clock):
    port = await endpoints.serve(plain(200))
    names = Answers(["10.1.2.3", "127.0.0.1", "::1"])
    async with open_session(Guard(parse_allowances(f"127.0.0.1:{port}")), names) as session:
        assert (await call(session, job(f"http://mixed.example:{port}/"), clock)).outcome == "succeeded"


async def test_the_systems_mixed_answer_loses_its_denied_addresses(monkeypatch):
    def answer(host, port, **_):
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", port)),
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2606:4700::1", port, 0, 0)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    resolver = Resolver(Guard())
    assert [one["host"] for one in await resolver.resolve("mixed.example", 80, socket.AF_UNSPEC)] == ["2606:4700::1"]
    await resolver.close()


async def test_a_redirect_to_a_private_address_is_not_followed(endpoints, session, clock):
    inner = await endpoints.url(plain(200, body=b"secret"))
    outer = await endpoints.url(plain(307, Location=inner))
    done = await call(session, job(outer), clock)
    assert (done.outcome, done.status_code) == ("fatal_failure", 307)
    assert len(endpoints.requests) == 1


async def test_proxies_of_the_environment_are_not_used(endpoints, session, clock, monkeypatch):
    proxy = await endpoints.url(plain(500))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy)
    url = await endpoints.url(plain(200))
    assert (await call(session, job(url), clock)).outcome == "succeeded"


@pytest.mark.parametrize("url", ["http://127.1/", "http://2130706433/", "http://0x7f.1/", "http://0177.0.0.1/"])
async def test_old_notations_of_addresses_are_never_called(endpoints, strict, clock, url):
    assert (await call(strict, job(url), clock)).outcome == "fatal_failure"


async def test_a_name_that_does_not_exist_may_be_tried_again(strict, clock, monkeypatch):
    def missing(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", missing)
    done = await call(strict, job("http://nowhere.example/"), clock)
    assert done.outcome == "retryable_failure"
    assert done.error == "could not find the host nowhere.example: Name or service not known"


async def test_running_out_of_files_is_not_the_jobs_fault(clock, monkeypatch):
    class Exhausted(Guard):
        def socket_for(self, info):
            raise OSError(24, "Too many open files")

    async with open_session(Exhausted()) as session:
        done = await call(session, job("http://1.1.1.1/"), clock)
    assert (done.outcome, done.error) == ("released", "the executor is out of resources: Too many open files")
