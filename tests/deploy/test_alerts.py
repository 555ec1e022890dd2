"""The alerts: about metrics that there are, each with what to do."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.deploy.files import DEPLOY, documents
from tocsin.telemetry import REGISTRY

(RULES,) = documents(DEPLOY / "prometheus" / "alerts.yaml")
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
# Of other programs that a fleet's Prometheus asks too.
OTHERS = {"pg_stat_activity_max_tx_duration"}
HISTOGRAM = ("_bucket", "_sum", "_count")
alerts = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])


def exposed() -> set[str]:
    """Every name that a scrape shows."""
    names: set[str] = set()
    for family in REGISTRY.collect():
        match family.type:
            case "counter":
                names.add(f"{family.name}_total")
            case "histogram":
                names |= {family.name + ending for ending in HISTOGRAM}
            case _:
                names.add(family.name)
    return names


def metrics(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:tocsin|pg)_[a-z_]+\b", expression))


@alerts
def test_an_alert_is_about_a_metric_that_there_is(alert: dict[str, Any]) -> None:
    named = metrics(alert["expr"])
    assert named
    assert named <= exposed() | OTHERS


def test_the_autoscalers_figure_is_made_of_a_metric_that_there_is() -> None:
    (adapter,) = documents(DEPLOY / "prometheus" / "adapter.yaml")
    for rule in adapter["rules"]["external"]:
        assert metrics(rule["seriesQuery"]) <= exposed()
        assert metrics(rule["seriesQuery"])


@alerts
def test_an_alert_says_what_is_and_where_it_says_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert alert["annotations"]["summary"].count("{{") == alert["annotations"]["summary"].count("}}")
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert anchor == alert["alert"].lower()
    text = (DEPLOY.parent / page).read_text()
    (section,) = re.findall(rf"^### {alert['alert']}\n\n(.+?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(section) > 60


def test_alerts_have_names_of_their_own() -> None:
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS) > 10
