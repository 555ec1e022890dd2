"""Commands on the store itself: tenants and tokens, migrate, doctor; with a real store in a folder of its own."""

import json
import os
import re

import pytest

from tocsin import roles
from tocsin.clock import SystemClock
from tocsin.config import Settings
from tocsin.lease.local import LocalLeases


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data folder, and a current directory without settings."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("TOCSIN_")]:
        monkeypatch.delenv(name)
    return tmp_path / "data"


def findings(tocsin, *arguments):
    """What the doctor found, by check."""
    code, out, _ = tocsin("doctor", "--json", *arguments)
    return code, {each["check"]: each for each in json.loads(out)["findings"]}


def test_the_first_tenant_and_token_are_made_on_the_store(tocsin, folder):
    code, out, _ = tocsin(
        "admin", "tenants", "create", "acme", "--weight", "2", "--quota", "waiting_jobs=5", "--data", str(folder)
    )
    assert code == 0
    assert "tenant acme is made" in out
    code, out, err = tocsin(
        *["admin", "tokens", "create", "acme", "--name", "first", "--scope", "operator", "--scope", "work:q"],
        *["--data", str(folder)],
    )
    assert code == 0
    assert re.fullmatch(r"tcs_[0-9A-Za-z]+_[0-9A-Za-z]+\n", out)
    assert "shown this once" in err
    _, out, _ = tocsin("admin", "tokens", "list", "acme", "--json", "--data", str(folder))
    (token,) = json.loads(out)["items"]
    assert (token["name"], token["scopes"]) == ("first", ["operator", "work:q"])
    assert "token" not in token
    _, out, _ = tocsin("admin", "tenants", "list", "--json", "--data", str(folder))
    (tenant,) = json.loads(out)["items"]
    assert (tenant["name"], tenant["weight"], tenant["quotas"]) == ("acme", 2.0, {"waiting_jobs": 5.0})


def test_a_token_made_on_the_store_opens_the_api(tocsin, folder):
    import asyncio

    from tocsin.clock import SystemEntropy
    from tocsin.sdk.asgi import AsgiTransport

    tocsin("admin", "tenants", "create", "acme", "--data", str(folder))
    _, out, _ = tocsin("admin", "tokens", "create", "acme", "--name", "n", "--scope", "read", "--data", str(folder))

    async def me():
        process = await roles.build(Settings(data=folder), SystemClock(), SystemEntropy())
        try:
            return await AsgiTransport(process.app, out.strip()).request("GET", "/v1/me")
        finally:
            await process.stop()

    assert json.loads(asyncio.run(me()).body)["tenant"] == "acme"


def test_a_tenant_can_be_changed_and_a_token_deleted(tocsin, folder):
    tocsin("admin", "tenants", "create", "acme", "--weight", "2", "--data", str(folder))
    assert tocsin("admin", "tenants", "set", "acme", "--quota", "creates_per_s=9", "--data", str(folder))[0] == 0
    _, out, _ = tocsin("admin", "tenants", "list", "--json", "--data", str(folder))
    assert json.loads(out)["items"][0]["weight"] == 2.0
    assert json.loads(out)["items"][0]["quotas"] == {"creates_per_s": 9.0}
    _, out, _ = tocsin(
        "admin", "tokens", "create", "acme", "--name", "n", "--scope", "read", "--json", "--data", str(folder)
    )
    token_id = json.loads(out)["token_id"]
    assert tocsin("admin", "tokens", "delete", "acme", token_id, "--data", str(folder))[0] == 0
    code, _, err = tocsin("admin", "tokens", "delete", "acme", token_id, "--data", str(folder))
    assert code == 1
    assert f"has no token {token_id}" in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["admin", "tenants", "create", "acme"], 1, "there is a tenant acme already"),
        (["admin", "tenants", "create", "a b"], 2, "'a b' is not a name"),
        (["admin", "tenants", "set", "nobody", "--weight", "2"], 1, "there is no tenant nobody"),
        (["admin", "tokens", "list", "nobody"], 1, "there is no tenant nobody"),
        (["admin", "tokens", "create", "nobody", "--name", "n", "--scope", "read"], 1, "there is no tenant nobody"),
        (["admin", "tokens", "create", "acme", "--name", "n", "--scope", "root"], 2, "--scope 'root' is not a scope"),
        (["admin", "tokens", "create", "acme", "--name", "a\nb", "--scope", "read"], 2, "--name must be"),
        (
            ["admin", "tokens", "create", "acme", "--name", "n", "--scope", "read", "--expires-at", "2027-01-01"],
            2,
            "it has no offset",
        ),
        (
            [
                "admin",
                "tokens",
                "create",
                "acme",
                "--name",
                "n",
                "--scope",
                "read",
                "--expires-at",
                "2020-01-01T00:00Z",
            ],
            2,
            "must be in the future",
        ),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(tocsin, folder, arguments, code, said):
    tocsin("admin", "tenants", "create", "acme", "--data", str(folder))
    got, _, err = tocsin(*arguments, "--data", str(folder))
    assert got == code
    assert said in err
    assert json.loads(tocsin("admin", "tokens", "list", "acme", "--json", "--data", str(folder))[1])["items"] == []


