"""The tokens that a process makes for itself: of `tocsin dev`, and of the executor that lives in the server's process.

Written like any other token, by single rows; a crash leaves the row or nothing, and the next start makes it again.
"""

from __future__ import annotations

from hashlib import sha256

from tocsin.executor.guard import Guard, parse_allowances
from tocsin.executor.worker import Executor
from tocsin.model.ids import ALPHABET
from tocsin.model.signing import new_secret
from tocsin.roles.process import Process
from tocsin.sdk.asgi import AsgiTransport
from tocsin.store.settings import SigningKeyRow, TenantRow, TokenRow

DEV_TENANT = "dev"
DEV_SCOPES = ("admin", "read", "write", "work:*", "operator")
EXECUTOR_TOKEN_ID = "callbacks"
# No tenant can have this name, so no admin finds the token among its own and deletes it: that would stop everybody's callbacks.
EXECUTOR_TENANT = "~embedded"


async def prepare_dev(process: Process, token: str | None) -> tuple[str, str]:
    """Make the tenant `dev` with a token of all its scopes and a signing key; the token and the newest signing secret."""
    rows, now = process.store.settings, process.clock.now_ms()
    await rows.put_tenant(TenantRow(name=DEV_TENANT, created_at=now), create=True)
    text = token or _made_token("dev", process.entropy.bytes(32))
    await _replace_token(process, token_row(text, DEV_TENANT, "tocsin dev", DEV_SCOPES, now))
    keys = await rows.signing_keys(DEV_TENANT)
    if keys:
        return text, keys[0].secret
    secret = new_secret(process.entropy.bytes(32))
    key_id = f"key_{process.entropy.bytes(8).hex()}"
    await rows.add_signing_key(SigningKeyRow(key_id=key_id, tenant=DEV_TENANT, secret=secret, created_at=now))
    return text, secret


def token_row(text: str, tenant: str, name: str, scopes: tuple[str, ...], now_ms: int) -> TokenRow:
    """The stored half of a token: its ID and the hash of its secret. A text of another form stands under its own hash."""
    parts = text.split("_", 2)
    token_id, secret = (parts[1], parts[2]) if len(parts) == 3 and parts[0] == "tcs" else ("", text)
    return TokenRow(
        token_id=token_id or sha256(text.encode()).hexdigest()[:24],
        tenant=tenant,
        name=name,
        secret_sha256=sha256(secret.encode()).digest(),
        scopes=scopes,
        created_at=now_ms,
    )


async def embedded_executor(process: Process) -> Executor:
    """An executor in this process: it calls the API without a socket and holds nothing but a token of its own."""
    return Executor(
        AsgiTransport(process.app, await executor_token(process)),
        Guard(parse_allowances(process.settings.callback_allow)),
        concurrency=process.settings.executor_concurrency,
        grace_s=process.settings.drain_s,
        entropy=process.entropy,
    )


async def executor_token(process: Process) -> str:
    """The token of the executors that live in servers' processes. All of an installation have the same, since none of them may make
    the others' void; it is made of a secret of the installation and never leaves these processes."""
    rows = process.store.settings
    text = _made_token(EXECUTOR_TOKEN_ID, await rows.secret("executor-token", process.entropy.bytes(32)))
    wanted = token_row(text, EXECUTOR_TENANT, "embedded executor", ("executor",), process.clock.now_ms())
    there = await rows.token(EXECUTOR_TOKEN_ID)
    if there is None or there.secret_sha256 != wanted.secret_sha256:
        await _replace_token(process, wanted)
    return text


def _made_token(token_id: str, secret: bytes) -> str:
    """The text of a token with that secret (32 random bytes)."""
    return f"tcs_{token_id}_{''.join(ALPHABET[byte & 31] for byte in secret[:32]).lower()}"


async def _replace_token(process: Process, row: TokenRow) -> None:
    """Store a token in the place of the one that an earlier start made under the same ID."""
    await process.store.settings.delete_token(row.tenant, row.token_id)
    await process.store.settings.add_token(row)
