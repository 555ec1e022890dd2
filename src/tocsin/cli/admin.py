"""`tocsin admin`: tenants and tokens, through the API, or on the store itself with `--data` or `--config`; nodes, partitions and
workers (`cli.fleet`) through the API.

The first tenant and the first token can only be made on the store, since nobody can call the API before them. Tokens with
the scopes `operator` and `executor` are only ever made there: whoever may read the store's file has all of it anyway.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tocsin.cli import fleet, inputs, output, reach
from tocsin.cli.output import Json
from tocsin.errors import UsageError

if TYPE_CHECKING:
    from tocsin.cli.offline import Installation

app = typer.Typer(help="Tenants, tokens, nodes, partitions and workers.", no_args_is_help=True)
tenants = typer.Typer(
    help="Tenants: isolated customers with queues, tokens and quotas of their own.", no_args_is_help=True
)
tokens = typer.Typer(help="Tokens of a tenant.", no_args_is_help=True)
app.add_typer(tenants, name="tenants")
app.add_typer(tokens, name="tokens")
for command in (fleet.nodes, fleet.partitions, fleet.workers):
    app.command()(command)

Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Work on the store that this file of settings names, not the API.")
]
Data = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Work on the store in this data folder, not the API.")
]
Tenant = Annotated[str, typer.Argument(metavar="TENANT")]
QuotaOption = Annotated[list[str] | None, typer.Option(metavar="NAME=NUMBER", help="A quota; repeatable.")]
Scopes = Annotated[
    list[str],
    typer.Option(
        "--scope",
        metavar="SCOPE",
        help="read, write, admin, work:QUEUE, work:*; offline also operator, executor. Repeatable.",
    ),
]

TENANT_COLUMNS = ("tenant", "weight", "quotas", "created at")
TOKEN_COLUMNS = ("token id", "name", "scopes", "created at", "expires at")


@tenants.command("list")
def list_tenants(config: Config = None, data: Data = None, json: Json = False) -> None:
    """List tenants."""
    here = _offline(config, data)
    items = here.tenants() if here else reach.call("GET", "/v1/tenants").value["items"]
    if json:
        output.as_json({"items": items, "next_cursor": None})
        return
    rows = [[each["name"], each["weight"], _set(each["quotas"]), each["created_at"]] for each in items]
    output.table(TENANT_COLUMNS, rows, none="no tenants; make one with tocsin admin tenants create NAME")


@tenants.command("create")
def create_tenant(
    tenant: Tenant,
    weight: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Its share where tenants compete.", show_default="1")
    ] = None,
    quota: QuotaOption = None,
    config: Config = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Make a tenant."""
    body: dict[str, Any] = {"name": tenant, **_changes(weight, quota)}
    here = _offline(config, data)
    made = here.create_tenant(body) if here else reach.call("POST", "/v1/tenants", body=body).value
    _show(
        made,
        json,
        f"tenant {tenant} is made; its first token: tocsin admin tokens create {tenant} --name NAME --scope admin",
    )


@tenants.command("set")
def set_tenant(
    tenant: Tenant,
    weight: Annotated[float | None, typer.Option(metavar="NUMBER", help="Its share where tenants compete.")] = None,
    quota: QuotaOption = None,
    config: Config = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Change a tenant's weight, or its quotas (all of its own at once: those not named take the default)."""
    body = _changes(weight, quota)
    if not body:
        raise UsageError("name what to set: --weight or --quota")
    here = _offline(config, data)
    path = f"/v1/tenants/{reach.part(tenant)}"
    changed = here.set_tenant(tenant, body) if here else reach.call("PATCH", path, body=body).value
    _show(changed, json, f"tenant {tenant} is changed")


@tokens.command("list")
def list_tokens(tenant: Tenant, config: Config = None, data: Data = None, json: Json = False) -> None:
    """List a tenant's tokens (their secrets are not kept)."""
    here = _offline(config, data)
    items = here.tokens(tenant) if here else reach.call("GET", _tokens_path(tenant)).value["items"]
    if json:
        output.as_json({"items": items, "next_cursor": None})
        return
    rows = [
        [each["token_id"], each["name"], " ".join(each["scopes"]), each["created_at"], each.get("expires_at")]
        for each in items
    ]
    output.table(TOKEN_COLUMNS, rows, none=f"no tokens of {tenant}")


@tokens.command("create")
def create_token(
    tenant: Tenant,
    name: Annotated[str, typer.Option(metavar="NAME", help="What it is for.")],
    scope: Scopes,
    expires_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="RFC 3339; without it the token is good until deleted.")
    ] = None,
    config: Config = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Make a token. Its secret is shown once, here."""
    here = _offline(config, data)
    if here:
        made = here.create_token(tenant, name, scope, expires_at)
    elif "operator" in scope or "executor" in scope:
        raise UsageError("the scopes operator and executor are issued on the store only: add --data or --config")
    else:
        body = {"name": name, "scopes": scope, "expires_at": expires_at}
        made = reach.call("POST", _tokens_path(tenant), body=body).value
    if json:
        output.as_json(made)
        return
    print(made["token"])
    typer.echo("The token is shown this once; keep it where secrets are kept.", err=True)


@tokens.command("delete")
def delete_token(
    tenant: Tenant,
    token_id: Annotated[str, typer.Argument(metavar="TOKEN_ID")],
    config: Config = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Delete a token; servers refuse it within five seconds."""
    here = _offline(config, data)
    if here:
        here.delete_token(tenant, token_id)
    else:
        reach.call("DELETE", f"{_tokens_path(tenant)}/{reach.part(token_id)}")
    _show({"deleted": token_id}, json, f"token {token_id} is deleted")


def _offline(config: Path | None, data: Path | None) -> Installation | None:
    """The installation to work on, or None: ask the API."""
    if config is None and data is None:
        return None
    from tocsin.cli.offline import Installation, settings_for

    return Installation(settings_for(config, data))


def _tokens_path(tenant: str) -> str:
    return f"/v1/tenants/{reach.part(tenant)}/tokens"


def _changes(weight: float | None, quota: list[str] | None) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if weight is not None:
        if not 0 < weight <= 1_000:
            raise UsageError(f"--weight {weight:g} must be above 0 and at most 1000")
        body["weight"] = weight
    if quota:
        body["quotas"] = _quotas(quota)
    return body


def _quotas(texts: list[str]) -> dict[str, float]:
    from tocsin.config import QuotaDefaults

    known = QuotaDefaults().as_dict()
    quotas = {}
    for name, text in inputs.pairs(texts, "--quota", "=").items():
        if name not in known:
            raise UsageError(f"--quota {name!r} is not a quota; there are: {', '.join(known)}")
        try:
            quotas[name] = float(text)
        except ValueError:
            quotas[name] = -1.0
        if not 0 <= quotas[name] < float("inf"):
            raise UsageError(f"--quota {name}={text} must be a number of at least 0")
    return quotas


def _set(quotas: dict[str, float | None]) -> str:
    return " ".join(f"{name}={value:g}" for name, value in quotas.items() if value is not None)


def _show(value: dict[str, Any], json: bool, said: str) -> None:
    if json:
        output.as_json(value)
    else:
        print(said)
