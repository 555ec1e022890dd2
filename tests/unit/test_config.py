"""The settings: every one of them from the file and from the environment, and what is said about a wrong one."""

import dataclasses
from pathlib import Path

import pytest

from tocsin.config import ROLES, QuotaDefaults, Settings, check, load
from tocsin.errors import ConfigError

# Another value than the default for every setting, as the environment writes it.
OTHERS = {
    "data": "/srv/tocsin",
    "store": "sqlite:/srv/other.db",
    "shards": "postgresql://db2/tocsin postgresql://db3/tocsin",
    "near": "redis://cache:6379/1",
    "lease": "etcd://e1:2379,e2:2379",
    "partitions": "64",
    "node_name": "rack 7",
    "canary": "off",
    "roles": "api,node",
    "host": "0.0.0.0",
    "port": "9000",
    "metrics_host": "127.0.0.2",
    "metrics_port": "9100",
    "url": "http://10.0.0.5:8321",
    "token": "tcs_a_b",
    "recheck_delay_s": "90.5",
    "max_write_s": "20.0",
    "drain_s": "30.0",
    "retention_days": "7.0",
    "callback_allow": "10.0.0.0/8:443",
    "executor_concurrency": "50",
    "log_format": "json",
    "log_level": "debug",
}
TEXTS = {
    "data",
    "store",
    "shards",
    "near",
    "lease",
    "node_name",
    "canary",
    "roles",
    "host",
    "metrics_host",
    "url",
    "token",
    "callback_allow",
    "log_format",
    "log_level",
}


