"""Python files of a program are made into what Spark's workers import from."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest
from pyspark import SparkFiles

from tidegate import ConfigError
from tidegate.spark.access.classic import ClassicAccess
from tidegate.spark.access.python_files import ready, refuse_changed_modules


@pytest.fixture
def made(tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    folder.mkdir()
    return folder


def helpers(within: Path, text: str = "answer = 42") -> Path:
    folder = within / "helpers"
    (folder / "ready_package").mkdir(parents=True)
    (folder / "ready_package" / "__init__.py").write_text(text)
    return folder


def test_a_wheel_becomes_an_archive_that_spark_puts_on_the_import_path(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "ready_wheel-1.0-py3-none-any.whl"
    with ZipFile(wheel, "w") as packed:
        packed.writestr("ready_wheel.py", "answer = 42")
    archive = ready(str(wheel), made, object())
    assert archive.suffix == ".zip" and archive.parent == made
    monkeypatch.setattr(sys, "path", [str(archive), *sys.path])
    assert importlib.import_module("ready_wheel").answer == 42


def test_folders_of_one_name_do_not_take_each_others_place(tmp_path: Path, made: Path) -> None:
    application = object()
    first, second = (
        ready(str(helpers(tmp_path / name, f"answer = {name!r}")), made, application)
        for name in ("one", "two")
    )
    assert sorted(made.iterdir()) == sorted((first, second))
    for archive, name in ((first, "one"), (second, "two")):
        with ZipFile(archive) as packed:
            assert name in packed.read("ready_package/__init__.py").decode()


def test_an_archive_stays_as_executors_read_it_while_its_folder_has_nothing_new(
    tmp_path: Path, made: Path
) -> None:
    application, folder = object(), helpers(tmp_path)
    archive = ready(str(folder), made, application)
    before = archive.stat()
    (folder / "ready_package" / "__pycache__").mkdir()
    (folder / "ready_package" / "__pycache__" / "x.pyc").write_text("made by an import")
    assert ready(str(folder), made, application) == archive
    assert archive.stat() == before and list(made.iterdir()) == [archive]
    (folder / "output.csv").write_text("7")
    assert ready(str(folder), made, application) != archive
    assert archive.stat() == before


@pytest.mark.parametrize("name", ["ready_module.py", "ready_archive.zip", "helpers"])
def test_what_has_changed_needs_a_new_session(name: str, tmp_path: Path, made: Path) -> None:
    path = helpers(tmp_path) if name == "helpers" else tmp_path / name
    changed = path / "ready_package" / "__init__.py" if path.is_dir() else path
    application = object()
    for _ in range(2):
        changed.write_text("answer = 1")
        ready(str(path), made, application)
    changed.write_text("answer = 2")
    with pytest.raises(ConfigError, match=rf"{changed.name} has changed since") as refused:
        ready(str(path), made, application)
    assert "needs a new session" in refused.value.remedy
    assert ready(str(path), made, object()).exists()


def test_data_of_a_package_are_read_with_its_modules_and_loose_files_are_not(
    tmp_path: Path, made: Path
) -> None:
    application, folder = object(), helpers(tmp_path)
    (folder / "ready_package" / "rules").mkdir()
    inside, beside = folder / "ready_package" / "rules" / "rule.txt", folder / "output.csv"
    for file in inside, beside:
        file.write_text("one")
    ready(str(folder), made, application)
    beside.write_text("two")
    ready(str(folder), made, application)
    inside.write_text("two")
    with pytest.raises(ConfigError, match=r"rule\.txt has changed since"):
        ready(str(folder), made, application)


@pytest.mark.parametrize("name", ["ready_module.py", "ready_archive.zip", "helpers"])
def test_modules_that_workers_import_where_they_are_stay_as_they_were(
    name: str, tmp_path: Path
) -> None:
    path = helpers(tmp_path) if name == "helpers" else tmp_path / name
    changed = path / "ready_package" / "__init__.py" if path.is_dir() else path
    application = object()
    (tmp_path / "helpers" / ".#lock.py").parent.mkdir(exist_ok=True)
    (tmp_path / "helpers" / ".#lock.py").symlink_to("nobody@nowhere.1")
    for data in "one", "two":
        changed.write_text("answer = 1")
        (changed.parent / "data.txt").write_text(data)
        refuse_changed_modules(str(path), application)
    changed.write_text("answer = 2")
    with pytest.raises(ConfigError, match=rf"{changed.name} has changed since"):
        refuse_changed_modules(str(path), application)
    refuse_changed_modules(str(path), object())


def test_a_module_goes_as_it_is(tmp_path: Path, made: Path) -> None:
    module = tmp_path / "ready_module.py"
    module.write_text("answer = 42")
    assert ready(str(module), made, object()) == module and not list(made.iterdir())


def test_a_session_serves_packages_from_its_own_folder_as_long_as_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []
    context = SimpleNamespace(addArchive=given.append)
    session: Any = SimpleNamespace(sparkContext=context)
    root, archive = tmp_path / "root", tmp_path / "cache" / "tidegate-1.tar.gz"
    root.mkdir()
    archive.parent.mkdir()
    archive.write_bytes(b"packages")
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(root))
    ClassicAccess(session).give_archive(str(archive), "tidegate-1")
    archive.unlink()  # as another job does that tidies the cache
    served, _, folder = given[0].partition("#")
    assert folder == "tidegate-1" and Path(served).is_relative_to(root)
    assert Path(served).read_bytes() == b"packages"
