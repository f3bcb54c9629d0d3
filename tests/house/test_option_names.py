"""Each option that an error, a log line or a page names is one that there is."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.house.source import ROOT, nodes, parsed
from tidegate.config import configuration as options
from tidegate.config.configuration import ALL
from tidegate.config.flink_keys import FLINK_ONLY
from tidegate.config.option import ConfigOption

KEYS = {key for option in ALL for key in (option.key, *option.old_keys)} | FLINK_ONLY
# Examples call an environment `env`.
FIRST_WORDS = "|".join(sorted({key.split(".")[0] for key in KEYS if "." in key} - {"env"}))
NAMED = re.compile(rf"(?<![\w./:<@-])(?:{FIRST_WORDS})(?:\.[a-z][a-z0-9-]*)+(?![\w/(:-]|\.\w|\.<)")
NO_OPTIONS = {"security.protocol", "tidegate.runtimes"}
"""Kafka's own, and a group of entry points."""


def is_known(name: str) -> bool:
    """Whether it is an option, what options begin with, a file, or a module of ours."""
    return (
        name in KEYS | NO_OPTIONS
        or any(key.startswith(f"{name}.") for key in KEYS)
        or Path(name).suffix in {".md", ".yaml", ".py", ".log"}
        or any(is_module(folder, name) for folder in ("src", "src/tidegate"))
    )


def is_module(folder: str, name: str) -> bool:
    """Whether it is a module or package of ours, as it is named within the folder."""
    path = ROOT / folder / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def said(path: Path) -> Iterator[str]:
    """Texts of a module that somebody reads at run time: those with a space, no docstrings."""
    statements = {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}
    for node in nodes(path):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in statements else None
        if isinstance(text, str) and " " in text:
            yield text


def test_texts_of_the_source_name_options_that_there_are() -> None:
    unknown = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "src").rglob("*.py")
        for text in said(path)
        for name in NAMED.findall(text)
        if not is_known(name)
    }
    assert unknown == set()


@pytest.mark.parametrize("folder", ["guides", "concepts", "deployment", "formats", "design", "."])
def test_pages_name_options_that_there_are(folder: str) -> None:
    pages = [*(ROOT / "docs" / folder).glob("*.md")]
    assert pages
    unknown = {
        f"{path.name}: {name}"
        for path in pages
        for span in re.findall(r"`([^`\n]+)`", path.read_text(encoding="utf-8"))
        for name in NAMED.findall(span)
        if not is_known(name)
    }
    assert unknown == set()


def test_each_option_is_read_by_the_translation_or_by_another_room() -> None:
    room = Path(options.__file__).parent
    read = {name for path in room.parent.rglob("*.py") for name in names_read(path)}
    topics = {
        path.stem: vars(import_module(f"tidegate.config.{path.stem}")) for path in room.glob("*.py")
    }
    unread = {
        name
        for topic in topics.values()
        for name, value in topic.items()
        if isinstance(value, ConfigOption) and name not in read
    }
    assert unread == set()


def names_read(path: Path) -> Iterator[str]:
    """Names and attributes of a module, without those that only stand in the tuple of a topic."""
    for statement in parsed(path).body:
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == "OPTIONS":
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute):
                yield node.attr
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield node.id
