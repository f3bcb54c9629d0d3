"""The tests themselves: each asks something, none is skipped, none mocks, none tries too much."""

import ast
import re

from tests.house.source import ROOT, TESTS, functions, nodes, place, python_files

ASKS = re.compile(
    r"assert|check(?!point)|expect|verif|raises|warns|agree|same_|compare|refuse", re.IGNORECASE
)
SKIPS = {"skip", "skipif", "xfail", "importorskip"}


def test_every_test_asks_something() -> None:
    silent = [
        f"{place(path, function)} {function.name}"
        for path in python_files(*TESTS)
        for function in functions(path)
        if function.name.startswith("test_") and not asks(function)
    ]
    assert not silent, f"these tests assert nothing: {silent}"


def asks(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it asserts, or calls a helper whose name says that it does."""
    return any(
        isinstance(node, ast.Assert)
        or (isinstance(node, ast.Call) and ASKS.search(ast.unparse(node.func)) is not None)
        for node in ast.walk(function)
    )


def test_no_test_is_skipped() -> None:
    skipped = [
        place(path, node)
        for path in python_files(*TESTS)
        for node in nodes(path)
        if isinstance(node, ast.Attribute)
        and node.attr in SKIPS
        and ast.unparse(node.value) in ("pytest", "pytest.mark")
    ]
    assert not skipped, f"a test that does not run is none: {skipped}"


def test_no_test_module_imports_another() -> None:
    """What two of them need stands in a module of its own beside them."""
    importing = [
        place(path, node)
        for path in python_files(*TESTS)
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").rpartition(".")[2].startswith("test_")
    ]
    assert not importing, f"move what these import into a module without tests: {importing}"


def test_no_test_mocks() -> None:
    mocking = [
        place(path, node)
        for path in python_files(*TESTS)
        for node in nodes(path)
        if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unittest.mock"))
        or (isinstance(node, ast.Import) and any("mock" in name.name for name in node.names))
    ]
    assert not mocking, f"use a fake that passes the same tests as the real one: {mocking}"


def test_every_property_leaves_the_number_of_examples_to_the_profile() -> None:
    fixed = [
        place(path, node.value)
        for path in python_files(*TESTS)
        if path != ROOT / "tests" / "properties.py"
        for node in nodes(path)
        if isinstance(node, ast.keyword) and node.arg == "max_examples"
    ]
    assert not fixed, f"say examples(n) of tests/properties.py, which `make check` cuts: {fixed}"
