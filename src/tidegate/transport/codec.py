"""Elements as bytes: rows as one pickle a batch, Arrow batches as Arrow IPC, marks as pickles.

What `encode` gives stands alone, so that it can be kept in a file. A channel has an `Encoder` and a
`Decoder`, and an Arrow schema goes over it once. Bytes: docs/formats/wire.md.
"""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

import msgspec
import numpy as np

from tidegate.api.rows.column_rows import ColumnRows, RowForm
from tidegate.errors import FormatError, UserCodeFailed
from tidegate.model.elements import ArrowBatch, Element, Mark, RowBatch
from tidegate.model.nullable import Nullable, kind_of, values_of
from tidegate.typeinfo.pickling import loads

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.model.nullable import FieldValues
    from tidegate.transport.wire import Buffer

_ROWS, _ARROW, _MARK, _COLUMNS, _ARROW_OF_SCHEMA = 1, 2, 3, 4, 5
_KIND = struct.Struct("!BI")

_TEXT: Final = np.dtype(np.object_).str
_TEXTS: Final = msgspec.msgpack.Decoder(list[str])
_TEXTS_WITH_NULLS: Final = msgspec.msgpack.Decoder(list[str | None])
_NULLABLE: Final = "?"
"""Stands before the type of a column with nulls."""
_WORD: Final = 8
_BEFORE: Final = 23
"""Bytes of a frame before its element: the length and the header. What a process has received
begins at a multiple of 8 bytes, so columns are laid out from there: NumPy copies what is askew."""

Times = list[int] | None
Keys = list[object] | None
Groups = list[int] | None


def encode(element: Element) -> list[Buffer]:
    """The parts of an element's bytes; large buffers are referenced, not copied.

    Raises UserCodeFailed for a row that cannot be pickled.
    """
    if isinstance(element, ColumnRows):
        return _encode_columns(element)
    if isinstance(element, RowBatch):
        return _encode_rows(element)
    if isinstance(element, ArrowBatch):
        return _encode_arrow(element)
    return [_KIND.pack(_MARK, 0), pickle.dumps(element, protocol=5)]


def decode(data: memoryview) -> Element:
    """The element of these bytes; the memory is kept by what it refers to.

    Raises FormatError; UserCodeFailed where a row's class is missing or its hooks raise.
    """
    if len(data) < _KIND.size:
        raise FormatError("an element without its kind", offset=0, found=bytes(data).hex())
    kind, extra = _KIND.unpack_from(data)
    body = data[_KIND.size :]
    if kind == _ROWS:
        values, timestamps, keys, groups = unpickled(body)
        return RowBatch(values, timestamps, keys, groups)
    if kind == _COLUMNS:
        return _decode_columns(body, extra)
    if kind == _ARROW:
        return _decode_arrow(body, extra)
    if kind == _MARK:
        return cast("Mark", loads(body))
    raise FormatError("unknown kind of element", offset=0, expected="1 to 4", found=str(kind))


class Encoder:
    """Encodes the elements of one channel, each schema once."""

    def __init__(self) -> None:
        self._link: object = None
        self._schema: pa.Schema | None = None

    def encode(self, element: Element, link: object) -> list[Buffer]:
        """Encodes an element, as the function `encode`. link: a new one knows no schema yet."""
        if not isinstance(element, ArrowBatch):
            return encode(element)
        schema = element.batch.schema
        known = self._schema is not None and self._link is link
        if known and schema.equals(self._schema, check_metadata=True):
            return _encode_of_schema(element)
        self._link = link
        # A message without a schema has no dictionaries, which come between the two.
        self._schema = schema if all(_goes_alone(field.type) for field in schema) else None
        return _encode_arrow(element)


class Decoder:
    """Decodes the elements of one channel, in their order."""

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None

    def decode(self, data: memoryview) -> Element:
        """Decodes the next element, as the function `decode`."""
        if bytes(data[:1]) == bytes([_ARROW_OF_SCHEMA]) and len(data) >= _KIND.size:
            if self._schema is None:
                raise FormatError("an Arrow batch whose schema has not come", offset=0)
            return _decode_of_schema(data, self._schema)
        element = decode(data)
        if isinstance(element, ArrowBatch):
            self._schema = element.batch.schema
        return element


