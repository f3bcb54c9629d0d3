"""Copies of records that are still needed while user code may change the originals."""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable


# Its instances have a dict of attributes and nothing else. A class statement would be compiled to a
# class whose instances have no dict.
_Plain: Any = type("_Plain", (), {})
_PLAIN: Final = (_Plain.__basicsize__, _Plain.__dictoffset__, _Plain.__weakrefoffset__)


class Copier:
    """Copies records of one level; what is nested deeper is copied by ``otherwise``.

    immutable: types of values that nobody can change.
    """

    def __init__(self, immutable: frozenset[type], otherwise: Callable[[object], object]) -> None:
        self._immutable: Final = immutable
        self._otherwise: Final = otherwise
        self._known: type | None = None

    def copy(self, value: Any) -> Any:
        """A copy that shares nothing mutable with the value; itself if it is immutable."""
        kind, immutable = type(value), self._immutable
        # The types of most fields come first, for which a look into the set takes twice as long.
        if kind is tuple:
            fields: tuple[Any, ...] = value
            for part in fields:
                of = type(part)
                if of is not int and of is not str and of not in immutable:
                    return self._otherwise(value)
            return value
        if kind in immutable:
            return value
        if kind is dict:
            entries: dict[Any, Any] = value
            for part in entries.values():
                of = type(part)
                if of is not int and of is not str and of not in immutable:
                    return self._otherwise(value)
            return entries.copy()
        if kind is list:
            parts: list[Any] = value
            for part in parts:
                of = type(part)
                if of is not int and of is not str and of not in immutable:
                    return self._otherwise(value)
            return parts.copy()
        if kind is self._known or is_plain_dataclass(kind):
            self._known = kind
            state: dict[Any, Any] = value.__dict__
            for part in state.values():
                of = type(part)
                if of is not int and of is not str and of not in immutable:
                    return self._otherwise(value)
            if "__deepcopy__" not in state:
                made = object.__new__(kind)
                made.__dict__.update(state)
                return made
        return self._otherwise(value)


def is_plain_dataclass(kind: Any) -> bool:
    """True if a copy of an instance is a new one with the same attributes.

    That is what `copy.deepcopy` comes to, where the class has none of the hooks that it asks for.
    """
    return (
        hasattr(kind, "__dataclass_fields__")
        # A slot would be seen from these.
        and (kind.__basicsize__, kind.__dictoffset__, kind.__weakrefoffset__) == _PLAIN
        and kind.__new__ is object.__new__
        and kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__reduce__ is object.__reduce__
        and kind.__getstate__ is object.__getstate__
        and not hasattr(kind, "__deepcopy__")
        and not hasattr(kind, "__setstate__")
        and not hasattr(kind, "__getnewargs__")
        and not hasattr(kind, "__getnewargs_ex__")
        and kind not in copyreg.dispatch_table
    )
