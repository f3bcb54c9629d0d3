"""What a program is warned about when it is submitted, and how it silences that."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.datastream.fakes import environment, numbers
from tests.house.source import ROOT
from tidegate import StreamExecutionEnvironment, Types
from tidegate.api.sink import SinkWriter, WriterContext
from tidegate.config.warnings import Warn
from tidegate.connectors import FileSink, FileSource
from tidegate.errors import ConfigError, GraphError

pytestmark = pytest.mark.slow


def warnings_of(env: StreamExecutionEnvironment) -> list[dict[str, Any]]:
    """What is logged when a small program is submitted."""
    numbers(env).print()
    with structlog.testing.capture_logs() as logs:
        env.execute_async("job")
    return [dict(log) for log in logs]


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("parallelism", "parallelism.default"),
        ("default.parallelism", "parallelism.default"),
        ("checkpoint.interval", "execution.checkpointing.interval"),
        ("checkpoints.dir", "execution.checkpointing.dir"),
        ("orders.limit", None),
    ],
)
def test_a_key_that_nothing_reads_is_told_with_the_nearest(key: str, nearest: str | None) -> None:
    (told,) = warnings_of(environment(settings={key: "4"}))
    assert (told["warning"], told["key"], told["nearest"]) == ("unknown-option", key, nearest)


def test_a_key_that_the_program_has_read_is_its_own_affair() -> None:
    env = environment(settings={"orders.limit": "4"})
    assert env.get_configuration().get_integer("orders.limit", 0) == 4
    assert warnings_of(env) == []


def test_a_silenced_warning_is_not_logged() -> None:
    settings = {"parallelism": "4", "tidegate.warnings.silenced": "unknown-option"}
    assert warnings_of(environment(settings=settings)) == []


def test_a_warning_that_does_not_exist_cannot_be_silenced() -> None:
    with pytest.raises(ConfigError, match="none is called 'all'") as refused:
        environment(settings={"tidegate.warnings.silenced": "unknown-option;all"})
    assert "missing-uid" in refused.value.remedy


def endless(env: StreamExecutionEnvironment, folder: Path) -> None:
    env.generate(lambda number: {"n": number}).sink_to(FileSink.json(str(folder)))


def test_a_sink_that_commits_on_endless_input_wants_checkpoints(tmp_path: Path) -> None:
    env = environment()
    endless(env, tmp_path)
    with pytest.raises(GraphError, match="FileSink' shows its output when a checkpoint") as refused:
        env.execute_async("job")
    assert "enable_checkpointing" in refused.value.remedy


@pytest.mark.parametrize(
    "settings",
    [
        {"execution.checkpointing.interval": "1 s"},
        {"execution.checkpointing.dir": "checkpoints"},
        {"tidegate.warnings.silenced": "no-checkpoints"},
    ],
)
def test_with_checkpoints_or_on_demand_it_runs(settings: dict[str, str], tmp_path: Path) -> None:
    env = environment(settings=settings)
    endless(env, tmp_path)
    assert env.execute_async("job").get_job_id()


def test_bounded_input_and_sinks_that_commit_nothing_need_no_checkpoints(tmp_path: Path) -> None:
    env = environment()
    env.generate(lambda number: {"n": number}, 5).sink_to(FileSink.json(str(tmp_path)))
    env.generate(lambda number: number).print()
    assert env.execute_async("job").get_job_id()


WITHOUT_A_LAST_ONE = {
    "execution.checkpointing.interval": "1 min",
    "execution.checkpointing.checkpoints-after-tasks-finish": "false",
}


def test_a_sink_that_commits_wants_a_checkpoint_behind_the_end(tmp_path: Path) -> None:
    env = environment(settings=WITHOUT_A_LAST_ONE)
    numbers(env).sink_to(FileSink.json(str(tmp_path)))
    with pytest.raises(GraphError, match="after the last one would never be seen") as refused:
        env.execute_async("job")
    assert "checkpoints-after-tasks-finish at true" in refused.value.remedy


def test_collected_records_want_a_checkpoint_behind_the_end() -> None:
    env = environment(settings=WITHOUT_A_LAST_ONE)
    with pytest.raises(GraphError, match="after the last one would never be seen"):
        numbers(env).execute_and_collect("job")


def test_without_an_end_or_a_sink_that_waits_no_last_checkpoint_is_needed(tmp_path: Path) -> None:
    settings = {**WITHOUT_A_LAST_ONE, "tidegate.warnings.silenced": "missing-uid"}
    env = environment(settings=settings)
    endless(env, tmp_path)
    assert env.execute_async("job").get_job_id()
    env = environment(settings=settings)
    numbers(env).print()
    assert env.execute_async("job").get_job_id()


class Impatient:
    """A sink whose output is lost unless it is committed in time."""

    def __init__(self, limit_ms: int | None) -> None:
        self.commits_within_ms = limit_ms

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> SinkWriter:
        raise AssertionError("nothing runs")

    def committer(self) -> None:
        return None


def test_checkpoints_that_commit_too_late_for_a_sink_are_refused() -> None:
    settings = {"execution.checkpointing.interval": "15 min"}
    env = environment(settings=settings)
    numbers(env).sink_to(Impatient(900_000)).name("to orders")
    with pytest.raises(GraphError, match="each 900 s, and 'Sink: to orders' loses") as refused:
        env.execute_async("job")
    assert "transaction.timeout.ms" in refused.value.remedy
    for limit_ms in (900_001, None):
        env = environment(settings=settings)
        numbers(env).sink_to(Impatient(limit_ms))
        assert env.execute_async("job").get_job_id()


def test_a_pattern_that_is_watched_and_matches_nothing_is_told(tmp_path: Path) -> None:
    env = environment()
    watched = FileSource.json(f"{tmp_path}/*.json").monitor_continuously(1_000)
    env.from_source(watched, None, "orders").print()
    with structlog.testing.capture_logs() as logs:
        env.execute_async("job")
    assert [(log["warning"], log["source"], log["pattern"]) for log in logs] == [
        ("nothing-to-read", "Source: orders", f"{tmp_path}/*.json")
    ]


def test_columns_that_no_file_has_are_told_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("city,total\nlima,1\n")
    kinds = {"city": Types.STRING(), "totl": Types.LONG(), "note": Types.STRING()}
    env = environment()
    schema = Types.ROW_NAMED(list(kinds), list(kinds.values()))
    env.from_source(FileSource.csv(str(tmp_path), schema=schema), None, "orders").print()
    with structlog.testing.capture_logs() as logs:
        env.execute_async("job")
    assert [(log["warning"], log["source"], log["columns"], log["nearest"]) for log in logs] == [
        ("missing-columns", "Source: orders", "totl, note", {"totl": "total"})
    ]


def test_a_job_without_a_sink_is_told_with_its_last_steps() -> None:
    env = environment()
    numbers(env).map(str)
    with structlog.testing.capture_logs() as logs:
        env.execute_async("job")
    assert [(log["warning"], log["steps"]) for log in logs] == [("no-sink", ["Map"])]


def test_a_second_execution_is_told_that_the_first_took_all_steps() -> None:
    env = environment()
    numbers(env).print()
    env.execute_async("job")
    with pytest.raises(GraphError, match="the execution before has taken all steps") as refused:
        env.execute_async("job")
    assert "execute_and_collect" in refused.value.remedy


BUILT = """
import sys
from tidegate import StreamExecutionEnvironment
env = StreamExecutionEnvironment.local()
env.from_collection([1]).print().name("shown")
dropped = StreamExecutionEnvironment.local()
dropped.from_collection([1]).print().name("dropped")
del dropped
planned = StreamExecutionEnvironment.local()
planned.from_collection([1]).print().name("planned")
planned.explain()
"""
RUNNING = """
from tidegate import StreamExecutionEnvironment
env = StreamExecutionEnvironment.local()
env.generate(lambda number: number, rate=1).map(str)
env.execute_async("background")
done = StreamExecutionEnvironment.local()
done.from_collection([1]).map(str)
done.execute("waited for")
"""


def ends_with(program: str) -> str:
    """Standard error of a script."""
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT / "src")},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return run.stderr


def test_a_program_that_ends_without_execute_is_told_its_sinks() -> None:
    told = ends_with(BUILT)
    assert "not-executed" in told and "sinks=['shown']" in told
    assert "dropped" not in told and "planned" not in told


def test_after_an_error_of_the_program_nothing_more_is_told() -> None:
    told = ends_with(BUILT + "raise ValueError('first')")
    assert "ValueError: first" in told and "not-executed" not in told


NEVER_RUN = """
from tidegate import StreamExecutionEnvironment
env = StreamExecutionEnvironment.local()
env.from_collection([1]).map(str).name("lost")
"""


def test_a_program_without_a_sink_that_never_runs_is_told_its_steps() -> None:
    told = ends_with(NEVER_RUN)
    assert "not-executed" in told and "steps=['lost']" in told


def test_after_an_error_under_the_command_line_nothing_more_is_told(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(BUILT + "raise ValueError('first')")
    argv = ["tidegate", "run", str(script)]
    told = ends_with(
        f"import runpy, sys; sys.argv = {argv!r}; runpy.run_module('tidegate', run_name='__main__')"
    )
    assert "ValueError: first" in told and "not-executed" not in told


def test_a_job_that_ends_with_its_script_is_told() -> None:
    told = ends_with(RUNNING)
    assert told.count("job-cut-off") == 1


def test_the_guide_has_each_warning_and_no_other() -> None:
    guide = (ROOT / "docs" / "guides" / "warnings.md").read_text(encoding="utf-8")
    headings = [line.removeprefix("## ") for line in guide.splitlines() if line[:3] == "## "]
    assert headings == [each.value for each in Warn]
