"""`tocsin move`: what it says, what it refuses, and that the installation goes on where it went."""

import json
import os
from datetime import UTC, datetime, timedelta

import pytest

import tocsin.testing
from tests.asgi import Http
from tocsin import roles
from tocsin.clock import SystemClock, SystemEntropy
from tocsin.config import Settings
from tocsin.errors import LeaseHeld, StoreMoved
from tocsin.flow.carry import Carrier
from tocsin.lease.local import LocalLeases
from tocsin.roles.moving import Where, opened

MORNING = datetime(2027, 3, 1, 8, tzinfo=UTC)


@pytest.fixture
def installation(tocsin, tmp_path, monkeypatch):
    """An installation with a tenant, in the folder `old` of the current directory."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("TOCSIN_")]:
        monkeypatch.delenv(name)
    tocsin("admin", "tenants", "create", "acme", "--data", "old")
    return tmp_path


def test_a_move_shows_what_arrived_and_where_to_go_on(tocsin, installation):
    code, out, _ = tocsin(
        "move", "--from", "sqlite:old/tocsin.db", "--to", "sqlite:new/tocsin.db", "--partitions", "64"
    )
    assert code == 0
    assert "unfinished jobs" in out
    assert "old/tocsin.db is marked and starts no server any more" in out
    assert f'store = "sqlite:{installation}/new/tocsin.db" and partitions = 64' in out
    code, _, err = tocsin("admin", "tenants", "list", "--data", "old")
    assert code == 1
    assert "has been moved to sqlite:" in err
    code, out, _ = tocsin("move", "--from", "sqlite:old/tocsin.db", "--to", "sqlite:new/tocsin.db")
    assert code == 0
    assert "there is nothing left to do" in out


def test_a_move_tells_scripts_the_same(tocsin, installation):
    code, out, _ = tocsin(
        *["move", "--from", "sqlite:old/tocsin.db", "--to", "sqlite:new/tocsin.db", "--keep-source", "--json"]
    )
    assert code == 0
    answer = json.loads(out)
    assert (answer["moved"], answer["source_kept"], answer["partitions"]) == (True, True, 16)
    assert {k: v for k, v in answer["items"][0].items() if k != "digest"} == {"what": "tenants", "count": 1}
    for folder in ("old", "new"):
        assert "acme" in tocsin("admin", "tenants", "list", "--data", folder)[1]


def test_a_dry_run_counts_and_makes_nothing(tocsin, installation):
    code, out, _ = tocsin("move", "--from", "sqlite:old/tocsin.db", "--to", "sqlite:new/tocsin.db", "--dry-run")
    assert code == 0
    assert "would be moved" in out
    assert not (installation / "new").exists()
    assert "acme" in tocsin("admin", "tenants", "list", "--data", "old")[1]


@pytest.mark.parametrize(
    ("source", "target", "code", "message"),
    [
        ("mysql:old", "sqlite:new/t.db", 2, "--from names no store; give sqlite:PATH or postgresql://"),
        ("sqlite:old/tocsin.db", "new/t.db", 2, "--to names no store; give sqlite:PATH or postgresql://"),
        ("sqlite:old/tocsin.db", "sqlite:old/../old/tocsin.db", 2, "are the same store; name another place"),
        ("sqlite:nowhere/tocsin.db", "sqlite:new/t.db", 2, "nowhere/tocsin.db; name the store of an installation"),
        (
            "sqlite:old/tocsin.db",
            "sqlite:full/tocsin.db",
            1,
            "is not empty: it has tenants; name a store that does not",
        ),
        ("sqlite:old/tocsin.db", "postgresql://u:geheim@127.0.0.1:1/t", 1, "127.0.0.1:1/t cannot be used now"),
    ],
)
def test_a_refusal_says_what_to_do(tocsin, installation, source, target, code, message):
    tocsin("admin", "tenants", "create", "bolt", "--data", "full")
    got, _, err = tocsin("move", "--from", source, "--to", target)
    assert got == code
    assert message in err
    assert "geheim" not in err
    assert not (installation / "nowhere").exists()
    assert not (installation / "new").exists()


async def test_a_store_that_is_served_is_refused(installation):
    leases = LocalLeases(installation / "old", 16)
    await leases.acquire()
    try:
        with pytest.raises(LeaseHeld, match=f"in use by process {os.getpid()}; stop it"):
            async with opened(Where(address="sqlite:old/tocsin.db"), SystemClock(), make=False):
                pass
    finally:
        await leases.release()


async def moved(source: str, target: str, partitions: int) -> None:
    """A whole move, as the command makes it."""
    clock = SystemClock()
    async with (
        opened(Where(address=source), clock, make=False) as here,
        opened(Where(address=target, partitions=partitions), clock, make=True) as there,
    ):
        await Carrier(here.transfer, there.transfer, clock).carry()


async def test_a_moved_installation_goes_on_as_if_nothing_had_happened(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    async with tocsin.testing.server(start=MORNING, data=old, token="tcs_dev_secret") as server:
        jobs = server.client.jobs
        await jobs.create(queue="q", handler="h")
        http = Http(server.process.app, server.token)
        (held,) = (await http("POST", "/v1/queues/q:claim", {"worker": "w", "handlers": ["h"]})).json["jobs"]
        later = await jobs.create(queue="q", handler="h", delay=1_800, idempotency_key="order-7")
        ready = await jobs.create(queue="q", handler="h")
        schedule = await server.client.schedules.create("hourly", cron="0 * * * *", queue="q", handler="h")
    await moved(f"sqlite:{old}/tocsin.db", f"sqlite:{new}/tocsin.db", 8)
    with pytest.raises(StoreMoved, match=r"old/tocsin\.db has been moved to sqlite:.*new/tocsin\.db; serve that one"):
        await roles.build(Settings(data=old, partitions=1), SystemClock(), SystemEntropy())
    settings = Settings(partitions=8)
    async with tocsin.testing.server(
        start=MORNING + timedelta(seconds=9), data=new, token="tcs_dev_secret", settings=settings
    ) as server:
        http = Http(server.process.app, server.token)
        done = await http("POST", f"/v1/attempts/{held['lease_token']}:complete", {"outcome": "succeeded"})
        assert (done.status, done.json) == (200, {"status": "SUCCEEDED"})
        again = await server.client.jobs.create(queue="q", handler="h", delay=1_800, idempotency_key="order-7")
        assert again.job_id == later.job_id
        worker, ran = tocsin.Worker("q", transport=server.transport()), []

        @worker.task("h")
        async def handle(payload, context):
            ran.append(context.job.job_id)

        async with server.running(worker):
            await server.advance(hours=2)
        assert len(ran) == len(set(ran)) == 4
        assert {later.job_id, ready.job_id} < set(ran)
        runs = [
            job.job_id async for job in server.client.jobs.list(schedule_id=schedule.schedule_id, status="SUCCEEDED")
        ]
        assert set(ran) == {later.job_id, ready.job_id, *runs}
