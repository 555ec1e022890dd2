"""The documentation tells the truth: its commands parse, its Python compiles, its links lead somewhere, its tables are whole."""

import dataclasses
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from tocsin.cli import _app
from tocsin.config import QuotaDefaults, Settings
from tocsin.telemetry import REGISTRY

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))


def blocks(page, language):
    """The fenced blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands():
    """Every command line of ours that a page shows, in a block or in the running text."""
    for page in PAGES:
        text = page.read_text()
        shown = [line for block in blocks(page, "sh") for line in block.splitlines()]
        shown += re.findall(r"`((?:\.venv/bin/)?tocsin [^`]+)`", text)
        for line in shown:
            line = line.strip().removeprefix(".venv/bin/")
            if line.startswith("tocsin "):
                yield pytest.param(line, id=f"{page.name}: {line}"[:100])


@pytest.mark.parametrize("line", list(commands()))
def test_a_command_that_is_shown_can_be_given(line):
    arguments = shlex.split(line, comments=True)[1:]
    command = typer.main.get_command(_app())
    context = command.make_context("tocsin", list(arguments), resilient_parsing=False)
    while hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        if not rest:
            return  # a group alone, as in `tocsin bench`
        _, command, rest = command.resolve_command(context, rest)
        if hasattr(command, "resolve_command") and not rest:
            return  # the same, of a group that gives its help
        context = command.make_context(command.name, rest, parent=context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_that_is_shown_compiles(page):
    import ast

    for block in blocks(page, "python"):
        # A fragment of a function stands indented.
        source = "if True:\n" + block if block.startswith(" ") else block
        compile(source, page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", [*PAGES, *DECISIONS], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text()):
        if "://" in target:
            continue
        there = page.parent / target if target else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), f"{target}#{anchor}"


def anchors(page):
    """The names of a page's headings in links, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_decision_has_a_number_of_its_own():
    numbers = [int(page.name[:4]) for page in DECISIONS]
    assert numbers == list(range(1, len(DECISIONS) + 1))
    assert [page.read_text().partition(".")[0] for page in DECISIONS] == [f"# {number}" for number in numbers]


def test_every_setting_is_documented():
    text = (ROOT / "docs" / "operations.md").read_text()
    names = {each.name for each in dataclasses.fields(Settings)} | {
        each.name for each in dataclasses.fields(QuotaDefaults)
    }
    assert {name for name in names if f"`{name}`" not in text and f"`[{name}]`" not in text} == set()


def test_every_metric_is_documented():
    text = (ROOT / "docs" / "operations.md").read_text()
    names = {family.name + ("_total" if family.type == "counter" else "") for family in REGISTRY.collect()}
    assert {name for name in names if f"`{name}" not in text} == set()


async def test_the_example_of_a_test_without_waiting_works():
    (block,) = (block for block in blocks(ROOT / "docs" / "how-to.md", "python") if "tocsin.testing.server" in block)
    names: dict[str, Any] = {}
    exec(compile(block, "how-to.md", "exec"), names)
    await names["test_the_reminder_is_sent_after_three_hours"]()


def test_the_signature_check_of_the_tutorial_accepts_what_tocsin_signs():
    from tocsin.model.signing import new_secret, sign

    secret = new_secret(bytes(range(32)))
    (block,) = (block for block in blocks(ROOT / "docs" / "tutorial.md", "python") if "def is_genuine" in block)
    names: dict[str, Any] = {}
    exec(compile(block.partition("class Receiver")[0], "tutorial.md", "exec"), names)
    names["SECRET"] = secret
    names["time"] = type("now", (), {"time": staticmethod(lambda: 1_800_000_000.0)})
    headers = {"Webhook-Id": "job_1@x", "Webhook-Timestamp": "1800000000"}
    headers["Webhook-Signature"] = f"v1,AAAA {sign([secret], 'job_1@x', 1_800_000_000, b'{}')}"
    assert names["is_genuine"](headers, b"{}")
    assert not names["is_genuine"](headers, b"{ }")
    assert not names["is_genuine"]({**headers, "Webhook-Timestamp": "1799990000"}, b"{}")
