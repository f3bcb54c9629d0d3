"""Rows taken apart and made: compiled code answers as its source does."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.loops.both import both_forms
from tests.properties import examples
from tidegate.loops import rows

FAST = both_forms()[1]


class Name(str):
    """Not exactly a `str`."""

    __slots__ = ()


@dataclass
class Some:
    a: Any
    b: Any


class Pair(NamedTuple):
    first: Any
    second: Any


LEAVES = st.integers(0, 2) | st.sampled_from(["x", None, True, 1.5, Name("x")])
NAMES = st.sampled_from(["a", "b", "c", "".join("a"), Name("a"), 1])
TUPLES = st.lists(LEAVES, max_size=3).map(tuple)
DICTS = st.dictionaries(NAMES, LEAVES, max_size=3) | st.fixed_dictionaries(
    {"a": st.integers(), "b": st.just("x")}
)


def record(attributes: dict[Any, Any]) -> Some:
    made = object.__new__(Some)
    made.__dict__.update({str(name): value for name, value in attributes.items()})
    return made


VALUES = st.lists(
    st.builds(Pair, LEAVES, LEAVES) | TUPLES | DICTS | DICTS.map(record) | LEAVES, max_size=4
)
FITTING = (
    st.lists(st.tuples(st.integers(), st.just("x")), max_size=4)
    | st.lists(st.builds(Pair, st.integers(), st.just("x")), max_size=4)
    | st.lists(st.fixed_dictionaries({"a": st.integers(), "b": st.just("x")}), max_size=4)
    | st.lists(st.builds(Some, st.integers(), st.just("x")), max_size=4)
    | st.lists(st.builds(Some, st.integers() | st.none(), st.just("x") | st.none()), max_size=4)
    | st.lists(st.tuples(st.none() | st.integers(), st.sampled_from(["x", None])), max_size=4)
)
KINDS = st.lists(st.sampled_from([int, str, float]), min_size=1, max_size=3)


@examples(400)
@given(VALUES | FITTING, KINDS | st.just([int, str]))
def test_rows_are_taken_apart_as_the_source_does(values: list[Any], kinds: list[type]) -> None:
    names = ("a", "b", "c")[: len(kinds)]
    assert FAST.fields_of_tuples is not None
    assert FAST.fields_of_dicts is not None and FAST.fields_of_records is not None
    for of in (tuple, Pair):
        found = FAST.fields_of_tuples(values, of, kinds)
        assert found == rows.fields_of_tuples(values, of, kinds)
    assert FAST.fields_of_dicts(values, names, kinds) == rows.fields_of_dicts(values, names, kinds)
    found = FAST.fields_of_records(values, Some, names, kinds)
    assert found == rows.fields_of_records(values, Some, names, kinds)


@given(st.lists(st.tuples(LEAVES, LEAVES), max_size=4))
def test_rows_are_made_that_are_taken_apart_again(values: list[tuple[Any, Any]]) -> None:
    columns = [[value[at] for value in values] for at in range(2)]
    for form in (FAST, rows):
        dicts = form.dicts_of(("a", "b"), columns)
        assert [list(each.items()) for each in dicts] == [
            [("a", first), ("b", second)] for first, second in values
        ]
        records = form.records_of(Some, ("a", "b"), columns)
        assert records == [Some(*value) for value in values]
        assert [*map(vars, records)] == dicts
