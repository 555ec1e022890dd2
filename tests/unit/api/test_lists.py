"""Lists: filters, limits, and cursors that only their own list takes back."""

import pytest

from tests.unit.api.stand_ins import NOW_MS
from tocsin.store.port import JobFilter
from tocsin.store.settings import QueueRow
from tocsin.wire import Status


async def test_filters_reach_the_store(desk, http):
    query = [
        ("queue", "mail"),
        ("status", "DEAD"),
        ("schedule_id", "sch_1"),
        ("tag", "a:b:c"),
        ("tag", "k:"),
        ("created_after", "2026-01-01T00:00:00+01:00"),
        ("created_before", "2026-01-02T00:00:00Z"),
        ("limit", "7"),
    ]
    assert (await http("GET", "/v1/jobs", query=query)).status == 200
    _, wanted, after, limit = desk.asked[0]
    assert wanted == JobFilter(
        tenant="shop",
        queue="mail",
        status=Status.DEAD,
        schedule_id="sch_1",
        tags=(("a", "b:c"), ("k", "")),
        created_after=1_767_222_000_000,
        created_before=1_767_312_000_000,
    )
    assert (after, limit) == (None, 7)


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=0", "/limit"),
        ("limit=201", "/limit"),
        ("limit=", "/limit"),
        ("limit=5.0", "/limit"),
        ("limit=-1", "/limit"),
        ("limit=99999999999999999999", "/limit"),
        ("limit=5&limit=5", "/limit"),
        ("statu=DEAD", "/statu"),
        ("status=dead", "/status"),
        ("queue=a%20b", "/queue"),
        ("queue=a%00", "/queue"),
        ("queue=a&queue=b", "/queue"),
        ("tag=novalue", "/tag/0"),
        ("tag=:x", "/tag/0"),
        ("created_after=2026-01-01T00:00:00", "/created_after"),
        ("created_after=1767222000", "/created_after"),
        ("created_after=2026-01-01T00:00:60Z", "/created_after"),
        ("access_token=x", "/access_token"),
        ("a%2Fb=1", "/a~1b"),
    ],
)
async def test_a_query_that_is_not_right_is_422(desk, http, query, pointer):
    reply = await http("GET", "/v1/jobs", query=query)
    assert (reply.status, reply.pointers) == (422, {pointer})
    assert not desk.asked


async def test_a_cursor_that_can_be_none_of_ours_is_400(http):
    assert (await http("GET", "/v1/jobs", query="cursor=" + "x" * 2_001)).status == 400


async def test_a_query_that_is_not_utf8_is_400(http):
    assert (await http("GET", "/v1/jobs", query="queue=%ff")).status == 400


async def test_operations_without_parameters_take_none(http):
    assert (await http("GET", "/v1/me", query="x=1")).status == 422
    assert (await http("GET", "/healthz", query="x=1", token=None)).status == 422


async def test_a_list_is_read_page_by_page(desk, http):
    wanted = sorted((desk.add_job() for _ in range(10)), reverse=True)
    seen, cursor = [], None
    while True:
        query = [("limit", "3"), *([("cursor", cursor)] if cursor else [])]
        page = (await http("GET", "/v1/jobs", query=query)).json
        seen += [one["job_id"] for one in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == wanted


async def test_a_cursor_of_another_list_or_with_a_changed_letter_is_400(desk, http):
    for _ in range(4):
        desk.add_job()
    cursor = (await http("GET", "/v1/jobs", query="limit=2")).json["next_cursor"]
    assert (await http("GET", "/v1/jobs", query=[("cursor", cursor), ("limit", "1")])).status == 200
    stranger = desk.give("tcs_other_secret", "read", tenant="other")
    foreign = [
        await http("GET", "/v1/jobs", query=[("cursor", cursor), ("queue", "mail")]),
        await http("GET", "/v1/jobs", query=[("cursor", cursor)], token=stranger),
        await http("GET", "/v1/queues", query=[("cursor", cursor)]),
        await http("GET", "/v1/queues/mail/dead-letters", query=[("cursor", cursor)]),
    ]
    changed = [cursor[:-1], cursor + "A", cursor + "=", "x", "", "ä", cursor[:5] + "!" + cursor[6:], cursor.swapcase()]
    foreign += [await http("GET", "/v1/jobs", query=[("cursor", one)]) for one in changed]
    assert [(one.status, one.kind) for one in foreign] == [(400, "bad-cursor")] * len(foreign)


async def test_dead_letters_go_on_behind_the_last_death(desk, http):
    desk.add_job(status=Status.DEAD)
    page = (await http("GET", "/v1/queues/mail/dead-letters", query="limit=1")).json
    await http("GET", "/v1/queues/mail/dead-letters", query=[("cursor", page["next_cursor"])])
    assert desk.asked[-1] == ("dead", "shop", "mail", (NOW_MS, "job_x"), 50)
    other = await http("GET", "/v1/queues/letters/dead-letters", query=[("cursor", page["next_cursor"])])
    assert other.status == 400


async def test_queues_are_listed_by_name(desk, http):
    for name in ("c", "a", "b"):
        desk.queue_rows["shop", name] = QueueRow(tenant="shop", queue=name)
    first = (await http("GET", "/v1/queues", query="limit=2")).json
    second = (await http("GET", "/v1/queues", query=[("cursor", first["next_cursor"])])).json
    assert [one["queue"] for one in first["items"] + second["items"]] == ["a", "b", "c"]
    assert second["next_cursor"] is None
