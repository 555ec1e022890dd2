"""The settings half of the store without transactions: each call writes one row."""

from __future__ import annotations

from tests.life.disk import Disk
from tocsin.store.settings import QueueRow, SigningKeyRow, TenantRow, TokenRow


class StepSettings:
    """Tenants, tokens, signing keys, queues and secrets on a `Disk`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def tenants(self) -> list[TenantRow]:
        return [row for _, row in sorted(self._disk.tenants.items())]

    async def put_tenant(self, row: TenantRow, *, create: bool) -> bool:
        if create == (row.name in self._disk.tenants):
            return False
        self._disk.tenants[row.name] = row
        return True

    async def tokens(self, tenant: str | None = None) -> list[TokenRow]:
        rows = sorted(self._disk.tokens.values(), key=lambda row: row.token_id)
        return [row for row in rows if tenant in (None, row.tenant)]

    async def token(self, token_id: str) -> TokenRow | None:
        return self._disk.tokens.get(token_id)

    async def add_token(self, row: TokenRow) -> None:
        self._disk.tokens[row.token_id] = row

    async def delete_token(self, tenant: str, token_id: str) -> bool:
        row = self._disk.tokens.get(token_id)
        if row is None or row.tenant != tenant:
            return False
        del self._disk.tokens[token_id]
        return True

    async def signing_keys(self, tenant: str) -> list[SigningKeyRow]:
        rows = [row for row in self._disk.signing_keys.values() if row.tenant == tenant]
        return sorted(rows, key=lambda row: (row.created_at, row.key_id), reverse=True)

    async def add_signing_key(self, row: SigningKeyRow) -> None:
        self._disk.signing_keys[row.key_id] = row

    async def queues(self, tenant: str | None = None) -> list[QueueRow]:
        """Queues with settings, and those that only have jobs, with the defaults."""
        jobs = [*self._disk.jobs.values(), *self._disk.finished.values()]
        names = {(row.job.line.tenant, row.job.line.queue) for row in jobs} | set(self._disk.queues)
        return [
            self._disk.queues.get(name) or QueueRow(tenant=name[0], queue=name[1])
            for name in sorted(names)
            if tenant in (None, name[0])
        ]

    async def queue(self, tenant: str, queue: str) -> QueueRow | None:
        return self._disk.queues.get((tenant, queue))

    async def put_queue(self, row: QueueRow) -> None:
        self._disk.queues[row.tenant, row.queue] = row

    async def secret(self, name: str, fresh: bytes) -> bytes:
        return self._disk.secrets.setdefault(name, fresh)
