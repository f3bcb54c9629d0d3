"""Elements as bytes: rows as one pickle a batch, Arrow batches as Arrow IPC, marks as pickles.

Bytes: docs/formats/wire.md.
"""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, cast

from tidegate.errors import FormatError
from tidegate.model.elements import ArrowBatch, Element, Mark, RowBatch

if TYPE_CHECKING:
    import numpy as np

    from tidegate.transport.wire import Buffer

_ROWS, _ARROW, _MARK = 1, 2, 3
_KIND = struct.Struct("!BI")


def encode(element: Element) -> list[Buffer]:
    """The parts of an element's bytes; large buffers are referenced, not copied."""
    if isinstance(element, RowBatch):
        return _encode_rows(element)
    if isinstance(element, ArrowBatch):
        return _encode_arrow(element)
    return [_KIND.pack(_MARK, 0), pickle.dumps(element, protocol=5)]


def decode(data: memoryview) -> Element:
    """The element of these bytes; the memory is kept by what it refers to. Raises FormatError."""
    kind, extra = _KIND.unpack_from(data)
    body = data[_KIND.size :]
    if kind == _ROWS:
        values, timestamps, keys, groups = pickle.loads(body)
        return RowBatch(values, timestamps, keys, groups)
    if kind == _ARROW:
        return _decode_arrow(body, extra)
    if kind == _MARK:
        return cast("Mark", pickle.loads(body))
    raise FormatError("unknown kind of element", offset=0, expected="1, 2 or 3", found=str(kind))


def _encode_rows(batch: RowBatch) -> list[Buffer]:
    body = pickle.dumps(
        (batch.values, batch.timestamps_ms, batch.keys, batch.key_groups), protocol=5
    )
    return [_KIND.pack(_ROWS, 0), body]


def _encode_arrow(batch: ArrowBatch) -> list[Buffer]:
    import pyarrow as pa

    side = pickle.dumps((batch.timestamps_ms, batch.key_column, batch.key_groups), protocol=5)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.batch.schema) as writer:
        writer.write_batch(batch.batch)
    return [_KIND.pack(_ARROW, len(side)), side, memoryview(sink.getvalue())]


def _decode_arrow(body: memoryview, side_bytes: int) -> ArrowBatch:
    import pyarrow as pa

    timestamps, key_column, groups = cast(
        "tuple[np.ndarray | None, str | None, np.ndarray | None]",
        pickle.loads(body[:side_bytes]),
    )
    with pa.ipc.open_stream(pa.py_buffer(body[side_bytes:])) as reader:
        batch = reader.read_next_batch()
    return ArrowBatch(batch, timestamps, key_column, groups)
