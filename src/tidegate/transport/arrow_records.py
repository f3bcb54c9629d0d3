"""Rows of Arrow batches as records of their own, which Spark can put in order, and back.

Columns of numbers, truth values and times lie in the bytes of a record one after another, as NumPy
has them. Rows with other values among them are pickles. Both give the same columns again, to the
bit and in their types; the layout of the records says which. Only a column of a dictionary gets
another one, of the values that its batch has.
"""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

from flinkformat.frozen import frozen
from tidegate.model.elements import ArrowBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_GROUP: Final = "group"


@frozen
class ArrowLayout:
    """How the bytes of a record hold a row of an Arrow batch, and its key group behind.

    schema: Arrow's bytes of it. kinds: NumPy's types of the columns; None where rows are pickles.
    """

    schema: bytes
    key_column: str | None
    kinds: tuple[str, ...] | None


def arrow_layout(batch: ArrowBatch) -> ArrowLayout | None:
    """The layout of the rows of a batch; None where they are of types that it has none for."""
    schema = batch.batch.schema
    kinds = [_kind(field.type) for field in schema]
    if None in kinds and not all(map(_is_plain, schema.types)):
        return None
    made = None if None in kinds else tuple(cast("list[str]", kinds))
    return ArrowLayout(schema.serialize().to_pybytes(), batch.key_column, made)


def arrow_records(layout: ArrowLayout, batch: ArrowBatch) -> pa.Array:
    """The bytes of each row."""
    groups = np.zeros(len(batch), np.int16) if batch.key_groups is None else batch.key_groups
    columns = [_numbers(column) for column in batch.batch.columns]
    if layout.kinds is None:
        rows = zip(*(column.to_pylist() for column in columns), groups.tolist(), strict=True)
        return pa.array(map(partial(pickle.dumps, protocol=5), rows), pa.binary())
    records = np.empty(len(batch), _type_of(layout.kinds))
    records[_GROUP] = groups
    for at, column in enumerate(columns):
        records[f"has{at}"] = column.is_valid().to_numpy(zero_copy_only=False)
        filled = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
        records[f"f{at}"] = filled.to_numpy(zero_copy_only=False)
    return binaries(records)


def arrow_rows(
    layout: ArrowLayout, data: pa.Array, times: NDArray[np.int64]
) -> Iterator[ArrowBatch]:
    """Yields the rows whose bytes these are.

    In several batches where a dictionary of all their values has more than its type can number.
    """
    schema = pa.ipc.read_schema(pa.py_buffer(layout.schema))
    try:
        yield _rows(layout, schema, data, times)
    except pa.ArrowInvalid:
        if len(data) == 1 or not any(map(pa.types.is_dictionary, schema.types)):
            raise
        half = len(data) // 2
        for part in (slice(half), slice(half, None)):
            yield from arrow_rows(layout, data[part], times[part])


def _rows(
    layout: ArrowLayout, schema: pa.Schema, data: pa.Array, times: NDArray[np.int64]
) -> ArrowBatch:
    kinds = [_values_type(kind) for kind in schema.types]
    numbers = [_number_type(kind) or kind for kind in kinds]
    if layout.kinds is None:
        *values, own = zip(*(pickle.loads(each.as_buffer()) for each in data), strict=True)
        groups = np.array(own, np.int16)
        columns = [pa.array(each, kind) for each, kind in zip(values, numbers, strict=True)]
    else:
        records = of_binaries(data, _type_of(layout.kinds))
        groups = np.ascontiguousarray(records[_GROUP])
        columns = [
            pa.array(np.ascontiguousarray(records[f"f{at}"]), kind, mask=~records[f"has{at}"])
            for at, kind in enumerate(numbers)
        ]
    made = [
        each if each.type == kind else each.view(kind)
        for each, kind in zip(columns, kinds, strict=True)
    ]
    for at, kind in enumerate(schema.types):
        if kind != kinds[at]:
            made[at] = made[at].dictionary_encode().cast(kind)
    batch = pa.RecordBatch.from_arrays(made, schema=schema)
    keyed = layout.key_column is not None
    return ArrowBatch(batch, times, layout.key_column, groups if keyed else None)


def binaries(records: NDArray[Any]) -> pa.Array:
    """The bytes of each record, without a look at any."""
    size, count = records.dtype.itemsize, len(records)
    offsets = (np.arange(count + 1) * size).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(records.tobytes())]
    )


def of_binaries(data: pa.Array, kind: np.dtype[Any]) -> NDArray[Any]:
    """The records whose bytes these are."""
    _, offsets, values = data.buffers()
    # Records before them may have another size.
    start = int(np.frombuffer(offsets, np.int32, 1, 4 * data.offset)[0])
    return np.frombuffer(values, kind, len(data), start)


def _type_of(kinds: tuple[str, ...]) -> np.dtype[Any]:
    fields = [(f"f{at}", kind) for at, kind in enumerate(kinds)]
    return np.dtype([*fields, *((f"has{at}", "?") for at in range(len(kinds))), (_GROUP, "<i2")])


def _number_type(kind: pa.DataType) -> pa.DataType | None:
    """The whole numbers that a time is; None for what is no time."""
    if not pa.types.is_temporal(kind) or pa.types.is_interval(kind):
        return None
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def _values_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values themselves, where a column has them by way of a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _numbers(column: pa.Array) -> pa.Array:
    """A column of times as numbers, which Python has for any of them."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = _number_type(column.type)
    return column if kind is None else column.view(kind)


def _kind(kind: pa.DataType) -> str | None:
    """NumPy's type of a column; None where it has none of one size."""
    number = _number_type(kind) or kind
    is_a = pa.types
    if is_a.is_integer(number) or is_a.is_float32(number) or is_a.is_float64(number):
        return np.dtype(number.to_pandas_dtype()).str
    return "?" if is_a.is_boolean(number) else None


def _is_plain(kind: pa.DataType) -> bool:
    """True if values of a type become the same values again by way of Python."""
    is_a = pa.types
    if is_a.is_dictionary(kind):
        return not is_a.is_nested(kind.value_type) and _is_plain(kind.value_type)
    if is_a.is_struct(kind):
        names = [field.name for field in kind]
        return len(names) == len(set(names)) and all(_is_plain_within(each.type) for each in kind)
    if is_a.is_map(kind):
        return _is_plain_within(kind.key_type) and _is_plain_within(kind.item_type)
    if is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind):
        return _is_plain_within(kind.value_type)
    texts = is_a.is_string(kind) or is_a.is_large_string(kind)
    data = is_a.is_binary(kind) or is_a.is_large_binary(kind) or is_a.is_fixed_size_binary(kind)
    return (
        _kind(kind) is not None or texts or data or is_a.is_decimal128(kind) or is_a.is_null(kind)
    )


def _is_plain_within(kind: pa.DataType) -> bool:
    """True if values of a type do within lists and structs, where no time is made a number."""
    return _number_type(kind) is None and not pa.types.is_dictionary(kind) and _is_plain(kind)
