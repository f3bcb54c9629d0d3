"""Serialises user functions for shipping.

Importable modules travel by reference, lambdas and what ``__main__`` defines by value.
"""

from __future__ import annotations

import pickle
from typing import TypeVar

from tidegate.errors import GraphError, RestoreRefused, UnpicklingRefused, UserCodeFailed
from tidegate.typeinfo.by_value import pickled_by_value
from tidegate.typeinfo.pickling import unpickled_value

T = TypeVar("T")


def dumps(value: object, *, name: str) -> bytes:
    """Serialises a value; ``loads`` reads it in another process.

    name: of the operator, for the message. Raises GraphError if the value cannot be pickled.
    """
    try:
        return pickled_by_value(value)
    except Exception as error:
        from tidegate.typeinfo.by_value import unpicklable_part

        part = unpicklable_part(value)
        raise GraphError(
            f"operator '{name}' cannot be sent to the slots: {error}{part and f'; {part}'}",
            where=f"operator '{name}'",
            remedy="Make what it holds picklable: open files, connections and locks in `open`, "
            "not in the constructor or the enclosing function.",
        ) from error


def loads(data: bytes, *, name: str) -> object:
    """Reads what ``dumps`` wrote. Raises UserCodeFailed if it cannot be rebuilt here."""
    try:
        return pickle.loads(data)
    except Exception as error:
        raise _not_loaded(name, error) from error


def restored(kind: type[T], data: bytes, *, name: str) -> T:
    """Reads what ``dumps`` wrote for a snapshot, if it has the expected kind.

    name: whose state it is, for the message. Raises UserCodeFailed as ``loads``, and RestoreRefused
    for the state of something else, such as another source.
    """
    try:
        value = unpickled_value(data)
    except UnpicklingRefused:
        raise
    except Exception as error:
        raise _not_loaded(name, error) from error
    return of_kind(kind, value, name=name)


def of_kind(kind: type[T], value: object, *, name: str) -> T:
    """The value, if it has this kind. Raises RestoreRefused as ``restored``."""
    if not isinstance(value, kind):
        raise RestoreRefused(
            f"The state of {name} is a {type(value).__module__}.{type(value).__qualname__}, and "
            f"what reads it now takes a {kind.__module__}.{kind.__qualname__}",
            remedy="Give its replacement another uid, so that it starts from nothing; positions "
            "of the old one are not carried over.",
        )
    return value


def _not_loaded(name: str, error: Exception) -> UserCodeFailed:
    return UserCodeFailed(
        f"operator '{name}' cannot be loaded in this process: {type(error).__name__}: {error}",
        where=f"operator '{name}'",
        remedy="Install the modules it uses where the slots run; on Spark, "
        "`SparkContext.addPyFile` ships them.",
    )
