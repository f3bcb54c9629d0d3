"""Stream handles and operator-state handles as bytes (docs/formats/metadata.md, section 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flinkformat.handles import (
    ByteStreamStateHandle,
    EmptySegmentFileStateHandle,
    FileMergingOperatorStreamStateHandle,
    FileStateHandle,
    KeyGroupsStateHandle,
    OperatorStateHandle,
    OperatorStreamStateHandle,
    PlaceholderStreamStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StateDistribution,
    StateMetaInfo,
    StateScope,
    StreamStateHandle,
)
from flinkformat.key_groups import PARALLELISM_MAX, KeyGroupRange

if TYPE_CHECKING:
    from flinkformat.metadata.wire import Reader, Writer

NULL: Final = 0
BYTES: Final = 1
FILE: Final = 2
KEY_GROUPS_OLD: Final = 3
OPERATOR: Final = 4
RELATIVE: Final = 6
SEGMENT: Final = 15
EMPTY_SEGMENT: Final = 16
OPERATOR_SEGMENT: Final = 17

NewId = Callable[[], str]
"""Makes the ids that old kinds of handles lack."""


def read_stream(reader: Reader, new_id: NewId) -> StreamStateHandle | None:
    start = reader.offset
    match reader.u8("the type of a stream handle"):
        case 0:
            return None
        case 1:
            return ByteStreamStateHandle(reader.utf("a handle's name"), reader.blob("inline state"))
        case 2:
            size = read_size(reader, "the size of a file")
            return FileStateHandle(reader.utf("the path of a file"), size)
        case 3:
            with reader.nested():
                key_groups, offsets = read_key_group_offsets(reader)
                delegate = read_some_stream(reader, new_id)
            return KeyGroupsStateHandle(key_groups, offsets, delegate, new_id())
        case 6:
            path = reader.utf("the path of a file")
            return RelativeFileStateHandle(path, read_size(reader, "the size of a file"))
        case 15:
            return _read_segment(reader)
        case 16:
            return EmptySegmentFileStateHandle()
        case kind:
            raise reader.fail(
                f"Unknown implementation of StreamStateHandle, code: {kind}",
                expected="a type of stream handle: 0, 1, 2, 3, 6, 15 or 16",
                found=str(kind),
                offset=start,
            )


def read_some_stream(reader: Reader, new_id: NewId) -> StreamStateHandle:
    start = reader.offset
    handle = read_stream(reader, new_id)
    if handle is None:
        raise reader.fail(
            "a state handle names no bytes",
            expected="a stream handle",
            found="none (type 0)",
            offset=start,
        )
    return handle


def read_size(reader: Reader, what: str) -> int:
    """Reads an i64 size in bytes; -1 means unknown."""
    start = reader.offset
    size = reader.i64(what)
    if size < -1:
        raise reader.fail(
            f"{what} is negative", expected="-1 or more", found=str(size), offset=start
        )
    return size


def read_key_group_range(reader: Reader) -> KeyGroupRange:
    first = reader.bounded("the first key group", 0, PARALLELISM_MAX)
    size = reader.bounded("the number of key groups", 0, PARALLELISM_MAX - first)
    return KeyGroupRange(first, first + size - 1) if size else KeyGroupRange.empty()


def read_key_group_offsets(reader: Reader) -> tuple[KeyGroupRange, tuple[int, ...]]:
    key_groups = read_key_group_range(reader)
    return key_groups, reader.offsets(len(key_groups), "offsets of key groups")


def _read_segment(reader: Reader) -> SegmentFileStateHandle:
    start = read_size(reader, "the start of a segment")
    size = read_size(reader, "the size of a segment")
    scope = StateScope(reader.bounded("the scope of a segment", 0, len(StateScope) - 1))
    path = reader.utf("the path of a file")
    return SegmentFileStateHandle(path, start, size, scope, reader.utf("the id of a logical file"))


def write_stream(writer: Writer, handle: StreamStateHandle | None) -> None:
    match handle:
        case None:
            writer.u8(NULL)
        case ByteStreamStateHandle():
            writer.u8(BYTES)
            writer.utf(handle.handle_name)
            writer.blob(handle.data)
        case FileStateHandle():
            writer.u8(FILE)
            writer.i64(handle.state_size)
            writer.utf(handle.file_path)
        case RelativeFileStateHandle():
            writer.u8(RELATIVE)
            writer.utf(handle.relative_path)
            writer.i64(handle.state_size)
        case KeyGroupsStateHandle():
            writer.u8(KEY_GROUPS_OLD)
            write_key_group_offsets(writer, handle.key_groups, handle.offsets)
            write_stream(writer, handle.delegate)
        case SegmentFileStateHandle():
            writer.u8(SEGMENT)
            writer.i64(handle.start_position)
            writer.i64(handle.state_size)
            writer.i32(handle.scope.value)
            writer.utf(handle.file_path)
            writer.utf(handle.logical_file_id)
        case EmptySegmentFileStateHandle():
            writer.u8(EMPTY_SEGMENT)
        case PlaceholderStreamStateHandle():
            raise AssertionError(f"{handle} was not replaced by the registered handle")


def write_key_group_range(writer: Writer, key_groups: KeyGroupRange) -> None:
    writer.i32(key_groups.first)
    writer.i32(len(key_groups))


def write_key_group_offsets(
    writer: Writer, key_groups: KeyGroupRange, offsets: tuple[int, ...]
) -> None:
    write_key_group_range(writer, key_groups)
    writer.offsets(offsets)


def read_operator_handle(reader: Reader, new_id: NewId) -> OperatorStateHandle:
    start = reader.offset
    match reader.u8("the type of an operator state handle"):
        case 4:
            states = _read_named_states(reader)
            return OperatorStreamStateHandle(states, read_some_stream(reader, new_id))
        case 17:
            return _read_file_merging(reader, new_id)
        case kind:
            raise reader.fail(
                f"Reading invalid OperatorStateHandle, type: {kind}",
                expected="a type of operator state handle: 4 or 17",
                found=str(kind),
                offset=start,
            )


def _read_named_states(reader: Reader) -> dict[str, StateMetaInfo]:
    named = reader.many("named operator states", lambda: _read_named_state(reader))
    return dict(named)


def _read_named_state(reader: Reader) -> tuple[str, StateMetaInfo]:
    name = reader.utf("the name of a state")
    start = reader.offset
    mode = reader.u8(f"the distribution mode of state {name!r}")
    if mode >= len(StateDistribution):
        raise reader.fail(
            f"state {name!r} has an unknown distribution mode",
            expected="0 (split), 1 (union) or 2 (broadcast)",
            found=str(mode),
            offset=start,
        )
    offsets = reader.offsets(reader.i32("the number of elements"), "elements")
    return name, StateMetaInfo(StateDistribution(mode), offsets)


def _read_file_merging(reader: Reader, new_id: NewId) -> FileMergingOperatorStreamStateHandle:
    states = _read_named_states(reader)
    task_owned = reader.utf("the task-owned directory")
    shared = reader.utf("the shared directory")
    empty = reader.boolean("whether the handle is empty")
    start = reader.offset
    delegate = read_stream(reader, new_id)
    if not isinstance(delegate, SegmentFileStateHandle | EmptySegmentFileStateHandle):
        raise reader.fail(
            "merged operator state is not in a segment of a file",
            expected="a stream handle of type 15 or 16",
            found=type(delegate).__name__,
            offset=start,
        )
    return FileMergingOperatorStreamStateHandle(states, task_owned, shared, empty, delegate)


def write_operator_handle(writer: Writer, handle: OperatorStateHandle) -> None:
    match handle:
        case OperatorStreamStateHandle():
            writer.u8(OPERATOR)
            _write_named_states(writer, handle)
        case FileMergingOperatorStreamStateHandle():
            writer.u8(OPERATOR_SEGMENT)
            _write_named_states(writer, handle)
            writer.utf(handle.task_owned_directory)
            writer.utf(handle.shared_directory)
            writer.boolean(handle.empty)
    write_stream(writer, handle.delegate)


def _write_named_states(writer: Writer, handle: OperatorStateHandle) -> None:
    writer.i32(len(handle.states))
    for name, info in handle.states.items():
        writer.utf(name)
        writer.u8(info.mode.value)
        writer.i32(len(info.offsets))
        writer.offsets(info.offsets)
