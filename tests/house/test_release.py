"""The version is one number, wherever it stands."""

import re
import tomllib

import flinkformat
from tests.house.source import ROOT
from tidegate import __version__


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_package_says_the_version_that_is_built() -> None:
    assert tomllib.loads(text("pyproject.toml"))["project"]["version"] == __version__
    assert f'__version__: Final = "{__version__}"' in text("src/tidegate/__init__.pyi")


def test_the_package_of_the_format_is_of_the_same_version() -> None:
    project = tomllib.loads(text("packages/flinkformat/pyproject.toml"))["project"]
    assert project["version"] == __version__ == flinkformat.__version__
    needed = tomllib.loads(text("pyproject.toml"))["project"]["dependencies"]
    assert f"flinkformat=={__version__}" in needed


def test_the_newest_version_of_the_changelog_is_the_packages() -> None:
    newest = re.search(r"^## (\S+)", text("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None and newest[1] == __version__


def test_every_extra_of_a_user_is_in_all() -> None:
    extras = tomllib.loads(text("pyproject.toml"))["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    assert set(everything.removeprefix("tidegate[").removesuffix("]").split(",")) == (
        extras.keys() - {"all", "demo", "dev"}
    )
