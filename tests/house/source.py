"""The project's own files, as the house tests read them."""

import ast
import gc
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("src", "packages/flinkformat/src")
TESTS = ("tests", "packages/flinkformat/tests")
NOT_OURS = (ROOT / "benchmarks" / "peers", ROOT / "packages" / "flinkformat" / "tests" / "fixtures")


def tracked_files() -> list[Path]:
    """Every file that git knows or would take in; each file outside dot folders without git."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    run = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True)
    if run.returncode == 0:
        found = [ROOT / name for name in run.stdout.split("\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if not in_dot_folder(path)]
    return sorted(path for path in found if path.is_file())


def in_dot_folder(path: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(ROOT).parts[:-1])


def python_files(*folders: str) -> list[Path]:
    """Our Python files below these folders of the project."""
    return [
        path
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not any(other in path.parents for other in NOT_OURS)
    ]


@cache
def parsed(path: Path) -> ast.Module:
    with uncollected():
        return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file; several tests ask for them, and walking takes longer than asking."""
    with uncollected():
        return tuple(ast.walk(parsed(path)))


@contextmanager
def uncollected() -> Iterator[None]:
    """What is made here stays, so the collector is not to look at it, now or ever again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def place(path: Path, node: ast.AST | int) -> str:
    """`path:line`, as an editor opens it."""
    line = node if isinstance(node, int) else getattr(node, "lineno", 1)
    return f"{path.relative_to(ROOT)}:{line}"
