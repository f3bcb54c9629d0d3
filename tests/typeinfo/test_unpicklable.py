"""What cannot be pickled is named as it stands in the program."""

import re
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.datastream.fakes import environment, numbers
from tidegate import MapFunction
from tidegate.operators.map import MapOperator
from tidegate.typeinfo.by_value import unpicklable_part


class Slotted:
    __slots__ = ("kept",)

    def __init__(self) -> None:
        self.kept = threading.Lock()


class Holder(MapFunction[Any, Any]):
    def __init__(self) -> None:
        self.name = "fine"
        self.inner = {"deep": [Slotted()]}

    def map(self, value: Any) -> Any:
        return value


def by_global() -> Callable[[Any], Any]:
    """A function that uses a lock of its module, as a script's functions do."""
    made: dict[str, Any] = {"__name__": "__main__", "lock": threading.Lock()}
    exec("def locked(value):\n    with lock:\n        return value", made)
    return made["locked"]


def by_closure() -> Callable[[Any], Any]:
    connection = threading.Lock()
    return lambda value: (connection, value)


def by_class() -> type:
    """A class of a function, which goes by value with what it holds."""

    class Guarded:
        limit = 3
        lock = threading.Lock()

    return Guarded


def too_early() -> Callable[[], Any]:
    """A function that uses a variable which has no value yet."""
    made: list[Callable[[], Any]] = []

    def reads() -> Any:
        return later

    made.append(lambda: reads())
    if made:
        return made[0]
    later = 1  # pyright: ignore[reportUnreachable]
    return reads


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({"fine": 1, "held": threading.Lock()}, "the entry 'held' is a lock"),
        ([1, {"held": threading.Lock()}], "the entry 'held' is a lock"),
        (by_class(), r"'lock' of class by_class\.<locals>\.Guarded is a lock"),
        (by_class()(), r"'lock' of class by_class\.<locals>\.Guarded is a lock"),
        ({"all": "fine"}, "^$"),
        (too_early(), "^$"),
        (by_global(), "the global variable 'lock', which locked uses, is a lock"),
        (
            by_closure(),
            r"the enclosing variable 'connection', which by_closure\.<locals>\.<lambda> ",
        ),
        (Holder(), "the attribute 'kept' of Slotted is a lock"),
        (Holder().map, "the attribute 'kept' of Slotted is a lock"),
        (MapOperator(Holder()), "the attribute 'kept' of Slotted is a lock"),
        (partial(max, [threading.Lock()]), "^$"),
        (max, "^$"),
    ],
)
def test_the_part_is_named(value: object, part: str) -> None:
    assert re.search(part, unpicklable_part(value))


def test_a_refused_job_is_told_without_the_engines_frames() -> None:
    env = environment()
    numbers(env).map(by_closure()).print()
    with pytest.raises(Exception, match="'connection', which by_closure") as refused:
        env.execute_async()
    error = refused.value
    assert error.__cause__ is None and error.__suppress_context__
    inner = [frame.name for frame in refused.traceback][1:]
    assert inner == ["execute_async"]
