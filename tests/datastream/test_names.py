"""What `import tidegate` gives, and what it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from importlib import import_module

import pytest

import tidegate
from tests.house.source import ROOT
from tidegate import faces

PACKAGE = ROOT / "src" / "tidegate"


@pytest.mark.parametrize("name", tidegate.__all__)
def test_each_name_is_there(name: str) -> None:
    assert getattr(tidegate, name) is not None


def test_dir_shows_what_a_first_program_needs_and_the_topics_of_the_rest() -> None:
    shown = {name for name in dir(tidegate) if not name.startswith("_")}
    assert shown == {*faces.FIRST.split(), *faces.TOPICS, "testing"}
    assert 50 <= len(faces.FIRST.split()) <= 70
    assert set(faces.FIRST.split()) <= set(tidegate.__all__)


@pytest.mark.parametrize("topic", faces.TOPICS)
def test_each_topic_gives_its_names_as_tidegate_does(topic: str) -> None:
    module = getattr(tidegate, topic)
    assert module is import_module(f"tidegate.{topic}")
    names = [
        each.partition("=")[0] for group in faces.TOPICS[topic].values() for each in group.split()
    ]
    assert names
    assert all(getattr(module, name) is getattr(tidegate, name) for name in names)
    assert set(names) <= set(dir(module))


@pytest.mark.parametrize("topic", faces.OF_TOPICS_ALONE)
def test_names_of_a_topic_alone_are_there_and_not_at_the_top(topic: str) -> None:
    module = import_module(f"tidegate.{topic}")
    for group in faces.OF_TOPICS_ALONE[topic].values():
        for name in (each.partition("=")[0] for each in group.split()):
            assert getattr(module, name) is not None
            assert name not in tidegate.__all__


def test_no_name_stands_in_two_topics() -> None:
    names = [
        each.partition("=")[0]
        for table in (*faces.TOPICS.values(), *faces.OF_TOPICS_ALONE.values())
        for group in table.values()
        for each in group.split()
    ]
    assert len(names) == len(set(names))


def test_a_name_that_is_not_there_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = tidegate.Nothing  # pyright: ignore[reportAttributeAccessIssue]


def test_a_misspelt_name_is_told_with_the_nearest_one() -> None:
    with pytest.raises(AttributeError, match="did you mean 'MapFunction'"):
        _ = tidegate.MapFuntion  # pyright: ignore[reportAttributeAccessIssue]


def test_a_connector_is_told_with_its_module() -> None:
    with pytest.raises(AttributeError, match=r"'FileSource'; it is in tidegate\.connectors"):
        _ = tidegate.FileSource  # pyright: ignore[reportAttributeAccessIssue]


WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None  # as if it were not installed
from importlib import import_module
import tidegate
from tidegate import *
from tidegate.connectors import *
from tidegate.cli.main import commands
for command in commands.list_commands(None):
    commands.get_command(None, command)
def told(call):
    try:
        call()
    except ConfigError as error:
        print(error.where, "-", error.remedy)
env = StreamExecutionEnvironment.local()
told(lambda: tidegate.register_state_source)
told(lambda: tidegate.StateDataSource)
told(StreamExecutionEnvironment.on_spark)
told(lambda: env.from_spark(None))
"""


@pytest.mark.slow
def test_all_that_needs_no_pyspark_can_be_had_without_it() -> None:
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK],
        env={"PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    told = run.stdout.splitlines()
    assert [line.partition(" - ")[0] for line in told] == [
        "tidegate.register_state_source",
        "tidegate.StateDataSource",
        "tidegate.spark.elastic:SparkRuntime",
        "from_spark, to_spark",
    ]
    assert all("pip install 'tidegate[spark]'" in line for line in told)


def test_the_stub_types_the_same_names() -> None:
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.module != "typing"
        for alias in node.names
    }
    renamed = {
        ast.unparse(node.targets[0]): imported.pop(ast.unparse(node.value))
        for node in stub.body
        if isinstance(node, ast.Assign)
    }
    typed = imported | renamed
    assert set(typed) == set(tidegate.__all__) - {"__version__"}
    assert [name for name, place in typed.items() if getattr(tidegate, name) is not at(place)] == []


def at(place: str) -> object:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def test_the_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert tidegate.__version__ == project["version"]


FIRST_PROGRAM = """
import sys
from tidegate import KeyedProcessFunction, StreamExecutionEnvironment, Types, ValueStateDescriptor
env = StreamExecutionEnvironment.local()
heavy = ("numpy", "pyarrow", "pandas", "pyspark", "structlog", "asyncio", "yaml")
print([name for name in heavy if name in sys.modules])
"""


def test_a_first_programs_imports_load_nothing_heavy() -> None:
    run = subprocess.run(
        [sys.executable, "-c", FIRST_PROGRAM],
        env={"PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "[]"
