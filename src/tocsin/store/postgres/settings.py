"""The small tables: tenants, tokens, signing keys, queues and the installation's secrets. They live in the home database.

Each write is one conditional statement, which is a transaction for itself. Of a queue that never had a setting nothing stands
here: it is known by its jobs, so all shards are asked for their queues. These tables are small, and every request is judged by
what is read here: so they are read where no list of jobs is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from tocsin.store.postgres.databases import Databases
from tocsin.store.postgres.rows import DAMAGE, Unreadable
from tocsin.store.postgres.statements import block
from tocsin.store.settings import QueueRow, SigningKeyRow, TenantRow, TokenRow

Row = TypeVar("Row")

_TENANTS = block("settings", "tenants")
_ADD_TENANT = block("settings", "add_tenant")
_SET_TENANT = block("settings", "set_tenant")
_TOKENS = block("settings", "tokens")
_TOKEN = block("settings", "token")
_ADD_TOKEN = block("settings", "add_token")
_DELETE_TOKEN = block("settings", "delete_token")
_SIGNING_KEYS = block("settings", "signing_keys")
_ADD_SIGNING_KEY = block("settings", "add_signing_key")
_QUEUES = block("settings", "queues")
_QUEUE_NAMES = block("settings", "queue_names")
_QUEUE = block("settings", "queue")
_PUT_QUEUE = block("settings", "put_queue")
_ADD_SECRET = block("settings", "add_secret")
_SECRET = block("settings", "secret")
_QUOTAS = msgspec.json.Decoder(dict[str, float])
_SCOPES = msgspec.json.Decoder(tuple[str, ...])
_encode = msgspec.json.Encoder().encode


class PostgresSettings:
    """`SettingsStore` in the home database."""

    def __init__(self, databases: Databases, unreadable: Unreadable) -> None:
        self._databases, self._home, self._unreadable = databases, databases.home, unreadable

    async def tenants(self) -> list[TenantRow]:
        return self._made(_tenant, await self._home.urgent.fetch(_TENANTS))

    async def put_tenant(self, row: TenantRow, *, create: bool) -> bool:
        values = (row.name, row.weight, _text(row.quotas))
        if create:
            return bool(await self._home.bulk.fetch(_ADD_TENANT, *values, row.created_at))
        return bool(await self._home.bulk.fetch(_SET_TENANT, *values))

    async def tokens(self, tenant: str | None = None) -> list[TokenRow]:
        return self._made(_token, await self._home.urgent.fetch(_TOKENS, tenant))

    async def token(self, token_id: str) -> TokenRow | None:
        rows = self._made(_token, await self._home.urgent.fetch(_TOKEN, token_id))
        return rows[0] if rows else None

    async def add_token(self, row: TokenRow) -> None:
        await self._home.bulk.fetch(
            _ADD_TOKEN,
            row.token_id,
            row.tenant,
            row.name,
            row.secret_sha256,
            _text(row.scopes),
            row.created_at,
            row.expires_at,
        )

    async def delete_token(self, tenant: str, token_id: str) -> bool:
        return bool(await self._home.bulk.fetch(_DELETE_TOKEN, tenant, token_id))

    async def signing_keys(self, tenant: str) -> list[SigningKeyRow]:
        return [
            SigningKeyRow(key_id=key_id, tenant=owner, secret=secret, created_at=created_at)
            for key_id, owner, secret, created_at in await self._home.urgent.fetch(_SIGNING_KEYS, tenant)
        ]

    async def add_signing_key(self, row: SigningKeyRow) -> None:
        await self._home.bulk.fetch(_ADD_SIGNING_KEY, row.key_id, row.tenant, row.secret, row.created_at)

    async def queues(self, tenant: str | None = None) -> list[QueueRow]:
        found = {(row.tenant, row.queue): row for row in map(_queue, await self._home.urgent.fetch(_QUEUES, tenant))}
        for rows in await self._databases.each(lambda database: database.urgent.fetch(_QUEUE_NAMES, tenant)):
            for owner, queue in rows:
                found.setdefault((owner, queue), QueueRow(tenant=owner, queue=queue))
        return [found[name] for name in sorted(found)]

    async def queue(self, tenant: str, queue: str) -> QueueRow | None:
        rows = await self._home.urgent.fetch(_QUEUE, tenant, queue)
        return _queue(rows[0]) if rows else None

    async def put_queue(self, row: QueueRow) -> None:
        await self._home.bulk.fetch(
            _PUT_QUEUE,
            row.tenant,
            row.queue,
            row.paused,
            row.pause_note,
            row.pause_until,
            row.lease_ms,
            row.max_attempts,
            row.initial_backoff_s,
            row.max_backoff_s,
            row.created_at,
        )

    async def secret(self, name: str, fresh: bytes) -> bytes:
        await self._home.bulk.fetch(_ADD_SECRET, name, fresh)
        return bytes((await self._home.urgent.fetch(_SECRET, name))[0][0])

    def _made(self, make: Callable[[Any], Row], rows: Sequence[Any]) -> list[Row]:
        """What can be read of these rows."""
        found: list[Row] = []
        for row in rows:
            try:
                found.append(make(row))
            except DAMAGE as exc:
                self._unreadable.note(str(row[0]), exc)
        return found


def _text(value: object) -> str:
    return _encode(value).decode()


def _tenant(row: Any) -> TenantRow:
    name, weight, quotas, created_at = row
    return TenantRow(name=name, weight=weight, quotas=_QUOTAS.decode(quotas), created_at=created_at)


def _token(row: Any) -> TokenRow:
    token_id, tenant, name, secret, scopes, created_at, expires_at = row
    return TokenRow(
        token_id=token_id,
        tenant=tenant,
        name=name,
        secret_sha256=secret,
        scopes=_SCOPES.decode(scopes),
        created_at=created_at,
        expires_at=expires_at,
    )


def _queue(row: Any) -> QueueRow:
    tenant, queue, paused, note, until, lease_ms, max_attempts, initial_backoff_s, max_backoff_s, created_at = row
    return QueueRow(
        tenant=tenant,
        queue=queue,
        paused=paused,
        pause_note=note,
        pause_until=until,
        lease_ms=lease_ms,
        max_attempts=max_attempts,
        initial_backoff_s=initial_backoff_s,
        max_backoff_s=max_backoff_s,
        created_at=created_at,
    )
