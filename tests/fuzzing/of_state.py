"""State of ours: streams, pieces of values, columns, data in flight, and what types say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from flinkformat.handles import KeyGroupsStateHandle
from tests.fuzzing.cases import Opened, Reader
from tests.state.world import READER, Subtask, snapshot
from tidegate.api.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidegate.checkpoint.channel_state.file_format import chunk, file_header, read_chunks
from tidegate.errors import FormatError, UserError
from tidegate.model.elements import ArrowBatch, RowBatch
from tidegate.state.columns.columnar import columns_of
from tidegate.state.columns.columns import default_of
from tidegate.state.format.blocks import (
    COLUMNS,
    PRESENT,
    ColumnsHeader,
    RocksDBHeader,
    RocksDBState,
    SectionsHeader,
    Version,
    all_sections,
    element,
    header_bytes,
    keyed_header,
    operator_header,
    reading,
    rocksdb_header,
    sections_header,
)
from tidegate.transport import codec
from tidegate.typeinfo.serializers import (
    SerializerSnapshot,
    join_lists,
    serializer_of,
    split_maps,
    split_piece,
    values_in,
)
from tidegate.typeinfo.types import Types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.typeinfo.serializers import Serializer
    from tidegate.typeinfo.types import TypeInformation

GOLDEN = Path(__file__).parent.parent / "state" / "golden"
_PICKLED = b"\x02"
"""Pieces that begin so are unpickled, which is trusted by design and not fuzzed."""


def readers_of_state() -> list[Reader]:
    """Damage is a FormatError; a type of a class that is not there, a UserError."""
    damaged = (FormatError,)
    return [
        Reader("keyed streams", _keyed, damaged),
        Reader("operator streams", _operator, damaged),
        Reader("headers of key spaces", _key_spaces, damaged),
        Reader("columns", _columns, damaged),
        Reader("channel state", _channels, damaged),
        Reader("batches", _batches, damaged),
        Reader("serializer snapshots", _snapshots, damaged, text=True),
        Reader("typed values", _values, (*damaged, UserError)),
    ]


def subtask_with_state(*, compression: bool = False) -> Subtask:
    """Some keys with values, lists and maps of declared types."""
    subtask = Subtask(compression=compression, key_type=Types.STRING())
    backend = subtask.backend
    pairs = backend.keyed_state(
        ValueStateDescriptor("pair", Types.TUPLE([Types.INT(), Types.FLOAT()]))
    )
    words = backend.keyed_state(ListStateDescriptor("words", Types.STRING()))
    names = backend.keyed_state(MapStateDescriptor("names", Types.STRING(), Types.LONG()))
    for number in range(12):
        subtask.on(f"key {number}")
        pairs.update((number, number / 4))
        words.add_all(["a word", "another word"] * number)
        names.put(f"name {number}", number)
    return subtask


def _streams(kind: str) -> list[bytes]:
    seeds = [path.read_bytes() for path in sorted(GOLDEN.glob(f"*.{kind}"))]
    if kind == "keyed":
        for compression in (False, True):
            state = snapshot(subtask_with_state(compression=compression))
            assert isinstance(state.managed_keyed, KeyGroupsStateHandle)
            seeds.append(READER.read(state.managed_keyed.delegate))
    return seeds


def _keyed() -> Opened:
    def read(_: int, data: bytes) -> None:
        view = memoryview(data)
        header = keyed_header(view, "here")
        for state in header.states:
            SerializerSnapshot.from_bytes(state.serializer)
        for _, blocks in all_sections(view, "here"):
            for block in blocks:
                if block.kind == PRESENT:
                    values_in(block.keys)
                    values_in(block.values)

    return Opened(_streams("keyed"), read)


def _operator() -> Opened:
    offsets: list[list[int]] = []
    for path in sorted(GOLDEN.glob("*.operator")):
        states = json.loads(path.with_suffix(".json").read_text())["states"]
        offsets.append([each for _, found in states.values() for each in found])

    def read(index: int, data: bytes) -> None:
        view = memoryview(data)
        operator_header(view, "here")
        for offset in offsets[index]:
            values_in(element(view, offset, "here"))

    return Opened(_streams("operator"), read)


def _key_spaces() -> Opened:
    versions = [Version(b'{"name":"msgpack","version":1,"type":"Long"}', ttl=False)]
    states = [RocksDBState(f"state {n}", "value", n, None, versions, n > 1, n) for n in range(4)]
    seeds = [
        header_bytes(RocksDBHeader(bytes(16), 7, 128, b"{}", states)),
        header_bytes(SectionsHeader(bytes(16), 7, 128, {"a": [(0, 20), (1, 400)], "b": []})),
    ]
    reads = (rocksdb_header, sections_header)
    return Opened(seeds, lambda index, data: reads[index](memoryview(data), "here"))


def _columns() -> Opened:
    data = memoryview((GOLDEN / "state-1.keyed").read_bytes())
    header = keyed_header(data, "here")
    assert header.columns is not None
    blocks = [each for _, found in all_sections(data, "here") for each in found]
    batches = [bytes(block.values) for block in blocks if block.kind == COLUMNS]
    schema = header.columns.schema
    defaults = header.columns.defaults
    known = pa.ipc.read_schema(pa.py_buffer(schema))

    def read(index: int, data: bytes) -> None:
        if index == 0:
            with reading("here"):
                of = pa.ipc.read_schema(pa.py_buffer(data))
                columns_of(ColumnsHeader(data, defaults))
                for field in of:
                    default_of(defaults.get(field.name, b""), field.type, "here")
            return
        with reading("here"):
            batch = pa.ipc.read_record_batch(pa.py_buffer(data), known)
            batch.validate(full=True)
            batch.to_pydict()

    return Opened([schema, *batches], read)


def _channels() -> Opened:
    chunks = [chunk(bytes([n]) * n * 10) for n in range(1, 6)]
    file = b"".join([file_header(), *chunks])
    offsets = [len(file_header())]
    for each in chunks[:-1]:
        offsets.append(offsets[-1] + len(each))
    reaches = [offsets, [*offsets, 2**62], [-1, 0, *offsets]]
    return Opened([file] * 3, lambda index, data: read_chunks(data, reaches[index]))


def _batches() -> Opened:
    rows = [RowBatch([n, "text"], [n, n], ["k", "k"], [3, 3]) for n in range(3)]
    table = pa.record_batch({"a": [1, 2], "b": ["x", None]})
    seeds = [b"".join(codec.encode(each)) for each in (*rows, ArrowBatch(table, None, "b", None))]
    return Opened(seeds, lambda _, data: codec.check_batch(memoryview(data)))


@dataclass
class Visit:
    """A record whose class is known."""

    page: str
    count: int


def _types() -> Sequence[tuple[TypeInformation | None, Sequence[object]]]:
    return [
        (Types.LONG(), [1, 2**40, -3, None]),
        (Types.STRING(), ["", "text", "\u4e2d\u6587"]),
        (Types.TUPLE([Types.INT(), Types.FLOAT()]), [(1, 2.5), (3, 4.0)]),
        (Types.LIST(Types.LIST(Types.STRING())), [[["a"], []], []]),
        (Types.MAP(Types.STRING(), Types.LONG()), [{"a": 1, "b": 2}, {}]),
        (Types.PICKLED_BYTE_ARRAY(), [b"1"]),
        (Types.BIG_DEC(), []),
        (Types.SQL_TIMESTAMP(), []),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"bytes"]),
    ]


def _snapshots() -> Opened:
    serializers = [serializer_of(type_info) for type_info, _ in _types()]
    seeds = [each.snapshot().to_bytes() for each in serializers]
    row = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LIST(Types.STRING())])
    seeds.append(SerializerSnapshot("msgpack", 1, row).to_bytes())
    seeds.append(
        b'{"name":"msgpack","version":1,"type":{"dataclass":"m.A","fields":[["x","Int"]]}}'
    )

    def read(_: int, data: bytes) -> None:
        SerializerSnapshot.from_bytes(data).to_bytes()

    return Opened(seeds, read)


def _values() -> Opened:
    found = [(serializer_of(of), values) for of, values in _types() if values]
    from tidegate.typeinfo.hints import type_of_hint

    found.append((serializer_of(type_of_hint(Visit)), [Visit("a", 1), Visit("b", 2)]))
    typed = [(each, values) for each, values in found if each.snapshot().name == "msgpack"]
    seeds = [each.encode_many(values) for each, values in typed]

    def read(index: int, data: bytes) -> None:
        if data[:1] == seeds[index][:1]:
            _read_as(typed[index][0], data)
        else:
            values_in(data)

    return Opened(seeds, read)


def _read_as(serializer: Serializer, data: bytes) -> None:
    for read in (
        serializer.decode_many,
        values_in,
        split_piece,
        lambda piece: split_maps(piece, serializer),
        lambda piece: join_lists([piece, piece]),
        lambda piece: serializer.decode_each([piece]),
    ):
        try:
            read(data)
        except (FormatError, UserError):
            continue
