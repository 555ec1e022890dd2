"""The executor as a whole: jobs of many tenants to good and bad hosts, all through one server without a socket."""

import asyncio
import contextlib
import itertools
import socket
from typing import Any

import pytest
import uvicorn

from tests.executor.conftest import job, plain
from tests.executor.server import Server
from tocsin.clock import ManualClock
from tocsin.executor.guard import Guard, parse_allowances
from tocsin.executor.worker import Executor
from tocsin.sdk.asgi import AsgiTransport
from tocsin.sdk.http import HttpTransport

LOOPBACK = Guard(parse_allowances("127.0.0.0/8:*"))
# What a host may have in flight at first, with the concurrency of these tests.
CONCURRENCY, SHARE = 400, 100
numbers = itertools.count()


def to(name: str, url: str, **changes):
    """A callback whose lease token begins with `name`."""
    return job(url, lease_token=f"{name}-{next(numbers)}", **changes)


@pytest.fixture
def server():
    return Server()


@contextlib.asynccontextmanager
async def executing(server, **settings: Any):
    usual: dict[str, Any] = {"concurrency": CONCURRENCY, "prefetch": 100, "grace_s": 0.1}
    transport = settings.pop("transport", None) or AsgiTransport(server)
    executor = Executor(transport, settings.pop("guard", LOOPBACK), **(usual | settings))
    serving = asyncio.create_task(executor.serve())
    try:
        yield executor
    finally:
        await asyncio.sleep(0)
        await executor.stop(now=True)
        await serving


async def test_a_claimed_callback_is_made_and_reported(server, endpoints):
    url = await endpoints.url(plain(202, body=b"thanks", Content_Type="text/plain"))
    async with executing(server, name="e-1", lease_s=20.0):
        server.offer(to("a", url))
        await server.reported(1)
    [report] = server.reports.values()
    assert report | {"token": ""} == {
        "token": "",
        "outcome": "succeeded",
        "status_code": 202,
        "response": {"headers": {"content-type": "text/plain"}, "body": "thanks"},
    }
    assert (server.claims[0].worker, server.claims[0].lease_s) == ("e-1", 20.0)


