"""Classes that a reader can hold in mind: few parameters, few attributes, no name twice in a room.

What is over a limit today is named here, with its number; the lists may only shrink.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.house.source import PACKAGES, ROOT, nodes, python_files

PARAMETERS_MAX = 8
ATTRIBUTES_MAX = 15

MANY_PARAMETERS = {}
MANY_ATTRIBUTES = {}
FILE_NAMES_TWICE = {}


def test_a_class_is_made_of_at_most_eight_things() -> None:
    assert over(PARAMETERS_MAX, parameters) == MANY_PARAMETERS


def test_a_class_holds_at_most_fifteen_things() -> None:
    assert over(ATTRIBUTES_MAX, attributes) == MANY_ATTRIBUTES


def test_no_file_name_stands_twice_in_a_room() -> None:
    names = Counter(
        f"{folder.name}/{path.relative_to(folder).parts[0]}/…/{path.name}"
        for folder in (ROOT / "src" / "tidegate", ROOT / "packages/flinkformat/src/flinkformat")
        for path in sorted(folder.rglob("*.py"))
        if path.name != "__init__.py" and path.parent != folder
    )
    assert {name: count for name, count in names.items() if count > 1} == FILE_NAMES_TWICE


def over(limit: int, count: Callable[[ast.ClassDef], int]) -> dict[str, int]:
    return {
        f"{module(path)}:{node.name}": number
        for path, node in classes()
        if (number := count(node)) > limit
    }


def module(path: Path) -> str:
    return path.as_posix().rpartition("/src/")[2].removesuffix(".py").removeprefix("tidegate/")


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    """Classes with behaviour: no frozen values, enumerations, errors or protocols."""
    for path in python_files(*PACKAGES):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and has_behaviour(node):
                yield path, node


def has_behaviour(node: ast.ClassDef) -> bool:
    bases = {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
    if bases & {"Protocol", "Enum", "NamedTuple", "TypedDict"} or node.name.endswith("Error"):
        return False
    return not any("frozen=True" in text or is_frozen(text) for text in decorators(node))


def is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in text or is_frozen(text) for text in decorators(node))


def decorators(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(each) for each in node.decorator_list]


def is_frozen(decorator: str) -> bool:
    """True for ``@frozen``, with options or without; not for what only has the word in it."""
    return decorator.split("(")[0] == "frozen"


def parameters(node: ast.ClassDef) -> int:
    """What its constructor is given."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            given = each.args
            return len([*given.posonlyargs, *given.args, *given.kwonlyargs]) - 1
    return len(fields(node)) if is_dataclass(node) else 0


def attributes(node: ast.ClassDef) -> int:
    """What its objects hold: fields, and what its methods set on self."""
    found = fields(node) if is_dataclass(node) else set()
    for each in ast.walk(node):
        if (
            isinstance(each, ast.Attribute)
            and isinstance(each.ctx, ast.Store)
            and isinstance(each.value, ast.Name)
            and each.value.id == "self"
        ):
            found.add(each.attr)
    return len(found)


def fields(node: ast.ClassDef) -> set[str]:
    return {
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and "ClassVar" not in ast.unparse(each.annotation)
    }
