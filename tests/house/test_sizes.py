"""Functions and modules that a reader can hold in mind."""

import ast

from tests.house.source import ROOT, functions, place, python_files

MODULE_LINES_MAX = 650
FACADE_LINES_MAX = 900
FACADES = {ROOT / "src/tidegate/datastream" / name for name in ("environment.py", "stream.py")}
"""Nothing but short methods that users call: one class, however long, is found at once."""

FUNCTION_LINES_MAX = 60
FOLDERS = ("src", "packages", "tests", "scripts", "benchmarks", "examples")


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    long = [
        place(path, count)
        for path in python_files(*FOLDERS)
        if (count := len(path.read_text(encoding="utf-8").splitlines()))
        > (FACADE_LINES_MAX if path in FACADES else MODULE_LINES_MAX)
    ]
    assert not long, f"split these modules, at most {MODULE_LINES_MAX} lines each: {long}"


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{place(path, function)} {function.name}"
        for path in python_files(*FOLDERS)
        for function in functions(path)
        if (function.end_lineno or 0) - function.lineno + 1 > FUNCTION_LINES_MAX
        and not only_dispatches(function)
    ]
    assert not long, f"split these functions, at most {FUNCTION_LINES_MAX} lines each: {long}"


def only_dispatches(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """True for a `match` and nothing else, in which each case is a line or two."""
    match function.body:
        case [ast.Expr(value=ast.Constant()), ast.Match(cases=cases)] | [ast.Match(cases=cases)]:
            return all(len(case.body) <= 2 for case in cases)
        case _:
            return False