def check_batch(data: memoryview) -> None:
    """Checks the frame of a batch without unpickling anything. Raises FormatError."""
    kind, extra = _KIND.unpack_from(data) if len(data) >= _KIND.size else (0, 0)
    body = data[_KIND.size :]
    pickled = body[:extra] if kind in (_ARROW, _COLUMNS) else body
    whole = bytes(pickled[:1]) == pickle.PROTO and bytes(pickled[-1:]) == pickle.STOP
    if kind not in (_ROWS, _ARROW, _COLUMNS) or not whole or len(pickled) < extra:
        raise FormatError("not a whole batch of rows", found=bytes(data[:8]).hex())


def _encode_rows(batch: RowBatch) -> list[Buffer]:
    columns = (batch.values, batch.timestamps_ms, batch.keys, batch.key_groups)
    return [_KIND.pack(_ROWS, 0), pickled(columns)]


def pickled(rows: object) -> bytes:
    """Pickles rows for another process. Raises UserCodeFailed."""
    try:
        return pickle.dumps(rows, protocol=5)
    except Exception:  # not to be imported elsewhere, or whatever the objects' own hooks raise
        return _by_value(rows)


def _by_value(rows: object) -> bytes:
    """Pickles by value objects of classes that cannot be imported elsewhere, such as a script's."""
    from tidegate.typeinfo.by_value import pickled_by_value  # 30 ms that only such rows pay for

    try:
        return pickled_by_value(rows)
    except Exception as error:  # whatever the objects' own hooks raise
        raise UserCodeFailed(
            f"a row cannot be sent to another subtask: {type(error).__name__}: {error}",
            remedy="Emit only data; open files, locks and clients belong into open().",
        ) from error


def unpickled(data: bytes | memoryview) -> Any:
    """Reads what ``pickled`` wrote. Raises UserCodeFailed."""
    try:
        return loads(data)
    except Exception as error:  # whatever the objects' own hooks raise
        raise UserCodeFailed(
            f"a row cannot be read in this process: {type(error).__name__}: {error}",
            remedy="Install the modules of the rows' classes where the slots run; on Spark, "
            "`SparkContext.addPyFile` ships them.",
        ) from error


def _encode_columns(batch: ColumnRows) -> list[Buffer]:
    columns = [*batch.columns, batch.stamps, batch.groups]
    arrays = [None if each is None else values_of(each) for each in columns]
    try:
        texts = [msgspec.msgpack.encode(each.tolist()) for each in arrays if _is_text(each)]
    except UnicodeEncodeError:  # half of a surrogate pair, which only pickles hold
        return _encode_rows(batch)
    nulls = [np.packbits(each.nulls).data for each in columns if isinstance(each, Nullable)]
    kinds = [None if each is None else _kind_text(each) for each in columns]
    lengths = [len(each) for each in texts]
    form = batch.form
    rows = (len(batch), form.is_tuple, form.names, form.record)
    side = pickled((*rows, batch.key_column, batch.width, kinds, lengths))
    parts = [_bytes_of(each) for each in arrays if each is not None and not _is_text(each)]
    return [_KIND.pack(_COLUMNS, len(side)), side, _padding(side), *parts, *texts, *nulls]


