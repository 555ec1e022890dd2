"""The ASGI application: the order in which a request is judged, and the one border behind which a bug becomes a 500.

401, 404 no such path, 405, 403, 415, 413, 400, 422, and only then the operation itself (404 no such thing, 412, 409, 429, 503).
Each check costs nothing that a later one would have to know, so a stranger learns nothing and cannot make the server work.

It is plain ASGI: for requests this small a framework's request and response would cost more than the work.
"""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from dataclasses import replace
from typing import Any, cast
from urllib.parse import unquote_to_bytes

from tocsin.api.auth import NOBODY, Doorkeeper, Rule, require
from tocsin.api.call import Answer, Call, refused
from tocsin.api.desk import Desk
from tocsin.api.operation import FREE, NAMED, Operation
from tocsin.api.operations import served
from tocsin.api.probes import CachedHealth
from tocsin.api.problems import (
    internal,
    invalid,
    method_not_allowed,
    no_such_path,
    too_large,
    unavailable,
    unreadable,
)
from tocsin.api.query import read_query
from tocsin.api.reading import may_hold_nul, nul_faults, require_json
from tocsin.api.routing import Router
from tocsin.errors import Refused, ServerUnavailable
from tocsin.telemetry import log

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, Send], Awaitable[None]]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_FREE_NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,200}")
_LENGTH = re.compile(rb"[0-9]{1,18}")


class ClientGone(Exception):
    """The client hung up; there is nobody to answer."""


def create_app(desk: Desk) -> AsgiApp:
    """The API in front of a desk."""
    if desk.advance is not None:
        return App(desk)  # where the clock stands still, what is known for a second would be known for ever
    return App(replace(desk, health=CachedHealth(desk.health, desk.clock)))


class App:
    """The API as an ASGI application. Its lifespan does nothing: whoever made the desk opens and closes what is behind it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._doors = Doorkeeper(desk.settings, desk.clock)
        self._router = Router(served(dev=desk.advance is not None))

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "lifespan":
                await _lifespan(receive, send)
            case "websocket":
                await send({"type": "websocket.close", "code": 1000})

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except ClientGone:
            return
        head = scope["method"] == "HEAD"
        length = (b"content-length", str(len(answer.body)).encode())
        headers = answer.headers if answer.status == 204 else [*answer.headers, length]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if head else answer.body})

    async def _answer(self, scope: Message, receive: Receive) -> Answer:
        try:
            return await self._serve(scope, receive)
        except Refused as why:
            return refused(why)
        except ServerUnavailable as why:
            return refused(unavailable(why))
        except ClientGone:
            raise
        # The border: whatever else comes out is a bug of ours, is logged and hidden. The path (it may hold a lease token) and
        # the values of variables are left out of the log.
        except Exception:
            bug = traceback.format_exc()
            log.error("a request failed on a bug; the client got 500", method=scope["method"], exception=bug)
            return refused(internal())

    async def _serve(self, scope: Message, receive: Receive) -> Answer:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        found = self._router.find(scope["path"])
        operations = cast("dict[str, Operation]", found[0]) if found is not None else {}
        params = found[1] if found is not None else ()
        method = scope["method"]
        operation = operations.get("GET" if method == "HEAD" else method)
        if operation.rule is Rule.PUBLIC if operation is not None else _is_public(operations):
            caller = NOBODY
        else:
            caller = await self._doors.caller(headers.get(b"authorization"))
        if found is None:
            raise no_such_path()
        if operation is None:
            allowed = _allowed(operations)
            if method == "OPTIONS":
                return Answer(204, [(b"allow", ", ".join(allowed).encode())], b"")
            raise method_not_allowed(method, allowed)
        lease = self._desk.tokens.read(params[0]) if operation.rule is Rule.ATTEMPT and params else None
        require(operation.rule, caller, params, lease)
        raw, body, nul = b"", None, False
        if operation.reader is not None:
            raw = await _body(operation, headers, receive)
            body = operation.reader.read(raw)
            nul = may_hold_nul(raw)
            if nul and not operation.by_item:
                raise invalid(nul_faults(raw))
        query = read_query(operation.query, scope["query_string"])
        _require_names(operation.params, params, scope.get("raw_path"))
        call = Call(
            caller=caller, params=params, body=body, query=query, raw=raw, nul=nul, headers=headers, lease=lease
        )
        return await self._run(operation, call, receive)

    async def _run(self, operation: Operation, call: Call, receive: Receive) -> Answer:
        running = cast("Coroutine[Any, Any, Answer]", operation.run(self._desk, call))
        if operation.waits and call.body.wait_s > 0:
            return await _unless_gone(running, receive)
        answer = await running
        if operation.changes_tokens:
            self._doors.forget()
        return answer


async def _body(operation: Operation, headers: dict[bytes, bytes], receive: Receive) -> bytes:
    """The body's text, as far as it may be JSON by its headers and its size; `{}` where it may be left out."""
    length = headers.get(b"content-length")
    absent = length == b"0" or (length is None and b"transfer-encoding" not in headers)
    if not (absent and operation.may_be_empty):
        require_json(headers.get(b"content-type"), headers.get(b"content-encoding"))
    if length is not None and _LENGTH.fullmatch(length) and int(length) > operation.limit:
        raise _too_large(operation)
    message = await receive()
    raw: bytes = message.get("body", b"")
    if message.get("more_body"):
        chunks, size = [raw], len(raw)
        while message.get("more_body"):
            message = await receive()
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > operation.limit:
                raise _too_large(operation)
        raw = b"".join(chunks)
    if message["type"] == "http.disconnect":
        raise ClientGone
    if len(raw) > operation.limit:
        raise _too_large(operation)
    if not raw.strip():
        if not operation.may_be_empty:
            raise unreadable("the body is empty; send a JSON object")
        return b"{}"
    return raw


