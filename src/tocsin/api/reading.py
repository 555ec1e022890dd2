"""From bytes to a body of the right form, or the problem that says what is wrong with it.

The quick way is one decode. What msgspec does not look at inside of values that are passed on as they were sent (UTF-8,
NUL) is looked for in the whole body at once, and only where something turns up is it looked at closely. Only a body that has
been found wrong is read again, field by field, so that the problem can name every field.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Meta, Raw, Struct, UnsetType

from tocsin.api.problems import Fault, invalid, step, too_large, unreadable, unsupported_media_type
from tocsin.errors import Refused
from tocsin.wire import MAX_JSON_DEPTH

MOST_FAULTS = 20
_NUL_TEXT = b"\\u0000"
_NUL_DETAIL = "must not contain the character NUL (U+0000)"
_WHERE = re.compile(r" - at `(?P<key>key` in `)?\$(?P<path>[^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`$", re.DOTALL)
# A string that nobody closes goes on to the end: nothing is read twice, whatever a stranger sends.
_STRING_TEXT = rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_STRING = re.compile(_STRING_TEXT, re.DOTALL)
_TOKEN = re.compile(_STRING_TEXT + rb"|[\[{\]}]", re.DOTALL)
_CUT_AT = MAX_JSON_DEPTH + 20
_MOST_TOKENS = 500_000


def require_json(content_type: bytes | None, content_encoding: bytes | None) -> None:
    """Raise Refused (415) unless a body of these headers can be JSON in UTF-8 as it stands."""
    if content_encoding is not None and content_encoding.strip().lower() not in (b"", b"identity"):
        raise unsupported_media_type("send the body without a Content-Encoding")
    if content_type == b"application/json":
        return
    kind, *parameters = (content_type or b"").split(b";")
    if kind.strip().lower() != b"application/json":
        raise unsupported_media_type("send the body as Content-Type: application/json")
    for parameter in parameters:
        name, _, value = parameter.partition(b"=")
        if name.strip().lower() == b"charset" and value.strip().strip(b'"').lower() not in (b"utf-8", b"utf8"):
            raise unsupported_media_type("JSON is UTF-8; leave the charset out")


class Reader:
    """Reads bodies of one struct type."""

    def __init__(self, kind: type[Struct]) -> None:
        self.kind = kind
        self._decode = msgspec.json.Decoder(kind).decode

    def read(self, raw: bytes) -> Any:
        """The body as a struct. Raises Refused (400, 422). Neither NUL nor depth is judged here; see below."""
        require_utf8(raw)
        try:
            return self._decode(raw)
        except msgspec.ValidationError as exc:
            raise self._wrong(raw, str(exc)) from None
        except msgspec.DecodeError as exc:
            raise unreadable(str(exc)) from None
        except RecursionError:
            # What is cut away is refused all the same: enough of it stays to be too deep.
            return self.read(cut_deep(raw))

    def _wrong(self, raw: bytes, message: str) -> Refused:
        try:
            msgspec.json.decode(raw, type=Raw)  # what follows the fault may not be JSON at all: that goes first
        except msgspec.DecodeError as exc:
            return unreadable(str(exc))
        except RecursionError:
            return self._wrong(cut_deep(raw), message)
        return invalid(list(faults_of(self.kind, raw))[:MOST_FAULTS] or [fault_of(message)])


def require_utf8(raw: bytes) -> None:
    """Raise Refused (400) for bytes that are not UTF-8 (surrogates written as UTF-8 included)."""
    if not raw.isascii():
        try:
            raw.decode("utf-8")
        except UnicodeDecodeError as exc:
            raise unreadable(f"the body is not UTF-8 (byte {exc.start})") from None


# --- NUL and depth ----------------------------------------------------------------------------------------------------


def may_hold_nul(raw: bytes) -> bool:
    """Whether a JSON text escapes a NUL somewhere (a bare one is not JSON)."""
    # Pairs of backslashes go first: in `\\u0000` the text after the first backslash is no escape.
    return _NUL_TEXT in raw and _NUL_TEXT in raw.replace(rb"\\", b"")


def nul_faults(raw: bytes) -> list[Fault]:
    """Where a JSON text that escapes a NUL has it: in the values and in the keys of objects."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return [("", _NUL_DETAIL)]
    return [(pointer, _NUL_DETAIL) for pointer in _nuls(value)][:MOST_FAULTS] or [("", _NUL_DETAIL)]


def _nuls(value: Any) -> Iterator[str]:
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        pointer, value = waiting.pop()
        if isinstance(value, str):
            if "\0" in value:
                yield pointer
        elif isinstance(value, list):
            waiting.extend((f"{pointer}/{at}", item) for at, item in enumerate(value))
        elif isinstance(value, dict):
            for name, item in value.items():
                if "\0" in name:
                    yield pointer
                waiting.append((pointer + step(name), item))


def require_flat(value: Raw, pointer: str, limit_bytes: int) -> None:
    """Raise Refused for a value passed on as it was sent: 413 past `limit_bytes`, 422 nested too deeply."""
    text = bytes(value)
    if len(text) > limit_bytes:
        raise too_large(f"has {len(text)} bytes; at most {limit_bytes} are allowed", pointer)
    # A value of depth 101 has at least 101 brackets of each kind.
    if len(text) > 2 * MAX_JSON_DEPTH and is_too_deep(text):
        raise invalid([(pointer, f"is nested more than {MAX_JSON_DEPTH} deep")])


