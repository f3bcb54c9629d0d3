"""Expressions over columns give what the functions give, or doubt."""

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.nullable import FieldValues, masked
from tidegate.traced.evaluation import Doubt, Evaluation
from tidegate.traced.symbols import (
    ARITHMETIC,
    BITS,
    COMPARISONS,
    UNARY,
    Binary,
    Constant,
    Expression,
    Field,
    Text,
    Unary,
    trace,
)

pytestmark = pytest.mark.hypothesis

EDGES = [0, 1, -1, 2, 3, 7, 2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)]
longs = st.one_of(st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1), st.integers(-9, 9))
doubles = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 1.5, 2.0**53, -(2.0**63)]),
)
texts = st.sampled_from(["", "a", "A", "a\0", "\ud800", "1"])
Batch = list[tuple[Any, ...]]
whole_rows = st.tuples(longs, doubles, st.booleans(), texts)
rows_with_nulls = st.tuples(
    *(st.none() | of for of in (st.integers(-9, 9), doubles, st.booleans(), texts))
)
rows = st.lists(whole_rows, min_size=1, max_size=8) | st.lists(
    rows_with_nulls, min_size=1, max_size=8
)
leaves = st.one_of(
    st.sampled_from([Field(0, 0), Field(0, 1), Field(0, 2), Field(0, -1)]),
    st.one_of(longs, doubles, st.booleans(), texts, st.none()).map(Constant),
)


