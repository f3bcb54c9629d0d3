"""Names and choice of metrics in reporters."""

import pytest

from tests.telemetry.world import PLACE, metric
from tidegate.config.configuration import Configuration
from tidegate.config.metrics import reporter_settings
from tidegate.model.metrics import MetricKind
from tidegate.telemetry.catalogue import known, sentence_of, unit_of
from tidegate.telemetry.metrics import Metric, Scope
from tidegate.telemetry.names import (
    chosen,
    logical_scope,
    prometheus_labels,
    prometheus_name,
    variables_of,
)

SEEN = metric("seen", 1, MetricKind.COUNTER, groups=("shop", ("country", "nl")))


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (SEEN, "flink_taskmanager_job_task_operator_shop_country_seen"),
        (metric("numRecordsIn", 1), "flink_taskmanager_job_task_operator_numRecordsIn"),
        (metric("a-b.c", 1, scope=Scope.TASK), "flink_taskmanager_job_task_a_b_c"),
        (metric("uptime", 1, scope=Scope.JOB), "flink_jobmanager_job_uptime"),
        (
            metric("Status.Process.CPU.Load", 1, scope=Scope.TASK_MANAGER),
            "flink_taskmanager_Status_Process_CPU_Load",
        ),
    ],
)
def test_names_for_prometheus_are_those_of_flinks_reporter(given: Metric, name: str) -> None:
    assert prometheus_name(given) == name


def test_groups_of_a_key_and_its_value_are_variables() -> None:
    assert logical_scope(SEEN) == "taskmanager.job.task.operator.shop.country"
    assert variables_of(SEEN) == {**PLACE, "country": "nl"}
    labels = prometheus_labels(SEEN, filtered=True)
    assert labels["task_name"] == "Source:_a____b" and labels["country"] == "nl"
    assert prometheus_labels(SEEN, filtered=False)["task_name"] == "Source: a -> b"


def names(all_of: list[Metric], **options: object) -> list[str]:
    """Names of the metrics that a reporter with these options gets."""
    keys = {f"metrics.reporter.r.{key.replace('_', '.')}": value for key, value in options.items()}
    kind = {"metrics.reporter.r.factory.class": "prometheus"}
    [settings] = reporter_settings(Configuration.from_dict({**kind, **keys}))
    return [each.name for each in chosen(all_of, settings)]


def test_filters_choose_by_scope_name_and_kind() -> None:
    all_of = [
        SEEN,
        metric("late", 1, MetricKind.COUNTER),
        metric("uptime", 1, scope=Scope.JOB),
        metric("pace", 1, MetricKind.METER, scope=Scope.TASK),
    ]
    assert names(all_of) == ["seen", "late", "uptime", "pace"]
    assert names(all_of, filter_includes="*:*:counter") == ["seen", "late"]
    assert names(all_of, filter_includes="*:*:COUNTER") == ["seen", "late"]
    assert names(all_of, filter_includes="*.operator*:seen,l*") == ["seen", "late"]
    assert names(all_of, filter_includes="jobmanager.*;*:pace") == ["uptime", "pace"]
    assert names(all_of, filter_excludes="*:*:counter,meter") == ["uptime"]
    assert names(all_of, filter_includes="*:*:counter", filter_excludes="*:late") == ["seen"]


def test_variables_can_be_left_out_and_added() -> None:
    configuration = {
        "metrics.reporter.r.factory.class": "prometheus",
        "metrics.reporter.r.scope.variables.excludes": "task_name;job_name",
        "metrics.reporter.r.scope.variables.additional": "region:eu",
    }
    [settings] = reporter_settings(Configuration.from_dict(configuration))
    [found] = chosen([SEEN], settings)
    assert found.variables == {"operator_name": "b", "region": "eu"}


def test_the_engines_metrics_have_a_sentence_and_a_unit_and_those_of_functions_do_not() -> None:
    lag = metric("watermarkLag", 5)
    assert "behind the clock" in sentence_of(lag) and unit_of(lag) == "ms"
    of_split = metric("pendingRecords", 5, groups=(("split", "orders-0"),))
    assert "Kafka" in sentence_of(of_split)
    own = metric("watermarkLag", 5, groups=("mine",))
    assert known(own) is None and unit_of(own) == "" and "function" in sentence_of(own)
