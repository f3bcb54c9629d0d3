"""What is built installs into an empty environment, and does there what the documentation says."""

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from scripts.newcomer import Newcomer, build, went_well
from scripts.wheels import with_compiled_loops
from tests.house.snippets import program
from tests.house.source import ROOT, tracked_files
from tidegate import __version__
from tidegate.loops import forms

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LIMIT_S = 600

Python = Callable[..., str]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def python(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Python:
    """Runs the Python of an environment that holds the wheel, and what it needs; its output."""
    return installed(built[1], tmp_path_factory.mktemp("elsewhere"))


def installed(wheel: Path, folder: Path) -> Python:
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, timeout=LIMIT_S)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [folder / "venv" / "bin" / "python", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("-m", "pip", "install", "--find-links", str(wheel.parent), str(wheel))
    return run


def test_what_is_built_holds_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    with tarfile.open(sdist) as archive:
        sources = {Path(name).relative_to(f"tidegate-{__version__}") for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        installed = set(archive.namelist())
        (metadata,) = (name for name in installed if name.endswith(".dist-info/METADATA"))
        said = archive.read(metadata).decode()
    assert {str(path.parts[0]) for path in sources if path.parts} == {
        *("src", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "PKG-INFO"),
        ".gitignore",
    }
    source = ROOT / "src"
    ours = {str(path.relative_to(source)) for path in tracked_files() if source in path.parents}
    assert ours == {name for name in installed if name.startswith("tidegate/")}
    assert f"\nVersion: {__version__}\n" in said
    assert "\nProvides-Extra: all\n" in said and "\nRequires-Python: >=3.11\n" in said


def test_what_is_installed_fits_together(python: Python) -> None:
    assert "No broken requirements found" in python("-m", "pip", "check")
    assert python("-c", "from tidegate import *; print(len(dir()) > 200)") == "True\n"


def test_the_format_is_read_without_the_engine(python: Python) -> None:
    snapshot = ROOT / "packages" / "flinkformat" / "tests" / "fixtures" / "meta-basic-v6"
    code = f"""
import sys
import flinkformat as ff
meta = ff.read({str(snapshot)!r})
print(meta.checkpoint_id, len(list(ff.streams(meta))) > 0, "tidegate" in sys.modules)
"""
    number, has_streams, has_engine = python("-c", code).split()
    assert int(number) > 0 and (has_streams, has_engine) == ("True", "False")


LOOPS = """
from tidegate import Configuration, StreamExecutionEnvironment
from tidegate.loops import forms

settings = Configuration.from_dict({"tidegate.loops": "compiled"})
env = StreamExecutionEnvironment.get_execution_environment(settings)
numbers = env.from_collection([1, 2, 3]).flat_map(lambda number: [number, -number])
print(sorted(numbers.execute_and_collect()), forms.choose().folder)
"""


def test_a_wheel_for_this_python_brings_compiled_loops(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    wheel = with_compiled_loops(built[1])
    with zipfile.ZipFile(built[1]) as pure, zipfile.ZipFile(wheel) as whole:
        more = set(whole.namelist()) - set(pure.namelist())
        assert set(pure.namelist()) < set(whole.namelist())
    assert {PurePosixPath(name).parts[:4] for name in more} == {
        ("tidegate", "loops", "built", forms.tag())
    }
    python = installed(wheel, tmp_path)
    assert python("-c", LOOPS).startswith("[-3, -2, -1, 1, 2, 3] ")
    assert forms.tag() in python("-c", LOOPS)
    assert "No broken requirements found" in python("-m", "pip", "check")


def test_commands_work_without_an_extra(python: Python) -> None:
    assert python("-m", "tidegate", "--help").startswith("Usage: tidegate ")
    assert python("-m", "tidegate", "--version") == f"tidegate {__version__}\n"
    assert python("-m", "tidegate", "doctor").endswith("everything a job needs is installed\n")


def test_the_first_program_runs(python: Python, tmp_path: Path) -> None:
    script = tmp_path / "readme.py"
    script.write_text(program(ROOT / "README.md"), encoding="utf-8")
    said = python(str(script))
    assert "to 2" in said and "be 2" in said


def test_a_newcomer_who_follows_the_quickstart_loses_and_doubles_nothing(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    lines = list(Newcomer(tmp_path / "empty", sys.executable).follow(built[1]))
    assert went_well(lines), lines
    assert len(lines) == 6, "a line of the page was passed over"
