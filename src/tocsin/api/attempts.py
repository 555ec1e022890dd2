"""Workers and executors: claim jobs, keep them, report how they ended.

A lease token speaks for one attempt. One that is forged, malformed or another tenant's is answered like one that has been
purged: 404. Of a batch each item is judged by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec

from tocsin import wire
from tocsin.api import checks
from tocsin.api.auth import Caller, Rule, require
from tocsin.api.call import Answer, Call, ok
from tocsin.api.desk import Desk
from tocsin.api.problems import invalid, not_found, not_yours, problem_of
from tocsin.api.reading import Reader, may_hold_nul, nul_faults
from tocsin.clock import rfc3339
from tocsin.errors import Refused
from tocsin.flow.tokens import Lease
from tocsin.store.port import Beaten, NotYours


class _Completions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A batch of completions without a fault, read in one go."""

    items: list[wire.TokenCompletion]


# So many items of a batch are judged at once before other requests get their turn.
SLICE = 500

_ONE = Reader(wire.TokenCompletion)
_all = msgspec.json.Decoder(_Completions).decode
_token = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


async def claim(desk: Desk, call: Call) -> Answer:
    """`POST /v1/queues/{queue}:claim`"""
    return ok(wire.ClaimAnswer(jobs=await desk.claim.claim(call.caller.tenant, call.params[0], call.body)))


async def claim_callbacks(desk: Desk, call: Call) -> Answer:
    """`POST /v1/executor:claim`"""
    return ok(wire.ExecutorClaimAnswer(jobs=await desk.claim.claim_callbacks(call.body)))


async def heartbeat(desk: Desk, call: Call) -> Answer:
    """`POST /v1/attempts/{token}:heartbeat`"""
    body: wire.Heartbeat = call.body
    progress = None
    if not isinstance(body.progress, msgspec.UnsetType):
        checks.check_progress(body.progress)
        progress = bytes(body.progress)
    (beaten,) = await desk.heart.beat([(_lease_of(call), progress)])
    if isinstance(beaten, NotYours):
        raise not_yours(beaten)
    return ok(_beat(None, beaten))


async def heartbeat_batch(desk: Desk, call: Call) -> Answer:
    """`POST /v1/attempts:heartbeat`"""
    tokens: list[str] = call.body.tokens
    results: list[wire.Beat | None] = []
    beats: list[tuple[Lease, bytes | None]] = []
    speakers = _Speakers(desk, call.caller)
    for token in tokens:
        if len(results) % SLICE == SLICE - 1:
            await asyncio.sleep(0)
        try:
            beats.append((speakers.lease(token), None))
            results.append(None)
        except Refused as why:
            results.append(wire.Beat(token=token, error=problem_of(why)))
    beaten = iter(await desk.heart.beat(beats) if beats else ())
    return ok(
        wire.HeartbeatAnswer(
            results=[
                result if result is not None else _beat(token, next(beaten))
                for token, result in zip(tokens, results, strict=True)
            ]
        )
    )


def _beat(token: str | None, beaten: Beaten | NotYours) -> wire.Beat:
    if isinstance(beaten, NotYours):
        return wire.Beat(token=token, error=problem_of(not_yours(beaten)))
    return wire.Beat(
        token=token,
        lease_until=rfc3339(beaten.lease_until),
        lease_s=beaten.lease_ms / 1000,
        cancel_requested=beaten.cancel_requested,
    )


async def complete(desk: Desk, call: Call) -> Answer:
    """`POST /v1/attempts/{token}:complete`"""
    body: wire.Completion = call.body
    checks.check_completion(body, executor=call.caller.executor)
    (ended,) = await desk.complete.complete([(_lease_of(call), body)])
    if isinstance(ended, Refused):
        raise ended
    if isinstance(ended, NotYours):
        raise not_yours(ended)
    return ok(wire.Completed(status=ended))


async def complete_batch(desk: Desk, call: Call) -> Answer:
    """`POST /v1/attempts:complete`"""
    tokens: list[str | None] = []
    results: list[wire.Completed | None] = []
    reports: list[tuple[Lease, wire.Completion]] = []
    speakers = _Speakers(desk, call.caller)
    for token, item in _items(call):
        tokens.append(token)
        if len(tokens) % SLICE == 0:
            await asyncio.sleep(0)
        try:
            if isinstance(item, Refused):
                raise item
            checks.check_completion(item, executor=call.caller.executor)
            reports.append((speakers.lease(item.token), item))
            results.append(None)
        except Refused as why:
            results.append(wire.Completed(token=token, error=problem_of(why)))
    ended = iter(await desk.complete.complete(reports) if reports else ())
    return ok(
        wire.CompletionAnswer(
            results=[
                result if result is not None else _completed(token, next(ended))
                for token, result in zip(tokens, results, strict=True)
            ]
        )
    )


def _completed(token: str | None, ended: wire.Status | NotYours | Refused) -> wire.Completed:
    if isinstance(ended, wire.Status):
        return wire.Completed(token=token, status=ended)
    why = ended if isinstance(ended, Refused) else not_yours(ended)
    return wire.Completed(token=token, error=problem_of(why))


def _items(call: Call) -> Iterator[tuple[str | None, wire.TokenCompletion | Refused]]:
    """The items of a batch with their tokens: in one go if none has a fault, else each read by itself."""
    if not call.nul:
        try:
            whole = _all(call.raw)
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            return ((item.token, item) for item in whole.items)
    return (_item(bytes(raw)) for raw in call.body.items)


def _item(text: bytes) -> tuple[str | None, wire.TokenCompletion | Refused]:
    try:
        if may_hold_nul(text):
            raise invalid(nul_faults(text))
        item: wire.TokenCompletion = _ONE.read(text)
        return item.token, item
    except Refused as why:
        return _token_of(text), why


def _token_of(text: bytes) -> str | None:
    try:
        token: Any = msgspec.json.decode(_token(text).get("token", b"null"))
    except msgspec.DecodeError:
        return None
    return token if isinstance(token, str) else None


def _lease_of(call: Call) -> Lease:
    if call.lease is None or not call.caller.may_speak_for(call.lease):
        raise not_found("attempt")
    return call.lease


class _Speakers:
    """For which attempts one caller may speak; what its scopes say of a queue is looked up once for a batch."""

    def __init__(self, desk: Desk, caller: Caller) -> None:
        self._read, self._caller = desk.tokens.read, caller
        self._allowed: set[tuple[str, str]] = set()

    def lease(self, token: str) -> Lease:
        """The attempt of a token. Raises Refused (404, 403)."""
        lease = self._read(token)
        if lease is None:
            raise not_found("attempt")
        owner = lease[:2]
        if owner not in self._allowed:
            if not self._caller.may_speak_for(lease):
                raise not_found("attempt")
            require(Rule.ATTEMPT, self._caller, (), lease)
            self._allowed.add(owner)
        return lease


__all__ = ["claim", "claim_callbacks", "complete", "complete_batch", "heartbeat", "heartbeat_batch"]
