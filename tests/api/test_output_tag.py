"""The types of side outputs, as a program declares them."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.api.output_tag import OutputTag
from tidegate.errors import GraphError
from tidegate.typeinfo.types import LONG, STRING, TupleTypeInfo, Types


@pytest.mark.parametrize(
    ("given", "declared"),
    [
        (None, None),
        (Types.LONG(), LONG),
        (int, LONG),
        (tuple[str, int], TupleTypeInfo([STRING, LONG])),
        ([Types.STRING(), Types.LONG()], TupleTypeInfo([STRING, LONG])),
    ],
)
def test_the_type_of_a_tag_may_be_given_as_that_of_a_step(given: Any, declared: object) -> None:
    assert OutputTag("late", given).type_info == declared


@pytest.mark.parametrize("given", [3, "int", Types.INT, [Types.INT], [int]])
def test_what_is_no_type_is_refused(given: Any) -> None:
    with pytest.raises(GraphError, match=r"is not a type|takes types") as refused:
        OutputTag("late", given)
    assert refused.value.remedy
