"""Modules that a program brings along can be imported by its functions, wherever they run."""

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate import ConfigError, Configuration, StreamExecutionEnvironment

SOURCE = "def answer(): return 42\n"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("brought_"):
            del sys.modules[name]


def brought(kind: str, folder: Path) -> tuple[str, Path]:
    """The name of a module, and what brings it along."""
    name = f"brought_by_{kind}"
    if kind == "archive":
        archive = folder / "modules.zip"
        with zipfile.ZipFile(archive, "w") as made:
            made.writestr(f"{name}.py", SOURCE)
        return name, archive
    (folder / f"{name}.py").write_text(SOURCE)
    return name, folder if kind == "folder" else folder / f"{name}.py"


def asked(env: StreamExecutionEnvironment, name: str) -> list[int]:
    def answer(value: int) -> int:
        module = __import__(name)
        return value + module.answer()

    return sorted(env.from_sequence(1, 4).map(answer).execute_and_collect(limit=10))


@pytest.mark.parametrize("kind", ["module", "archive", "folder"])
def test_a_function_imports_what_was_brought_along(kind: str, tmp_path: Path) -> None:
    name, path = brought(kind, tmp_path)
    env = StreamExecutionEnvironment.local()
    env.add_python_file(str(path))
    assert asked(env, name) == [43, 44, 45, 46]


def test_it_may_come_by_its_option(tmp_path: Path) -> None:
    name, path = brought("folder", tmp_path)
    env = StreamExecutionEnvironment.local()
    env.configure(Configuration.from_dict({"python.files": str(path)}))
    assert asked(env, name) == [43, 44, 45, 46]


@pytest.mark.slow
def test_slots_that_are_processes_import_it_too(tmp_path: Path) -> None:
    name, path = brought("folder", tmp_path)
    env = StreamExecutionEnvironment.local(2)
    env.add_python_file(str(path))
    assert asked(env, name) == [43, 44, 45, 46]


def test_a_path_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no Python file or folder nowhere/at_all\.py"):
        StreamExecutionEnvironment.local().add_python_file("nowhere/at_all.py")