def grown(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    binary = st.sampled_from(ARITHMETIC + BITS + COMPARISONS)
    return st.one_of(
        st.builds(Unary, st.sampled_from(UNARY), parts),
        st.builds(Binary, binary, parts, parts),
        st.lists(parts, min_size=1, max_size=3).map(tuple).map(Text),
    )


expressions = st.recursive(leaves, grown, max_leaves=6)


def plainly(expression: Expression, row: tuple[object, ...]) -> object:
    match expression:
        case Field(_, name):
            return row[name]  # type: ignore[index]
        case Constant(value):
            return value
        case Unary(operation, operand):
            return getattr(operator, operation)(plainly(operand, row))
        case Binary(operation, left, right):
            if operation == "lshift" and not -99 <= (by := plainly(right, row)) <= 99:  # type: ignore[operator]
                raise OverflowError(by)
            return getattr(operator, operation)(plainly(left, row), plainly(right, row))
        case Text(parts):
            return "".join(f"{plainly(each, row)}" for each in parts)


def same(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        both_nan = math.isnan(a) and math.isnan(b)
        return both_nan or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return type(a) is type(b) and a == b


def fields(batch: Batch) -> dict[Field, FieldValues]:
    made: list[FieldValues] = []
    for field, nothing in zip(zip(*batch, strict=True), (0, 0.0, False, None), strict=True):
        absent = np.array([value is None for value in field])
        kind = np.object_ if nothing is None else type(nothing)
        filled = [nothing if value is None else value for value in field]
        made.append(masked(np.array(filled, kind), absent))
    return {Field(0, name): made[name] for name in (0, 1, 2, -1)}


@given(expressions, rows)
def test_what_is_evaluated_is_what_python_gives(expression: Expression, batch: Batch) -> None:
    try:
        found = Evaluation(fields(batch), len(batch)).column(expression).tolist()
    except Doubt:
        return
    expected = [plainly(expression, row) for row in batch]
    assert all(map(same, found, expected)), (found, expected)


@given(st.sampled_from(["eq", "ne"]), st.just(Field(0, -1)) | texts.map(Constant), rows)
def test_texts_are_compared_without_doubt(operation: str, other: Expression, batch: Batch) -> None:
    expression = Binary(operation, Field(0, 3), other)
    found = Evaluation(
        {**fields(batch), Field(0, 3): fields(batch)[Field(0, -1)]}, len(batch)
    ).column(expression)
    assert found.dtype == np.bool_
    assert found.tolist() == [plainly(expression, row) for row in batch]


@given(rows, st.sampled_from(["eq", "ne"]), st.sampled_from([0, 1, 2, -1]), st.data())
def test_what_may_be_none_is_compared_without_doubt(
    batch: Batch, operation: str, at: int, data: st.DataObject
) -> None:
    there = [row[at] for row in batch if row[at] is not None]
    others: list[Expression] = [Field(0, at), Constant(None)]
    if there:
        others.append(Constant(data.draw(st.sampled_from(there))))
    for other in others:
        expression = Binary(operation, Field(0, at), other)
        column = Evaluation(fields(batch), len(batch)).column(expression)
        assert column.tolist() == [plainly(expression, row) for row in batch]


@pytest.mark.parametrize("operation", ["add", "mul", "and_", "lt", "ge"])
def test_none_is_not_computed_with(operation: str) -> None:
    evaluation = Evaluation(fields([(1, 1.0, True, "a"), (None, 2.0, False, "b")]), 2)
    with pytest.raises(Doubt):
        evaluation.column(Binary(operation, Field(0, 0), Constant(1)))
    with pytest.raises(Doubt):
        evaluation.column(Unary("neg", Field(0, 0)))
    assert evaluation.column(Binary("add", Field(0, 1), Constant(1))).tolist() == [2.0, 3.0]
    assert evaluation.column(Field(0, 0)).tolist() == [1, None]


@given(st.lists(st.tuples(longs, texts), min_size=1, max_size=8), st.lists(texts))
def test_texts_are_written_without_doubt(batch: Batch, between: list[str]) -> None:
    number, text = Field(0, 0), Field(0, 1)
    longs_of, texts_of = zip(*batch, strict=True)
    columns = {number: np.array(longs_of, np.int64), text: np.array(texts_of, np.object_)}
    expression = Text((number, *map(Constant, between), Constant(-5), text))
    expected = [f"{row[0]}{''.join(between)}-5{row[1]}" for row in batch]
    assert Evaluation(columns, len(batch)).column(expression).tolist() == expected


@pytest.mark.parametrize("part", [Field(0, 1), Field(0, 2), Constant(1.5), Constant(True)])
def test_numbers_that_are_not_whole_are_written_by_python(part: Expression) -> None:
    evaluation = Evaluation(fields([(1, 1.0, True, "a")]), 1)
    with pytest.raises(Doubt):
        evaluation.column(Text((Field(0, -1), part)))


KEYS, FACTOR, MASK = 1_000, 2654435761, 0xFFFFFFFF


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda n: ((n * FACTOR & MASK) % KEYS, n), [0, 1, 5, 10**6]),
        (lambda n: n // -7 + n % -7, [-9, 0, 13]),
        (lambda n: n / 4 >= 2.5, [9, 10, 11]),
        (lambda n: (f"{{user}}-{n * FACTOR & MASK}", f"{KEYS}", f"{n}"), [-5, 0, 2**30]),
        (lambda n: f"{n}:{n % 3}" == "7:1", [6, 7, 8]),
        (lambda n: (~n, -n, +n, n << 3, n >> 1, n | 1, n ^ 5), [-5, 0, 9]),
    ],
)
def test_functions_of_numbers(function: Callable[[int], object], values: list[int]) -> None:
    traced = trace(function)
    evaluation = Evaluation({Field(0, None): np.array(values, np.int64)}, len(values))
    columns = [evaluation.column(each).tolist() for each in traced.expressions]
    found = list(zip(*columns, strict=True)) if traced.is_tuple else columns[0]
    assert found == [function(value) for value in values]


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (lambda n: n * n, 2**40),
        (lambda n: 1 // n, 0),
        (lambda n: n / n, 0),
        (lambda n: n % n, 0),
        (lambda n: n + 0.5, 2**53 + 1),
        (lambda n: n == 0.5, 2**60),
        (lambda n: n << 70, 1),
        (lambda n: n << n, -1),
        (lambda n: -n, -(2**63)),
        (lambda n: n[0], 1),
        (lambda n: (n > 1) + 1, 3),
    ],
)
def test_what_python_might_do_otherwise_is_doubted(
    function: Callable[[int], object], value: int
) -> None:
    evaluation = Evaluation({Field(0, None): np.array([value], np.int64)}, 1)
    with pytest.raises(Doubt):
        evaluation.column(trace(function).expressions[0])
