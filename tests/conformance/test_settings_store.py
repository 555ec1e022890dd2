"""The small tables."""

from dataclasses import replace

from tests.conformance.yard import Yard
from tocsin.store.port import Store
from tocsin.store.settings import QueueRow, SigningKeyRow, TenantRow, TokenRow


def token(token_id: str, tenant: str = "acme") -> TokenRow:
    return TokenRow(
        token_id=token_id,
        tenant=tenant,
        name="ci",
        secret_sha256=b"s" * 32,
        scopes=("read", "work:mail"),
        created_at=7,
        expires_at=9,
    )


async def test_a_tenant_is_made_once_and_changed_where_there_is_one(store: Store) -> None:
    row = TenantRow(name="acme", weight=2.5, quotas={"creates_per_s": 10.0}, created_at=3)
    assert await store.settings.put_tenant(row, create=False) is False
    assert await store.settings.put_tenant(row, create=True) is True
    assert await store.settings.put_tenant(replace(row, weight=9.0), create=True) is False
    assert await store.settings.tenants() == [row]
    changed = replace(row, weight=1.0, quotas={})
    assert await store.settings.put_tenant(changed, create=False) is True
    assert await store.settings.tenants() == [changed]


async def test_tokens_are_found_by_id_and_by_tenant(store: Store) -> None:
    for one in (token("b"), token("a"), token("c", "other")):
        await store.settings.add_token(one)
    assert await store.settings.token("b") == token("b")
    assert await store.settings.token("x") is None
    assert {one.token_id for one in await store.settings.tokens("acme")} == {"a", "b"}
    assert {one.token_id for one in await store.settings.tokens()} == {"a", "b", "c"}


async def test_a_token_is_deleted_by_its_tenant_only(store: Store) -> None:
    await store.settings.add_token(token("a"))
    assert await store.settings.delete_token("other", "a") is False
    assert await store.settings.delete_token("acme", "a") is True
    assert await store.settings.delete_token("acme", "a") is False
    assert await store.settings.tokens() == []


async def test_signing_keys_are_newest_first(store: Store) -> None:
    rows = [SigningKeyRow(key_id=f"k{n}", tenant="acme", secret=f"whsec_{n}", created_at=n) for n in (2, 3, 1)]
    for row in rows:
        await store.settings.add_signing_key(row)
    await store.settings.add_signing_key(SigningKeyRow(key_id="o", tenant="other", secret="whsec_o", created_at=5))
    assert [row.key_id for row in await store.settings.signing_keys("acme")] == ["k3", "k2", "k1"]
    assert await store.settings.signing_keys("nobody") == []


async def test_a_queues_settings_are_written_over(store: Store) -> None:
    row = QueueRow(
        tenant="acme",
        queue="mail",
        paused=True,
        pause_note="moving",
        pause_until=99,
        lease_ms=20_000,
        max_attempts=3,
        initial_backoff_s=0.5,
        max_backoff_s=60.0,
        created_at=4,
    )
    assert await store.settings.queue("acme", "mail") is None
    await store.settings.put_queue(row)
    assert await store.settings.queue("acme", "mail") == row
    changed = QueueRow(tenant="acme", queue="mail", created_at=4)
    await store.settings.put_queue(changed)
    await store.settings.put_queue(replace(row, tenant="other"))
    assert await store.settings.queues("acme") == [changed]
    assert len(await store.settings.queues()) == 2


async def test_a_queue_without_settings_is_known_by_its_jobs(yard: Yard) -> None:
    await yard.made(2)
    assert [(row.queue, row.paused, row.lease_ms) for row in await yard.store.settings.queues("acme")] == [
        ("mail", False, None)
    ]
    await yard.store.settings.put_queue(QueueRow(tenant="acme", queue="mail", paused=True))
    assert [(row.queue, row.paused) for row in await yard.store.settings.queues("acme")] == [("mail", True)]


async def test_a_secret_is_the_first_that_was_offered(store: Store) -> None:
    assert await store.settings.secret("lease", b"one") == b"one"
    assert await store.settings.secret("lease", b"two") == b"one"
    assert await store.settings.secret("other", b"two") == b"two"


async def test_a_ping_writes(store: Store) -> None:
    await store.ping()
    await store.ping()
