"""Numbers and times at the ends of what can be written (F-61): refused with the field's name, or taken, but nothing breaks."""

import json

from tests.api.conftest import JOB

NUMBERS = [
    "-1",
    "0",
    "-0.0",
    "1e-320",
    "2147483648",
    "9007199254740993",
    "1e308",
    "1e400",
    "-1e400",
    "9" * 400,
    '"5"',
    "true",
    "{}",
]
FIELDS = {
    "/delay_s": '{"delay_s": %s}',
    "/expires_after_s": '{"expires_after_s": %s}',
    "/target/timeout_s": '{"target": {"type": "task", "handler": "send", "timeout_s": %s}}',
    "/retry/max_attempts": '{"retry": {"max_attempts": %s}}',
    "/retry/initial_backoff_s": '{"retry": {"initial_backoff_s": %s}}',
    "/retry/max_backoff_s": '{"retry": {"max_backoff_s": %s, "initial_backoff_s": 0}}',
    "/timing/window_s": '{"timing": {"class": "flexible", "window_s": %s}}',
    "/priority": '{"priority": %s}',
}
TIMES = [
    "0001-01-01T00:00:00Z",
    "1969-12-31T23:59:59.999Z",
    "9999-12-31T23:59:59.999999Z",
    "2030-03-17T17:46:40+24:00",
    "2030-03-17T17:46:60Z",
    "12026-01-01T00:00:00Z",
    "2030-02-30T00:00:00Z",
    "-001-01-01T00:00:00Z",
]


async def test_extreme_values_are_refused_by_name_or_taken(server):
    base = json.dumps(JOB)
    wanted = [(pointer, base[:-1] + ", " + text[1:] % number) for pointer, text in FIELDS.items() for number in NUMBERS]
    wanted += [("/run_at", base[:-1] + f', "run_at": "{moment}"}}') for moment in TIMES]
    body = ('{"jobs": [' + ", ".join(text for _, text in wanted) + "]}").encode()
    reply = await server.http("POST", "/v1/jobs:batch", body)
    assert reply.status == 200
    taken = 0
    for (pointer, text), result in zip(wanted, reply.json["results"], strict=True):
        if "error" in result:
            assert result["error"]["status"] == 422, text
            assert pointer in {one["pointer"] for one in result["error"]["errors"]}, text
        else:
            taken += 1
            job = await server.http("GET", f"/v1/jobs/{result['job_id']}")
            assert job.status == 200, text
    assert taken >= 8
    await server.advance(3600)
    assert await server.claim(max=1000)
    assert (await server.http("GET", "/readyz", token=None)).status == 200


async def test_a_wish_to_come_back_later_can_be_of_any_size(server):
    for asked in (0, 0.001, 300, 1e12, 1e308):
        job = await server.create()
        (claimed,) = await server.claim()
        assert (await server.complete(claimed, "retryable_failure", retry_after_s=asked)).json == {"status": "RETRYING"}
        waiting = await server.get(job)
        assert waiting["next_attempt_at"] <= "2030-03-18T17:46:40Z"
        await server.http("DELETE", f"/v1/jobs/{job['job_id']}")
    await server.create()
    (claimed,) = await server.claim()
    for text in (b"-5", b"1e400", b"NaN", b'"5"'):
        body = b'{"outcome": "retryable_failure", "retry_after_s": ' + text + b"}"
        reply = await server.http("POST", f"/v1/attempts/{claimed['lease_token']}:complete", body)
        assert reply.status == (400 if text == b"NaN" else 422)
