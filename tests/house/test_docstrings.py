"""Docstrings open with a sentence. That modules and classes have one is held by D100 and D101."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.house.source import PACKAGES, nodes, parsed, place, python_files
from tidegate import faces

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

FACES = (*(f"tidegate.{topic}" for topic in faces.TOPICS), "tidegate", "tidegate.testing")
"""Modules whose names users import."""

CONTRACTS = ("tidegate.api.source", "tidegate.api.sink")
"""Modules of protocols that the engine calls, and users of a source or sink do not."""

ODD_START = re.compile(r"(What|Who|Whose|Whether|That|Those|As|The same|Of|It|One that)\b")
SHORTEST = 22
ODD_MOST = 10
"""Docstrings of less than 22 characters, or with an odd start; the number may only shrink."""


def test_every_module_says_what_it_is_for() -> None:
    silent = [place(path, 1) for path in python_files(*PACKAGES) if not says_something(path)]
    assert not silent, f"open these modules with a sentence on their purpose: {silent}"


def says_something(path: Path) -> bool:
    tree = parsed(path)
    return bool(ast.get_docstring(tree)) or not tree.body


def test_the_first_line_of_a_docstring_is_a_sentence() -> None:
    faulty = [
        f"{place(path, node)} {text.splitlines()[0]}"
        for path in python_files(*PACKAGES)
        for node, text in docstrings(path)
        if not text.splitlines()[0].endswith((".", ":", "?", "!"))
    ]
    assert not faulty, "end the first line as a sentence:\n" + "\n".join(faulty)


def test_few_docstrings_have_an_odd_start_or_say_next_to_nothing() -> None:
    odd = [
        f"{place(path, node)} {text.splitlines()[0]}"
        for path in python_files(*PACKAGES)
        for node, text in docstrings(path)
        if len(text) < SHORTEST or ODD_START.match(text)
    ]
    assert len(odd) <= ODD_MOST, (
        f"{len(odd)} docstrings begin oddly or say next to nothing, more than {ODD_MOST}: delete "
        "yours, or write a sentence with a subject and a verb. All of them:\n" + "\n".join(odd)
    )


def docstrings(path: Path) -> Iterator[tuple[ast.AST, str]]:
    for node in nodes(path):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield node, text


def test_everything_that_users_call_has_a_docstring() -> None:
    silent = sorted(
        {where for face in FACES for where, thing in called_by_users(face) if not described(thing)}
    )
    assert not silent, f"write a docstring for each of these, or inherit one: {silent}"


def called_by_users(face: str) -> Iterator[tuple[str, object]]:
    """Each public class and function of a module, and the public methods of its classes."""
    module = importlib.import_module(face)
    for name in getattr(module, "__all__", None) or faces.names(face):
        thing = getattr(module, name)
        if inspect.isfunction(thing):
            yield f"{face}.{name}", thing
        elif inspect.isclass(thing) and thing.__module__.startswith("tidegate"):
            yield f"{face}.{name}", thing
            for member_name in vars(thing):
                member = inspect.getattr_static(thing, member_name)
                if member_name.startswith("_") or implements_a_contract(thing, member_name):
                    continue
                if is_documentable(member):
                    yield (
                        f"{thing.__module__}.{thing.__qualname__}.{member_name}",
                        member_of(thing, member_name),
                    )


def is_documentable(member: object) -> bool:
    return inspect.isfunction(member) or isinstance(member, staticmethod | classmethod | property)


def member_of(thing: type, name: str) -> object:
    """The member as ``inspect.getdoc`` follows it to the classes that it overrides."""
    static = inspect.getattr_static(thing, name)
    return static if isinstance(static, property) else getattr(thing, name)


def described(thing: object) -> bool:
    return bool(inspect.getdoc(thing))


def implements_a_contract(owner: type, member: str) -> bool:
    """True if a protocol of sources or sinks, all of which the class has, says what it does."""
    return any(
        member in names and all(hasattr(owner, name) for name in names) for names in contracts()
    )


@cache
def contracts() -> list[set[str]]:
    modules = [importlib.import_module(name) for name in CONTRACTS]
    return [
        {name for name in vars(thing) if not name.startswith("_")}
        for module in modules
        for thing in vars(module).values()
        if inspect.isclass(thing) and getattr(thing, "_is_protocol", False)
    ]
