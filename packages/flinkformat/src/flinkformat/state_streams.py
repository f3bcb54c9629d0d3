"""Streams of bytes in a snapshot, found and replaced in any handle.

Who counts, checks, copies or deletes files of state asks here, and needs to know no kind of handle.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from flinkformat.frozen import frozen
from flinkformat.handles import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    EmptySegmentFileStateHandle,
    FileMergingOperatorStreamStateHandle,
    FileStateHandle,
    HandleAndLocalPath,
    HandleAndOffset,
    IncrementalRemoteKeyedStateHandle,
    InMemoryChangelogStateHandle,
    InputChannelStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    MergedInputChannelStateHandle,
    MergedResultSubpartitionStateHandle,
    OperatorStreamStateHandle,
    PlaceholderStreamStateHandle,
    RelativeFileStateHandle,
    ResultSubpartitionStateHandle,
    SegmentFileStateHandle,
    StateScope,
)
from flinkformat.snapshots import FINISHED, CheckpointMetadata, OperatorState, SubtaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flinkformat.handles import (
        InputStateHandle,
        KeyedStateHandle,
        OperatorStateHandle,
        OutputStateHandle,
        StreamStateHandle,
    )

    AnyHandle = (
        StreamStateHandle
        | OperatorStateHandle
        | KeyedStateHandle
        | InputStateHandle
        | OutputStateHandle
    )
    SnapshotPart = CheckpointMetadata | OperatorState | SubtaskState | AnyHandle

_Part = TypeVar("_Part", bound="SnapshotPart")


class Role(Enum):
    """Purpose of a stream for its subtask or operator."""

    COORDINATOR = "coordinator"
    OPERATOR = "operator state"
    RAW_OPERATOR = "raw operator state"
    KEYED = "keyed state"
    RAW_KEYED = "raw keyed state"
    INPUT = "input channels"
    OUTPUT = "result subpartitions"


@frozen
class Stream:
    """A stream of bytes that a snapshot names.

    shared: whether other checkpoints may name it too. role, owner, subtask: what it is, and of
    whom, as far as what was asked for says it.
    """

    handle: StreamStateHandle
    shared: bool
    role: Role | None = None
    owner: OperatorState | None = None
    subtask: int | None = None


def streams(part: SnapshotPart) -> Iterator[Stream]:
    """Each stream of a snapshot, or of a part of it; one that is named twice comes twice."""
    match part:
        case CheckpointMetadata(operators=operators):
            for operator in operators:
                yield from streams(operator)
        case OperatorState():
            if part.coordinator_state is not None:
                yield Stream(part.coordinator_state, False, Role.COORDINATOR, part)
            for index, state in part.subtasks.items():
                if state is not FINISHED:
                    for each in streams(state):
                        yield replace(each, owner=part, subtask=index)
        case SubtaskState():
            for role, handle in _handles(part):
                for each in streams(handle):
                    yield replace(each, role=role)
        case _:
            found: list[Stream] = []

            def note(stream: Stream) -> StreamStateHandle:
                found.append(stream)
                return stream.handle

            _replaced(part, note)
            yield from found


def replace_streams(part: _Part, change: Callable[[Stream], StreamStateHandle]) -> _Part:
    """A copy of a snapshot, or of a part of it, with other streams.

    change: from a stream to the handle that stands in its place, which may be the same.
    """
    match part:
        case CheckpointMetadata(operators=operators):
            changed: Any = tuple(replace_streams(each, change) for each in operators)
            return replace(part, operators=changed)
        case OperatorState(subtasks=subtasks):
            changed = {
                index: state if state is FINISHED else replace_streams(state, change)
                for index, state in subtasks.items()
            }
            return replace(part, subtasks=changed)
        case SubtaskState():
            return replace(
                part,
                managed_operator=_of_one(part.managed_operator, change),
                raw_operator=_of_one(part.raw_operator, change),
                managed_keyed=_of_one(part.managed_keyed, change),
                raw_keyed=_of_one(part.raw_keyed, change),
                input_channel=tuple(_replaced(each, change) for each in part.input_channel),
                result_subpartition=tuple(
                    _replaced(each, change) for each in part.result_subpartition
                ),
            )
        case _:
            return _replaced(part, change)


class Place(NamedTuple):
    """Place of a stream in a file. size: None if it ends with the file."""

    path: str
    start: int = 0
    size: int | None = None


def place_of(handle: StreamStateHandle) -> bytes | Place | None:
    """Place of a stream: the bytes themselves, or a range of a file.

    None if only a placeholder is known, or a relative name whose folder nobody has said.
    """
    match handle:
        case ByteStreamStateHandle(data=data):
            return data
        case EmptySegmentFileStateHandle():
            return b""
        case FileStateHandle(file_path=path):
            return Place(path)
        case RelativeFileStateHandle(file_path=path):
            return None if path is None else Place(path)
        case SegmentFileStateHandle(file_path=path, start_position=start, state_size=size):
            return Place(path, start, size)
        case KeyGroupsStateHandle(delegate=delegate):
            return place_of(delegate)
        case PlaceholderStreamStateHandle():
            return None


def file_of(handle: StreamStateHandle) -> str | None:
    place = place_of(handle)
    return place.path if isinstance(place, Place) else None


def files_of(part: SnapshotPart) -> Iterator[str]:
    """Files that a snapshot, or a part of it, names; one may come more than once."""
    for stream in streams(part):
        file = file_of(stream.handle)
        if file is not None:
            yield file


def _handles(state: SubtaskState) -> Iterator[tuple[Role, AnyHandle]]:
    single = (
        (Role.OPERATOR, state.managed_operator),
        (Role.RAW_OPERATOR, state.raw_operator),
        (Role.KEYED, state.managed_keyed),
        (Role.RAW_KEYED, state.raw_keyed),
    )
    yield from ((role, handle) for role, handle in single if handle is not None)
    yield from ((Role.INPUT, handle) for handle in state.input_channel)
    yield from ((Role.OUTPUT, handle) for handle in state.result_subpartition)


def _of_one(handle: Any, change: Callable[[Stream], StreamStateHandle]) -> Any:
    return None if handle is None else _replaced(handle, change)


def _replaced(handle: Any, change: Callable[[Stream], StreamStateHandle]) -> Any:
    """Replaces streams in a handle: the one place that knows which handles contain others."""

    def own(stream: StreamStateHandle) -> Any:
        return _in_stream(stream, False, change)

    def shared(stream: StreamStateHandle) -> Any:
        return _in_stream(stream, _may_be_shared(stream), change)

    def files(of: tuple[HandleAndLocalPath, ...], one: Callable[[StreamStateHandle], Any]) -> Any:
        return tuple(HandleAndLocalPath(file.local_path, one(file.handle)) for file in of)

    match handle:
        case OperatorStreamStateHandle():
            return replace(handle, delegate=own(handle.delegate))
        case FileMergingOperatorStreamStateHandle():
            delegate = shared(handle.delegate)
            if isinstance(delegate, SegmentFileStateHandle | EmptySegmentFileStateHandle):
                return replace(handle, delegate=delegate)
            return OperatorStreamStateHandle(handle.states, delegate)
        case KeyGroupsStateHandle(delegate=SegmentFileStateHandle()):
            return replace(handle, delegate=shared(handle.delegate))
        case KeyGroupsStateHandle() | KeyGroupsSavepointStateHandle():
            return replace(handle, delegate=own(handle.delegate))
        case IncrementalRemoteKeyedStateHandle():
            return replace(
                handle,
                meta=own(handle.meta),
                private_state=files(handle.private_state, own),
                shared_state=files(handle.shared_state, shared),
            )
        case ChangelogStateHandleStream():
            parts = tuple(HandleAndOffset(p.offset, shared(p.handle)) for p in handle.handles)
            return replace(handle, handles=parts)
        case ChangelogStateBackendHandle():
            # A base outlives the checkpoint that came with it, with all of its files.
            def of_base(stream: Stream) -> StreamStateHandle:
                return change(replace(stream, shared=_may_be_shared(stream.handle)))

            return replace(
                handle,
                materialized=tuple(_replaced(each, of_base) for each in handle.materialized),
                non_materialized=tuple(_replaced(each, change) for each in handle.non_materialized),
            )
        case InMemoryChangelogStateHandle():
            return handle
        case (
            InputChannelStateHandle()
            | ResultSubpartitionStateHandle()
            | MergedInputChannelStateHandle()
            | MergedResultSubpartitionStateHandle()
        ):
            return replace(handle, delegate=own(handle.delegate))
        case _:
            return own(handle)


def _in_stream(
    handle: StreamStateHandle, shared: bool, change: Callable[[Stream], StreamStateHandle]
) -> StreamStateHandle:
    if isinstance(handle, KeyGroupsStateHandle):
        return replace(handle, delegate=_in_stream(handle.delegate, shared, change))
    return change(Stream(handle, shared))


def _may_be_shared(handle: StreamStateHandle) -> bool:
    match handle:
        case SegmentFileStateHandle(scope=scope):
            return scope is StateScope.SHARED
        case ByteStreamStateHandle() | EmptySegmentFileStateHandle():
            return False
        case KeyGroupsStateHandle(delegate=delegate):
            return _may_be_shared(delegate)
        case _:
            return True


def shared_handles(state: SubtaskState) -> Iterator[StreamStateHandle]:
    for keyed in (state.managed_keyed, state.raw_keyed):
        if keyed is not None:
            yield from (stream.handle for stream in streams(keyed) if stream.shared)


def private_paths(state: SubtaskState) -> list[str]:
    """Paths of the files that belong to this state alone, each once."""
    own = (file_of(stream.handle) for stream in streams(state) if not stream.shared)
    return list(dict.fromkeys(path for path in own if path is not None))
