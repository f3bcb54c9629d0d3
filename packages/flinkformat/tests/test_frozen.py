"""``frozen`` beside ``dataclass(frozen=True, slots=True)``: the same classes, to whoever asks."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
from dataclasses import (
    MISSING,
    FrozenInstanceError,
    asdict,
    astuple,
    dataclass,
    field,
    fields,
    is_dataclass,
    replace,
)
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.frozen import frozen

LIMIT_S = 60


@frozen
class Point:
    """A point on a map."""

    unit: ClassVar[str] = "m"
    x: int
    y: int = 0
    tags: tuple[str, ...] = ()

    @property
    def far(self) -> bool:
        return self.x > 100


@frozen
class Named(Point):
    name: str = ""
    parts: list[int] = field(default_factory=list[int], compare=False)


@frozen
class Doubled:
    x: int
    twice: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", 2 * self.x)


@frozen(kw_only=True, order=True)
class Ordered:
    a: int
    b: str = "b"


@frozen
class Own:
    x: int

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "x", len(text))

    def __repr__(self) -> str:
        return f"<{self.x}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    def __hash__(self) -> int:
        return 7


@frozen(eq=False)
class ByIdentity:
    x: int


@frozen
class Loop:
    held: list[Loop] = field(default_factory=list["Loop"])


@st.composite
def shapes(draw: st.DrawFn) -> tuple[list[tuple[str, dict[str, Any]]], dict[str, bool]]:
    """Fields with the arguments of each, and the options of a class."""
    kw_only, order = draw(st.booleans()), draw(st.booleans())
    found: list[tuple[str, dict[str, Any]]] = []
    defaulted = False
    for number in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(("plain", "value", "factory", "by name", "not given")))
        if defaulted and kind == "plain" and not kw_only:
            kind = "value"
        defaulted |= kind in ("value", "factory")
        options: dict[str, Any] = {
            "plain": {},
            "value": {"default": number},
            "factory": {"default_factory": int},
            "by name": {"kw_only": True},
            "not given": {"init": False, "default": number},
        }[kind]
        options = {
            **options,
            "repr": draw(st.booleans()),
            "compare": draw(st.booleans()),
            "hash": draw(st.sampled_from((None, True, False))),
        }
        found.append((f"field_{number}", options))
    return found, {"kw_only": kw_only, "order": order}


def two_classes(
    found: list[tuple[str, dict[str, Any]]], options: dict[str, bool]
) -> tuple[Any, Any]:
    def bare() -> type:
        body: dict[str, Any] = {name: field(**given) for name, given in found}
        types = {name: int for name, _ in found}
        return type("Made", (), {**body, "__annotations__": types, "__doc__": "Made here."})

    return frozen(**options)(bare()), dataclass(frozen=True, slots=True, **options)(bare())


@given(shapes(), st.lists(st.integers(0, 2), min_size=8, max_size=8))
def test_a_class_behaves_as_a_dataclass_does(
    shape: tuple[list[tuple[str, dict[str, Any]]], dict[str, bool]], values: list[int]
) -> None:
    ours, theirs = two_classes(*shape)
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert ours.__match_args__ == theirs.__match_args__
    given_names = [each.name for each in fields(ours) if each.init]
    one, two = (dict(zip(given_names, part, strict=False)) for part in (values[:4], values[4:]))
    a, b = ours(**one), ours(**two)
    c, d = theirs(**one), theirs(**two)
    assert (repr(a), hash(a)) == (repr(c), hash(c))
    assert (a == b, a != b, a == c) == (c == d, c != d, False)
    assert (asdict(a), astuple(b)) == (asdict(c), astuple(d))
    if shape[1]["order"]:
        assert [a < b, a <= b, a > b, a >= b] == [c < d, c <= d, c > d, c >= d]
    else:
        with pytest.raises(TypeError):
            assert a < b
    assert repr(replace(a, **two)) == repr(replace(c, **two))


@pytest.mark.parametrize(
    ("given_args", "given_names"),
    [((), {}), ((1, 2, (), 4), {}), ((1,), {"x": 2}), ((1,), {"z": 2})],
)
def test_wrong_arguments_are_refused(
    given_args: tuple[Any, ...], given_names: dict[str, Any]
) -> None:
    with pytest.raises(TypeError, match=r"Point\.__init__\(\)"):
        Point(*given_args, **given_names)


def test_nothing_can_be_assigned_or_deleted() -> None:
    point: Any = Point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'y'"):
        del point.y
    with pytest.raises(FrozenInstanceError):
        point.other = 1
    assert not hasattr(point, "__dict__")
    assert point == Point(1)


@pytest.mark.parametrize("value", [Point(1, 2, ("a",)), Named(1, name="n"), Doubled(4), Own("abc")])
def test_copies_and_pickles_are_equal(value: Any) -> None:
    for copied in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert copied == value
        assert astuple(copied) == astuple(value)


def test_a_subclass_has_the_fields_of_both() -> None:
    named = Named(1, 2, name="harbour", parts=[3])
    assert repr(named) == "Named(x=1, y=2, tags=(), name='harbour', parts=[3])"
    assert named == Named(1, 2, name="harbour", parts=[4])
    assert named != Point(1, 2)
    assert not named.far
    assert Named.unit == "m"
    assert Named(1).parts is not Named(1).parts


def test_a_dataclass_may_inherit_if_it_is_frozen() -> None:
    @dataclass(frozen=True)
    class Further(Point):
        z: int = 0

    assert Further(1, z=2) == Further(1, z=2)
    with pytest.raises(TypeError, match="non-frozen dataclass from a frozen one"):

        @dataclass
        class Loose(Point):  # pyright: ignore[reportGeneralTypeIssues]
            z: int = 0


def test_what_the_class_has_itself_stays() -> None:
    assert (Own("abc").x, repr(Own("abc")), hash(Own("a"))) == (3, "<3>", 7)
    assert Own("a") == Own("abc")
    assert ByIdentity(1) != ByIdentity(1)
    assert Doubled(4).twice == 8
    assert Ordered(a=1) < Ordered(a=1, b="c")
    match Point(5, 6):
        case Point(x, y):
            assert (x, y) == (5, 6)


def test_an_object_that_holds_itself_has_a_text() -> None:
    loop = Loop()
    loop.held.append(loop)
    assert repr(loop) == "Loop(held=[...])"


def test_it_says_that_it_is_a_frozen_dataclass() -> None:
    assert is_dataclass(Point)
    assert [each.name for each in fields(Point)] == ["x", "y", "tags"]
    parameters = "x: 'int', y: 'int' = 0, tags: 'tuple[str, ...]' = ()"
    assert str(inspect.signature(Point)) == f"({parameters}) -> None"
    assert str(inspect.signature(Own)) == "(text: 'str') -> 'None'"
    assert fields(Point)[0].default is MISSING


def test_nothing_is_compiled_before_it_is_called() -> None:
    """The count that makes a program start sooner: no ``exec`` for a class that is not used."""
    program = """
import builtins
from flinkformat.frozen import frozen
seen = []
original = builtins.exec
builtins.exec = lambda *args: seen.append(args[0]) or original(*args)
@frozen
class Unused:
    x: int
    y: str = ""
print(len(seen))
Unused(1)
Unused(2)
print(len(seen), seen[0].startswith("def __init__"))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["0", "1", "True"]
