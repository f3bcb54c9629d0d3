"""Finds the part of a value that cannot be pickled, named as a person finds it in the program."""

from __future__ import annotations

from inspect import getclosurevars, isfunction, ismethod
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.typeinfo.by_value import pickled_by_value

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEPTH_MAX: Final = 12
_OURS: Final = "tidegate."


def unpicklable_part(value: object) -> str:
    """Names the variable or attribute that cannot be pickled; empty if it is not found.

    Tries each part by pickling it, so it is for errors only.
    """
    found = ""
    for _ in range(_DEPTH_MAX):
        part = next((each for each in _parts(value) if not _can_be_pickled(each[1])), None)
        if part is None:
            break
        place, value = part
        found = place or found
    return f"{found} is a {type(value).__name__}" if found else ""


def _can_be_pickled(value: object) -> bool:
    try:
        pickled_by_value(value)
    except Exception:
        return False
    return True


def _parts(value: Any) -> Iterator[tuple[str, object]]:
    """Parts of a value, each with its path; none for objects of the engine."""
    if ismethod(value):
        yield "", value.__self__
        yield "", value.__func__
    elif isfunction(value):
        try:
            variables = getclosurevars(value)
        except ValueError:  # a variable that has no value yet
            return
        name = value.__qualname__
        for kind, held in (("global", variables.globals), ("enclosing", variables.nonlocals)):
            for variable, content in held.items():
                yield f"the {kind} variable '{variable}', which {name} uses,", content
    elif isinstance(value, dict):
        for key, content in cast("dict[object, object]", value).items():
            yield f"the entry {key!r}", content
    elif isinstance(value, list | tuple | set):
        for content in cast("list[object]", value):
            yield "an element", content
    elif isinstance(value, type):
        for attribute, content in vars(value).items():
            if not attribute.startswith("__"):
                yield f"'{attribute}' of class {value.__qualname__}", content
    else:
        kind = type(value)
        for attribute, content in _attributes(value):
            ours = kind.__module__.startswith(_OURS)
            yield "" if ours else f"the attribute '{attribute}' of {kind.__qualname__}", content
        yield "", kind


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(value, name):
                yield name, getattr(value, name)
