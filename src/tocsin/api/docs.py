"""The API's own page: every operation and every struct, from the same table as the OpenAPI document. No scripts at all."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import lru_cache
from hashlib import sha256
from html import escape
from typing import Any

from tocsin.api.openapi import description

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h2{margin-top:2.5rem;border-bottom:1px solid #8885}
details{margin:.4rem 0;padding:.4rem .7rem;border:1px solid #8885;border-radius:.4rem}
summary{cursor:pointer}
code{font-family:ui-monospace,monospace;font-size:.9em}
b{display:inline-block;min-width:4.5rem}
table{border-collapse:collapse;margin:.5rem 0}
td,th{text-align:left;vertical-align:top;padding:.15rem .9rem .15rem 0}
"""
CSP = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src 'sha256-"
    + b64encode(sha256(_STYLE.encode()).digest()).decode()
    + "'"
).encode()


@lru_cache(maxsize=2)
def page(*, dev: bool) -> bytes:
    """The page's text."""
    told = description(dev=dev)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Tocsin API</title><style>{_STYLE}</style>",
        f"<h1>Tocsin API {escape(told['info']['version'])}</h1>",
        *(f"<p>{_text(paragraph)}</p>" for paragraph in told["info"]["description"].split("\n\n")),
        "<p>For programs: <a href=/openapi.json>openapi.json</a></p>",
    ]
    for group in told["tags"]:
        parts.append(f"<h2>{escape(group['name'])}</h2>")
        for path, methods in told["paths"].items():
            for method, operation in methods.items():
                if operation["tags"] == [group["name"]]:
                    parts.append(_operation(method, path, operation))
    parts.append("<h2>Bodies and answers</h2>")
    parts.extend(_struct(name, schema) for name, schema in sorted(told["components"]["schemas"].items()))
    return "".join(parts).encode()


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = [
        f"<tr><td><code>{escape(one['name'])}</code><td>{escape(one['in'])}<td>{_type(one['schema'])}"
        for one in operation.get("parameters", [])
    ]
    body = operation.get("requestBody")
    if body is not None:
        rows.append(f"<tr><td>body<td><td>{_type(body['content']['application/json']['schema'])}")
    for status, answer in operation["responses"].items():
        kinds = ", ".join(_type(content["schema"]) for content in answer.get("content", {}).values())
        rows.append(f"<tr><td>{status}<td>{escape(answer['description'])}<td>{kinds}")
    return (
        f"<details><summary><b>{method.upper()}</b><code>{escape(path)}</code> {escape(operation['summary'])}</summary>"
        f"<p>{_text(operation['description'])}</p><table>{''.join(rows)}</table></details>"
    )


def _struct(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = [
        f"<tr><td><code>{escape(field)}</code><td>{'required' if field in required else ''}<td>{_type(kind)}"
        f"<td>{_text(kind.get('description', ''))}"
        for field, kind in schema.get("properties", {}).items()
    ]
    return (
        f"<details id='{escape(name)}'><summary><code>{escape(name)}</code></summary>"
        f"<p>{_text(schema.get('description', ''))}</p><table>{''.join(rows)}</table></details>"
    )


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(f"<code>{escape(str(one))}</code>" for one in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    limits = [
        f"{label} {schema[key]:g}"
        for key, label in (
            ("minimum", "at least"),
            ("exclusiveMinimum", "more than"),
            ("maximum", "at most"),
            ("maxLength", "length at most"),
            ("maxItems", "items at most"),
        )
        if key in schema
    ]
    shown = escape(" or ".join(kind) if isinstance(kind, list) else kind)
    return shown + (f" ({', '.join(limits)})" if limits else "")


def _text(markdown: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(markdown))