def is_too_deep(raw: bytes) -> bool:
    """Whether a JSON text is nested more than 100 deep."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_JSON_DEPTH:
        return False
    depth = 0
    for char in _STRING.sub(b"", raw):
        if char in b"[{":
            depth += 1
            if depth > MAX_JSON_DEPTH:
                return True
        elif char in b"]}":
            depth -= 1
    return False


def cut_deep(raw: bytes) -> bytes:
    """A JSON text with everything deeper than 120 replaced by 0: too deep still, but no danger to a decoder."""
    if raw.count(b"[") + raw.count(b"{") + raw.count(b'"') > _MOST_TOKENS:
        raise invalid([("", f"is nested more than {MAX_JSON_DEPTH} deep")])
    kept, depth, since = [], 0, 0
    for found in _TOKEN.finditer(raw):
        token = found[0]
        if token in b"[{":
            depth += 1
            if depth == _CUT_AT + 1:
                kept += [raw[since : found.start()], b"0"]
                since = len(raw)
        elif token in b"]}":
            depth -= 1
            if depth == _CUT_AT:
                since = found.end()
    kept.append(raw[since:])
    return b"".join(kept)


# --- saying what is wrong ---------------------------------------------------------------------------------------------


def fault_of(message: str) -> Fault:
    """A message of msgspec as a pointer and a detail."""
    found = _WHERE.search(message)
    detail = message[: found.start()] if found else message
    pointer = _pointer(found["path"]) if found else ""
    for pattern, says in ((_UNKNOWN, "is not a known field"), (_MISSING, "is required")):
        if named := pattern.match(detail):
            return pointer + step(named["name"]), says
    return pointer, detail.replace("`", "")


def _pointer(path: str) -> str:
    return "".join(
        step(name) if name else f"/{index}" for name, index in re.findall(r"\.([^.\[\]]+)|\[([0-9]+)\]", path)
    )


def faults_of(kind: Any, raw: bytes, pointer: str = "") -> Iterator[Fault]:
    """Everything that keeps a JSON text from being a `kind`: one fault for each wrong field, key or item."""
    try:
        _decoder(kind).decode(raw)
        return
    except msgspec.ValidationError as exc:
        message = str(exc)
    except RecursionError:
        yield pointer, f"is nested more than {MAX_JSON_DEPTH} deep"
        return
    core, description = _core(kind)
    if raw.lstrip()[:1] == b"{":
        members = msgspec.json.decode(raw, type=dict[str, Raw])
        if (struct := _struct(core, members)) is not None:
            found = list(_struct_faults(struct, members, pointer))
        elif typing.get_origin(core) is dict:
            found = list(_dict_faults(core, members, pointer))
        else:
            found = []
        if found:
            yield from found
            return
    where, detail = fault_of(message)
    if "matching regex" in detail and description:
        detail = f"must be: {description[0].lower()}{description[1:]}"
    yield pointer + where, detail


def _struct_faults(struct: type[Struct], members: dict[str, Raw], pointer: str) -> Iterator[Fault]:
    config = struct.__struct_config__
    for field in msgspec.structs.fields(struct):
        member = members.pop(field.encode_name, None)
        if member is not None:
            yield from faults_of(field.type, bytes(member), pointer + step(field.encode_name))
        elif field.required:
            yield pointer + step(field.encode_name), "is required"
    if config.tag_field is not None:
        members.pop(config.tag_field, None)
    if config.forbid_unknown_fields:
        for name in members:
            yield pointer + step(name), "is not a known field"


def _dict_faults(core: Any, members: dict[str, Raw], pointer: str) -> Iterator[Fault]:
    key_kind, value_kind = typing.get_args(core)
    for name, member in members.items():
        for _, detail in faults_of(key_kind, msgspec.json.encode(name)):
            yield pointer + step(name), f"as a key: {detail}"
        yield from faults_of(value_kind, bytes(member), pointer + step(name))


def _core(kind: Any) -> tuple[Any, str | None]:
    """A type without what is said about it: `Annotated` and the choice of null or absent. And its description."""
    description = None
    while True:
        if typing.get_origin(kind) is typing.Annotated:
            kind, *notes = typing.get_args(kind)
            description = next((note.description for note in notes if isinstance(note, Meta)), None) or description
        elif typing.get_origin(kind) in (typing.Union, types.UnionType):
            choices = [one for one in typing.get_args(kind) if one not in (type(None), UnsetType)]
            if len(choices) != 1:
                return kind, description
            kind = choices[0]
        else:
            return kind, description


def _struct(core: Any, members: dict[str, Raw]) -> type[Struct] | None:
    """The struct that an object is meant to be: the one of its tag where there is a choice."""
    choices = typing.get_args(core) if typing.get_origin(core) in (typing.Union, types.UnionType) else (core,)
    structs = [one for one in choices if isinstance(one, type) and issubclass(one, Struct)]
    if len(structs) <= 1:
        return structs[0] if structs else None
    for one in structs:
        config = one.__struct_config__
        tag = members.get(config.tag_field or "")
        if tag is not None and bytes(tag) == msgspec.json.encode(config.tag):
            return one
    return None


@lru_cache(maxsize=512)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
