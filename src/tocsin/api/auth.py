"""Who is calling, and what they may do.

A token is `tcs_<id>_<secret>`. Only the SHA-256 of the secret is stored, so a stolen store opens nothing; the ID finds the row.
Rows are believed for at most five seconds, which is how long a deleted token can live on in other processes. A token counts
only in the `Authorization` header, never in the query, which ends up in logs and histories.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from hmac import compare_digest

from tocsin.api.problems import forbidden, unauthorized
from tocsin.clock import Clock, Entropy
from tocsin.errors import Refused
from tocsin.flow.tokens import Lease
from tocsin.model.ids import ALPHABET
from tocsin.store.settings import SettingsStore, TokenRow

FRESH_S = 5.0
MOST_CACHED = 10_000
ISSUABLE = ("read", "write", "admin", "work:<queue>", "work:*")
ONLY_COMMAND_LINE = frozenset({"operator", "executor"})

_TEXT = re.compile(r"[!-~]{1,600}")
_SCOPE = re.compile(r"read|write|admin|work:(?:\*|[A-Za-z0-9][A-Za-z0-9._-]{0,127})")
_NO_SHA256 = bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The holder of a valid token."""

    tenant: str
    token_id: str
    scopes: tuple[str, ...]
    read: bool
    write: bool
    admin: bool
    operator: bool
    executor: bool
    works: frozenset[str]
    expires_at: int | None = None

    @classmethod
    def of(cls, row: TokenRow) -> Caller:
        """What a token's scopes add up to: an operator is also an admin of its own tenant, an admin reads and writes."""
        scopes = frozenset(row.scopes)
        operator = "operator" in scopes
        admin = operator or "admin" in scopes
        return cls(
            tenant=row.tenant,
            token_id=row.token_id,
            scopes=row.scopes,
            read=admin or "read" in scopes,
            write=admin or "write" in scopes,
            admin=admin,
            operator=operator,
            executor="executor" in scopes,
            works=frozenset(scope[5:] for scope in scopes if scope.startswith("work:")),
            expires_at=row.expires_at,
        )

    def may_work(self, queue: str) -> bool:
        """Whether the caller may take and end jobs of that queue of its tenant."""
        return "*" in self.works or queue in self.works

    def may_speak_for(self, lease: Lease) -> bool:
        """Whether the attempt is one of the caller's tenant (of anybody's, for an executor)."""
        return self.executor or lease.tenant == self.tenant


NOBODY = Caller(
    tenant="",
    token_id="",
    scopes=(),
    read=False,
    write=False,
    admin=False,
    operator=False,
    executor=False,
    works=frozenset(),
)


class Rule(Enum):
    """Who may use an operation. The value is what a refusal and the OpenAPI document say."""

    PUBLIC = "no token"
    ANY = "any valid token"
    READ = "the scope `read`"
    WRITE = "the scope `write`"
    WORK = "the scope `work:<queue>` of this queue"
    TEMPLATE = "the scope `write`, or `work:<queue>` of the queue in the template"
    ATTEMPT = "the scope `work:<queue>` of the attempt's queue"
    ADMIN = "the scope `admin`"
    OPERATOR = "the scope `operator`"
    EXECUTOR = "the scope `executor`"


def require(rule: Rule, caller: Caller, params: tuple[str, ...], lease: Lease | None = None) -> None:
    """Raise Refused (403) unless the caller's scopes allow it. Whose the thing is, is another question (404)."""
    match rule:
        case Rule.PUBLIC | Rule.ANY:
            allowed = True
        case Rule.READ:
            allowed = caller.read
        case Rule.WRITE:
            allowed = caller.write
        case Rule.WORK:
            allowed = caller.may_work(params[0])
        case Rule.TEMPLATE:
            # Which queue it must be, the body says: judged when that has been read.
            allowed = caller.write or bool(caller.works)
        case Rule.ATTEMPT:
            allowed = caller.executor or bool(caller.works)
            if lease is not None and lease.tenant == caller.tenant and not caller.executor:
                allowed = caller.may_work(lease.queue)
        case Rule.ADMIN:
            allowed = caller.admin
        case Rule.OPERATOR:
            allowed = caller.operator
        case Rule.EXECUTOR:
            allowed = caller.executor
    if not allowed:
        raise forbidden(rule.value)


