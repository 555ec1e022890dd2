"""`client.tenants`, `client.tokens` and `client.signing_keys`: for operators, and for admins within their own tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

import msgspec
from msgspec import UNSET, UnsetType

from tocsin import wire
from tocsin.sdk.calls import Calls, given, path
from tocsin.sdk.transport import decode


class Tenants:
    """The calls about tenants."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(self) -> AsyncIterator[wire.Tenant]:
        """Every tenant."""
        return self._calls.pages("/v1/tenants", wire.Tenant, [])

    async def create(self, name: str, *, weight: float = 1.0, quotas: wire.Quotas | None = None) -> wire.Tenant:
        """Make a tenant."""
        body = {"name": name, "weight": weight, **given(quotas=_quotas(quotas))}
        return decode((await self._calls.send("POST", "/v1/tenants", json=body, repeat=False)).body, wire.Tenant)

    async def patch(
        self, tenant: str, *, weight: float | UnsetType = UNSET, quotas: wire.Quotas | None | UnsetType = UNSET
    ) -> wire.Tenant:
        """Change a tenant's weight or quotas. What is left out stays."""
        body = msgspec.json.encode(wire.TenantPatch(weight=weight, quotas=quotas))
        answer = await self._calls.send("PATCH", path("tenants/", tenant), body=body, repeat=True)
        return decode(answer.body, wire.Tenant)


class Tokens:
    """The calls about a tenant's tokens."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(self, tenant: str) -> AsyncIterator[wire.Token]:
        """A tenant's tokens, without their secrets."""
        return self._calls.pages(path("tenants/", tenant, "/tokens"), wire.Token, [])

    async def create(
        self, tenant: str, *, name: str, scopes: Sequence[str], expires_at: datetime | None = None
    ) -> wire.Token:
        """Make a token. Its secret (`token`) is in this answer and is never shown again."""
        body = {"name": name, "scopes": [*scopes], **given(expires_at=expires_at)}
        answer = await self._calls.send("POST", path("tenants/", tenant, "/tokens"), json=body, repeat=False)
        return decode(answer.body, wire.Token)

    async def delete(self, tenant: str, token_id: str) -> None:
        """Revoke a token."""
        await self._calls.send("DELETE", path("tenants/", tenant, "/tokens/", token_id), repeat=True)


class SigningKeys:
    """The calls about the keys with which a tenant's callbacks are signed."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(self, tenant: str) -> AsyncIterator[wire.SigningKey]:
        """A tenant's keys, without their secrets."""
        return self._calls.pages(path("tenants/", tenant, "/signing-keys"), wire.SigningKey, [])

    async def rotate(self, tenant: str) -> wire.SigningKey:
        """Make a new key; the two newest sign. Its `secret` is in this answer and is never shown again."""
        answer = await self._calls.send("POST", path("tenants/", tenant, "/signing-keys"), repeat=False)
        return decode(answer.body, wire.SigningKey)


def _quotas(quotas: wire.Quotas | None) -> dict[str, float] | None:
    if quotas is None:
        return None
    return {name: value for name, value in msgspec.structs.asdict(quotas).items() if value is not None}
