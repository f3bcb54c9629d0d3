"""Rows of file sinks as lines and columns, and the errors about rows that have none."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest

from tidegate.connectors.files.encoders import LinesEncoding
from tidegate.errors import BadRecord


class Order(NamedTuple):
    id: int
    price: float


def test_named_tuples_are_objects_of_json_and_other_tuples_lists() -> None:
    lines = LinesEncoding().lines([Order(1, 2.5), (1, 2.5), {"id": 3}, Order(4, math.nan)])
    assert lines == b'{"id":1,"price":2.5}\n[1,2.5]\n{"id":3}\n{"id":4,"price":null}\n'


@pytest.mark.parametrize("bad", [0, 2, 4])
@pytest.mark.parametrize("gives", ["text", "bytes with gaps", "an error", "no next one"])
def test_the_row_that_an_encoder_cannot_encode_is_named(bad: int, gives: str) -> None:
    def encode(row: int) -> bytes:
        if row != bad:
            return b"line\n"
        match gives:
            case "text":
                return "line\n"  # type: ignore[return-value]
            case "bytes with gaps":
                return memoryview(b"l.i.n.e.")[::2]  # type: ignore[return-value]
            case "an error":
                raise ValueError("no line")
            case _:
                return next(iter([]))

    with pytest.raises(BadRecord, match="a row cannot be encoded") as refused:
        LinesEncoding(encode).lines(range(5))
    assert refused.value.where == f"row {bad} of a batch: {bad}"