def _decode_columns(body: memoryview, side_bytes: int) -> ColumnRows:
    rows, is_tuple, names, record, key_column, width, kinds, text_bytes = unpickled(
        body[:side_bytes]
    )
    own = [None if kind is None else kind.removeprefix(_NULLABLE) for kind in kinds]
    arrays: list[Any] = []
    at = _aligned(side_bytes)
    for kind in own:
        array = None if kind in (None, _TEXT) else np.frombuffer(body, kind, rows, at)
        at += 0 if array is None else array.nbytes
        arrays.append(array)
    of_texts = [index for index, kind in enumerate(own) if kind == _TEXT]
    for index, length in zip(of_texts, text_bytes, strict=True):
        decoder = _TEXTS if kinds[index] == _TEXT else _TEXTS_WITH_NULLS
        arrays[index] = np.array(decoder.decode(body[at : at + length]), np.object_)
        at += length
    bit_bytes = -(-rows // 8)
    for index, kind in enumerate(kinds):
        if kind is not None and kind.startswith(_NULLABLE):
            bits = np.unpackbits(np.frombuffer(body, np.uint8, bit_bytes, at), count=rows)
            arrays[index] = Nullable(arrays[index], bits.view(np.bool_))
            at += bit_bytes
    *columns, stamps, groups = arrays
    return ColumnRows(
        columns,
        form=RowForm(is_tuple, names, record),
        stamps=stamps,
        key_column=key_column,
        groups=groups,
        width=width,
    )


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
        loads(body[:side_bytes]),
    )
    with pa.ipc.open_stream(pa.py_buffer(body[side_bytes:])) as reader:
        batch = reader.read_next_batch()
    return ArrowBatch(batch, timestamps, key_column, groups)


def _encode_of_schema(batch: ArrowBatch) -> list[Buffer]:
    arrays = (batch.timestamps_ms, batch.key_groups)
    kinds = [None if each is None else each.dtype.str for each in arrays]
    side = pickle.dumps((len(batch), batch.key_column, *kinds), protocol=5)
    parts = [_bytes_of(each) for each in arrays if each is not None]
    filling = bytes(-sum(map(len, parts)) % _WORD)
    message = memoryview(batch.batch.serialize())
    head = _KIND.pack(_ARROW_OF_SCHEMA, len(side))
    return [head, side, _padding(side), *parts, filling, message]


def _decode_of_schema(data: memoryview, schema: pa.Schema) -> ArrowBatch:
    import pyarrow as pa

    _, side_bytes = _KIND.unpack_from(data)
    body = data[_KIND.size :]
    rows, key_column, *kinds = cast(
        "tuple[int, str | None, str | None, str | None]", loads(body[:side_bytes])
    )
    at = _aligned(side_bytes)
    arrays: list[np.ndarray | None] = []
    for kind in kinds:
        array = None if kind is None else np.frombuffer(body, np.dtype(kind), rows, at)
        arrays.append(array)
        at += 0 if array is None else array.nbytes
    at += -(at - _aligned(side_bytes)) % _WORD
    batch = pa.ipc.read_record_batch(pa.py_buffer(body[at:]), schema)
    stamps, groups = arrays
    return ArrowBatch(batch, stamps, key_column, groups)


def _goes_alone(kind: pa.DataType) -> bool:
    """True if columns of this type need nothing but their schema, so no dictionary anywhere."""
    import pyarrow as pa

    is_a = pa.types
    if is_a.is_struct(kind):
        return all(_goes_alone(field.type) for field in kind)
    if is_a.is_map(kind):
        return _goes_alone(kind.key_type) and _goes_alone(kind.item_type)
    if is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind):
        return _goes_alone(kind.value_type)
    special = is_a.is_dictionary(kind) or is_a.is_run_end_encoded(kind) or is_a.is_nested(kind)
    return not special and not isinstance(kind, pa.BaseExtensionType)


def _aligned(side_bytes: int) -> int:
    """Where columns begin in a body, behind what stands beside them."""
    return side_bytes + -(_BEFORE + _KIND.size + side_bytes) % _WORD


def _padding(side: bytes) -> bytes:
    return bytes(_aligned(len(side)) - len(side))


def _kind_text(column: FieldValues) -> str:
    return (_NULLABLE if isinstance(column, Nullable) else "") + kind_of(column).str


def _is_text(array: np.ndarray | None) -> TypeGuard[np.ndarray]:
    return array is not None and array.dtype.str == _TEXT


def _bytes_of(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).data.cast("B")
