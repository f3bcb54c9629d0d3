"""Values that come back from columns, with the classes of their types."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest

from tidegate import Types
from tidegate.typeinfo.arrow import column_of, recast, values_of
from tidegate.typeinfo.hints import type_of_hint

if TYPE_CHECKING:
    from tidegate.typeinfo.types import TypeInformation


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Point:
    x: int
    y: int


@dataclass
class Other:
    x: int
    y: int


HALF = 1 << 70
ONE = uuid.UUID(int=7)


@pytest.mark.parametrize(
    ("hint", "values"),
    [
        (Colour, [Colour.BLUE, None, Colour.RED]),
        (uuid.UUID, [ONE, None]),
        (list[Colour], [[Colour.RED], [], None]),
        (dict[str, Point], [{"a": Point(1, 2)}, {}]),
        (tuple[int, Point], [(1, Point(2, 3))]),
        (Point, [Point(1, 2), None]),
    ],
)
def test_what_goes_into_a_column_comes_back(hint: Any, values: list[Any]) -> None:
    of = type_of_hint(hint)
    assert of is not None
    column = column_of(values, of)
    assert len(column) == len(values)
    assert values_of(column, of) == values


@pytest.mark.parametrize("of", [Types.BIG_INT(), Types.PICKLED_BYTE_ARRAY()])
def test_numbers_beyond_columns_and_pickles_come_back(of: TypeInformation) -> None:
    assert values_of(column_of([HALF, None, -3], of), of) == [HALF, None, -3]


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (Point, Other(1, 2), Point(1, 2)),
        (list[Point], [Other(1, 2), None], [Point(1, 2), None]),
        (dict[str, Point], {"a": Other(3, 4)}, {"a": Point(3, 4)}),
        (tuple[int, Point], (5, Other(6, 7)), (5, Point(6, 7))),
        (int, 8, 8),
    ],
)
def test_records_of_another_class_with_the_same_fields_become_the_types_own(
    hint: Any, value: object, expected: object
) -> None:
    of = type_of_hint(hint)
    assert of is not None
    assert recast(value, of) == expected


def test_a_record_with_other_fields_is_refused() -> None:
    of = type_of_hint(Point)
    assert of is not None
    with pytest.raises(TypeError):
        recast(Colour.RED, of)
