"""Alarms for Prometheus and the dashboard of Grafana, against what the exporter tells."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.telemetry.alarms import CASES, Case
from tidegate.model.metrics import QUANTILES, Metered, MetricKind, MetricValue, Spread
from tidegate.telemetry.catalogue import CATALOGUE, VARIABLES, Known
from tidegate.telemetry.metrics import Metric
from tidegate.telemetry.reporters.prometheus import add

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric as Family

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "docs" / "deployment" / "prometheus-rules.yaml"
DASHBOARD = ROOT / "docs" / "deployment" / "grafana-dashboard.json"
LIMIT_S = 120.0
VALUES: dict[MetricKind, MetricValue] = {
    MetricKind.COUNTER: 1,
    MetricKind.GAUGE: 1,
    MetricKind.METER: Metered(1, 1.0),
    MetricKind.HISTOGRAM: Spread(1, 1, 1, 1.0, 1.0, (1.0,) * len(QUANTILES)),
}


def promtool(*arguments: str) -> tuple[int, str]:
    """Its status and what it says."""
    found = shutil.which("promtool")
    assert found, "no promtool: it checks the alarms (scripts/promtool.sh)"
    ran = subprocess.run([found, *arguments], capture_output=True, text=True, timeout=LIMIT_S)
    return ran.returncode, ran.stdout + ran.stderr


def told(known: Known) -> Iterator[str]:
    """Names of the samples that the exporter makes of a metric, alone and by a variable."""
    for groups in ((), *(((variable, "a"),) for variable in VARIABLES)):
        families: dict[str, Family] = {}
        metric = Metric(known.scope, {}, groups, known.name, known.kind, VALUES[known.kind])
        add(families, metric, filtered=True)
        for family in families.values():
            yield from (sample.name for sample in family.samples)


TOLD = {name for known in CATALOGUE for name in told(known)}


def rules() -> list[dict[str, str]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> Iterator[tuple[str, str]]:
    """Titles of the dashboard's panels, and their queries."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def names_in(query: str) -> set[str]:
    return set(re.findall(r"\bflink_\w+", query))


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alarm_asks_for_metrics_that_are_told(rule: dict[str, str]) -> None:
    assert names_in(rule["expr"]) and names_in(rule["expr"]) <= TOLD


def test_the_dashboard_asks_for_metrics_that_are_told() -> None:
    queries = dict(panels())
    assert len(queries) > 15
    for title, query in panels():
        assert names_in(query) and names_in(query) <= TOLD, title
    listed = json.loads(DASHBOARD.read_text())["templating"]["list"]
    asked = names_in(json.dumps(listed))
    assert asked and asked <= TOLD


@pytest.mark.slow  # needs promtool, which `make test` installs
def test_each_alarm_rings_and_is_silent(tmp_path: Path) -> None:
    assert {(case.alarm, case.rings) for case in CASES} == {
        (rule["alert"], rings) for rule in rules() for rings in (True, False)
    }
    groups = [group(case) for case in CASES]
    file = tmp_path / "alarms.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": groups}))
    for asked in (("check", "rules", str(RULES)), ("test", "rules", str(file))):
        status, said = promtool(*asked)
        assert status == 0, said


def group(case: Case) -> dict[str, object]:
    """A test of promtool: the series, and how many alarms of that name ring."""
    ringing = f'count(ALERTS{{alertname="{case.alarm}", alertstate="firing"}})'
    samples = [{"labels": "{}", "value": 1}] if case.rings else []
    return {
        "name": f"{case.alarm} {'rings' if case.rings else 'is silent'}",
        "interval": "1m",
        "input_series": [{"series": name, "values": of} for name, of in case.series.items()],
        "promql_expr_test": [
            {"expr": ringing, "eval_time": f"{case.minute}m", "exp_samples": samples}
        ],
    }


@pytest.mark.slow
def test_queries_of_the_dashboard_are_queries(tmp_path: Path) -> None:
    recorded = [
        {"record": f"panel:{number}", "expr": filled(query)}
        for number, (_, query) in enumerate(panels())
    ]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    status, said = promtool("check", "rules", str(file))
    assert status == 0, said


def filled(query: str) -> str:
    """With what Grafana puts in the place of its variables."""
    return query.replace("$__rate_interval", "1m").replace("$job", "orders")
