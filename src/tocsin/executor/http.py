"""One callback: the request that is made, what may come back of the answer, and how its end is classified.

`call` takes a job as the server handed it out (already signed) and always returns a report. Whatever the other side
does, it costs a bounded time and a bounded amount of memory:

- one deadline covers lookup, connect, request and answer, so that neither silence nor one byte per second goes on;
- of the answer at most 100 header lines and 4 KiB of body are read, then the connection is closed; nothing is
  decompressed; redirects are not followed; cookies are not kept;
- the address is checked when the connection is made (`guard`); a blocked call stores nothing of an answer;
- values of the job's own headers are masked in what is stored, because endpoints echo what they got.

If the process dies during the call the attempt's lease ends and the job is tried again with the same idempotency key.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import ssl
from functools import lru_cache
from http import HTTPStatus

import aiohttp
import yarl
from aiohttp.abc import AbstractResolver

import tocsin
from tocsin.clock import Clock
from tocsin.executor.guard import Blocked, Guard, Resolver
from tocsin.executor.masking import Mask
from tocsin.executor.retry_after import retry_after_s
from tocsin.model.signing import body_of
from tocsin.sdk.report import Report
from tocsin.wire import MAX_RESPONSE_BYTES, ExecutorJob, ReportedOutcome, Response

USER_AGENT = f"Tocsin/{tocsin.__version__}"
MAX_HEADER_LINES = 100
MAX_HEADER_BYTES = 8 * 1024
# Most servers close an idle connection after five seconds or more; a request that meets the close is a lost attempt.
KEEP_ALIVE_S = 4.0
KEPT_HEADERS = ("content-type", "retry-after", "location", "server", "date", "x-request-id")
KEPT_HEADER_CHARS = 512

_ERROR_CHARS = 500
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

_RETRYABLE = frozenset({408, 425, 429})
ASKS_FOR_A_PAUSE = frozenset({429, 503})
# The executor itself is out of something; the job is not to blame.
_OWN_LIMITS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


def open_session(guard: Guard, resolver: AbstractResolver | None = None) -> aiohttp.ClientSession:
    """The HTTP client of an executor: one per event loop; whoever opens it closes it."""
    connector = aiohttp.TCPConnector(
        limit=0,
        keepalive_timeout=KEEP_ALIVE_S,
        resolver=resolver or Resolver(guard),
        socket_factory=guard.socket_for,
        # A lookup is shared by the calls that wait for it and then forgotten.
        use_dns_cache=True,
        ttl_dns_cache=0,
        dns_cache_max_size=100_000,
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        trust_env=False,
        # A request without a body must not name a type for it: some frameworks refuse that.
        skip_auto_headers=("Content-Type",),
        auto_decompress=False,
        read_bufsize=MAX_RESPONSE_BYTES,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        max_headers=MAX_HEADER_LINES,
    )


async def call(session: aiohttp.ClientSession, job: ExecutorJob, clock: Clock) -> Report:
    """Make the job's call and classify its end. Raises nothing but CancelledError."""
    timeout_s = job.target.timeout_s
    payload = body_of(job.target.method, bytes(job.payload))
    reply: aiohttp.ClientResponse | None = None
    body = bytearray()
    try:
        # Real time, also under a manual clock: the other side of the connection lives in it.
        async with asyncio.timeout(timeout_s):
            reply = await session.request(
                job.target.method,
                _url(job.target.url),
                data=payload or None,
                headers=_request_headers(job, with_body=bool(payload)),
                allow_redirects=False,
            )
            await _read_into(body, reply)
    except TimeoutError:
        broken = f"timed out after {timeout_s:g} s"
        return _broken_off(broken) if reply is None else _answered(reply, body, job, clock, broken)
    except (aiohttp.ClientError, OSError, ValueError) as exc:
        if reply is None:
            return _unreached(exc, Mask.of(job.target))
        return _answered(reply, body, job, clock, "the connection was closed before the whole answer had come")
    finally:
        if reply is not None:
            reply.close()  # a connection whose answer was read to its end is back in the pool by now
    return _answered(reply, body, job, clock, None)


def outcome_of(status: int) -> ReportedOutcome:
    """How a status classifies: 2xx succeeded; 408, 425, 429 and 5xx may be tried again; everything else is final."""
    if 200 <= status < 300:
        return "succeeded"
    return "retryable_failure" if status in _RETRYABLE or 500 <= status < 600 else "fatal_failure"


def _request_headers(job: ExecutorJob, *, with_body: bool) -> dict[str, str]:
    """All headers of the request. A job may replace the first five; the others it cannot name (`model.urls`)."""
    headers = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
    if job.traceparent is not None:
        headers["Traceparent"] = job.traceparent
    if with_body:
        headers["Content-Type"] = "application/json"
    for name, value in job.target.headers.items():
        canonical = name.title()
        headers[canonical if canonical in headers else name] = value
    headers["Idempotency-Key"] = job.idempotency_key
    headers["Tocsin-Job-Id"] = job.job_id
    headers["Tocsin-Attempt"] = str(job.attempt)
    headers["Tocsin-Fire-At"] = job.fire_at
    headers["Tocsin-Queue"] = job.queue
    headers.update(job.signature_headers)
    return headers


