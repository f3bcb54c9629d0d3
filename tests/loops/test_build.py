"""Compiled loops: built into a folder of their own, or told why not; both forms can be chosen."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli.main import commands
from tidegate.errors import ConfigError, NotCompiled
from tidegate.loops import build as building
from tidegate.loops import forms
from tidegate.loops.build import build
from tidegate.loops.forms import VARIABLE, choose, loops, loops_with
from tidegate.model.settings import LoopForm


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No folder holds compiled loops; the first to be looked at is returned."""
    places = [tmp_path / "first", tmp_path / "second"]
    monkeypatch.setattr(forms, "places_of_folders", lambda: places)
    monkeypatch.delenv(VARIABLE, raising=False)
    return places[0]


@pytest.mark.slow
def test_what_is_built_is_found_and_is_not_built_again(nowhere: Path) -> None:
    folder = build()
    assert folder == nowhere / forms.tag() == choose().folder
    assert choose().form is LoopForm.COMPILED
    changed = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert build() == folder
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == changed
    assert [path.name for path in nowhere.iterdir()] == [forms.tag()], "nothing is left beside"


@pytest.mark.slow
def test_what_is_built_of_another_source_is_not_loaded_and_goes(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, other = nowhere / f"{forms.interpreter()}-0123", nowhere / "cpython-399-0123"
    for folder in (older, other):
        folder.mkdir(parents=True)
    assert choose().form is LoopForm.INTERPRETED
    result = CliRunner().invoke(commands, ["compile"])
    assert result.output == f"compiled in {nowhere / forms.tag()}\n"
    assert not older.exists(), "of this Python"
    assert other.exists(), "of another Python"


@pytest.mark.parametrize("missing", ["mypyc", "setuptools"])
def test_without_its_tools_it_says_what_to_install(
    nowhere: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "find_spec", lambda name: None if name == missing else name)
    with pytest.raises(NotCompiled, match=f"{missing} is not installed") as raised:
        build()
    assert "tidegate[compile]" in raised.value.remedy
    assert not nowhere.exists()


@pytest.mark.slow
def test_without_a_compiler_it_says_so_and_leaves_nothing(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    result = CliRunner().invoke(commands, ["compile"])
    assert result.exit_code == 2
    assert "the loops could not be compiled" in result.stderr
    assert "no-such-compiler" in result.stderr and "Install a C compiler" in result.stderr
    assert list(nowhere.iterdir()) == []
    assert choose().form is LoopForm.INTERPRETED


def test_the_build_ends_where_it_takes_too_long(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "LIMIT_S", 0.01)
    with pytest.raises(NotCompiled, match="took more than"):
        build()
    assert list(nowhere.iterdir()) == []


def test_compiled_loops_that_are_not_there_are_refused(nowhere: Path) -> None:
    with pytest.raises(ConfigError, match="no compiled loops, which the option asks for") as raised:
        loops(LoopForm.COMPILED)
    assert str(nowhere / forms.tag()) in raised.value.where
    assert "tidegate compile" in raised.value.remedy


def test_the_variable_chooses_where_the_option_leaves_it_open(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose().why == "'tidegate compile' makes compiled ones"
    monkeypatch.setenv(VARIABLE, "compiled")
    with pytest.raises(ConfigError, match="which the variable TIDEGATE_LOOPS asks for"):
        choose()
    assert choose(LoopForm.INTERPRETED).why == "the option says so"
    monkeypatch.setenv(VARIABLE, "interpreted")
    assert choose().why == "the variable TIDEGATE_LOOPS says so"
    monkeypatch.setenv(VARIABLE, "fast")
    with pytest.raises(ConfigError, match="'fast' is not a form of the loops"):
        choose()


def test_both_forms_live_in_one_process_and_a_cell_tells_its_own() -> None:
    build()
    for form in (LoopForm.COMPILED, LoopForm.INTERPRETED):
        made = loops(form)
        assert made.form is form
        assert loops_with(made.key_cell()) == made


IMPORTED = """
import sys
from tidegate.loops import forms
forms.loops()
print(sorted(name for name in sys.modules if name.startswith("tidegate.")))
"""


def test_the_room_loads_next_to_nothing() -> None:
    run = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True)
    assert run.stdout.strip() == str(
        [
            *("tidegate.errors", "tidegate.loops", "tidegate.loops.calls", "tidegate.loops.cells"),
            *("tidegate.loops.copies", "tidegate.loops.forms", "tidegate.loops.joins"),
            *("tidegate.loops.rows", "tidegate.loops.tables", "tidegate.loops.windows"),
            *("tidegate.model", "tidegate.model.settings"),
        ]
    ), run.stderr