class Doorkeeper:
    """Knows tokens."""

    def __init__(self, settings: SettingsStore, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        # By the digest of the whole header: a look-up whose time depends on a secret would tell about it.
        self._callers: dict[bytes, tuple[float, Caller]] = {}
        self._rows: dict[str, tuple[float, TokenRow | None]] = {}

    async def caller(self, header: bytes | None) -> Caller:
        """The holder of the token in an `Authorization` header. Raises Refused (401)."""
        if header is None:
            raise unauthorized("send a token: Authorization: Bearer tcs_…")
        digest = sha256(header).digest()
        known = self._callers.get(digest)
        now = self._clock.elapsed_s()
        if known is not None and now - known[0] < FRESH_S:
            caller = known[1]
        else:
            since, caller = await self._look_up(header)
            if len(self._callers) >= MOST_CACHED:
                self._callers.clear()
            self._callers[digest] = (since, caller)
        if caller.expires_at is not None and caller.expires_at <= self._clock.now_ms():
            raise unauthorized("the token has expired; ask for a new one")
        return caller

    def forget(self) -> None:
        """Look at the store again for every token: one has been made or deleted here."""
        self._callers.clear()
        self._rows.clear()

    async def _look_up(self, header: bytes) -> tuple[float, Caller]:
        kind, _, text = header.decode("latin-1").partition(" ")
        found = parse(text.strip()) if kind.lower() == "bearer" else None
        if found is None:
            raise unauthorized("the Authorization header must be: Bearer tcs_<id>_<secret>")
        token_id, digest = found
        since, row = await self._row(token_id)
        # Compared also where there is no row, so that the time does not tell which IDs exist.
        secret = row.secret_sha256 if row is not None else _NO_SHA256
        if not compare_digest(digest, secret) or row is None:
            raise unauthorized("the token is not known (any more)")
        return since, Caller.of(row)

    async def _row(self, token_id: str) -> tuple[float, TokenRow | None]:
        known = self._rows.get(token_id)
        now = self._clock.elapsed_s()
        if known is not None and now - known[0] < FRESH_S:
            return known
        row = await self._settings.token(token_id)
        if len(self._rows) >= MOST_CACHED:
            self._rows.clear()
        self._rows[token_id] = (now, row)
        return now, row


def mint(entropy: Entropy, now_ms: int) -> tuple[str, str, bytes]:
    """A fresh token: its ID, its whole text (shown once) and the SHA-256 to keep. Later ones have greater IDs."""
    token_id = base32(now_ms.to_bytes(6, "big") + entropy.bytes(4)).rjust(16, "0")
    secret = base32(entropy.bytes(32))
    return token_id, f"tcs_{token_id}_{secret}", sha256(secret.encode()).digest()


def base32(data: bytes) -> str:
    """Bytes in the alphabet of IDs; keeps their order where lengths are equal."""
    value, width = int.from_bytes(data, "big"), (len(data) * 8 + 4) // 5
    return "".join(ALPHABET[(value >> (5 * at)) & 31] for at in range(width - 1, -1, -1))


def parse(text: str) -> tuple[str, bytes] | None:
    """A token's ID and the SHA-256 of its secret; None for what can be no token.

    A text of another form than `tcs_<id>_<secret>` (chosen by hand for `tocsin dev`) is all secret and stands under its own hash.
    """
    if _TEXT.fullmatch(text) is None:
        return None
    kind, _, rest = text.partition("_")
    token_id, colon, secret = rest.partition("_")
    if kind == "tcs" and token_id and colon:
        return token_id, sha256(secret.encode()).digest()
    return sha256(text.encode()).hexdigest()[:24], sha256(text.encode()).digest()


def scope_fault(scope: str) -> str | None:
    """Why the API cannot issue a token with that scope, or None."""
    if scope in ONLY_COMMAND_LINE:
        return f"`{scope}` can only be issued from the command line: tocsin admin tokens"
    if _SCOPE.fullmatch(scope) is None:
        return f"must be one of {', '.join(ISSUABLE)}"
    return None


__all__ = ["NOBODY", "Caller", "Doorkeeper", "Refused", "Rule", "mint", "parse", "require", "scope_fault"]
