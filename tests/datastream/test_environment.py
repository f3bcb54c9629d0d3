from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from tests.datastream.fakes import (
    Client,
    KeepingRuntime,
    Nowhere,
    Numbers,
    environment,
    numbers,
    vertices,
)
from tests.datastream.functions import KeyedPass
from tidegate.config import execution
from tidegate.config.configuration import Configuration
from tidegate.config.execution import RuntimeExecutionMode
from tidegate.datastream.environment import StreamExecutionEnvironment
from tidegate.errors import ConfigError, GraphError, JobFailed
from tidegate.model.settings import CheckpointingMode, ExponentialDelay, NoRestart
from tidegate.typeinfo.types import Types

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TIDEGATE_RUNTIME", "TIDEGATE_CONF", "TIDEGATE_SETTINGS"):
        monkeypatch.delenv(name, raising=False)


def test_the_parallelism_holds_for_what_is_made_from_then_on() -> None:
    env = environment()
    stream = numbers(env)
    env.set_parallelism(3)
    stream.map(str)
    assert [v.parallelism for v in env.get_job_graph().topology.vertices] == [1, 3]
    assert env.get_parallelism() == env.get_config().get_parallelism() == 3


def test_settings_can_be_chained_and_read_back() -> None:
    env = environment()
    same = (
        env.set_parallelism(2)
        .set_max_parallelism(64)
        .enable_checkpointing(500, CheckpointingMode.AT_LEAST_ONCE)
        .set_buffer_timeout(20)
        .set_default_savepoint_directory("file:///tmp/savepoints")
        .disable_operator_chaining()
        .configure(Configuration.from_dict({"pipeline.name": "orders"}))
    )
    assert same is env
    assert (env.get_max_parallelism(), env.get_buffer_timeout()) == (64, 20)
    assert env.get_checkpoint_interval() == 500
    assert env.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert env.get_checkpointing_consistency_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert env.get_default_savepoint_directory() == "file:///tmp/savepoints"
    assert not env.is_chaining_enabled()
    assert not env.is_unaligned_checkpoints_enabled()
    assert env.is_changelog_state_backend_enabled() is None
    assert env.enable_changelog_state_backend(True).is_changelog_state_backend_enabled()
    assert not env.enable_changelog_state_backend(False).is_changelog_state_backend_enabled()
    assert not env.is_force_unaligned_checkpoints()
    assert env.get_configuration().get_string("pipeline.name", "") == "orders"
    assert env.set_buffer_timeout(-1).get_buffer_timeout() == -1


def test_enabling_checkpoints_again_replaces_interval_and_mode() -> None:
    env = environment().enable_checkpointing(500, CheckpointingMode.AT_LEAST_ONCE)
    env.enable_checkpointing(900)
    assert env.get_checkpoint_interval() == 900
    assert env.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE


def test_what_is_in_force_cannot_be_changed_from_aside() -> None:
    with pytest.raises(ConfigError):
        environment().get_configuration().set_string("pipeline.name", "x")


def test_the_checkpoint_config_is_the_environments() -> None:
    env = environment()
    env.get_checkpoint_config().set_checkpoint_interval(700).set_checkpoint_timeout(9_000)
    numbers(env).map(str)
    checkpoints = env.get_job_graph().settings.checkpoints
    assert (checkpoints.interval_ms, checkpoints.timeout_ms) == (700, 9_000)


def test_a_failed_job_is_restarted_only_where_it_is_checkpointed() -> None:
    env = environment()
    numbers(env).map(str)
    assert env.get_job_graph().settings.restart == NoRestart()
    env.enable_checkpointing(1_000)
    assert env.get_job_graph().settings.restart == ExponentialDelay()


def test_the_execution_config_is_a_view_that_compares_by_content() -> None:
    env = environment()
    config = env.get_config()
    config.set_parallelism(2).set_max_parallelism(8).set_auto_watermark_interval(50)
    config.enable_object_reuse().disable_auto_generated_uids()
    config.set_global_job_parameters({"day": 3, "where": "JFK"})
    assert env.get_config() == config
    assert hash(env.get_config()) == hash(config)
    assert config != environment().get_config()
    assert config.get_global_job_parameters() == {"day": "3", "where": "JFK"}
    assert (config.get_max_parallelism(), config.get_auto_watermark_interval()) == (8, 50)
    assert config.is_object_reuse_enabled()
    assert not config.has_auto_generated_uids_enabled()
    assert not config.disable_object_reuse().is_object_reuse_enabled()
    assert config.enable_auto_generated_uids().has_auto_generated_uids_enabled()


