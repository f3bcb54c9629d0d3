"""What a state's descriptor takes for a type."""

from dataclasses import dataclass

import pytest

from tidegate import (
    GraphError,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateDescriptor,
    ReducingStateDescriptor,
    Types,
    ValueStateDescriptor,
)
from tidegate.typeinfo.hints import type_of_hint


@dataclass
class Customer:
    name: str
    bought: int = 0


def test_a_python_type_declares_a_state_like_one_of_types() -> None:
    assert ValueStateDescriptor("a", int) == ValueStateDescriptor("a", Types.LONG())
    assert ValueStateDescriptor("a", Customer).type_info == type_of_hint(Customer)
    assert ListStateDescriptor("a", tuple[str, int]).type_info == type_of_hint(tuple[str, int])
    of_two = MapStateDescriptor("a", str, Customer)
    assert (of_two.type_info, of_two.value_type_info) == (Types.STRING(), type_of_hint(Customer))
    assert ReducingStateDescriptor("a", max, float).type_info == Types.DOUBLE()
    assert OperatorStateDescriptor("a", str) == OperatorStateDescriptor("a", Types.STRING())
    assert ValueStateDescriptor("a").type_info is None


def test_what_is_no_type_is_told_with_the_name_of_the_state() -> None:
    with pytest.raises(GraphError, match="'long' is not a type") as raised:
        ValueStateDescriptor("seen", "long")  # type: ignore[arg-type]
    assert "state 'seen'" in raised.value.where
