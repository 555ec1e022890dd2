"""Tenants, tokens, signing keys, and the manual clock of `tocsin dev`."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from tocsin.wire.basics import HORIZON_S, FreeName, Moment, Name

Quota = Annotated[float, Meta(ge=0)]


class Quotas(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tenant's limits; a field left out takes the installation's default."""

    creates_per_s: Quota | None = None
    jobs_per_minute_bucket: Quota | None = None
    precise_per_s: Quota | None = None
    waiting_jobs: Quota | None = None
    concurrent_callbacks: Quota | None = None
    stored_bytes: Quota | None = None


class TenantCreate(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/tenants`."""

    name: Name
    weight: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    quotas: Quotas | None = None


class TenantPatch(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `PATCH /v1/tenants/{t}`."""

    weight: Annotated[float, Meta(gt=0, le=1000)] | UnsetType = UNSET
    quotas: Quotas | None | UnsetType = UNSET


class Tenant(Struct, kw_only=True):
    """A tenant as answers show it."""

    name: str
    weight: float
    quotas: Quotas
    created_at: str


class TokenCreate(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/tenants/{t}/tokens`."""

    name: FreeName
    scopes: Annotated[list[Annotated[str, Meta(max_length=140)]], Meta(min_length=1, max_length=50)]
    expires_at: Moment | None = None


class Token(Struct, kw_only=True, omit_defaults=True):
    """A token as answers show it; `token` is present once, in the answer that made it."""

    token_id: str
    name: str
    scopes: list[str]
    created_at: str
    expires_at: str | None = None
    token: str | None = None


class SigningKey(Struct, kw_only=True, omit_defaults=True):
    """A signing key; `secret` (`whsec_…`, Standard Webhooks) is present once, in the answer that made it."""

    key_id: str
    created_at: str
    active: bool
    secret: str | None = None


class Me(Struct, kw_only=True):
    """Who a token is."""

    tenant: str
    scopes: list[str]
    quotas: Quotas
    usage: dict[str, float]


class Advance(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/dev/clock:advance` (manual clock only)."""

    seconds: Annotated[float, Meta(ge=0, le=HORIZON_S)]


class Advanced(Struct, kw_only=True):
    """Its answer: the time that it is now."""

    now: str
