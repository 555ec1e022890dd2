"""The transport over HTTP/1.1, on aiohttp.

Connections are kept alive and shared by all requests of one event loop. A dead one is noticed in a stated time: every
request has a time-out of its own, after which no connection of that pool is used again and the next request opens a new
one; a connection that has been idle for longer than most middle boxes remember is not used again. Redirects are not followed
and proxies of the environment are not used: the token goes to the server that was named and to nobody else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from tocsin.errors import Unreachable, UsageError
from tocsin.sdk.transport import DEFAULT_TIMEOUT_S, Answer, Transport, accept

DEFAULT_URL = "http://127.0.0.1:8321"
CONNECT_TIMEOUT_S = 5.0
# Shorter than the idle time-out of every common load balancer (the shortest default is 60 s) and of Tocsin's own server.
IDLE_S = 30.0
# A claim of 1,000 jobs is about a megabyte; the default of 64 KiB would pause and resume the socket a dozen times.
READ_BUFFER = 1 << 20


class HttpTransport:
    """A server by its address. Without arguments: TOCSIN_URL and TOCSIN_TOKEN."""

    def __init__(self, url: str | None = None, token: str | None = None, *, connections: int = 100) -> None:
        self.url = (url or os.environ.get("TOCSIN_URL") or DEFAULT_URL).rstrip("/")
        self._token = token if token is not None else os.environ.get("TOCSIN_TOKEN", "")
        self._connections = connections
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise UsageError(f"not the address of a server: {self.url!r}; give one such as {DEFAULT_URL}")
        if parts.username is not None:
            raise UsageError("a server's address must not contain a user name or password; pass the token by itself")
        if not self._token.isascii() or any(c.isspace() for c in self._token):
            raise UsageError("the token contains white space or characters that no token has; check TOCSIN_TOKEN")
        self._pool: _Pool | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Answer:
        pool = self._pool
        if pool is None or pool.session.closed or pool.loop is not asyncio.get_running_loop():
            pool = self._open()
        url = URL(self.url + path, encoded=True)
        pool.users += 1
        try:
            async with pool.session.request(
                method,
                url.with_query(query) if query else url,
                data=body,
                headers=_headers(headers, body),
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(CONNECT_TIMEOUT_S, timeout_s)),
            ) as response:
                content = await response.read()
                answer_headers = {name.lower(): value for name, value in response.headers.items()}
                status = response.status
        except TimeoutError as exc:
            if self._pool is pool:
                # Its other connections go the same way and are probably as dead: none of them is used again.
                self._pool = None
            raise Unreachable(f"no answer of {self.url} within {timeout_s:g} s") from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise Unreachable(f"no connection to {self.url}: {exc or type(exc).__name__}") from exc
        finally:
            pool.users -= 1
            if pool is not self._pool and not pool.users:
                await pool.session.close()
        return accept(status, answer_headers, content)

    def fresh(self) -> Transport:
        return HttpTransport(self.url, self._token, connections=self._connections)

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None and pool.loop is asyncio.get_running_loop():
            await pool.session.close()

    def _open(self) -> _Pool:
        """Connections for the running loop. Those of an earlier loop (which has ended) are let go: they are of no use."""
        if self._pool is not None and not self._pool.session.closed:
            self._pool.session.detach()
        headers = {"Accept-Encoding": "identity", "User-Agent": "tocsin-python"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._connections, keepalive_timeout=IDLE_S, enable_cleanup_closed=False
            ),
            headers=headers,
            skip_auto_headers=("Accept", "Content-Type"),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER,
            trust_env=False,
        )
        self._pool = _Pool(session, asyncio.get_running_loop())
        return self._pool


@dataclass(slots=True)
class _Pool:
    """The connections of one event loop, and how many requests use them now."""

    session: aiohttp.ClientSession
    loop: asyncio.AbstractEventLoop
    users: int = 0


def _headers(headers: Mapping[str, str] | None, body: bytes | None) -> Mapping[str, str] | None:
    if body is None:
        return headers
    return {"Content-Type": "application/json", **(headers or {})}
