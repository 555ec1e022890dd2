"""Exit codes and messages: done is 0, refused or unreachable 1, wrong use 2; one line on standard error, never a traceback."""

import pytest

import tocsin as package
from tests.cli.stand_in import job, problem


def test_the_version_is_printed(tocsin):
    assert tocsin("--version") == (0, f"tocsin {package.__version__}\n", "")


def test_help_is_given_for_every_group_of_commands(tocsin):
    code, out, _ = tocsin("--help")
    assert code == 0
    for name in (
        "dev",
        "serve",
        "worker",
        "jobs",
        "schedules",
        "queues",
        "dead",
        "admin",
        "migrate",
        "doctor",
        "bench",
    ):
        assert f"  {name} " in out


def test_without_a_command_help_is_given(tocsin):
    code, out, _ = tocsin()
    assert code == 0
    assert "Usage: tocsin" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope"], "No such command 'nope'; see tocsin --help"),
        (["jobs", "create"], "Missing option '--queue' / '-q'; see tocsin jobs create --help"),
        (["jobs", "create", "-q", "q"], "give --handler NAME for a task or --url URL for a callback"),
        (["jobs", "create", "-q", "q", "--handler", "h", "--url", "http://x"], "one of them"),
        (["jobs", "create", "-q", "q", "--handler", "h", "--method", "GET"], "belong to a callback"),
        (["jobs", "create", "-q", "q", "--handler", "h", "--at", "x", "--delay", "1"], "--at or --delay, not both"),
        (["jobs", "create", "-q", "q", "--handler", "h", "--delay", "soon"], "--delay 'soon' is not a duration"),
        (["jobs", "create", "-q", "q", "--handler", "h", "--delay", "-1"], "is not a duration"),
        (["jobs", "create", "-q", "q", "--handler", "h", "-p", "text"], "--payload is not JSON"),
        (["jobs", "create", "-q", "q", "--handler", "h", "-p", "NaN"], "NaN is not JSON"),
        (["jobs", "create", "-q", "q", "--handler", "h", "-p", "[" * 100_000], "nested too deeply"),
        (["jobs", "create", "-q", "q", "--handler", "h", "-p", "@/no/such/file"], "cannot be read"),
        (["jobs", "create", "-q", "q", "--handler", "h", "--tag", "a"], "--tag 'a' must be KEY=VALUE"),
        (["jobs", "create", "-q", "q", "--handler", "h", "--tag", "a=1", "--tag", "a=2"], "--tag 'a' is given twice"),
        (["queues", "set", "q"], "name what to set"),
        (["queues", "set", "q", "--default", "x"], "must be lease or retry"),
        (["dead", "redrive", "q"], "say which"),
        (["dead", "discard", "q"], "say which"),
        (["dead", "redrive", "q", "--all", "--job", "job_1"], "say which"),
        (["admin", "tenants", "set", "t"], "name what to set"),
        (["admin", "tenants", "create", "t", "--quota", "x=1"], "is not a quota; there are: creates_per_s"),
        (["admin", "tenants", "create", "t", "--quota", "waiting_jobs=-1"], "must be a number of at least 0"),
        (["admin", "tenants", "create", "t", "--quota", "waiting_jobs=nan"], "must be a number of at least 0"),
        (["admin", "tenants", "create", "t", "--weight", "0"], "--weight 0 must be above 0"),
        (["admin", "tokens", "create", "t", "--name", "n", "--scope", "operator"], "on the store only: add --data"),
        (["bench", "burst", "--jobs", "many"], "Invalid value for '--jobs'"),
        (["worker", "nothing"], "'nothing' must be MODULE:APP"),
        (["--url", "ftp://x", "jobs", "list"], "not the address of a server: 'ftp://x'"),
    ],
)
def test_a_wrong_use_ends_with_two_and_says_what_is_right(tocsin, arguments, said):
    code, out, err = tocsin(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("tocsin: ")
    assert err.count("\n") == 1


def test_a_group_without_a_command_gives_its_help(tocsin):
    code, _, err = tocsin("jobs")
    assert code == 2
    assert "run-now" in err


def test_a_server_that_is_not_there_ends_with_one_and_says_what_to_do(tocsin, unused_tcp_port_factory, monkeypatch):
    monkeypatch.setenv("TOCSIN_URL", f"http://127.0.0.1:{unused_tcp_port_factory()}")
    code, out, err = tocsin("jobs", "list")
    assert (code, out) == (1, "")
    assert "no connection to http://127.0.0.1" in err
    assert "is it running? TOCSIN_URL names the server" in err
    assert err.count("\n") == 1


def test_a_refusal_ends_with_one_and_names_the_fields(tocsin, server):
    errors = [{"pointer": "/queue", "detail": "is not a name"}]
    server.answers = [problem(422, "invalid", "Invalid", "1 field is wrong.", errors=errors)]
    code, _, err = tocsin("jobs", "create", "-q", "!", "--handler", "h")
    assert code == 1
    assert err == "tocsin: Invalid: 1 field is wrong; --queue: is not a name (422)\n"


def test_a_refused_value_is_called_by_its_option_with_what_it_may_be(tocsin, server):
    errors = [{"pointer": "/priority", "detail": "Invalid enum value 'urgent'"}]
    server.answers = [
        problem(422, "invalid", "Invalid request", "/priority: Invalid enum value 'urgent'", errors=errors)
    ]
    _, _, err = tocsin("jobs", "create", "-q", "q", "--handler", "h", "--priority=urgent")
    assert err == ("tocsin: Invalid request: --priority must be high, normal or low (422)\n")


def test_a_refused_field_that_no_option_gave_keeps_its_pointer(tocsin, server):
    errors = [{"pointer": "/name", "detail": "is not a name"}]
    server.answers = [problem(422, "invalid", "Invalid request", "/name: is not a name", errors=errors)]
    _, _, err = tocsin("admin", "tenants", "create", "!")
    assert err == "tocsin: Invalid request: /name: is not a name (422)\n"


def test_help_is_given_for_h_at_every_level(tocsin):
    for arguments in ([], ["jobs"], ["jobs", "create"]):
        code, out, _ = tocsin(*arguments, "-h")
        assert code == 0
        assert "-h, --help" in out


def test_a_wrong_token_says_where_to_put_the_right_one(tocsin, server):
    server.answers = [problem(401, "unauthorized", "Unauthorized", "the token is not known")]
    code, _, err = tocsin("jobs", "list")
    assert code == 1
    assert "set TOCSIN_TOKEN to a token of this server (401)" in err


def test_a_refusal_cannot_write_to_the_terminal(tocsin, server):
    server.answers = [problem(404, "not-found", "Not \x1b]0;mine\x07 found", "no\nsuch \x1b[2Jjob \u202e")]
    code, _, err = tocsin("jobs", "get", "x")
    assert code == 1
    assert err.count("\n") == 1
    assert not set(err) & {"\x1b", "\x07", "\u202e"}


def test_a_name_stays_one_segment_of_the_path(tocsin, server):
    server.answers = [(200, job())]
    tocsin("jobs", "get", "../queues/x?y#z")
    assert server.asked[0].path == "/v1/jobs/..%2Fqueues%2Fx%3Fy%23z"
