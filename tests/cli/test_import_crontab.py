"""`tocsin schedules import-crontab`: all lines or none, nothing changed the second time."""

from __future__ import annotations

import io
import json
from typing import Any
from urllib.parse import unquote

import pytest

from tests.cli.stand_in import Asked, Script, problem, schedule
from tocsin.cli import reach
from tocsin.sdk.transport import accept

CRONTAB = """\
MAILTO=ops@example.com
PATH=/usr/bin:/bin
CRON_TZ=Asia/Kolkata
0 2 * * * backup --full
*/5 * * * * cat%a%b
"""
BODY = {
    "cron": "0 2 * * *",
    "time_zone": "Asia/Kolkata",
    "job_template": {
        "queue": "cron",
        "target": {"type": "task", "handler": "shell.run"},
        "payload": {"command": "backup --full", "stdin": None, "env": {"PATH": "/usr/bin:/bin"}},
    },
}
ARGUMENTS = ("-q", "cron", "--handler", "shell.run")


class Keeper(Script):
    """Keeps schedules by name, as the API does as far as an import needs it. An expression with `bad` in it is none."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, dict[str, Any]] = {}
        self.away_after = 10_000

    async def request(self, method, path, *, query=None, body=None, headers=None, timeout_s=0.0):
        asked = Asked(method, path, query or [], json.loads(body) if body else None, headers or {})
        self.asked.append(asked)
        status, value = self._answer(asked)
        kind = "application/json" if status < 400 else "application/problem+json"
        return accept(status, {"content-type": kind}, json.dumps(value).encode())

    def _answer(self, asked: Asked) -> tuple[int, Any]:
        if asked.path == "/v1/schedules:preview":
            if "bad" in asked.body["cron"] or "bad" in asked.body["time_zone"]:
                errors = [{"pointer": "/cron", "detail": "hour: bad is no number"}]
                return problem(422, "invalid", "Invalid request", "/cron: hour: bad is no number", errors=errors)
            return 200, {"runs": [{"at": "2026-12-05T20:30:00Z", "local": "x", "note": None}], "hints": []}
        if asked.method == "GET":
            found = self.kept.get(dict(asked.query)["name"])
            return 200, {"items": [found] if found else [], "next_cursor": None}
        assert asked.method == "PUT"
        if len(self.puts()) > self.away_after:
            return problem(503, "overloaded", "Overloaded", "busy")
        name = unquote(asked.path.rpartition("/")[2])
        before = self.kept.get(name)
        made = schedule(name=name, schedule_id=f"sch_{len(self.kept)}", **asked.body)
        if before is not None:
            made |= {"schedule_id": before["schedule_id"], "revision": before["revision"]}
            made["revision"] += made != before
        self.kept[name] = made
        return 201 if before is None else 200, made

    def puts(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.method == "PUT"]


@pytest.fixture
def server(monkeypatch):
    keeper = Keeper()
    monkeypatch.setattr(reach, "connect", lambda: keeper)
    return keeper


@pytest.fixture
def imported(tocsin, tmp_path):
    """Imports a text as a file."""

    def run(text: str, *options: str) -> tuple[int, str, str]:
        path = tmp_path / "crontab.txt"
        path.write_text(text)
        return tocsin("schedules", "import-crontab", str(path), *ARGUMENTS, *options)

    return run


def test_every_line_becomes_a_schedule(imported, server):
    code, out, err = imported(CRONTAB)
    assert (code, err) == (0, "")
    first, second = server.kept.values()
    assert first["name"].startswith("crontab-backup-full-")
    assert server.puts()[0].body == BODY
    assert second["job_template"]["payload"] == {"command": "cat", "stdin": "a\nb\n", "env": {"PATH": "/usr/bin:/bin"}}
    lines = out.splitlines()
    row = f"4 {first['name']} 0 2 * * * Asia/Kolkata 2026-12-05T20:30:00Z made"
    assert lines[1].split() == row.split()
    assert lines[-1].startswith("Note: line 1: MAILTO is ignored")


def test_a_second_time_changes_nothing(imported, server):
    imported(CRONTAB)
    before = json.dumps(server.kept)
    code, out, _ = imported(CRONTAB)
    assert code == 0
    assert json.dumps(server.kept) == before
    assert out.count("unchanged") == 2


def test_a_changed_time_changes_the_same_schedule(imported, server):
    imported(CRONTAB)
    code, out, _ = imported(CRONTAB.replace("0 2 * * *", "0 3 * * *"))
    assert code == 0
    assert len(server.kept) == 2
    assert (out.count("unchanged"), out.count(" changed")) == (1, 1)


def test_a_dry_run_says_what_would_be_done(imported, server):
    code, out, _ = imported(CRONTAB, "--dry-run")
    assert (code, server.puts(), out.count(" make")) == (0, [], 2)
    imported(CRONTAB)
    server.asked.clear()
    _, out, _ = imported(CRONTAB.replace("0 2 * * *", "0 3 * * *"), "--dry-run")
    assert (out.count(" keep"), out.count(" change"), server.puts()) == (1, 1, [])


def test_a_line_that_cannot_be_taken_stops_it_all_and_is_told_with_its_number(imported, server):
    code, out, err = imported(CRONTAB + "@reboot serve\n0 bad * * * x\n")
    assert (code, server.kept) == (1, {})
    assert " make" in out
    assert "line 6 cannot be taken: @reboot is the start of a machine" in err
    assert "line 7 cannot be taken: cron: hour: bad is no number: 0 bad * * * x" in err
    assert "2 lines cannot be taken, so nothing was done" in err


def test_bad_lines_can_be_left_out(imported, server):
    code, _, err = imported(CRONTAB + "@reboot serve\n0 bad * * * x\n", "--skip-bad")
    assert (code, len(server.kept)) == (0, 2)
    assert err.count("cannot be taken") == 2


def test_a_line_without_a_zone_is_read_in_utc_and_that_is_said(imported, server):
    _, out, _ = imported("@daily x\n")
    assert server.puts()[0].body["time_zone"] == "UTC"
    assert "no zone is given for some lines" in out
    _, out, _ = imported("@daily x\n", "--time-zone", "Europe/Berlin")
    assert server.puts()[1].body["time_zone"] == "Europe/Berlin"
    assert "no zone" not in out


def test_rules_for_all_of_them_can_be_given(imported, server):
    code, _, _ = imported(
        "@daily x\n", "--missed-runs", "skip", "--overlap", "forbid", "--window", "5m", "--prefix", "h."
    )
    assert code == 0
    body = server.puts()[0].body
    assert (body["missed_runs"], body["overlap"]) == ({"policy": "skip"}, "forbid")
    assert body["job_template"]["timing"] == {"class": "flexible", "window_s": 300.0}
    assert next(iter(server.kept)).startswith("h.x-")


def test_json_has_all_of_it(imported, server):
    code, out, _ = imported(CRONTAB + "0 bad * * * x\n@reboot y\n", "--json", "--skip-bad")
    assert code == 0
    told = json.loads(out)
    assert [each["what"] for each in told["schedules"]] == ["made", "made"]
    assert told["schedules"][0]["schedule_id"] == "sch_0"
    assert [each["line"] for each in told["faults"]] == [6, 7]
    assert len(told["notes"]) == 1


def test_an_import_that_is_cut_off_says_how_far_it_came(imported, server):
    server.away_after = 1
    code, _, err = imported(CRONTAB)
    assert (code, len(server.kept)) == (1, 1)
    assert "The first 1 are done; the same command goes on from there." in err
    server.away_after = 10_000
    assert imported(CRONTAB)[0] == 0
    assert len(server.kept) == 2


def test_it_reads_standard_input(tocsin, server, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"@daily x\n")))
    assert tocsin("schedules", "import-crontab", "-", *ARGUMENTS)[0] == 0
    assert len(server.kept) == 1


def test_a_payload_that_is_too_large_is_told_before_anything_is_done(imported, server):
    code, _, err = imported(f"BIG={'x' * 70_000}\n@daily x\n@daily y\n")
    assert (code, server.kept) == (1, {})
    assert err.count("more than 64 KiB") == 2


def test_an_empty_crontab_is_nothing_to_do(imported, server):
    assert imported("# nothing\n")[:2] == (0, "no line becomes a schedule\n")
