"""Tenants, their tokens and signing keys, and who a token is.

An operator acts on every tenant. An admin uses the same paths for its own; for it another tenant does not exist. Weight and
quotas are the operator's to set.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import UNSET
from msgspec.structs import asdict

from tocsin import wire
from tocsin.api import auth, views
from tocsin.api.call import Answer, Call, nothing, ok
from tocsin.api.checks import moment_faults
from tocsin.api.cursors import Cursors, page_of
from tocsin.api.desk import Desk
from tocsin.api.problems import conflict, invalid, not_found
from tocsin.api.query import ListQuery
from tocsin.clock import ms_of
from tocsin.model.signing import SECRET_BYTES, new_secret
from tocsin.store.settings import SigningKeyRow, TenantRow, TokenRow


async def me(desk: Desk, call: Call) -> Answer:
    """`GET /v1/me`"""
    caller = call.caller
    return ok(
        wire.Me(
            tenant=caller.tenant,
            scopes=list(caller.scopes),
            quotas=await desk.quotas.limits(caller.tenant),
            usage=desk.quotas.usage(caller.tenant),
        )
    )


async def list_tenants(desk: Desk, call: Call) -> Answer:
    """`GET /v1/tenants`, by name: all of them for an operator, its own for an admin."""
    query: ListQuery = call.query
    caller, cursors = call.caller, Cursors(desk.cursor_secret)
    rows = [row for row in await desk.settings.tenants() if caller.operator or row.name == caller.tenant]
    place = (caller.tenant, "tenants", str(caller.operator))
    shown, following = page_of(rows, lambda row: row.name, cursors.read(place, query.cursor), query.limit)
    return ok(
        wire.Page(
            items=[views.tenant(row) for row in shown],
            next_cursor=None if following is None else cursors.make(place, following),
        )
    )


async def create_tenant(desk: Desk, call: Call) -> Answer:
    """`POST /v1/tenants`"""
    body: wire.TenantCreate = call.body
    row = TenantRow(name=body.name, weight=body.weight, quotas=_stored(body.quotas), created_at=desk.clock.now_ms())
    if not await desk.settings.put_tenant(row, create=True):
        raise conflict(f"there is a tenant {body.name} already; PATCH /v1/tenants/{body.name} changes it")
    return ok(views.tenant(row), 201)


async def get_tenant(desk: Desk, call: Call) -> Answer:
    """`GET /v1/tenants/{tenant}`"""
    return ok(views.tenant(await _tenant(desk, call)))


async def patch_tenant(desk: Desk, call: Call) -> Answer:
    """`PATCH /v1/tenants/{tenant}`: weight and quotas, each replaced whole."""
    body: wire.TenantPatch = call.body
    if body.weight is UNSET and body.quotas is UNSET:
        raise invalid([("", "must change something; the body is empty")])
    row = await _tenant(desk, call)
    if body.weight is not UNSET:
        row = replace(row, weight=body.weight)
    if body.quotas is not UNSET:
        row = replace(row, quotas=_stored(body.quotas))
    if not await desk.settings.put_tenant(row, create=False):
        raise not_found("tenant")
    return ok(views.tenant(row))


async def list_tokens(desk: Desk, call: Call) -> Answer:
    """`GET /v1/tenants/{tenant}/tokens`, newest first."""
    query: ListQuery = call.query
    tenant, cursors = (await _tenant(desk, call)).name, Cursors(desk.cursor_secret)
    place = (tenant, "tokens")
    rows, following = page_of(
        await desk.settings.tokens(tenant),
        lambda row: f"{row.created_at:015d} {row.token_id}",
        cursors.read(place, query.cursor),
        query.limit,
        newest_first=True,
    )
    return ok(
        wire.Page(
            items=[views.token(row) for row in rows],
            next_cursor=None if following is None else cursors.make(place, following),
        )
    )


async def create_token(desk: Desk, call: Call) -> Answer:
    """`POST /v1/tenants/{tenant}/tokens`: the secret is in this answer and nowhere else."""
    body: wire.TokenCreate = call.body
    now = desk.clock.now_ms()
    faults = [
        (f"/scopes/{at}", fault)
        for at, scope in enumerate(body.scopes)
        if (fault := auth.scope_fault(scope)) is not None
    ]
    if body.expires_at is not None:
        faults += moment_faults(body.expires_at, "/expires_at")
        if ms_of(body.expires_at) <= now:
            faults.append(("/expires_at", "must be in the future"))
    if faults:
        raise invalid(faults)
    tenant = (await _tenant(desk, call)).name
    token_id, text, digest = auth.mint(desk.entropy, now)
    row = TokenRow(
        token_id=token_id,
        tenant=tenant,
        name=body.name,
        secret_sha256=digest,
        scopes=tuple(dict.fromkeys(body.scopes)),
        created_at=now,
        expires_at=None if body.expires_at is None else ms_of(body.expires_at),
    )
    await desk.settings.add_token(row)
    return ok(views.token(row, text), 201)


async def delete_token(desk: Desk, call: Call) -> Answer:
    """`DELETE /v1/tenants/{tenant}/tokens/{token_id}`: gone here at once, elsewhere within five seconds."""
    tenant = (await _tenant(desk, call)).name
    if not await desk.settings.delete_token(tenant, call.params[1]):
        raise not_found("token")
    return nothing()


async def list_signing_keys(desk: Desk, call: Call) -> Answer:
    """`GET /v1/tenants/{tenant}/signing-keys`, newest first; callbacks are signed with the newest two."""
    query: ListQuery = call.query
    tenant, cursors = (await _tenant(desk, call)).name, Cursors(desk.cursor_secret)
    place = (tenant, "signing-keys")
    rows = await desk.settings.signing_keys(tenant)
    active = {row.key_id for row in rows[: views.ACTIVE_KEYS]}
    shown, following = page_of(
        rows,
        lambda row: f"{row.created_at:015d} {row.key_id}",
        cursors.read(place, query.cursor),
        query.limit,
        newest_first=True,
    )
    return ok(
        wire.Page(
            items=[views.signing_key(row, active=row.key_id in active) for row in shown],
            next_cursor=None if following is None else cursors.make(place, following),
        )
    )


async def rotate_signing_key(desk: Desk, call: Call) -> Answer:
    """`POST /v1/tenants/{tenant}/signing-keys`: a new key; the newest before it goes on signing beside it."""
    tenant = (await _tenant(desk, call)).name
    now = desk.clock.now_ms()
    key_id, _, _ = auth.mint(desk.entropy, now)
    row = SigningKeyRow(
        key_id=key_id, tenant=tenant, secret=new_secret(desk.entropy.bytes(SECRET_BYTES)), created_at=now
    )
    await desk.settings.add_signing_key(row)
    return ok(views.signing_key(row, active=True, shown=True), 201)


async def _tenant(desk: Desk, call: Call) -> TenantRow:
    """The tenant in the path, as far as it exists for the caller. Raises Refused (404)."""
    name = call.params[0]
    if call.caller.operator or name == call.caller.tenant:
        for row in await desk.settings.tenants():
            if row.name == name:
                return row
    raise not_found("tenant")


def _stored(quotas: wire.Quotas | None) -> dict[str, float]:
    return {} if quotas is None else {name: value for name, value in asdict(quotas).items() if value is not None}
