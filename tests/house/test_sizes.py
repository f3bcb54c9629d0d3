"""Functions and modules that a reader can hold in mind."""

from tests.house.source import functions, place, python_files

MODULE_LINES_MAX = 650
FUNCTION_LINES_MAX = 60
FOLDERS = ("src", "packages", "tests", "scripts", "benchmarks", "examples")


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    long = [
        place(path, count)
        for path in python_files(*FOLDERS)
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > MODULE_LINES_MAX
    ]
    assert not long, f"split these modules, at most {MODULE_LINES_MAX} lines each: {long}"


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{place(path, function)} {function.name}"
        for path in python_files(*FOLDERS)
        for function in functions(path)
        if (function.end_lineno or 0) - function.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert not long, f"split these functions, at most {FUNCTION_LINES_MAX} lines each: {long}"
