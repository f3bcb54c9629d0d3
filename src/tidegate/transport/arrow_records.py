"""Rows of Arrow batches as records of their own, which Spark can put in order, and back.

Columns of numbers, truth values and times lie in the bytes of a record one after another, as NumPy
has them. Rows with texts, bytes and decimals among them are pickles. Both give the same columns
again, to the bit and in their types; the layout of the records says which.
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


def arrow_rows(layout: ArrowLayout, data: pa.Array, times: NDArray[np.int64]) -> ArrowBatch:
    """The batch of the rows whose bytes these are."""
    schema = pa.ipc.read_schema(pa.py_buffer(layout.schema))
    numbers = [_number_type(kind) or kind for kind in schema.types]
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
        for each, kind in zip(columns, schema.types, strict=True)
    ]
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


def _numbers(column: pa.Array) -> pa.Array:
    """A column of times as numbers, which Python has for any of them."""
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
    texts = is_a.is_string(kind) or is_a.is_large_string(kind)
    data = is_a.is_binary(kind) or is_a.is_large_binary(kind) or is_a.is_fixed_size_binary(kind)
    return (
        _kind(kind) is not None or texts or data or is_a.is_decimal128(kind) or is_a.is_null(kind)
    )
