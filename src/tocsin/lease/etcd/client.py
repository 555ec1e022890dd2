"""A thin client of etcd's JSON gateway (etcd.io/docs/v3.5/dev-guide/api_grpc_gateway), as much of it as leases need.

One question is one request on a connection of its own: at a few requests a second that costs nothing, and no question is ever
put on a connection that died while it was idle. A question goes to the endpoint that answered last; one that refuses, is
silent for 1.5 s or has no leader is passed over for the next, once around, so that one member that hangs does not cost a node
its trust in a session that it renews in time. Keep-alives are asked for one at a time: only an answer with a time to live says
that the lease lives.

A question whose answer was lost is asked again elsewhere, so a conditional write may meet its own first try: who makes one
reads in the `otherwise` branch whether what stands there is his. A granted lease whose answer was lost ends by itself. A crash
leaves the leases and what hangs on them; the server removes both when their time is over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TypeVar

import aiohttp
import msgspec

from tocsin.errors import LeasesUnavailable
from tocsin.lease.etcd import gateway
from tocsin.lease.etcd.address import Address
from tocsin.lease.etcd.gateway import Compare, Get, KeyValue, Operation, Txn

ENDPOINT_S = 1.5
REQUEST_S = 5.0

_A = TypeVar("_A", bound=msgspec.Struct)

# google.golang.org/grpc/codes
_DEADLINE_EXCEEDED, _NOT_FOUND, _EXHAUSTED, _PRECONDITION, _UNAVAILABLE, _UNAUTHENTICATED = 4, 5, 8, 9, 14, 16
_ELSEWHERE = frozenset({_DEADLINE_EXCEEDED, _EXHAUSTED, _UNAVAILABLE})
# Said with the code of a wrong argument: users or roles were changed since the token was made.
_TOKEN_OLD = "revision of auth store is old"
_NO_TOKEN = "user name is empty"


class _Elsewhere(Exception):
    """This endpoint cannot answer now; another one may."""


class _LeaseGone(Exception):
    """The lease that the request names does not exist any more."""


class _LeaseThere(Exception):
    """There is a lease of the ID that was asked for."""


class EtcdClient:
    """One cluster. Made inside the event loop that uses it; every method raises LeasesUnavailable when nobody answers.

    `endpoint_s`: how long one endpoint may be silent; `request_s`: when a question is given up, however many there are.
    """

    def __init__(self, address: Address, *, endpoint_s: float = ENDPOINT_S, request_s: float = REQUEST_S) -> None:
        self._address = address
        self._endpoint_s, self._request_s = endpoint_s, request_s
        self._at = 0
        self._token: str | None = None
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True, limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=endpoint_s),
            trust_env=False,
        )

    async def get(self, key: str, end: str | None = None) -> tuple[KeyValue, ...]:
        """The key, or all keys from it up to `end` (without it), in order. Never stale: the read goes through the quorum."""
        answer, _ = await self._ask("/v3/kv/range", gateway.range_body(Get(key, end)), gateway.RangeAnswer)
        return gateway.key_values(answer)

    async def txn(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> Txn:
        """In one atomic step: `then` if all of `compares` hold, else `otherwise`. At most 128 operations."""
        body = gateway.txn_body(compares, then, otherwise)
        try:
            answer, repeated = await self._ask("/v3/kv/txn", body, gateway.TxnAnswer)
        except _LeaseGone:
            return Txn(succeeded=False, lease_gone=True)
        return gateway.txn(answer, repeated=repeated)

    async def grant(self, ttl_s: int, lease: int = 0) -> int:
        """A new lease under the ID that is given, or one of the server's choice; one that exists already is left as it is.

        The server may give it more time: its least is 1 to 2 s.
        """
        try:
            answer, _ = await self._ask("/v3/lease/grant", {"TTL": ttl_s, "ID": lease}, gateway.GrantAnswer)
        except _LeaseThere:
            return lease
        return answer.ID

    async def keepalive(self, lease: int) -> bool:
        """Give the lease its whole time again; False if it is gone: an answer without a time to live says so."""
        answer, _ = await self._ask("/v3/lease/keepalive", {"ID": lease}, gateway.KeepAliveAnswer)
        if answer.result is None:
            raise LeasesUnavailable("etcd broke a keep-alive off without an answer; it is asked again")
        return answer.result.TTL > 0

    async def revoke(self, lease: int) -> None:
        """End the lease and remove the keys that hang on it; one that is gone already stays gone."""
        with contextlib.suppress(_LeaseGone):
            await self._ask("/v3/lease/revoke", {"ID": lease}, gateway.Nothing)

    async def close(self) -> None:
        """End the connections. Leases stay until their time is over."""
        await self._session.close()

    async def _ask(self, path: str, body: dict[str, object], kind: type[_A]) -> tuple[_A, bool]:
        """An answer, from whichever endpoint gives it, and whether others were asked before and may have acted."""
        content = msgspec.json.encode(body)
        refusals: list[str] = []
        try:
            async with asyncio.timeout(self._request_s):
                for _ in self._address.endpoints:
                    endpoint = self._address.endpoints[self._at]
                    try:
                        return _decoded(await self._answered(endpoint, path, content), kind), bool(refusals)
                    except _Elsewhere as exc:
                        refusals.append(f"{endpoint}: {exc}")
                        self._pass_over(endpoint)
        except TimeoutError:
            refusals.append(f"no endpoint answered within {self._request_s:g} s")
        raise LeasesUnavailable(f"etcd does not answer ({'; '.join(refusals)}); it is asked again")

    def _pass_over(self, endpoint: str) -> None:
        # Requests under way at the same time fail together: only the first of them moves on.
        if self._address.endpoints[self._at] == endpoint:
            self._at = (self._at + 1) % len(self._address.endpoints)

    async def _answered(self, endpoint: str, path: str, content: bytes) -> bytes:
        """The body of an answer without error; a token that is not valid any more is replaced once."""
        fresh = self._token is None
        for _ in range(2):
            if self._address.user is not None and self._token is None:
                self._token = await self._authenticate(endpoint)
            token = self._token
            status, answer = await self._post(endpoint, path, content, token)
            if status == 200:
                return answer
            error = _error(endpoint, status, answer)
            if token is None or fresh or not (error.code == _UNAUTHENTICATED or _TOKEN_OLD in error.message):
                raise _meaning(error)
            # Tokens end after some minutes without use, with the member that knew them, and with a change of users.
            if self._token == token:
                self._token = None
            fresh = True
        raise AssertionError("the second round either answers or raises")

    async def _authenticate(self, endpoint: str) -> str:
        login = msgspec.json.encode({"name": self._address.user, "password": self._address.password})
        status, answer = await self._post(endpoint, "/v3/auth/authenticate", login, None)
        if status == 200:
            return _decoded(answer, gateway.TokenAnswer).token
        error = _error(endpoint, status, answer)
        if error.code in _ELSEWHERE:
            raise _Elsewhere(error.message)
        raise LeasesUnavailable(
            f"etcd refuses the user {self._address.user}: {error.message}; correct user and password in the setting lease"
        )

    async def _post(self, endpoint: str, path: str, content: bytes, token: str | None) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = token
        try:
            async with self._session.post(
                endpoint + path,
                data=content,
                headers=headers,
                ssl=self._address.tls or True,
                allow_redirects=False,
            ) as response:
                return response.status, await response.read()
        except TimeoutError as exc:
            raise _Elsewhere(f"no answer within {self._endpoint_s:g} s") from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise _Elsewhere(str(exc) or type(exc).__name__) from exc


def _decoded(content: bytes, kind: type[_A]) -> _A:
    try:
        return gateway.decode(content, kind)
    except msgspec.MsgspecError as exc:
        raise _Elsewhere(f"not an answer of etcd: {exc}") from exc


def _error(endpoint: str, status: int, content: bytes) -> gateway.Error:
    try:
        return gateway.decode(content, gateway.Error)
    except msgspec.MsgspecError:
        # A proxy in between, or a server without the gateway (it is part of etcd unless switched off).
        return gateway.Error(
            code=_UNAVAILABLE, message=f"{endpoint} answers {status} and not as etcd's JSON gateway does"
        )


def _meaning(error: gateway.Error) -> Exception:
    if error.code == _NOT_FOUND and "lease not found" in error.message:
        return _LeaseGone(error.message)
    if error.code == _PRECONDITION and "lease already exists" in error.message:
        return _LeaseThere(error.message)
    if error.code in _ELSEWHERE:
        return _Elsewhere(error.message)
    if _NO_TOKEN in error.message:
        return LeasesUnavailable(
            "etcd asks for a user and a password; put them into the setting lease: etcd://USER:PASSWORD@…"
        )
    return LeasesUnavailable(f"etcd refuses what it was asked: {error.message}")
