"""The same folder again: what a start makes anew works, also where an earlier start has left its own."""

from __future__ import annotations

from pathlib import Path

import pytest

import tocsin
import tocsin.testing
from tests.executor.conftest import plain
from tests.faults.conftest import NOON
from tocsin import roles

KINDS = ["made", "given"]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_token_of_every_start_is_good(tmp_path: Path, kind: str) -> None:
    """One that is made at each start takes the place of the last start's; one that is given may be the same or another."""
    texts = [None, None] if kind == "made" else ["tcs_me_first", "tcs_me_second"]
    seen = []
    for text in texts:
        async with tocsin.testing.server(start=NOON, data=tmp_path, token=text) as server:
            await server.client.jobs.create(queue="q", handler="h")
            seen.append(server.token)
    async with tocsin.testing.server(start=NOON, data=tmp_path, token="tcs_me_third") as server:
        old = tocsin.AsyncClient(transport=server.transport("tcs_me_second"))
        assert len(set(seen)) == 2
        if kind == "given":
            with pytest.raises(tocsin.TocsinError, match="token"):
                await old.jobs.create(queue="q", handler="h")


async def test_callbacks_are_made_after_every_start(tmp_path, endpoints):
    url = await endpoints.url(plain(200, body=b"fine"))
    for _ in range(2):
        async with tocsin.testing.server(start=NOON, data=tmp_path) as server:
            job = await server.client.jobs.create(queue="q", url=url)
            async with server.calling():
                await server.advance(1)
            assert (await server.client.jobs.get(job.job_id)).status == "SUCCEEDED"


async def test_no_admin_finds_the_token_of_the_embedded_executor(server, endpoints):
    """An admin may delete every token of its tenant; everybody's callbacks would end with this one."""
    url = await endpoints.url(plain(200, body=b"fine"))
    async with server.calling():
        assert [token.name async for token in server.client.tokens.list("dev")] == ["tocsin dev"]
        for name in (roles.EXECUTOR_TENANT, "dev"):
            with pytest.raises(tocsin.TocsinError):
                await server.client.tokens.delete(name, roles.EXECUTOR_TOKEN_ID)
        job = await server.client.jobs.create(queue="q", url=url)
        await server.advance(1)
        assert (await server.client.jobs.get(job.job_id)).status == "SUCCEEDED"
