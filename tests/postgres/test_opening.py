"""Opening: migrations, identity, shards, and who is refused."""

import asyncio
import time

import pytest

from tests.conformance.yard import PARTITIONS
from tests.servers.postgres import PostgresServer
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.errors import ConfigError, StoreCorrupt, StoreTooNew
from tocsin.store.postgres import PostgresStore, open_store
from tocsin.store.postgres.connection import Address


async def test_a_store_is_alive_and_knows_its_servers_time(store: PostgresStore) -> None:
    await store.ping()
    assert abs(await store.now_ms() - time.time() * 1000) < 60_000


async def test_the_number_of_partitions_is_chosen_once(dsn: str, clock: ManualClock) -> None:
    with pytest.raises(ConfigError, match="made with 4 partitions and this program is configured for 8"):
        await open_store(dsn, clock, partitions=8, entropy=SeededEntropy(1))


async def test_of_two_that_migrate_at_once_the_second_finds_it_done(
    postgres: PostgresServer, clock: ManualClock
) -> None:
    async with postgres.blank(2) as dsns:
        opened = await asyncio.gather(
            *(
                open_store(dsns[0], clock, partitions=PARTITIONS, entropy=SeededEntropy(seed), shards=dsns[1:])
                for seed in range(3)
            )
        )
        assert len({store.installation for store in opened}) == 1
        for store in opened:
            await store.ping()
            await store.close()


async def test_the_map_in_the_store_rules(postgres: PostgresServer, clock: ManualClock) -> None:
    async with postgres.blank(2) as dsns:
        for shards in (dsns[1:], [], ["postgresql://nobody@127.0.0.1:1/nowhere"]):
            store = await open_store(dsns[0], clock, partitions=PARTITIONS, entropy=SeededEntropy(1), shards=shards)
            assert [(one.identity.first, one.identity.last) for one in store.databases.all] == [(0, 1), (2, 3)]
            await store.ping()
            await store.close()


async def test_a_shard_of_another_installation_is_refused(postgres: PostgresServer, clock: ManualClock) -> None:
    async with postgres.blank(2) as mine, postgres.blank(2) as others:
        for seed, dsns in enumerate((mine, others)):
            store = await open_store(
                dsns[0], clock, partitions=PARTITIONS, entropy=SeededEntropy(seed), shards=dsns[1:]
            )
            await store.close()
        await postgres.execute(
            f"UPDATE shards SET address = '{others[1]}' WHERE shard = 1", database=mine[0].rpartition("/")[2]
        )
        with pytest.raises(ConfigError, match="and not shard 1 of"):
            await open_store(mine[0], clock, partitions=PARTITIONS, entropy=SeededEntropy(1))


async def test_a_changed_migration_and_a_newer_store_are_refused(postgres: PostgresServer, clock: ManualClock) -> None:
    async with postgres.blank() as (dsn,):
        database = dsn.rpartition("/")[2]
        store = await open_store(dsn, clock, partitions=PARTITIONS, entropy=SeededEntropy(1))
        await postgres.execute("INSERT INTO migrations VALUES (9000, 'later', 'x', 0)", database=database)
        other = await open_store(dsn, clock, partitions=PARTITIONS, entropy=SeededEntropy(1))
        await other.ping()
        await other.close()
        await postgres.execute("UPDATE identity SET least_code = 9000", database=database)
        with pytest.raises(StoreTooNew, match="start a newer version"):
            await open_store(dsn, clock, partitions=PARTITIONS, entropy=SeededEntropy(1))
        with pytest.raises(StoreTooNew):  # one that runs already, at its first new connection
            await store.ping()
        await store.close()
        await postgres.execute("UPDATE migrations SET checksum = 'x' WHERE number = 1", database=database)
        with pytest.raises(StoreCorrupt, match="another text of migration 0001_start"):
            await open_store(dsn, clock, partitions=PARTITIONS, entropy=SeededEntropy(1))


async def test_another_programs_database_is_refused(postgres: PostgresServer, clock: ManualClock) -> None:
    async with postgres.blank() as (dsn,):
        await postgres.execute("CREATE TABLE jobs (id text)", database=dsn.rpartition("/")[2])
        with pytest.raises(ConfigError, match="another program's tables"):
            await open_store(dsn, clock, partitions=PARTITIONS, entropy=SeededEntropy(1))


@pytest.mark.parametrize(
    "dsn", ["mysql://a/b", "postgresql://", "postgresql://h", "postgresql://h:1/x?sslmode=perhaps", "postgresql://[h/x"]
)
async def test_an_address_that_is_none_is_refused(dsn: str, clock: ManualClock) -> None:
    with pytest.raises(ConfigError):
        await open_store(dsn, clock, partitions=PARTITIONS, entropy=SeededEntropy(1))


async def test_a_database_that_is_not_there_is_refused(postgres: PostgresServer, clock: ManualClock) -> None:
    with pytest.raises(ConfigError, match="correct its address, or create it"):
        await open_store(postgres.dsn("nowhere"), clock, partitions=PARTITIONS, entropy=SeededEntropy(1))


@pytest.mark.parametrize("dsn", ["postgresql://u:ge/heim@host/db", "postgresql://u:geheim\u2100@host/db"])
def test_an_address_that_cannot_be_read_is_refused_without_its_password(dsn: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Address.of(dsn)
    assert "heim" not in str(refused.value)


@pytest.mark.parametrize("hosts", ["h:99999999", "h:0", "h1:1,h2:x", "[::1]x", "h:1:2"])
def test_an_address_that_names_no_port_is_refused_and_not_shown(hosts: str) -> None:
    with pytest.raises(ConfigError, match="a host that is not HOST:PORT") as refused:
        Address.of(f"postgresql://{hosts}/db")
    assert hosts not in str(refused.value)


@pytest.mark.parametrize("hosts", ["h", "h:5432", "u:p%2F@h1:1,h2:65535", "u@[::1]:5432", "%2Ftmp", "h:"])
def test_an_address_of_hosts_and_ports_is_taken(hosts: str) -> None:
    assert Address.of(f"postgresql://{hosts}/db").name == f"{hosts.rpartition('@')[2]}/db"
