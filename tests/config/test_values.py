from __future__ import annotations

from datetime import timedelta

import pytest

from tidegate.config.values import (
    BooleanType,
    ChoiceType,
    DurationType,
    EnumType,
    IntegerType,
    ListType,
    MapType,
    MemoryType,
    NumberType,
    PortRangeType,
    TextType,
)
from tidegate.model.duration import Duration, Time
from tidegate.model.settings import CheckpointingMode


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("10 s", 10_000),
        ("10s", 10_000),
        ("500 ms", 500),
        ("500", 500),
        ("5 min", 300_000),
        ("1 h", 3_600_000),
        ("2 d", 172_800_000),
        ("2000 µs", 2),
        ("3000000 ns", 3),
        ("PT10S", 10_000),
        ("pt1m30s", 90_000),
        ("P1DT2H", 93_600_000),
        ("PT0.25S", 250),
    ],
)
def test_a_duration_is_read_in_every_form_that_flink_reads(text: str, expected_ms: int) -> None:
    assert DurationType().parse(text) == expected_ms


@pytest.mark.parametrize("given", [Duration.of_seconds(2), Time.seconds(2), timedelta(seconds=2)])
def test_a_duration_may_be_given_as_an_object(given: object) -> None:
    assert DurationType().parse(given) == 2_000


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("ten seconds", "not a duration"),
        ("10 parsecs", "'parsecs' is not a unit of time"),
        ("", "not a duration"),
        ("P", "not a duration"),
        ("PT", "not a duration"),
        ("-3 s", "negative"),
        (-3, "negative"),
        ("1 us", "finer than a millisecond"),
        (True, "not a duration"),
        (1.5, "not a duration"),
    ],
)
def test_what_is_no_duration_is_refused(given: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        DurationType().parse(given)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("64mb", 64 << 20), ("32 kb", 32 << 10), ("1g", 1 << 30), ("20", 20), ("2 TB", 2 << 40)],
)
def test_a_size_is_read_with_units_that_are_powers_of_two(text: str, expected: int) -> None:
    assert MemoryType().parse(text) == expected


def test_a_size_above_its_bound_is_refused_with_the_bound() -> None:
    with pytest.raises(ValueError, match="above 1 mb"):
        MemoryType(at_most=1 << 20).parse("2 mb")


def test_an_enum_is_read_in_any_case_with_hyphens() -> None:
    kind = EnumType(CheckpointingMode)
    assert kind.parse("exactly-once") is CheckpointingMode.EXACTLY_ONCE
    assert kind.parse(" At_Least_Once ") is CheckpointingMode.AT_LEAST_ONCE
    assert kind.expects == "'EXACTLY_ONCE' or 'AT_LEAST_ONCE'"
    with pytest.raises(ValueError, match="none of the values"):
        kind.parse("sometimes")


def test_a_choice_knows_its_aliases() -> None:
    kind = ChoiceType(("disable", "fixed-delay"), aliases=(("none", "disable"),))
    assert kind.parse("NONE") == "disable"
    assert kind.parse("fixed_delay") == "fixed-delay"


def test_numbers_are_held_to_their_bounds() -> None:
    assert IntegerType(at_least=1).parse(" 7 ") == 7
    assert NumberType(at_most=1.0).parse("0.5") == 0.5
    for kind, given in [
        (IntegerType(at_least=1), 0),
        (IntegerType(), "1.5"),
        (IntegerType(), True),
        (NumberType(above=1.0), 1.0),
        (NumberType(at_most=1.0), 2),
        (NumberType(), "nan"),
        (NumberType(), "much"),
        (TextType(), 3),
        (BooleanType(), "yes"),
    ]:
        with pytest.raises(ValueError):
            kind.parse(given)


def test_lists_and_maps_are_read_in_both_spellings() -> None:
    assert ListType().parse("a; b;") == ("a", "b")
    assert ListType().parse("[a, 'b;c']") == ("a", "b;c")
    assert MapType().parse("k:v, k2:v:2") == {"k": "v", "k2": "v:2"}
    assert MapType().parse("{k: 1, 'a,b': 'true'}") == {"k": "1", "a,b": "true"}
    for kind, given in [
        (ListType(), "[a"),
        (ListType(), 3),
        (MapType(), "{k: v"),
        (MapType(), "k"),
        (MapType(), 3),
    ]:
        with pytest.raises(ValueError):
            kind.parse(given)


def test_ports_are_a_number_or_a_range() -> None:
    assert PortRangeType().parse("50100-50200") == (50_100, 50_200)
    assert PortRangeType().parse(0) == (0, 0)
    assert PortRangeType().parse((1, 2)) == (1, 2)
    for given in ("2-1", "70000", "a", "", 1.5):
        with pytest.raises(ValueError, match="not a range of ports"):
            PortRangeType().parse(given)