def test_the_installation_can_be_named_by_its_file_of_settings(tocsin, folder, tmp_path):
    (tmp_path / "tocsin.toml").write_text(f'data = "{folder}"\n')
    assert tocsin("admin", "tenants", "create", "acme", "--config", str(tmp_path / "tocsin.toml"))[0] == 0
    assert "acme" in tocsin("admin", "tenants", "list", "--data", str(folder))[1]


def test_a_store_is_migrated_on_its_own(tocsin, folder):
    code, out, _ = tocsin("migrate", "--data", str(folder))
    assert code == 0
    assert "has the schema of this version" in out
    assert (folder / "tocsin.db").exists()


def test_the_doctor_finds_a_sound_installation_sound(tocsin, folder):
    tocsin("migrate", "--data", str(folder))
    code, found = findings(tocsin, "--data", str(folder))
    problems = {name for name, each in found.items() if each["state"] == "problem"} - {"durability", "disk space"}
    assert problems == set()
    assert found["store"]["state"] == found["schema"]["state"] == found["clock"]["state"] == "ok"
    assert {"lock", "disk space", "durability", "flush", "zone data", "open files"} <= set(found)
    assert code in (0, 1)


def test_the_doctor_makes_nothing(tocsin, folder):
    code, found = findings(tocsin, "--data", str(folder))
    assert code == 0
    assert found["data folder"]["state"] == "note"
    assert not folder.exists()


async def test_the_doctor_names_the_server_that_has_the_folder(folder):
    from tocsin.cli.doctor import _lock

    leases = LocalLeases(folder, 16)
    await leases.acquire()
    try:
        assert f"process {os.getpid()}" in _lock(folder).found
    finally:
        await leases.release()
    assert "no server is running" in _lock(folder).found


@pytest.mark.parametrize("damage", ["other program", "cut", "noise"])
def test_the_doctor_says_that_a_store_is_broken(tocsin, folder, damage):
    import sqlite3

    tocsin("migrate", "--data", str(folder))
    file = folder / "tocsin.db"
    match damage:
        case "other program":
            file.unlink()
            database = sqlite3.connect(file)
            database.execute("CREATE TABLE t (x)")
            database.close()
        case "cut":
            file.write_bytes(file.read_bytes()[:8192])
        case "noise":
            file.write_bytes(b"no database at all" * 1000)
    code, found = findings(tocsin, "--data", str(folder))
    assert code == 1
    assert found["store"]["state"] == "problem"
    assert found["store"]["do"]


def test_the_doctor_says_that_the_clock_is_behind_the_store(tocsin, folder):
    tocsin("migrate", "--data", str(folder))
    ahead = (SystemClock().now_ms() + 3_600_000) / 1000
    os.utime(folder / "tocsin.db", (ahead, ahead))
    code, found = findings(tocsin, "--data", str(folder))
    assert code == 1
    assert "which the clock has not reached" in found["clock"]["found"]


def test_the_doctor_says_that_a_setting_is_wrong(tocsin, folder, monkeypatch):
    monkeypatch.setenv("TOCSIN_PARTITIONS", "24")
    code, found = findings(tocsin)
    assert code == 1
    assert "power of two" in found["settings"]["found"]


def test_dev_is_a_whole_server(tocsin, folder, monkeypatch):
    monkeypatch.setenv("TOCSIN_ROLES", "executor")
    monkeypatch.setenv("TOCSIN_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("TOCSIN_TOKEN", "tcs_a_b")
    code, _, err = tocsin("dev", "--data", str(folder))
    assert code == 2
    assert "dev is a whole server" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["tenants", "list"],
        ["tenants", "set", "acme", "--weight", "2"],
        ["tokens", "list", "acme"],
        ["tokens", "create", "acme", "--name", "n", "--scope", "read"],
        ["tokens", "delete", "acme", "tok"],
    ],
)
def test_what_needs_a_store_makes_none(tocsin, folder, arguments):
    code, _, err = tocsin("admin", *arguments, "--data", str(folder))
    assert code == 1
    assert f"there is no store in {folder}; tocsin migrate or the first start makes one" in err
    assert not folder.exists()
