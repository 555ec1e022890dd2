"""The manifests: they fit together, and what they say to Tocsin is what it understands."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import pytest

from tests.deploy.files import DEPLOY, documents, kustomization, literals, objects, of_kind
from tocsin import config
from tocsin.api.metrics import create_metrics_app
from tocsin.api.operations import OPERATIONS
from tocsin.cli.serve import Role

# Longer than the drain: what follows it (the API's last answers, the partitions' release, closing) takes seconds.
AFTER_DRAIN_S = 10
# What a secret would hold.
SECRETS = {
    ("tocsin-store", "store"): "postgresql://tocsin:x@db:5432/tocsin",
    ("tocsin-store", "near"): "rediss://:x@redis:6379/0",
    ("tocsin-store", "lease"): "etcds://x:y@a:2379,b:2379",
    ("tocsin-executor", "token"): "tcs_x",
    ("billing-tocsin", "token"): "tcs_y",
}


def named(item: dict[str, Any]) -> str:
    return f"{item['kind']} {item['metadata']['name']}"


def template(item: dict[str, Any]) -> dict[str, Any]:
    return item["spec"]["template"]


def container(item: dict[str, Any]) -> dict[str, Any]:
    (only,) = template(item)["spec"]["containers"]
    return only


def environment(item: dict[str, Any]) -> dict[str, str]:
    """What the container's process finds in its environment."""
    found: dict[str, str] = {}
    for source in container(item).get("envFrom", ()):
        found |= literals(source["configMapRef"]["name"])
    for each in container(item)["env"]:
        value = each.get("valueFrom", {})
        secret = value.get("secretKeyRef")
        found[each["name"]] = (
            SECRETS[secret["name"], secret["key"]]
            if secret
            else "a-pod"
            if value.get("fieldRef") == {"fieldPath": "metadata.name"}
            else each["value"]
        )
    return found


PODS = of_kind("Deployment", "Job")
DEPLOYMENTS = of_kind("Deployment")
OURS = [each for each in PODS if each["metadata"]["name"].startswith("tocsin-")]
pods = pytest.mark.parametrize("item", PODS, ids=named)
deployments = pytest.mark.parametrize("item", DEPLOYMENTS, ids=named)
ours = pytest.mark.parametrize("item", OURS, ids=named)


def test_every_file_is_applied_and_every_object_is_there_once() -> None:
    files = {each.name for each in (DEPLOY / "kubernetes").glob("*.yaml")} - {"kustomization.yaml"}
    assert files == set(kustomization()["resources"])
    names = [named(each) for each in objects()]
    assert len(names) == len(set(names))
    assert {each["metadata"]["name"] for each in OURS} == {
        f"tocsin-{each}" for each in ("api", "node", "executor", "migrate")
    }
    assert kustomization()["namespace"] in [each["metadata"]["name"] for each in of_kind("Namespace")]


@ours
def test_the_environment_is_one_that_tocsin_starts_with(item: dict[str, Any]) -> None:
    environ = environment(item)
    arguments = container(item)["args"]
    if arguments[0] == "serve":
        role = arguments[arguments.index("--role") + 1]
        assert item["metadata"]["name"] == f"tocsin-{Role(role)}"
        environ["TOCSIN_ROLES"] = role
    else:
        assert arguments == ["migrate"]
        environ["TOCSIN_ROLES"] = "api,node"
    settings = config.load(DEPLOY / "tocsin.toml", environ)
    assert settings.has_store == (environ["TOCSIN_ROLES"] != "executor")
    assert ("TOCSIN_STORE" in environ) == settings.has_store, "executors hold no address of the store"
    assert settings.host == "0.0.0.0"
    ports = {each["name"]: each["containerPort"] for each in container(item).get("ports", ())}
    expected = {"http": settings.port, "metrics": settings.metrics_port}
    assert ports == {name: expected[name] for name in ports}
    assert ("http" in ports) == (environ["TOCSIN_ROLES"] == "api")


@pods
def test_the_image_is_one_that_is_replaced_or_has_a_version(item: dict[str, Any]) -> None:
    image = container(item)["image"]
    replaced = {each["name"]: each for each in kustomization()["images"]}
    assert image in replaced or image.rpartition(":")[2] not in ("", "latest", image)
    assert all(each["newTag"] not in ("", "latest") for each in replaced.values())


