"""The compose file and the image: they fit together, and what they say to Tocsin is what it understands."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.deploy.files import DEPLOY, documents
from tocsin import config
from tocsin.api.operations import OPERATIONS

(COMPOSE,) = documents(DEPLOY / "compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: each for name, each in SERVICES.items() if each["image"].startswith("tocsin:")}
ROLES = {name: each for name, each in OURS.items() if each["command"][0] == "serve"}
VARIABLE = re.compile(r"\$\{(?P<name>[A-Z_]+)(?P<how>:[-?])?(?P<text>[^}]*)\}")
GIVEN = {"POSTGRES_PASSWORD": "x1", "TOCSIN_EXECUTOR_TOKEN": "tcs_x"}


def filled(text: str) -> str:
    """A text with its variables filled in as compose does it, from an .env with what it must have."""
    return VARIABLE.sub(lambda found: GIVEN.get(found["name"]) or found["text"], text)


def seconds(text: str) -> int:
    assert text.endswith("s")
    return int(text[:-1])


@pytest.mark.parametrize("name", ROLES)
def test_the_environment_is_one_that_tocsin_starts_with(name: str) -> None:
    service = ROLES[name]
    environ = {key: filled(value) for key, value in service["environment"].items()} | {"TOCSIN_ROLES": name}
    assert service["command"] == ["serve", "--role", name]
    settings = config.load(DEPLOY / "tocsin.toml", environ)
    assert ("TOCSIN_STORE" in environ) == (name != "executor")
    assert seconds(service["stop_grace_period"]) >= settings.drain_s + 10
    assert f"http://127.0.0.1:{settings.metrics_port}/readyz" in service["healthcheck"]["test"][-1]
    assert "/readyz" in {operation.path for operation in OPERATIONS}


def test_there_are_as_many_of_each_as_the_failure_of_one_needs() -> None:
    assert {name: each["deploy"]["replicas"] for name, each in ROLES.items()} == {"api": 2, "node": 3, "executor": 2}


def test_addresses_name_services_and_their_ports() -> None:
    (url,) = {each["environment"]["TOCSIN_URL"] for each in OURS.values() if "TOCSIN_URL" in each["environment"]}
    assert url == f"http://api:{config.load(DEPLOY / 'tocsin.toml', {}).port}"
    fleet = SERVICES["api"]["environment"]
    database = SERVICES["postgres"]["environment"]
    user, password = database["POSTGRES_USER"], database["POSTGRES_PASSWORD"]
    assert fleet["TOCSIN_STORE"] == f"postgresql://{user}:{password}@postgres:5432/{database['POSTGRES_DB']}"
    assert fleet["TOCSIN_NEAR"] == "redis://valkey:6379/0"
    assert "--listen-client-urls=http://0.0.0.0:2379" in SERVICES["etcd"]["command"]


def test_the_near_tier_refuses_when_it_is_full_and_has_room_above_its_limit() -> None:
    command = SERVICES["valkey"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--maxmemory-policy"] == "noeviction"
    assert options["--maxmemory"] == "1gb"
    assert int(SERVICES["valkey"]["mem_limit"].removesuffix("m")) >= 1.25 * 1024


def test_etcd_is_optional_and_compacts_itself() -> None:
    assert [name for name, each in SERVICES.items() if "profiles" in each] == ["etcd"]
    assert "--auto-compaction-retention=1h" in SERVICES["etcd"]["command"]


@pytest.mark.parametrize("name", SERVICES)
def test_services_wait_for_what_is_there_and_say_when_they_are_ready_themselves(name: str) -> None:
    service = SERVICES[name]
    for other, how in service.get("depends_on", {}).items():
        if how["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other]
        else:
            assert how == {"condition": "service_completed_successfully"}
            assert SERVICES[other]["restart"] == "no"
    assert "healthcheck" in service or service["restart"] == "no"
    for volume in service.get("volumes", ()):
        assert volume.partition(":")[0] in COMPOSE["volumes"]
    assert not service["image"].endswith(":latest")


def test_every_variable_is_in_the_example_or_has_a_default() -> None:
    example = re.findall(r"^([A-Z_]+)=", (DEPLOY / "example.env").read_text(), re.MULTILINE)
    used = list(VARIABLE.finditer((DEPLOY / "compose.yaml").read_text()))
    assert used
    for each in used:
        assert each["name"] in example or each["how"] == ":-", each["name"]
    assert set(example) <= {each["name"] for each in used}


# --- the image --------------------------------------------------------------------------------------------------------

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


def test_the_image_is_built_from_files_that_are_there_and_sent_to_the_builder() -> None:
    sources = [
        source
        for arguments in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for source in arguments.split()[:-1]
    ]
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for source in sources:
        assert (DEPLOY.parent / source).exists(), source
        assert f"!{source}" in ignored
    assert "--require-hashes" in DOCKERFILE


def test_the_image_runs_as_nobody_in_particular_and_offers_the_ports_it_listens_on() -> None:
    final = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.search(r"^USER 10001:10001$", final, re.MULTILINE)
    settings = config.load(DEPLOY / "tocsin.toml", {})
    assert f"EXPOSE {settings.port} {settings.metrics_port}\n" in final
    named = re.search(r"TOCSIN_CONFIG=(\S+)", final)
    assert named is not None
    assert f"COPY deploy/tocsin.toml {named[1]}\n" in final
