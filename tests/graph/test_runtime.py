from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from tidegate import Configuration, RuntimeExecutionMode, StreamExecutionEnvironment
from tidegate.config.execution import END_WITH_SAVEPOINT
from tidegate.errors import ConfigError
from tidegate.graph import runtime
from tidegate.graph.runtime import load_runtime, refuse_savepoint_at_end

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_a_runtime_that_nobody_supplies_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="There is no runtime 'mesos'") as raised:
        load_runtime("mesos")
    assert "local, spark" in raised.value.remedy


@pytest.fixture
def _an_installed_runtime(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("site")
    package = folder / "mesos_runtime-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mesos-runtime\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[{runtime.GROUP}]\nmesos = mesos_runtime:Mesos\n")
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    yield
    importlib.invalidate_caches()


@pytest.mark.usefixtures("_an_installed_runtime")
def test_others_supply_runtimes_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("mesos_runtime")
    module.Mesos = type("Mesos", (), {})  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "mesos_runtime", module)
    assert load_runtime("mesos").__name__ == "Mesos"


@pytest.mark.usefixtures("_an_installed_runtime")
def test_a_runtime_whose_packages_are_missing_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match="No module named 'mesos_runtime'") as raised:
        load_runtime("mesos")
    assert "pip install 'tidegate[mesos]'" in raised.value.remedy


def test_a_savepoint_at_the_end_is_refused_where_no_job_leaves_one() -> None:
    settings = Configuration()
    refuse_savepoint_at_end(settings)
    settings.set(END_WITH_SAVEPOINT, "savepoints", where="command line")
    with pytest.raises(ConfigError, match="this job is none") as raised:
        refuse_savepoint_at_end(settings)
    assert raised.value.where == "command line"


@pytest.mark.parametrize("mode", list(RuntimeExecutionMode))
def test_a_local_job_that_is_to_end_with_a_savepoint_is_refused(mode: RuntimeExecutionMode) -> None:
    env = StreamExecutionEnvironment.local().set_runtime_mode(mode).end_with_savepoint("savepoints")
    env.from_collection([1]).print()
    with pytest.raises(ConfigError, match="Only a batch over Spark's shuffle"):
        env.execute()