@lru_cache(maxsize=8192)
def _url(url: str) -> yarl.URL:
    """The URL as it was written: receivers sign and compare them. Only what is not ASCII has to be encoded."""
    return yarl.URL(url, encoded=url.isascii())


async def _read_into(body: bytearray, reply: aiohttp.ClientResponse) -> None:
    """Read to the end, or one byte further than what is kept."""
    content = reply.content
    while len(body) <= MAX_RESPONSE_BYTES and not content.at_eof():
        body += await content.read(MAX_RESPONSE_BYTES + 1 - len(body))


def _answered(
    reply: aiohttp.ClientResponse, body: bytearray, job: ExecutorJob, clock: Clock, broken: str | None
) -> Report:
    """A status came. A failure stands by itself; a success only counts when its body came too (`broken` is why not)."""
    outcome = outcome_of(reply.status)
    error = None if outcome == "succeeded" else _status_text(reply.status)
    if outcome == "succeeded" and broken is not None:
        outcome, error = "retryable_failure", f"{_status_text(reply.status)}, but {broken}"
    asked = reply.headers.get("Retry-After") if reply.status in ASKS_FOR_A_PAUSE else None
    return Report(
        outcome,
        error=error,
        retry_after_s=retry_after_s(asked, clock.now_ms()),
        status_code=reply.status,
        response=_kept(reply, body, Mask.of(job.target)),
    )


def _unreached(exc: Exception, mask: Mask) -> Report:
    """No status came: whose fault was it, and may it be tried again?"""
    reason = exc.os_error if isinstance(exc, aiohttp.ClientConnectorError) else exc
    if isinstance(reason, Blocked):
        return Report("fatal_failure", error=reason.strerror)
    if isinstance(reason, OSError) and reason.errno in _OWN_LIMITS:
        return Report("released", error=f"the executor is out of resources: {reason.strerror}")
    match exc:
        case aiohttp.ClientConnectorDNSError():
            error = f"could not find the host {exc.host}: {_reason(exc.os_error)}"
        case aiohttp.ClientConnectorCertificateError():
            error = f"could not connect to {exc.host}:{exc.port}: {_reason(exc.certificate_error)}"
        case aiohttp.ClientConnectorError():
            error = f"could not connect to {exc.host}:{exc.port}: {_reason(exc.os_error)}"
        case aiohttp.ServerDisconnectedError() | ConnectionError():
            error = "the connection was closed before an answer had come"
        case aiohttp.ClientResponseError():
            error = f"the answer was not valid HTTP, or its headers were too large: {exc.message}"
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return Report("fatal_failure", error="the URL of the target cannot be called")
        case aiohttp.ClientError() | OSError():
            error = f"the call failed: {_reason(exc)}"
        case _:  # a ValueError: the request could not even be written
            return Report(outcome="fatal_failure", error=_plain(mask.hide(f"cannot be called: {exc}"), _ERROR_CHARS))
    return _broken_off(_plain(mask.hide(error), _ERROR_CHARS))


def _broken_off(error: str) -> Report:
    return Report("retryable_failure", error=error)


def _reason(exc: Exception) -> str:
    """The system's words; those of the event loops repeat addresses."""
    if isinstance(exc, ssl.SSLError):
        return exc.reason or str(exc)
    if isinstance(exc, OSError) and exc.errno is not None and exc.errno in errno.errorcode:
        return os.strerror(exc.errno)
    return (exc.strerror if isinstance(exc, OSError) else None) or str(exc) or type(exc).__name__


def _status_text(status: int) -> str:
    """In our own words: the reason phrase belongs to the other side."""
    try:
        text = f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        text = f"HTTP {status}"
    return f"{text} (redirects are not followed)" if 300 <= status < 400 else text


def _kept(reply: aiohttp.ClientResponse, body: bytearray, mask: Mask) -> Response:
    """What is stored of an answer."""
    cut = len(body) > MAX_RESPONSE_BYTES
    text = mask.hide(body[:MAX_RESPONSE_BYTES].decode("utf-8", "replace"), cut=cut)
    # A replacement character takes three bytes, so the text of a binary answer is cut once more.
    text = text.replace("\0", "\ufffd").encode()[:MAX_RESPONSE_BYTES].decode("utf-8", "ignore")
    headers = {
        name: _plain(mask.hide(value), KEPT_HEADER_CHARS)
        for name in KEPT_HEADERS
        if (value := reply.headers.get(name)) is not None
    }
    return Response(headers=headers, body=text)


def _plain(text: str, chars: int) -> str:
    """One line of a bounded length, without control characters and whatever JSON cannot carry."""
    return _UNPRINTABLE.sub("\ufffd", text[:chars])
