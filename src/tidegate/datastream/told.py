"""Streams as a person reads them at a prompt."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from tidegate.errors import missing_attribute
from tidegate.graph.transformations import (
    OperatorTransformation,
    PartitionTransformation,
    SideOutputTransformation,
)

if TYPE_CHECKING:
    from tidegate.graph.transformations import Transformation
    from tidegate.typeinfo.types import TypeInformation


def name_of(transformation: Transformation) -> str:
    """The name of the step that records come from, in quotes; those of all steps of a union."""
    match transformation:
        case OperatorTransformation(name=name):
            return f"'{name}'"
        case PartitionTransformation(input=step):
            return name_of(step)
        case SideOutputTransformation(input=step, tag=tag):
            return f"side output '{tag}' of {name_of(step)}"
        case _:
            return " and ".join(map(name_of, transformation.inputs))


def step_text(transformation: Transformation, type_info: TypeInformation | None) -> str:
    """A step with what is known of it: 'Map' of Long, parallelism 2, uid 'doubled'."""
    parts = [name_of(transformation)]
    if type_info is not None:
        parts[0] += f" of {type_info}"
    if isinstance(transformation, OperatorTransformation):
        parts.append(f"parallelism {transformation.placement.parallelism}")
        if transformation.state.uid is not None:
            parts.append(f"uid '{transformation.state.uid}'")
    return ", ".join(parts)


_KNOWN_ELSEWHERE: Final = {
    "groupby": "key_by",
    "where": "filter",
    "select": "map",
    "foreach": "add_sink",
    "withcolumn": "map",
}
"""What pandas, Spark and SQL call it, in small letters without underscores."""


_NOT_HERE: Final = {"cache": "write its records to files, as with FileSink, and read those"}


def unfinished(kind: type, name: str, call: str) -> AttributeError:
    """The error for a method that comes later in a chain of calls. call: what comes next in it."""
    text = f"{kind.__name__!r} object has no attribute {name!r}"
    if not name.startswith("_"):
        text += f"; call {call} first"
    return AttributeError(text, name=name, obj=None)


def missing(kind: type, name: str, keyed: type, windowed: type) -> AttributeError:
    """The error for a method that a kind of stream lacks; it names who has it, or the nearest.

    keyed, windowed: the kinds that may have it.
    """
    text = f"{kind.__name__!r} object has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(text)
    if name in _NOT_HERE:
        return missing_attribute(kind, name, _NOT_HERE)
    near = _KNOWN_ELSEWHERE.get(name.replace("_", "").lower())
    if near is not None:
        text += f"; did you mean {near!r}?"
    elif hasattr(keyed, name):
        text += f"; {name} works on a keyed stream: call key_by first"
    elif hasattr(windowed, name):
        first = "window" if issubclass(kind, keyed) else "key_by and window"
        text += f"; {name} works on a windowed stream: call {first} first"
    elif alike := get_close_matches(name, [each for each in dir(kind) if each[0] != "_"], n=1):
        text += f"; did you mean {alike[0]!r}?"
    return AttributeError(text, name=name, obj=None)  # else Python guesses once more