@deployments
def test_selectors_and_spreads_find_the_pods_they_mean_and_no_others(item: dict[str, Any]) -> None:
    labels = template(item)["metadata"]["labels"]
    assert item["spec"]["selector"]["matchLabels"] == labels
    assert all(item is other or template(other)["metadata"]["labels"] != labels for other in PODS)
    spreads = template(item)["spec"]["topologySpreadConstraints"]
    assert "topology.kubernetes.io/zone" in [each["topologyKey"] for each in spreads]
    assert all(each["labelSelector"]["matchLabels"] == labels for each in spreads)


@deployments
def test_each_deployment_has_a_disruption_budget_that_lets_one_go_at_a_time(item: dict[str, Any]) -> None:
    labels = template(item)["metadata"]["labels"]
    (budget,) = (each for each in of_kind("PodDisruptionBudget") if each["spec"]["selector"]["matchLabels"] == labels)
    assert budget["spec"]["maxUnavailable"] == 1


def test_the_service_leads_to_the_api_where_the_executors_look_for_it() -> None:
    (service,) = of_kind("Service")
    (api,) = (each for each in DEPLOYMENTS if template(each)["metadata"]["labels"] == service["spec"]["selector"])
    (port,) = service["spec"]["ports"]
    assert port["targetPort"] in [each["name"] for each in container(api)["ports"]]
    urls = [environment(each)["TOCSIN_URL"] for each in DEPLOYMENTS if "TOCSIN_URL" in environment(each)]
    inside = f"http://{service['metadata']['name']}"
    assert set(urls) == {f"{inside}:{port['port']}", f"{inside}.{kustomization()['namespace']}:{port['port']}"}


async def served(port: str, path: str) -> bool:
    """Whether a listener of ours answers a probe of this path."""
    if port == "http":
        return path in {operation.path for operation in OPERATIONS if operation.method == "GET"}
    answers: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        answers.append(message)

    await create_metrics_app(lambda: b"")({"type": "http", "method": "GET", "path": path}, not_asked, send)
    return bool(answers[0]["status"] == 200)


async def not_asked() -> dict[str, Any]:
    raise AssertionError("a probe has no body")


@pytest.mark.parametrize("item", [each for each in OURS if each["kind"] == "Deployment"], ids=named)
async def test_probes_ask_what_is_served_and_a_stop_has_time_to_drain(item: dict[str, Any]) -> None:
    ports = [each["name"] for each in container(item)["ports"]]
    paths = {}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        get = container(item)[probe]["httpGet"]
        assert get["port"] in ports
        assert await served(get["port"], get["path"])
        paths[probe] = get["path"]
    # An outage of the store must not have every process killed.
    assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    drain_s = float(environment(item)["TOCSIN_DRAIN_S"])
    assert template(item)["spec"]["terminationGracePeriodSeconds"] >= drain_s + AFTER_DRAIN_S
    annotations = template(item)["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == environment(item)["TOCSIN_METRICS_PORT"]
    assert await served("metrics", annotations["prometheus.io/path"])


@pods
def test_nothing_runs_with_more_rights_or_less_memory_than_it_needs(item: dict[str, Any]) -> None:
    pod, inner = template(item)["spec"], container(item)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10_001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert inner["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {*inner["resources"]["requests"]} == {"cpu", "memory"}
    assert {*inner["resources"]["limits"]} == {"memory"}
    mounted = {each["name"] for each in inner["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}
    assert "/tmp" in [each["mountPath"] for each in inner["volumeMounts"]]


@pytest.mark.parametrize("item", of_kind("HorizontalPodAutoscaler"), ids=named)
def test_autoscalers_scale_what_exists_on_a_metric_that_the_adapter_serves(item: dict[str, Any]) -> None:
    spec = item["spec"]
    (target,) = (each for each in DEPLOYMENTS if each["metadata"]["name"] == spec["scaleTargetRef"]["name"])
    assert "replicas" not in target["spec"], "each apply would undo the autoscaler"
    assert 2 <= spec["minReplicas"] < spec["maxReplicas"]
    (adapter,) = documents(DEPLOY / "prometheus" / "adapter.yaml")
    served = {each["name"]["as"] for each in adapter["rules"]["external"]}
    assert {each["external"]["metric"]["name"] for each in spec["metrics"]} <= served
