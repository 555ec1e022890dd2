"""A fleet whose Redis is killed, emptied, rolled back, full or throws entries away; and a holder of slots that dies
(F-47, F-52, F-53, F-58).

The tests share a fleet, in any order. Creates never fail in any of them: what is accepted is in PostgreSQL. What the counters show is
compared with the store once, in the end, since that takes until the next count.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

import tocsin
from tests.amount import LONG
from tests.processes.fleets import QUEUE, Fleet, Load, check_all, check_jobs, drained, fleet
from tests.processes.journal import Journal
from tests.processes.proxy import between
from tests.processes.waiting import succeeded, wait_until
from tests.servers.redis import RedisServer
from tocsin import wire

pytestmark = pytest.mark.timeout(240)

RATE = 100
MANY = ("--concurrency", "200", "--prefetch", "400")
LEASE_S = 10
# Redis is there again: a look each half second, a rebuild of sixteen small partitions, and patience on a crowded machine.
RECOVERS_WITHIN_S = 20.0
# What a full Redis refuses comes back by the recheck: of its minute, 11 s after that has ended, then a pass of the recheck.
RECHECKED_WITHIN_S = 60 + 11 + 20
MIB = 1 << 20


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    with fleet(folder, TOCSIN_MAX_WRITE_S="1", TOCSIN_RECHECK_DELAY_S="11") as made:
        made.api()
        made.start_nodes("one", "two")
        made.owned()
        made.worker(Journal(made.programs.folder / "journal"), *MANY).says("takes jobs from")
        try:
            yield made
            check_all(made, [])
        finally:
            made.redis.close()


@contextmanager
def load(shared: Fleet) -> Iterator[Load]:
    """Jobs all the while, each accepted at once; afterwards they drain, and all must be so."""
    under = Load(shared, RATE)
    under.start()
    try:
        more_accepted(under)
        yield under
    finally:
        under.stop()
    drained(shared)
    check_jobs(shared, under.accepted)
    assert under.outages == 0, "creates were refused"
    assert all(program.running for program in (shared.apis[0].program, *shared.nodes.values()))


def more_accepted(under: Load, number: int = RATE * 2) -> None:
    """Wait until so many more jobs have been accepted: what is in Redis has changed meanwhile."""
    before = len(under.accepted)
    wait_until(lambda: len(under.accepted) >= before + number, "more jobs to be accepted", 60)


def works_again(client: tocsin.Client, within_s: float = RECOVERS_WITHIN_S) -> None:
    job = client.jobs.create(queue=QUEUE, handler="note")
    wait_until(partial(succeeded, client, job), "a new job to run", within_s)


def test_without_redis_creates_heartbeats_and_completions_go_on_and_an_empty_one_is_filled_again(shared):
    with shared.client() as client, load(shared) as under:
        for _ in range(2):
            client.jobs.create(queue="by-hand", handler="note")
        held: list[wire.ClaimedJob] = []
        while len(held) < 2:
            held += client.queues.claim("by-hand", worker="test", max=2, wait_s=5)
        shared.redis.kill()
        made = client.jobs.create(queue=QUEUE, handler="note")
        with pytest.raises(tocsin.ServerUnavailable):
            client.queues.claim("by-hand", worker="test")
        assert client.attempts.heartbeat(held[0].lease_token).cancel_requested is False
        for each in held:
            assert client.attempts.complete(each.lease_token, "succeeded") == "SUCCEEDED"
        more_accepted(under)
        shared.redis.start()
        wait_until(partial(succeeded, client, made), "the job made without Redis", RECOVERS_WITHIN_S)


def test_a_flushed_redis_is_filled_again(shared):
    with shared.client() as client, load(shared):
        assert shared.redis.ask("FLUSHALL").startswith(b"+OK")
        works_again(client)


def test_a_redis_restored_from_an_old_snapshot_repeats_and_loses_nothing(shared):
    with shared.client() as client, load(shared) as under:
        assert shared.redis.ask("SAVE").startswith(b"+OK")
        more_accepted(under)
        shared.redis.kill()
        snapshot = shared.redis.folder / "dump.rdb"
        assert snapshot.stat().st_size > 0
        shared.redis.start()
        snapshot.unlink()
        works_again(client)


def test_a_failover_to_a_replica_that_is_seconds_behind_repeats_and_loses_nothing(shared):
    old = shared.redis
    replica = RedisServer(maxmemory="256mb", maxmemory_policy="noeviction").start()
    with between(old.port) as proxy, shared.client() as client, load(shared) as under:
        replica.ask("REPLICAOF", "127.0.0.1", str(proxy.port))
        wait_until(lambda: b"master_link_status:up" in replica.ask("INFO", "replication"), "the replica to follow", 60)
        proxy.black_hole()
        more_accepted(under)
        old.kill()
        replica.ask("REPLICAOF", "NO", "ONE")
        # What has the address now is the replica.
        assert replica.ask("CONFIG", "SET", "port", str(old.port)).startswith(b"+OK")
        replica.port = old.port
        shared.redis = replica
        works_again(client)
    old.close()


def test_entries_that_redis_throws_away_are_found_again_and_doctor_names_the_policy(shared):
    losses = told_of_losses(shared)
    with shared.client() as client, load(shared) as under:
        try:
            limit(shared.redis, 8 * MIB, "allkeys-lru")
            for _ in range(15):
                noise = "for i = 1, 400 do redis.call('SET', KEYS[1] .. i .. ARGV[1], string.rep('x', 4096)) end"
                shared.redis.ask("EVAL", noise, "1", "noise", str(time.monotonic()))
                more_accepted(under, RATE // 2)
            assert shared.doctor()["eviction"]["state"] == "problem"
            assert number_in(shared.redis, "stats", "evicted_keys") > 0
            # It may be thrown away too, and what evictions have taken is rebuilt every ten seconds: the bound is the recheck's.
            works_again(client, RECHECKED_WITHIN_S)
        finally:
            limit(shared.redis, None, "noeviction")
        assert told_of_losses(shared) > losses
    shared.redis.ask("EVAL", "for i, key in ipairs(redis.call('KEYS', 'noise*')) do redis.call('DEL', key) end", "0")


def test_a_full_redis_still_drains_and_what_it_refused_comes_by_the_recheck(shared, journal):
    with shared.client() as client, load(shared) as under:
        try:
            limit(shared.redis, MIB, "noeviction")
            shared.redis.ask("CONFIG", "RESETSTAT")
            waiting: list[wire.BatchResult] = []
            while number_in(shared.redis, "errorstats", "errorstat_OOM") == 0:
                assert len(waiting) < 50_000, "Redis does not become full"
                waiting += client.jobs.create_batch([{"queue": "nobody", "handler": "note"}] * 500)
            # It is full, and is asked for more.
            waiting += client.jobs.create_batch([{"queue": "nobody", "handler": "note"}] * 500)
            more_accepted(under)
            assert all(result.job_id for result in waiting)
            assert shared.doctor()["near memory"]["state"] == "problem"
            shared.worker(journal, *MANY, queue="nobody")
            wait_until(lambda: len(journal.entries()) > 0, "draining to begin by itself", 60)
            if LONG:
                under.stop()
                drained(shared, RECHECKED_WITHIN_S)
        finally:
            limit(shared.redis, None, "noeviction")
        if not LONG:
            # Nobody waits for the recheck in a short run: an emptied Redis is filled with all that waits, at once.
            shared.redis.ask("FLUSHALL")
    check_jobs(shared, [result.job_id for result in waiting if result.job_id])


def test_a_killed_holder_of_jobs_stops_nobody_else_and_they_come_back_with_the_lease(shared, journal, tmp_path):
    with shared.client() as client:
        client.queues.put("holder", lease_s=LEASE_S)
        workers = [shared.worker(journal, queue="holder") for _ in range(2)]
        held = client.jobs.create(queue="holder", handler="hold", payload={"until": str(tmp_path / "release")})
        begun = wait_until(lambda: journal.entries(job_id=held.job_id), "the job to be taken", 60)
        (holder,) = [worker for worker in workers if worker.pid == begun[0].pid]
        holder.kill()
        (tmp_path / "release").touch()
        others = [
            result.job_id
            for queue in ("holder", QUEUE)
            for result in client.jobs.create_batch([{"queue": queue, "handler": "note"}] * 50)
            if result.job_id is not None
        ]
        drained(shared)
        check_jobs(shared, [held.job_id, *others])
        assert len(journal.entries(job_id=held.job_id)) == 2
        lost, succeeded_then = client.jobs.attempts(held.job_id)
        assert (lost.outcome, succeeded_then.outcome) == ("lost", "succeeded")
    query = "SELECT max(started_at) AS at, count(*) AS n, max(attempt) AS attempt FROM finished WHERE id = ANY($1)"
    (last,) = shared.query(query, others)
    (over,) = shared.query("SELECT finished_at AS at FROM attempts WHERE job = $1 AND attempt = 1", held.job_id)
    assert (last["n"], last["attempt"]) == (100, 1)
    assert last["at"] < over["at"], "others waited for the holder's lease"


def limit(redis: RedisServer, more: int | None, policy: str) -> None:
    """Let Redis use so many bytes more than now (None: plenty), and say what it does when they are used up."""
    limit = 256 * MIB if more is None else number_in(redis, "memory", "used_memory") + more
    for name, value in (("maxmemory", str(limit)), ("maxmemory-policy", policy)):
        assert redis.ask("CONFIG", "SET", name, value).startswith(b"+OK")


def number_in(redis: RedisServer, section: str, name: str) -> int:
    """A figure of Redis's INFO; 0 if it is not told."""
    for line in redis.ask("INFO", section).decode().splitlines():
        found, _, value = line.partition(":")
        if found == name:
            return int(value.rpartition("=")[2])
    return 0


def told_of_losses(shared: Fleet) -> int:
    """How often nodes have found that something was lost."""
    return sum(node.errors.count("near_tier_lost") for node in shared.nodes.values())
