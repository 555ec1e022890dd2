"""The files of `deploy/`, read."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml")) + sorted((DEPLOY / "kubernetes" / "examples").glob("*.yaml"))


class _Strict(yaml.SafeLoader):
    """YAML in which a key stands once: of two the last would silently win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        assert len(keys) == len(set(keys)), f"a key stands twice: {sorted(keys)}, {node.start_mark}"
        return super().construct_mapping(node, deep)


@cache
def documents(path: Path) -> tuple[dict[str, Any], ...]:
    """All documents of a file."""
    return tuple(each for each in yaml.load_all(path.read_text(), _Strict) if each is not None)


def objects() -> list[dict[str, Any]]:
    """Every Kubernetes object, those of the examples too."""
    return [each for path in MANIFESTS if path.name != "kustomization.yaml" for each in documents(path)]


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    """The objects of these kinds."""
    return [each for each in objects() if each["kind"] in kinds]


def kustomization() -> dict[str, Any]:
    """What puts them together."""
    (found,) = documents(DEPLOY / "kubernetes" / "kustomization.yaml")
    return found


def literals(config_map: str) -> dict[str, str]:
    """The settings in a generated config map."""
    (found,) = (each for each in kustomization()["configMapGenerator"] if each["name"] == config_map)
    return dict(each.split("=", 1) for each in found["literals"])
