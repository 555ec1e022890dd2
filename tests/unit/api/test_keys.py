"""The client's idempotency key and the fingerprint of the body it is bound to."""

import json

import pytest

from tocsin.api.canonical import body_hash

JOB = {"queue": "mail", "target": {"type": "task", "handler": "send"}, "payload": {"b": 1, "a": [1, 2]}, "delay_s": 5}


def hash_of(value) -> bytes:
    return body_hash(value if isinstance(value, bytes) else json.dumps(value).encode())


def test_order_and_white_space_do_not_matter():
    turned = dict(reversed(list(JOB.items())))
    assert hash_of(JOB) == hash_of(json.dumps(turned, indent=3).encode())
    assert len(hash_of(JOB)) == 16


def test_the_way_a_number_or_a_text_is_written_does_not_matter():
    assert hash_of(b'{"a": 5, "b": "\\u00e4"}') == hash_of('{"a": 5.0, "b": "ä"}'.encode())
    assert hash_of(b'{"a": 100}') == hash_of(b'{"a": 1e2}')


@pytest.mark.parametrize(
    "other",
    [
        {**JOB, "delay_s": 6},
        {**JOB, "payload": {"b": 1, "a": [2, 1]}},
        {**JOB, "payload": {"b": True, "a": [1, 2]}},
        {**JOB, "name": None},
        {**JOB, "delay_s": 5.5},
    ],
)
def test_another_body_has_another_fingerprint(other):
    assert hash_of(JOB) != hash_of(other)


def test_the_key_itself_is_left_out():
    assert hash_of({**JOB, "idempotency_key": "k"}) == hash_of(JOB)


def test_numbers_that_no_machine_number_holds_are_compared_as_written():
    first = b'{"payload": 1e999, "x": ' + b"9" * 5_000 + b"}"
    assert body_hash(first) == body_hash(first.replace(b" ", b""))
    assert body_hash(first) != body_hash(first.replace(b"1e999", b"1e998"))


async def test_a_key_and_the_fingerprint_go_to_the_flow_together(desk, http):
    await http("POST", "/v1/jobs", JOB, headers={"Idempotency-Key": "order 7!"})
    await http("POST", "/v1/jobs", JOB)
    keyed, plain = desk.wanted
    assert (keyed.key, keyed.body_hash) == ("order 7!", hash_of(JOB))
    assert plain.key is None


async def test_a_batch_carries_its_keys_inside(desk, http):
    body = {"jobs": [{**JOB, "idempotency_key": "k"}, JOB], "window_s": 30}
    await http("POST", "/v1/jobs:batch", body)
    assert [one.key for one in desk.wanted] == ["k", None]
    assert desk.wanted[0].body_hash == hash_of(JOB)
    assert [one.window_s for one in desk.wanted] == [30.0, 30.0]


@pytest.mark.parametrize("key", ["", "x" * 256, "ä", "a\tb", "a\x7f"])
async def test_a_key_that_is_none_is_422(desk, http, key):
    reply = await http("POST", "/v1/jobs", JOB, headers={"Idempotency-Key": key})
    assert (reply.status, reply.pointers) == (422, {"/headers/Idempotency-Key"})
    assert not desk.wanted


async def test_the_trace_of_the_request_goes_with_the_job(desk, http):
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await http("POST", "/v1/jobs", JOB, headers={"traceparent": trace})
    await http("POST", "/v1/jobs", JOB, headers={"traceparent": "something else"})
    assert [one.traceparent for one in desk.wanted] == [trace, None]
