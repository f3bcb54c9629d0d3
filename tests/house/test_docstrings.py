"""Docstrings open with a sentence. That public things have one at all is held by ruff's D1."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.source import PACKAGES, nodes, parsed, place, python_files

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def test_every_module_says_what_it_is_for() -> None:
    silent = [place(path, 1) for path in python_files(*PACKAGES) if not says_something(path)]
    assert not silent, f"open these modules with a sentence on their purpose: {silent}"


def says_something(path: Path) -> bool:
    tree = parsed(path)
    return bool(ast.get_docstring(tree)) or not tree.body


def test_the_first_line_of_a_docstring_is_a_sentence() -> None:
    faulty = [
        f"{place(path, node)} {first}"
        for path in python_files(*PACKAGES)
        for node, first in first_lines(path)
        if not first.endswith((".", ":", "?", "!"))
    ]
    assert not faulty, "end the first line as a sentence:\n" + "\n".join(faulty)


def first_lines(path: Path) -> Iterator[tuple[ast.AST, str]]:
    for node in nodes(path):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield node, text.splitlines()[0]
