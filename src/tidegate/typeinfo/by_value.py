"""Pickles of functions and of objects whose classes cannot be imported elsewhere: by value.

A module of its own, for what it imports takes 30 ms.
"""

from __future__ import annotations

import dataclasses
import io
from inspect import getclosurevars, isfunction, ismethod
from typing import TYPE_CHECKING, Any, Final, cast

import cloudpickle

if TYPE_CHECKING:
    from collections.abc import Iterator


_CACHE: Final = "__msgspec_cache__"


def pickled_by_value(value: object) -> bytes:
    """Pickles a value with protocol 5. Raises whatever the value's own hooks raise."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


class _Pickler(cloudpickle.Pickler):
    """Corrects what cloudpickle makes of the attributes of a class that is pickled by value.

    The data that msgspec keeps with a class that it has read or written cannot be pickled; msgspec
    makes it again when needed. And a field without default says so by a value that is known by
    identity: a copy of it would be a default.
    """

    def reducer_override(self, obj: Any) -> Any:
        if obj is dataclasses.MISSING:
            return "MISSING"  # by its name in its module
        if isinstance(obj, type) and _CACHE in vars(obj):
            delattr(obj, _CACHE)
        return super().reducer_override(obj)


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
