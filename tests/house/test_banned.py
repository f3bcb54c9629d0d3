"""What the source does not do. Time, chance and paths are held by ruff's TID251."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.source import PACKAGES, ROOT, nodes, parsed, place, python_files

SOURCE = ROOT / "src" / "tidegate"
BANNED_CALLS = {
    "hash": "differs between processes; see typeinfo.key_hash",
    "eval": "runs text",
    "exec": "runs text",
    "breakpoint": "is for debugging",
    "input": "waits without a deadline",
}
MAKES_MUTABLE = {"list", "dict", "set", "defaultdict", "deque", "OrderedDict", "Counter"}
CHANGES = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem",
    "remove", "setdefault", "update",
}  # fmt: skip
COMPILES = ROOT / "packages" / "flinkformat" / "src" / "flinkformat" / "frozen.py"
"""Methods of dataclasses, from the names of their fields, as ``dataclasses`` does itself."""
TAKEN_BACK = {SOURCE / "typeinfo" / "pickling.py"}
"""What a `with` block puts there for all threads, it takes away at its end."""


def test_nothing_calls_what_is_banned() -> None:
    found = [
        f"{place(path, call)} {name}() {BANNED_CALLS[name]}"
        for path in python_files(*PACKAGES)
        for call, name in calls(path)
        if name in BANNED_CALLS and (path, name) != (COMPILES, "exec")
    ]
    assert not found, "\n".join(found)


def test_only_the_command_line_and_the_print_sink_print() -> None:
    found = [
        place(path, call)
        for path in python_files(*PACKAGES)
        if SOURCE / "cli" not in path.parents and path.name != "print.py"
        for call, name in calls(path)
        if name == "print"
    ]
    assert not found, f"log through the injected logger: {found}"


def calls(path: Path) -> Iterator[tuple[ast.AST, str]]:
    """Calls of plain names; what a `__hash__` does is its own affair."""
    own_affair = {
        inner
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef) and node.name == "__hash__"
        for inner in ast.walk(node)
    }
    for node in nodes(path):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and node not in own_affair:
            yield node, called.id


def test_no_module_keeps_state() -> None:
    files = set(python_files(*PACKAGES)) - TAKEN_BACK
    found = [line for path in sorted(files) for line in module_state(path)]
    assert not found, (
        "Spark reuses Python workers: what is left in a module belongs to the job before. "
        "Make it a constructor argument, or a constant:\n" + "\n".join(found)
    )


def module_state(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Global):
            yield f"{place(path, node)} global {', '.join(node.names)}"
    constants: set[str] = set()
    for name, node in module_values(parsed(path)):
        if name.isupper() or name.startswith("__"):
            constants.add(name)
        elif makes_mutable(node):
            yield f"{place(path, node)} {name} can change"
    for node in nodes(path):
        if (name := changed_name(node)) in constants:
            yield f"{place(path, node)} changes {name}"


def module_values(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
        elif isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
            yield node.target.id, node.value


def makes_mutable(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in MAKES_MUTABLE
    return isinstance(
        node, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp
    )


def changed_name(node: ast.AST) -> str | None:
    """The name whose value this node changes in place, where it does."""
    target: ast.expr | None = None
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        target = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        target = node.func.value if node.func.attr in CHANGES else None
    return target.id if isinstance(target, ast.Name) else None


IGNORE = re.compile(r"#\s*(noqa|type:\s*ignore|pyright:\s*ignore)(.*)")
NAMED = re.compile(r"(:\s*[A-Z]+\d+|\[[A-Za-z, -]+\])")


def test_an_ignored_rule_is_named() -> None:
    found = [
        f"{place(path, number)} {line.strip()}"
        for path in python_files("src", "packages", "tests", "scripts", "benchmarks", "examples")
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (match := IGNORE.search(line)) and not NAMED.match(match[2].strip())
    ]
    assert not found, "name the rule that is ignored:\n" + "\n".join(found)