def _too_large(operation: Operation) -> Refused:
    return too_large(f"the body may have at most {operation.limit} bytes")


def _require_names(kinds: tuple[str, ...], params: tuple[str, ...], raw_path: bytes | None) -> None:
    for kind, value in zip(kinds, params, strict=True):
        if kind == FREE:
            _require_text(raw_path or b"")
        if "\0" in value:
            raise invalid([(f"/{kind}", "must not contain the character NUL (U+0000)")])
        if kind == FREE and _FREE_NAME.fullmatch(value) is None:
            raise invalid([(f"/{kind}", "must be: 1-200 characters without control characters")])
        if kind in NAMED and _NAME.fullmatch(value) is None:
            raise invalid(
                [
                    (
                        f"/{kind}",
                        "must be a name: letters, digits, `.`, `_`, `-`; starts with a letter or digit; at most 128",
                    )
                ]
            )


def _require_text(raw_path: bytes) -> None:
    # Whoever decoded the path has put U+FFFD where it was not UTF-8: different names would become one.
    try:
        unquote_to_bytes(raw_path).decode("utf-8")
    except UnicodeDecodeError:
        raise unreadable("the path is not UTF-8") from None


def _is_public(operations: dict[str, Operation]) -> bool:
    return any(one.rule is Rule.PUBLIC for one in operations.values())


def _allowed(operations: dict[str, Operation]) -> list[str]:
    more = {"HEAD", "OPTIONS"} if "GET" in operations else {"OPTIONS"}
    return sorted({*operations, *more})


async def _unless_gone(running: Coroutine[Any, Any, Answer], receive: Receive) -> Answer:
    """Wait for an answer that takes its time, but not for a client that has hung up: its jobs would wait for nobody."""
    work = asyncio.ensure_future(running)
    gone = asyncio.ensure_future(_hung_up(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise ClientGone
    finally:
        for task in (work, gone):
            task.cancel()
        await asyncio.gather(work, gone, return_exceptions=True)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


__all__ = ["App", "AsgiApp", "create_app"]
