"""Every program loads, refuses a tag that does not hold its epoch, and is called from one place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from redis import Redis

from tests.conformance.near.world import World
from tests.redis.conftest import Open
from tests.redis.keys import client
from tests.servers.redis import RedisServer
from tocsin.errors import NearUnavailable
from tocsin.near.redis.programs import LineScript
from tocsin.near.redis.scripts import LOST, Script

FOLDER = Path(str(files("tocsin.near.redis")))
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((FOLDER / "lua").glob("*.lua"))}
PROGRAMS = sorted(name for name, text in SOURCES.items() if text.startswith("#!lua"))
# Those that make epochs and tags what they are cannot ask for them.
BELOW_EPOCHS = {"epoch_begin", "epoch_mark", "tag_begin", "tag_end"}


@pytest.fixture
def redis(redis_server: RedisServer) -> Iterator[Redis]:
    with client(redis_server) as one:
        yield one


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in BELOW_EPOCHS])
def test_a_program_answers_lost_where_its_epoch_is_not_held(redis: Redis, name: str) -> None:
    program = LineScript(name) if "see lines.lua" in SOURCES[name] else Script(name)
    sha = redis.script_load(program.text)
    tag = f"{{scripts:{name}}}"
    assert redis.evalsha(sha, 1, f"{tag}:alive", "7") == LOST
    redis.set(f"{tag}:alive", "8")
    assert redis.evalsha(sha, 1, f"{tag}:alive", "7") == LOST
    assert redis.delete(f"{tag}:alive") == 1
    assert list(redis.scan_iter(match=f"{tag}*")) == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_what_it_is_given_and_what_it_answers(name: str) -> None:
    header = SOURCES[name].split("\n\n")[0]
    for word in ("KEYS[1]", "ARGV[1]", "answers"):
        assert word in header, f"{name}.lua does not say what {word} is"


def test_each_program_is_called_from_one_place() -> None:
    called = re.findall(r'Script\("(\w+)"\)', "".join(path.read_text() for path in FOLDER.glob("*.py")))
    assert sorted(called) == PROGRAMS


async def test_a_server_that_forgot_the_programs_is_given_them_again(shared: World, redis: Redis) -> None:
    due = shared.due()
    redis.script_flush()
    await shared.near.offer([due])
    redis.script_flush()
    assert await shared.take_and_drop() == [due]


async def test_a_tag_that_nobody_has_begun_is_unavailable_and_no_reason_for_a_new_epoch(
    redis_server: RedisServer, opens: Open
) -> None:
    world = await opens(redis_server, "unbegun", begin=False)
    before = await world.near.generation()
    with pytest.raises(NearUnavailable):
        await world.near.offer([world.due()])
    assert await world.near.generation() == before
    await world.near.begin(world.all)
    assert await world.near.offer([world.due()]) == []
    assert await world.near.generation() == before