def settings_of(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> Settings:
    path = tmp_path / "tocsin.toml"
    path.write_text(text)
    return load(path, environ or {})


def refusal_of(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as refused:
        settings_of(tmp_path, text, environ)
    message = str(refused.value)
    assert "\n" not in message
    return message


def test_the_defaults_hold_together() -> None:
    settings = load(None, {})
    assert settings == Settings()
    assert (settings.host, settings.port, settings.partition_count, settings.roles) == ("127.0.0.1", 8321, 16, ROLES)
    assert settings.dsn == "sqlite:.tocsin/tocsin.db"
    check(settings)


def test_every_setting_has_a_case_here() -> None:
    assert set(OTHERS) | {"quotas"} == {each.name for each in dataclasses.fields(Settings)}


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_a_setting_can_come_from_the_file_or_the_environment(tmp_path: Path, name: str) -> None:
    fleet = 'store = "postgresql://db/tocsin"\nnear = "redis://cache"\n'
    needed = {
        "metrics_host": "metrics_port = 9100\n",
        "shards": fleet,
        "lease": fleet,
        "near": 'store = "postgresql://db/tocsin"\n',
    }.get(name, "")
    value = f'"{OTHERS[name]}"' if name in TEXTS else OTHERS[name]
    from_file = settings_of(tmp_path, f"{needed}{name} = {value}\n")
    from_environment = settings_of(tmp_path, needed, {f"TOCSIN_{name.upper()}": OTHERS[name]})
    assert from_file == from_environment
    assert getattr(from_file, name) != getattr(Settings(), name)


@pytest.mark.parametrize("name", [each.name for each in dataclasses.fields(QuotaDefaults)])
def test_a_default_quota_can_come_from_the_file_or_the_environment(tmp_path: Path, name: str) -> None:
    from_file = settings_of(tmp_path, f"[quotas]\n{name} = 7\n")
    from_environment = load(None, {f"TOCSIN_QUOTAS_{name.upper()}": "7"})
    assert from_file == from_environment
    assert from_file.quotas.as_dict()[name] == 7.0


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    assert settings_of(tmp_path, "port = 1234", {"TOCSIN_PORT": "4321"}).port == 4321


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert settings_of(tmp_path, "port = 1234", {"TOCSIN_PORT": ""}).port == 1234


def test_roles_can_be_a_list(tmp_path: Path) -> None:
    assert settings_of(tmp_path, 'roles = ["node", "api"]').roles == {"api", "node"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 1", "prot is not a setting; there are: callback_allow"),
        ("[quotas]\nnope = 1", "quotas.nope is not a setting; there are: concurrent_callbacks"),
        ("quotas = 3", "quotas is 3; it must be a table"),
        ("[server]\nport = 1", "server is not a setting"),
        ('port = "many"', "port is 'many'; allowed is a whole number from 0 to 65535"),
        ("port = 8321.0", "port is 8321.0; allowed is a whole number"),
        ("port = true", "port is True; allowed is a whole number"),
        ("port = 65536", "port is 65536; allowed is a whole number from 0 to 65535"),
        ("port = -1", "port is -1; allowed is a whole number from 0 to 65535"),
        ("drain_s = true", "drain_s is True; allowed is a number from 0 to 600"),
        ("drain_s = nan", "drain_s is nan; allowed is a number from 0 to 600"),
        ("drain_s = inf", "drain_s is inf; allowed is a number from 0 to 600"),
        ("drain_s = 1979-05-27", "drain_s is datetime.date(1979, 5, 27); allowed is a number"),
        ("drain_s = -0.1", "drain_s is -0.1; allowed is a number from 0 to 600"),
        ("host = 5", "host is 5; allowed is an address or host name"),
        ('host = "a b"', "host is 'a b'; allowed is an address or host name"),
        ('data = ""', "data is ''; allowed is the path of a folder"),
        ('store = "mysql://x"', "store is 'mysql://x'; allowed is sqlite:PATH or postgresql://"),
        ('near = "etcd://x"', "near is 'etcd://x'; allowed is memory, or redis://"),
        ('lease = "zookeeper://x"', "lease is 'zookeeper://x'; allowed is local, postgresql, or etcd://"),
        ('near = "redis:///x y"', "near is 'redis:///x y'; allowed is memory"),
        (
            'shards = "postgresql://u:geheim@h/d,x y"',
            "shards is 'postgresql://u:***@h/d,x y'; allowed is postgresql://",
        ),
        ('roles = ["api", "boss"]', "allowed is one or more of api, executor, node"),
        ("roles = []", "allowed is one or more of"),
        ('log_format = "xml"', "log_format is 'xml'; allowed is one of text, json"),
        ('url = "ftp://x"', "url is 'ftp://x'; allowed is the address of a server"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_name_its_value_and_what_is_allowed(
    tmp_path: Path, text: str, said: str
) -> None:
    assert said in refusal_of(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("recheck_delay_s = 39", "recheck_delay_s is 39 and max_write_s is 30"),
        ("max_write_s = 51", "raise recheck_delay_s to 61 or lower max_write_s"),
        ("partitions = 24", "partitions is 24; it must be a power of two: 16 or 32"),
        ('metrics_host = "127.0.0.1"', "metrics_host is 127.0.0.1 and metrics_port is not set"),
        ("metrics_port = 8321", "port and metrics_port are both 8321"),
        ('roles = "executor"', "roles is executor and url and token missing"),
        ('roles = "executor"\nurl = "http://x"', "roles is executor and token missing"),
        ('roles = "api"', "over SQLite api and node are one process"),
        ('roles = "node,executor"', "over SQLite api and node are one process"),
    ],
)
def test_two_settings_that_contradict_each_other_are_refused_with_both(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal_of(tmp_path, text)


def test_a_recheck_delay_of_exactly_the_limit_is_allowed(tmp_path: Path) -> None:
    assert settings_of(tmp_path, "recheck_delay_s = 40").recheck_delay_s == 40


def test_an_executor_on_its_own_needs_no_store() -> None:
    settings = load(None, {"TOCSIN_ROLES": "executor", "TOCSIN_URL": "http://x", "TOCSIN_TOKEN": "tcs_a_b"})
    assert not settings.has_store


def test_an_unknown_variable_is_refused() -> None:
    with pytest.raises(ConfigError, match="TOCSIN_PROT is set in the environment and is not a setting"):
        load(None, {"TOCSIN_PROT": "1"})


def test_a_wrong_variable_is_named_as_it_was_written() -> None:
    with pytest.raises(ConfigError, match="TOCSIN_PORT is 'x'"):
        load(None, {"TOCSIN_PORT": "x"})
    with pytest.raises(ConfigError, match="TOCSIN_QUOTAS_WAITING_JOBS is '-1'"):
        load(None, {"TOCSIN_QUOTAS_WAITING_JOBS": "-1"})


def test_what_kubernetes_puts_beside_a_service_of_our_name_does_no_harm() -> None:
    links = {
        "TOCSIN_PORT": "tcp://10.3.4.5:8321",
        "TOCSIN_SERVICE_HOST": "10.3.4.5",
        "TOCSIN_SERVICE_PORT": "8321",
        "TOCSIN_PORT_8321_TCP": "tcp://10.3.4.5:8321",
        "TOCSIN_PORT_8321_TCP_ADDR": "10.3.4.5",
    }
    assert load(None, links) == Settings()


def test_a_wrong_token_is_not_shown() -> None:
    with pytest.raises(ConfigError) as refused:
        load(None, {"TOCSIN_TOKEN": "tcs_secret value"})
    assert "secret value" not in str(refused.value)


def test_a_missing_file_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        load(tmp_path / "none.toml", {})


def test_a_folder_in_place_of_the_file_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path, {})


def test_a_broken_file_is_said_so_with_the_place(tmp_path: Path) -> None:
    assert "is not valid TOML" in refusal_of(tmp_path, "port = = 1")
    assert "line 2" in refusal_of(tmp_path, "port = 1\nhost = = 2")


def test_a_file_that_is_no_text_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "tocsin.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not text in UTF-8"):
        load(path, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'near = "redis://c"',
            "near is 'redis://c' and the store is sqlite:.tocsin/tocsin.db: SQLite is for one process",
        ),
        ('lease = "postgresql"', "lease is 'postgresql' and the store is sqlite"),
        ('shards = "postgresql://h/d"', "shards is 'postgresql://h/d' and the store is sqlite"),
        (
            'store = "postgresql://h/d"',
            "near is not set and the store is postgresql://h/d: processes that share a store",
        ),
        ('store = "postgresql://h/d"\nnear = "memory"', "near is memory and the store is postgresql://h/d"),
        ('store = "postgresql://u:geheim@h/d"', "the store is postgresql://u:***@h/d"),
        ('store = "postgresql://u:ge/heim@h/d"', "the store is postgresql://u:***@h/d"),
        (
            'store = "postgresql://h/d?user=u&password=geheim&sslpassword=geheim&sslmode=require"',
            "the store is postgresql://h/d?user=u&password=***&sslpassword=***&sslmode=require",
        ),
        ('near = "redis://h?password=geheim"', "near is 'redis://h?password=***' and the store is sqlite"),
        (
            'store = "postgresql://h/d"\nnear = "redis://c"\nlease = "local"',
            "lease is local and the store is postgresql",
        ),
        (
            'store = "postgresql://h/d"\nnear = "redis://c"\nroles = ["node", "executor"]',
            "roles is executor, node: an executor without an API in its process works for a server; set url",
        ),
    ],
)
def test_a_fleets_settings_that_cannot_both_hold_are_refused(tmp_path: Path, text: str, said: str) -> None:
    message = refusal_of(tmp_path, text)
    assert said in message
    assert "geheim" not in message


def test_a_fleets_defaults() -> None:
    settings = load(None, {"TOCSIN_STORE": "postgresql://h/d", "TOCSIN_NEAR": "redis://c", "TOCSIN_ROLES": "node"})
    assert (settings.partition_count, settings.lease_url, settings.has_canary) == (64, "postgresql", True)
    assert not load(None, {}).has_canary
