"""`tocsin admin nodes|partitions|workers`: all pages, in tables that a person can read, and as the API said it for scripts."""

import json

NODE = {
    "node_id": "00ab",
    "name": "rack-7",
    "roles": ["api", "node"],
    "version": "0.1.0",
    "address": None,
    "started_at": "2026-12-01T03:00:00Z",
    "age_s": 12.5,
    "coordinator": True,
    "partitions": 32,
    "clock_offset_ms": -7,
}
PARTITION = {
    "partition": 0,
    "node_id": "00ab",
    "node": "rack-7",
    "since": "2026-12-01T03:00:01Z",
    "assigned_to": "00ab",
    "rechecked_until": "2026-12-01T02:59:00Z",
    "overdue_s": 0.0,
}


def test_nodes_are_shown_with_what_they_do(tocsin, server):
    server.answers = [(200, {"items": [NODE], "next_cursor": None})]
    code, out, _ = tocsin("admin", "nodes")
    assert code == 0
    for said in ("rack-7", "api node", "yes", "32", "-7 ms"):
        assert said in out


def test_all_pages_of_the_partitions_are_shown_and_one_that_nobody_has_says_so(tocsin, server):
    late = {**PARTITION, "partition": 1, "node": None, "node_id": None, "since": None, "overdue_s": 12.5}
    server.answers = [
        (200, {"items": [PARTITION], "next_cursor": "more"}),
        (200, {"items": [late], "next_cursor": None}),
    ]
    _, out, _ = tocsin("admin", "partitions")
    assert server.asked[1].query == [("limit", "200"), ("cursor", "more")]
    assert "nobody" in out
    assert "12.5 s" in out


def test_moves_say_why(tocsin, server):
    move = {"partition": 3, "at": "2026-12-01T03:00:01Z", "from_node": "a", "to_node": "b", "why": "gone"}
    server.answers = [(200, {"items": [move], "next_cursor": None})]
    _, out, _ = tocsin("admin", "partitions", "--moves")
    assert server.asked[0].path == "/v1/partition-moves"
    assert "gone" in out


def test_workers_are_listed_and_scripts_get_json(tocsin, server):
    worker = {"tenant": "acme", "queue": "q", "worker": "w-1", "last_seen_at": "2026-12-01T03:00:01Z", "claimed": 4}
    server.answers = [(200, {"items": [worker], "next_cursor": None})]
    assert "w-1" in tocsin("admin", "workers")[1]
    assert json.loads(tocsin("admin", "workers", "--json")[1]) == {"items": [worker], "next_cursor": None}
