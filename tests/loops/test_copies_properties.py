"""Copies of records: in both forms what `copy.deepcopy` gives, or the value where nobody can."""

import copy
import copyreg
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.row import Row
from tests.loops.both import both_forms
from tests.properties import examples
from tidegate.loops.copies import is_plain_dataclass
from tidegate.loops.forms import PACKAGE
from tidegate.typeinfo.copies import IMMUTABLE, ReturnedLazily, copier_of_results

COPIES: list[Callable[[Any], Any]] = [
    copier for form in both_forms() if (copier := copier_of_results(None, form)) is not None
]


@dataclass
class Order:
    number: object
    items: object = None


@dataclass(frozen=True)
class Frozen:
    number: object


@dataclass(slots=True)
class Slotted:
    number: object


@dataclass
class WithSlots(Slotted):
    more: object = None


@dataclass
class Counted:
    number: object
    copies: int = 0

    def __deepcopy__(self, memo: object) -> "Counted":
        return Counted(copy.deepcopy(self.number), self.copies + 1)


@dataclass
class Restored:
    number: object
    was: str = ""

    def __getstate__(self) -> object:
        return {"number": self.number, "was": "restored"}


@dataclass
class Told:
    number: object

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, told=True)


@dataclass
class Reduced:
    number: object

    def __reduce__(self) -> object:
        return Reduced, ("reduced",)


@dataclass
class Made:
    number: object = 0

    def __new__(cls, *_: object) -> "Made":
        made = super().__new__(cls)
        made.__dict__["new"] = True
        return made


@dataclass
class Registered:
    number: object


class Whole(int):
    pass


@dataclass
class Listed(list[object]):
    number: object = field(default=1)


class Pair(NamedTuple):
    left: object
    right: object


class Plain:
    def __init__(self, number: object) -> None:
        self.number = number


CLASSES = [Order, Frozen, Slotted, WithSlots, Counted, Restored, Told, Reduced, Made, Registered]
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=2)
    | st.integers().map(Whole) | st.dates() | st.binary(max_size=2)
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.lists(inner, max_size=2).map(lambda fields: Row(*fields))
        | st.builds(Pair, inner, inner)
        | st.builds(Plain, inner)
        | st.builds(lambda kind, part: kind(part), st.sampled_from([*CLASSES, Listed]), inner)
    ),
    max_leaves=8,
)


def reduced(value: Registered) -> object:
    return Registered, ("by its reducer",)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Any:
    copyreg.pickle(Registered, reduced)
    yield
    del copyreg.dispatch_table[Registered]


def seen(value: Any) -> object:
    """Everything of a value, its class included."""
    if isinstance(value, (tuple, list)):
        own = vars(value) if hasattr(value, "__dict__") else {}
        return type(value), [seen(part) for part in value], seen(own)
    if isinstance(value, dict):
        return [(key, seen(part)) for key, part in value.items()]
    if isinstance(value, Row):
        return Row, [seen(part) for part in value]
    if isinstance(value, Slotted):
        return type(value), seen(value.number), seen(getattr(value, "__dict__", {}))
    if hasattr(value, "__dict__"):
        return type(value), int(value) if isinstance(value, int) else 0, seen(vars(value))
    return type(value), value


def changeable(value: Any) -> set[int]:
    """Identities of all that could be changed in a value."""
    found = set() if type(value) in IMMUTABLE or type(value) is tuple else {id(value)}
    parts = list(getattr(value, "__dict__", {}).values())
    if isinstance(value, dict):
        parts += value.values()
    if isinstance(value, (tuple, list, Row)):
        parts += value
    if isinstance(value, Slotted):
        parts.append(value.number)
    return found.union(*map(changeable, parts))


@examples(500)
@given(value=VALUES)
def test_a_copy_is_that_of_deepcopy_and_shares_nothing(value: Any) -> None:
    wanted = seen(copy.deepcopy(value))
    for copied in COPIES:
        found = copied(value)
        assert seen(found) == wanted
        assert changeable(found).isdisjoint(changeable(value))


@pytest.mark.parametrize("kind", CLASSES)
def test_only_classes_without_hooks_are_copied_by_their_attributes(kind: type) -> None:
    compiled = sys.modules[f"{PACKAGE}.copies"].is_plain_dataclass
    assert is_plain_dataclass(kind) == compiled(kind) == (kind in (Order, Frozen))


def test_an_attribute_may_be_the_hook() -> None:
    order = Order(1)
    order.__dict__["__deepcopy__"] = 5
    for copied in COPIES:
        with pytest.raises(TypeError, match="'int' object is not callable"):
            copied(order)


def test_records_of_two_classes_in_turn_are_copied_alike() -> None:
    for copied in COPIES:
        for value in (Order(1), Counted(1), Order([1]), Counted(2), Frozen(3), Plain(4)):
            assert seen(copied(value)) == seen(copy.deepcopy(value))


def test_what_is_lazy_is_no_record() -> None:
    for copied in COPIES:
        with pytest.raises(ReturnedLazily, match="a generator is not a record"):
            copied(each for each in ())