async def test_over_http_it_does_the_same(server, endpoints):
    url = await endpoints.url(plain(200))
    api = uvicorn.Server(uvicorn.Config(server, port=0, lifespan="off", log_level="error"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(api.serve([listening]))
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        transport = HttpTransport(address, "tcs_1_x")
        async with executing(server, transport=transport, wait_s=0.1):
            server.offer(*(to("a", url) for _ in range(200)))
            await server.reported(200)
        await transport.close()
        api.should_exit = True
        await serving
    assert server.outcomes() == ["succeeded"] * 200


async def test_a_blocked_address_is_a_fatal_failure(server, endpoints):
    url = await endpoints.url(plain(200))
    async with executing(server, guard=Guard()):
        server.offer(to("a", url))
        await server.reported(1)
    [report] = server.reports.values()
    assert report["outcome"] == "fatal_failure"
    assert report["error"].startswith("blocked: 127.0.0.1 ")
    assert "response" not in report
    assert endpoints.connections == 0


async def test_hundreds_of_calls_are_under_way_at_once(server, endpoints):
    count, tenants = 300, 6
    all_here = asyncio.Event()

    async def together(reader, writer, request):
        if len(endpoints.requests) == count:
            all_here.set()
        await all_here.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    port = await endpoints.serve(together)
    async with executing(server):
        server.offer(*(to("a", f"http://127.0.0.1:{port}/", tenant=f"t{n % tenants}") for n in range(count)))
        await server.reported(count)
    assert server.outcomes() == ["succeeded"] * count


async def test_bad_endpoints_harm_no_good_ones(server, endpoints):
    async def silent(reader, writer, request):
        await reader.read()

    async def drip(reader, writer, request):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    async def huge(reader, writer, request):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"y" * 10_000)
            await writer.drain()

    async def many_headers(reader, writer, request):
        writer.write(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000)
        await writer.drain()

    hanging = {"silent": silent, "drip": drip}
    bad = {
        "huge": (huge, "succeeded"),
        "headers": (many_headers, "retryable_failure"),
        "redirect": (plain(302, Location="/again"), "fatal_failure"),
    }
    urls = {name: await endpoints.url(endpoint) for name, endpoint in hanging.items()}
    urls |= {name: await endpoints.url(endpoint) for name, (endpoint, _) in bad.items()}
    good = await endpoints.url(plain(200))
    async with executing(server):
        server.offer(*(to(name, url) for _ in range(50) for name, url in urls.items()))
        server.offer(*(to("good", good) for _ in range(50)))
        await server.reported(200)
        # The others are still at it, and it has harmed nobody.
        assert server.outcomes("good") == ["succeeded"] * 50
        for name, (_, outcome) in bad.items():
            assert server.outcomes(name) == [outcome] * 50, name


async def test_a_host_that_hangs_gets_its_share_and_the_rest_goes_back_unharmed(server, endpoints):
    async def silent(reader, writer, request):
        await reader.read()

    hanging, good = await endpoints.url(silent), await endpoints.url(plain(200))
    async with executing(server) as executor:
        server.offer(*(to("hanging", hanging) for _ in range(200)))
        server.offer(*(to("good", good) for _ in range(100)))
        await server.until(lambda: len(server.outcomes("good")) == 100)
        await server.until(lambda: len(server.outcomes("hanging")) == 200 - SHARE)
        assert server.outcomes("hanging") == ["released"] * (200 - SHARE)
        assert len(endpoints.requests) == 100 + SHARE
        assert executor.tally.failed == 0


async def test_a_wait_for_a_place_is_not_part_of_the_timeout(server, endpoints):
    full, go_on = asyncio.Event(), asyncio.Event()

    async def held(reader, writer, request):
        if len(endpoints.requests) == SHARE:
            full.set()
        await go_on.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    clock = ManualClock()
    url = await endpoints.url(held)
    async with executing(server, clock=clock) as executor:
        server.offer(*(to("first", url) for _ in range(SHARE)))
        await full.wait()
        server.offer(*(to("waiting", url, timeout_s=1.5) for _ in range(10)))
        await server.until(lambda: executor.tally.claimed == SHARE + 10)
        for _ in range(18):
            clock.advance(0.1)
            for _ in range(20):
                await asyncio.sleep(0)
        go_on.set()
        await server.reported(SHARE + 10)
    assert set(server.outcomes()) == {"succeeded"}


async def test_the_engines_timeout_leaves_the_calls_own_alone(server, endpoints):
    async def silent(reader, writer, request):
        await reader.read()

    url = await endpoints.url(silent)
    async with executing(server):
        server.offer(to("a", url, timeout_s=0.3))
        await server.reported(1)
    [report] = server.reports.values()
    assert (report["outcome"], report["error"]) == ("retryable_failure", "timed out after 0.3 s")


@pytest.mark.parametrize(("kind", "outcome"), [("cancel", "cancelled"), ("superseded", None)])
async def test_a_call_ends_when_its_job_is_cancelled_or_lost(server, endpoints, kind, outcome):
    arrived, closed = asyncio.Event(), asyncio.Event()

    async def silent(reader, writer, request):
        arrived.set()
        await reader.read()
        closed.set()

    stuck = to("a", await endpoints.url(silent), lease_s=1.0)
    async with executing(server):
        server.offer(stuck)
        await arrived.wait()
        getattr(server, kind).add(stuck.lease_token)
        await asyncio.wait_for(closed.wait(), 10)
        if outcome is not None:
            await server.reported(1)
    assert server.outcomes() == ([] if outcome is None else [outcome])


async def test_a_stop_hands_running_calls_back(server, endpoints):
    arrived = asyncio.Event()

    async def silent(reader, writer, request):
        arrived.set()
        await reader.read()

    url = await endpoints.url(silent)
    async with executing(server):
        server.offer(to("a", url))
        await arrived.wait()
    [report] = server.reports.values()
    assert (report["outcome"], report["retry_after_s"]) == ("released", 0.0)


async def test_a_url_that_should_not_have_been_stored_is_a_fatal_failure(server):
    async with executing(server):
        server.offer(to("a", "ftp://example.com/"))
        await server.reported(1)
    [report] = server.reports.values()
    assert report["outcome"] == "fatal_failure"
    assert "http or https" in report["error"]
