"""Commands that work on the store itself, without a server: for the first tenant and token, and for operators' own scopes.

Only the settings tables are touched, by single conditional writes that a running server sees within five seconds; so these
commands may be used beside one. A crash leaves either the whole row or nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tocsin.cli.serve import load
from tocsin.errors import TocsinError, UsageError

if TYPE_CHECKING:
    from tocsin.config import Settings
    from tocsin.store.port import Store
    from tocsin.store.settings import TenantRow, TokenRow

T = TypeVar("T")
_SCOPE = re.compile(r"read|write|admin|operator|executor|work:(\*|[A-Za-z0-9][A-Za-z0-9._-]{0,127})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def settings_for(config: Path | None, data: Path | None) -> Settings:
    """The settings of the installation that `--config` and `--data` name."""
    settings = load(config)
    if data is not None:
        settings = replace(settings, data=data, store="")
    if not settings.has_store:
        raise UsageError("roles is executor: it has no store; name the installation with --data or --config")
    return settings


def on_store(settings: Settings, work: Callable[[Store], Awaitable[T]], *, make: bool = False) -> T:
    """Do `work` on the store, which is closed afterwards. Where there is none it is made only if `make` says so."""
    from tocsin import roles
    from tocsin.clock import SystemClock

    file = Path(settings.dsn.removeprefix("sqlite:"))
    if not settings.is_fleet and not make and not file.exists():
        raise TocsinError(f"there is no store in {file.parent}; tocsin migrate or the first start makes one")

    async def go() -> T:
        store = await roles.open_store(settings, SystemClock())
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(go())


@dataclass(frozen=True, slots=True)
class Installation:
    """The tenants and tokens of a store, in the shapes in which the API answers them."""

    settings: Settings

    def tenants(self) -> list[dict[str, Any]]:
        """All tenants."""
        return [_tenant(row) for row in on_store(self.settings, lambda store: store.settings.tenants())]

    def create_tenant(self, body: dict[str, Any]) -> dict[str, Any]:
        """Make a tenant of the body of `POST /v1/tenants`."""
        from tocsin.clock import SystemClock
        from tocsin.store.settings import TenantRow

        row = TenantRow(
            name=_checked_name(body["name"]),
            weight=body.get("weight", 1.0),
            quotas=body.get("quotas", {}),
            created_at=SystemClock().now_ms(),
        )
        if not on_store(self.settings, lambda store: store.settings.put_tenant(row, create=True), make=True):
            raise TocsinError(f"there is a tenant {row.name} already; change it with tocsin admin tenants set")
        return _tenant(row)

    def set_tenant(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """Change a tenant as `PATCH /v1/tenants/{t}` does."""

        async def work(store: Store) -> TenantRow:
            row = await _find(store, name)
            row = replace(row, weight=body.get("weight", row.weight), quotas=body.get("quotas", row.quotas))
            await store.settings.put_tenant(row, create=False)
            return row

        return _tenant(on_store(self.settings, work))

    def tokens(self, tenant: str) -> list[dict[str, Any]]:
        """A tenant's tokens."""

        async def work(store: Store) -> list[TokenRow]:
            await _find(store, tenant)
            return await store.settings.tokens(tenant)

        return [_token(row) for row in on_store(self.settings, work)]

    def create_token(self, tenant: str, name: str, scopes: list[str], expires_at: str | None) -> dict[str, Any]:
        """Make a token; the answer alone has its secret."""
        from tocsin.api.auth import mint
        from tocsin.clock import SystemClock, SystemEntropy
        from tocsin.store.settings import TokenRow

        wrong = [scope for scope in scopes if not _SCOPE.fullmatch(scope)]
        if wrong:
            allowed = "read, write, admin, work:QUEUE, work:*, operator, executor"
            raise UsageError(f"--scope {wrong[0]!r} is not a scope; there are: {allowed}")
        if not 1 <= len(name) <= 200 or not name.isprintable():
            raise UsageError("--name must be 1 to 200 characters without control characters")
        now_ms, expires_ms = SystemClock().now_ms(), _moment_ms(expires_at)
        if expires_ms is not None and expires_ms <= now_ms:
            raise UsageError(f"--expires-at {expires_at} must be in the future")
        token_id, text, digest = mint(SystemEntropy(), now_ms)
        row = TokenRow(
            token_id=token_id,
            tenant=tenant,
            name=name,
            secret_sha256=digest,
            scopes=tuple(dict.fromkeys(scopes)),
            created_at=now_ms,
            expires_at=expires_ms,
        )

        async def work(store: Store) -> None:
            await _find(store, tenant)
            await store.settings.add_token(row)

        on_store(self.settings, work)
        return {**_token(row), "token": text}

    def delete_token(self, tenant: str, token_id: str) -> None:
        """Delete a token."""
        if not on_store(self.settings, lambda store: store.settings.delete_token(tenant, token_id)):
            raise TocsinError(f"tenant {tenant} has no token {token_id}; tocsin admin tokens list shows them")


async def _find(store: Store, name: str) -> TenantRow:
    for row in await store.settings.tenants():
        if row.name == name:
            return row
    raise TocsinError(f"there is no tenant {name}; tocsin admin tenants create makes one")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a name: letters, digits, '.', '_', '-', at most 128")
    return name


def _moment_ms(text: str | None) -> int | None:
    from tocsin.clock import ms_of

    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("it has no offset")
    except ValueError as error:
        raise UsageError(f"--expires-at {text!r}: {error}; give RFC 3339 such as 2027-01-01T00:00:00Z") from error
    return ms_of(moment)


def _tenant(row: TenantRow) -> dict[str, Any]:
    from tocsin.clock import rfc3339

    return {"name": row.name, "weight": row.weight, "quotas": row.quotas, "created_at": rfc3339(row.created_at)}


def _token(row: TokenRow) -> dict[str, Any]:
    from tocsin.clock import rfc3339

    shown = {
        "token_id": row.token_id,
        "name": row.name,
        "scopes": list(row.scopes),
        "created_at": rfc3339(row.created_at),
    }
    return shown if row.expires_at is None else {**shown, "expires_at": rfc3339(row.expires_at)}
