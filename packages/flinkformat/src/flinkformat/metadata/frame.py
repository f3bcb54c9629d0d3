"""A whole ``_metadata`` file: magic, version, master states, operators, properties.

It is Flink's own format, byte for byte: written as version 6, as Flink 2.3 does, and read from
version 2 on. Nothing here touches a file: relative handles stay relative, and whoever reads the
file resolves them against its folder.
Layout: docs/formats/metadata.md. Golden bytes: tests/fixtures/meta-*.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

from flinkformat.ids import CheckpointId
from flinkformat.metadata.properties import read_properties, write_properties
from flinkformat.metadata.versions import LAYOUTS, Layout, OperatorReader, write_operator
from flinkformat.metadata.wire import Reader, Writer
from flinkformat.snapshots import CheckpointMetadata, MasterState, OperatorState

if TYPE_CHECKING:
    from flinkformat.metadata.streams import NewId

MAGIC: Final = 0x4960672D
MASTER_STATE_MAGIC: Final = 0xC96B1696
WRITTEN_VERSION: Final = 6


def encode(metadata: CheckpointMetadata, version: int = WRITTEN_VERSION) -> bytes:
    """Encodes a ``_metadata`` file, in version 3 to 6.

    Below version 6 channel state is written unmerged, below 5 names and uids are left out, below
    4 properties. Raises FormatError for names that have no form, such as one above 65535 bytes.
    """
    layout = LAYOUTS[version]
    assert not layout.legacy, "nobody writes version 2"
    writer = Writer()
    writer.i32(MAGIC)
    writer.i32(version)
    writer.i64(metadata.checkpoint_id)
    writer.many(metadata.master_states, lambda state: _write_master_state(writer, state))
    writer.many(metadata.operators, lambda operator: write_operator(writer, layout, operator))
    if layout.properties:
        write_properties(writer, metadata.properties)
    return writer.finished()


def _write_master_state(writer: Writer, state: MasterState) -> None:
    inner = Writer()
    inner.i32(state.version)
    inner.utf(state.name)
    inner.blob(state.payload)
    writer.i32(MASTER_STATE_MAGIC - 2**32)
    writer.blob(inner.finished())


def decode(data: bytes, new_id: NewId | None = None) -> CheckpointMetadata:
    """Decodes the bytes of a ``_metadata`` file.

    new_id: makes state handle ids for kinds of handles that lack one; by default they are numbered.
    Bytes behind the end are not looked at, as in Flink. Raises FormatError, and nothing else, for
    any other bytes.
    """
    numbers = count()
    new_id = new_id or (lambda: f"handle-{next(numbers)}")
    reader = Reader(data)
    layout = _read_layout(reader)
    checkpoint = _read_checkpoint_id(reader)
    master_states = tuple(
        [_read_master_state(reader, i) for i in range(reader.count("master states"))]
    )
    operators = _read_operators(reader, layout, new_id)
    return CheckpointMetadata(
        checkpoint_id=checkpoint,
        operators=operators,
        master_states=master_states,
        properties=read_properties(reader) if layout.properties else None,
    )


def version_of(data: bytes) -> int:
    """Version of a ``_metadata`` file. Raises FormatError if it cannot be read."""
    return _read_layout(Reader(data)).version


def _read_layout(reader: Reader) -> Layout:
    magic = reader.i32("the magic number")
    if magic != MAGIC:
        raise reader.fail(
            "Unexpected magic number: the file is from Flink 1.0, or it is not checkpoint or "
            "savepoint metadata at all, or it is corrupted",
            expected=f"{MAGIC:08x}",
            found=f"{magic & 0xFFFFFFFF:08x}",
            offset=0,
        )
    version = reader.i32("the version")
    layout = LAYOUTS.get(version)
    if layout is None:
        raise reader.fail(
            "This savepoint / checkpoint version (Flink 1.1 / 1.2) is no longer supported."
            if version == 1
            else f"Unrecognized checkpoint version number: {version}",
            expected=f"{min(LAYOUTS)} to {max(LAYOUTS)}",
            found=str(version),
            offset=4,
            remedy=""
            if version <= max(LAYOUTS)
            else "It was written by a newer version of Flink "
            "or Tidegate, or is damaged: read it with that version, or name another snapshot.",
        )
    return layout


def _read_checkpoint_id(reader: Reader) -> CheckpointId:
    start = reader.offset
    checkpoint = reader.i64("the checkpoint id")
    if checkpoint < 0:
        raise reader.fail(
            f"invalid checkpoint ID: {checkpoint}",
            expected="0 or more",
            found=str(checkpoint),
            offset=start,
        )
    return CheckpointId(checkpoint)


def _read_master_state(reader: Reader, index: int) -> MasterState:
    reader.where = f"master state {index + 1}"
    start = reader.offset
    magic = reader.i32("the magic number of a master state") & 0xFFFFFFFF
    if magic != MASTER_STATE_MAGIC:
        raise reader.fail(
            "incorrect magic number in master state byte sequence",
            expected=f"{MASTER_STATE_MAGIC:08x}",
            found=f"{magic:08x}",
            offset=start,
        )
    size = reader.bounded("the length of a master state", 1, 2**31 - 1)
    inner = reader.part(size, "a master state")
    version = inner.i32("the version of a master state")
    name = inner.utf("the name of a master state")
    payload = inner.blob(f"master state {name!r}")
    inner.end(f"found trailing bytes in master state {name!r}", expected="none")
    return MasterState(name, version, payload)


def _read_operators(reader: Reader, layout: Layout, new_id: NewId) -> tuple[OperatorState, ...]:
    reader.where = "operators"
    return reader.many("operator states", OperatorReader(reader, layout, new_id).operator)