def test_a_mapping_is_a_configuration() -> None:
    env = StreamExecutionEnvironment.local(configuration={"parallelism.default": 3})
    assert env.get_parallelism() == 3
    assert env.configure({"parallelism.default": "4"}).get_parallelism() == 4
    with pytest.raises(ConfigError, match="configure takes a Configuration or a mapping, not list"):
        env.configure([("parallelism.default", "4")])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("given", "configured", "expected"),
    [("given", "configured", "given"), (None, "configured", "configured")],
)
def test_a_job_is_named_as_given_else_as_configured(
    given: str | None, configured: str, expected: str
) -> None:
    env = environment(settings={"pipeline.name": configured})
    numbers(env).map(str)
    assert env.get_job_graph(given).name == expected


def test_an_unnamed_job_is_named_after_its_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    env = environment()
    numbers(env).map(str)
    script = str(tmp_path / "delays.py")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", script, raising=False)
    assert env.get_job_graph().name == "delays"
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "orders/__main__.py"))
    assert env.get_job_graph().name == "orders"
    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    assert env.get_job_graph().name == "job"


def test_collections_are_read_by_one_subtask_and_other_sources_by_all() -> None:
    env = environment().set_parallelism(3)
    collection = env.from_collection(iter(range(3)), Types.LONG())
    sequence = env.from_sequence(1, 100)
    generated = env.generate(lambda number: number / 2, count=10, rate=5.0)
    assert (collection.get_type(), sequence.get_type()) == (Types.LONG(), Types.LONG())
    collection.union(sequence, generated).map(str)
    assert [(v.name, v.parallelism) for v in env.get_job_graph().topology.vertices[:3]] == [
        ("Source: Collection Source", 1),
        ("Source: Sequence Source", 3),
        ("Source: Data Generator", 3),
    ]
    with pytest.raises(GraphError, match="non parallel operator"):
        collection.set_parallelism(2)


def test_execute_submits_what_was_built_and_begins_anew() -> None:
    runtime = KeepingRuntime()
    env = environment(runtime)
    stream = numbers(env)
    stream.map(str)
    env.execute("first")
    stream.filter(bool)
    env.execute("second")
    assert [graph.name for graph in runtime.submitted] == ["first", "second"]
    assert [[v.name for v in graph.topology.vertices] for graph in runtime.submitted] == [
        ["Source: numbers -> Map"],
        ["Source: numbers -> Filter"],
    ]
    with pytest.raises(GraphError, match="No operators defined"):
        env.execute()


def test_a_program_that_cannot_run_is_gone_after_execute() -> None:
    env = environment()
    numbers(env).force_non_parallel().rebalance().forward().map(str).set_parallelism(2)
    with pytest.raises(GraphError, match="Forward partitioning"):
        env.execute()
    with pytest.raises(GraphError, match="No operators defined"):
        env.execute()


def test_explaining_keeps_the_program() -> None:
    runtime = KeepingRuntime()
    env = environment(runtime)
    numbers(env).map(str)
    assert env.explain().startswith("Job ")
    assert env.explain(format="mermaid").startswith("flowchart LR")
    assert [node["pact"] for node in json.loads(env.get_execution_plan())["nodes"]] == [
        "Data Source",
        "Operator",
    ]
    with pytest.raises(GraphError, match="no form 'html'"):
        env.explain(format="html")
    env.execute()
    assert len(runtime.submitted) == 1


def test_what_an_operator_finds_wrong_is_raised_before_anything_runs() -> None:
    runtime = KeepingRuntime()
    env = environment(runtime)
    env.from_source(Numbers(ConfigError("there is no such folder")), None, "n").map(str)
    assert vertices(env) == ["Source: n -> Map"]
    with pytest.raises(ConfigError, match="no such folder"):
        env.execute()
    assert runtime.submitted == []


def test_the_failure_of_the_job_is_raised() -> None:
    client = Client([], JobFailed("the job failed", cause_text="ZeroDivisionError"))
    env = environment(KeepingRuntime(client))
    numbers(env).map(str)
    with pytest.raises(JobFailed, match="ZeroDivisionError"):
        env.execute()


