"""The settings half of the store port: tenants, tokens, signing keys, queues and the installation's own secrets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRow:
    """An isolated customer. `quotas` holds only what differs from the defaults."""

    name: str
    weight: float = 1.0
    quotas: dict[str, float] = field(default_factory=dict)
    created_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A bearer token; only the SHA-256 of its secret is kept."""

    token_id: str
    tenant: str
    name: str
    secret_sha256: bytes
    scopes: tuple[str, ...]
    created_at: int
    expires_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKeyRow:
    """A webhook signing secret (`whsec_…`). The two newest of a tenant are active."""

    key_id: str
    tenant: str
    secret: str
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A queue's settings. None is the default."""

    tenant: str
    queue: str
    paused: bool = False
    pause_note: str | None = None
    pause_until: int | None = None
    lease_ms: int | None = None
    max_attempts: int | None = None
    initial_backoff_s: float | None = None
    max_backoff_s: float | None = None
    created_at: int = 0


class SettingsStore(Protocol):
    """The small tables: tenants, tokens, keys, queues, and the identity of the installation."""

    async def tenants(self) -> list[TenantRow]: ...

    async def put_tenant(self, row: TenantRow, *, create: bool) -> bool:
        """Write a tenant; with `create` only where there is none (False: exists), without only where there is one."""
        ...

    async def tokens(self, tenant: str | None = None) -> list[TokenRow]: ...

    async def token(self, token_id: str) -> TokenRow | None: ...

    async def add_token(self, row: TokenRow) -> None: ...

    async def delete_token(self, tenant: str, token_id: str) -> bool: ...

    async def signing_keys(self, tenant: str) -> list[SigningKeyRow]:
        """Newest first."""
        ...

    async def add_signing_key(self, row: SigningKeyRow) -> None: ...

    async def queues(self, tenant: str | None = None) -> list[QueueRow]:
        """By name; a queue without settings is known by its jobs and has the defaults."""
        ...

    async def queue(self, tenant: str, queue: str) -> QueueRow | None: ...

    async def put_queue(self, row: QueueRow) -> None: ...

    async def secret(self, name: str, fresh: bytes) -> bytes:
        """The installation's own secret of that name (the key of lease tokens); `fresh` becomes it if there is none."""
        ...
