"""The small tables: tenants, tokens, signing keys, queues and the installation's secrets."""

from __future__ import annotations

from collections.abc import Callable
from sqlite3 import Connection
from typing import Any, TypeVar

import msgspec

from tocsin.store.settings import QueueRow, SigningKeyRow, TenantRow, TokenRow
from tocsin.store.sqlite.reads import Readers
from tocsin.store.sqlite.requests import RAISES, Kind
from tocsin.store.sqlite.rows import DAMAGE
from tocsin.store.sqlite.statements import block
from tocsin.store.sqlite.work import Work, json_text
from tocsin.store.sqlite.writer import Writer

Row = TypeVar("Row")

_QUOTAS = msgspec.json.Decoder(dict[str, float])
_SCOPES = msgspec.json.Decoder(tuple[str, ...])


def _run(work: Work, writes: Any) -> list[Any]:
    return [write(work) for write in writes]


SETTING: Kind[Callable[[Work], Any], Any] = Kind("settings", 1, _run, RAISES, 100_000, batch=20)


class SqliteSettings:
    """`SettingsStore` on the writer and the readers of an open file."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer, self._readers = writer, readers

    async def tenants(self) -> list[TenantRow]:
        return self._made(_tenant, await self._all("tenants"))

    async def put_tenant(self, row: TenantRow, *, create: bool) -> bool:
        name = "add_tenant" if create else "set_tenant"
        return bool(await self._write(name, row.name, row.weight, json_text(row.quotas), row.created_at))

    async def tokens(self, tenant: str | None = None) -> list[TokenRow]:
        return self._made(_token, await self._all("tokens", tenant))

    async def token(self, token_id: str) -> TokenRow | None:
        rows = self._made(_token, await self._all("token", token_id))
        return rows[0] if rows else None

    async def add_token(self, row: TokenRow) -> None:
        await self._write(
            "add_token",
            row.token_id,
            row.tenant,
            row.name,
            row.secret_sha256,
            json_text(row.scopes),
            row.created_at,
            row.expires_at,
        )

    async def delete_token(self, tenant: str, token_id: str) -> bool:
        return bool(await self._write("delete_token", tenant, token_id))

    async def signing_keys(self, tenant: str) -> list[SigningKeyRow]:
        return [
            SigningKeyRow(key_id=key_id, tenant=owner, secret=secret, created_at=created_at)
            for key_id, owner, secret, created_at in await self._all("signing_keys", tenant)
        ]

    async def add_signing_key(self, row: SigningKeyRow) -> None:
        await self._write("add_signing_key", row.key_id, row.tenant, row.secret, row.created_at)

    async def queues(self, tenant: str | None = None) -> list[QueueRow]:
        return [_queue(row) for row in await self._all("queues", tenant)]

    async def queue(self, tenant: str, queue: str) -> QueueRow | None:
        rows = await self._all("queue", tenant, queue)
        return _queue(rows[0]) if rows else None

    async def put_queue(self, row: QueueRow) -> None:
        await self._write(
            "put_queue",
            row.tenant,
            row.queue,
            int(row.paused),
            row.pause_note,
            row.pause_until,
            row.lease_ms,
            row.max_attempts,
            row.initial_backoff_s,
            row.max_backoff_s,
            row.created_at,
        )

    async def secret(self, name: str, fresh: bytes) -> bytes:
        await self._write("add_secret", name, fresh)
        return bytes((await self._all("secret", name))[0][0])

    def _made(self, make: Callable[[Any], Row], rows: list[Any]) -> list[Row]:
        """What can be read of these rows."""
        found: list[Row] = []
        for row in rows:
            try:
                found.append(make(row))
            except DAMAGE as exc:
                self._readers.unreadable.note(str(row[0]), exc)
        return found

    async def _all(self, name: str, *values: Any) -> list[Any]:
        sql = block("settings", name)

        def read(conn: Connection) -> list[Any]:
            return conn.execute(sql, values).fetchall()

        return await self._readers.run(read)

    async def _write(self, name: str, *values: Any) -> int:
        sql = block("settings", name)
        return int((await self._writer.submit(SETTING, [lambda work: work.write(sql, *values)]))[0])


def _tenant(row: tuple[Any, ...]) -> TenantRow:
    name, weight, quotas, created_at = row
    return TenantRow(name=name, weight=weight, quotas=_QUOTAS.decode(quotas), created_at=created_at)


def _token(row: tuple[Any, ...]) -> TokenRow:
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


def _queue(row: tuple[Any, ...]) -> QueueRow:
    tenant, queue, paused, note, until, lease_ms, max_attempts, initial_backoff_s, max_backoff_s, created_at = row
    return QueueRow(
        tenant=tenant,
        queue=queue,
        paused=bool(paused),
        pause_note=note,
        pause_until=until,
        lease_ms=lease_ms,
        max_attempts=max_attempts,
        initial_backoff_s=initial_backoff_s,
        max_backoff_s=max_backoff_s,
        created_at=created_at,
    )