@pytest.mark.parametrize(
    ("told", "reason"), [(KeyboardInterrupt, "Ctrl-C"), (SystemExit, "SIGTERM")]
)
def test_who_interrupts_the_program_suspends_the_job_and_is_told_what_became_of_it(
    told: type[BaseException], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Client([])
    client.interrupted = told
    env = environment(KeepingRuntime(client))
    numbers(env).map(str)
    with pytest.raises(told):
        env.execute()
    assert client.suspended == reason
    assert f"the job was suspended: {reason}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "follows"),
    [
        ({"execution.checkpointing.interval": "1 s"}, "suspended behind a last checkpoint, for"),
        ({}, "cancelled, for it takes no checkpoints;"),
    ],
)
def test_who_interrupts_the_program_is_told_what_becomes_of_a_job_with_or_without_checkpoints(
    settings: dict[str, str], follows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Client([])
    client.interrupted = KeyboardInterrupt
    env = environment(KeepingRuntime(client), settings)
    numbers(env).map(str)
    with pytest.raises(KeyboardInterrupt):
        env.execute()
    assert f"is being {follows}" in capsys.readouterr().err


def test_state_without_a_uid_is_warned_about_with_a_name_to_use(
    capsys: pytest.CaptureFixture[str],
) -> None:
    env = environment().enable_checkpointing(1_000)
    numbers(env).uid("numbers").key_by("k").process(KeyedPass()).sink_to(Nowhere()).uid("out")
    env.execute()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "operators with state have no uid" in captured.err
    assert "'KeyedProcess': 'keyed-process'" in captured.err


def test_without_checkpoints_there_is_nothing_to_warn_about(
    capsys: pytest.CaptureFixture[str],
) -> None:
    env = environment()
    numbers(env).key_by("k").process(KeyedPass()).print()
    env.execute()
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


def test_settings_without_effect_are_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    key = "state.latency-track.keyed-state-enabled"
    env = environment(settings={key: "true"})
    numbers(env).map(str)
    env.execute()
    assert f"{key} is an option of Flink that Tidegate does not read" in capsys.readouterr().err


def test_what_tidegate_run_says_lies_under_what_the_program_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "tidegate.yaml"
    file.write_text("parallelism.default: 2\npipeline.name: file\npipeline.max-parallelism: 64\n")
    monkeypatch.setenv("TIDEGATE_CONF", str(file))
    outside = {"pipeline.name": "line", "execution.state-recovery.path": "/tmp/chk-7"}
    monkeypatch.setenv("TIDEGATE_SETTINGS", json.dumps(outside))
    env = StreamExecutionEnvironment.local(
        configuration=Configuration.from_dict({"pipeline.max-parallelism": "32"})
    )
    numbers(env).map(str)
    graph = env.get_job_graph()
    assert graph.name == "line"
    assert graph.settings.restore.path == "/tmp/chk-7"
    assert graph.topology.vertices[0].max_parallelism == 32
    assert env.get_parallelism() == 2
    assert StreamExecutionEnvironment.on_spark(parallelism=5).get_parallelism() == 5


@pytest.mark.parametrize("text", ["{", "[1]", '"x"'])
def test_settings_from_outside_that_are_no_object_are_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("TIDEGATE_SETTINGS", text)
    with pytest.raises(ConfigError, match="TIDEGATE_SETTINGS is not a JSON object"):
        StreamExecutionEnvironment.local()


def test_a_runtime_from_outside_that_nobody_supplies_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDEGATE_RUNTIME", "mesos")
    with pytest.raises(ConfigError, match="There is no runtime 'mesos'"):
        StreamExecutionEnvironment.get_execution_environment()


def test_a_program_that_spark_submit_has_started_runs_on_spark_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_spark = StreamExecutionEnvironment.local()
    monkeypatch.setattr(StreamExecutionEnvironment, "on_spark", lambda configuration: on_spark)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert StreamExecutionEnvironment.get_execution_environment() is not on_spark
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "40123")
    assert StreamExecutionEnvironment.get_execution_environment() is on_spark
    monkeypatch.setenv("TIDEGATE_RUNTIME", "local")
    assert StreamExecutionEnvironment.get_execution_environment() is not on_spark


def test_two_environments_are_independent() -> None:
    one = StreamExecutionEnvironment.local(2)
    other = StreamExecutionEnvironment.local()
    assert (one.get_parallelism(), other.get_parallelism()) == (2, 1)
    numbers(one).map(str)
    with pytest.raises(GraphError, match="No operators"):
        other.explain()


def test_a_mode_of_execution_is_a_setting() -> None:
    env = environment()
    assert env.set_runtime_mode(RuntimeExecutionMode.BATCH) is env
    assert env.get_configuration().get(execution.RUNTIME_MODE) is RuntimeExecutionMode.BATCH


def test_a_closed_environment_has_nothing_to_run() -> None:
    env = environment()
    numbers(env).map(str)
    env.close()
    with pytest.raises(GraphError, match="No operators defined"):
        env.execute()


def test_a_stream_gives_the_execution_settings() -> None:
    env = environment()
    numbers(env).get_execution_config().set_parallelism(3)
    assert env.get_parallelism() == 3
