"""State handles: where the bytes of state are. Frozen values, under Flink's names.

A handle never holds open files and never reads; ``storage.checkpoints`` does. Once it has been
acknowledged it does not change. Three families:

- a `StreamStateHandle` names one run of bytes;
- an `OperatorStateHandle` says where in a stream the elements of each named state begin;
- a `KeyedStateHandle` says which key groups are there, and where.

Their bytes in a ``_metadata`` file: docs/formats/metadata.md.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flinkformat.key_groups import KeyGroupRange


@frozen
class ByteStreamStateHandle:
    """State inline in its handle; equal name and bytes make equal handles.

    handle_name: free text; by custom the path that the file would have had.
    """

    handle_name: str
    data: bytes

    @property
    def state_size(self) -> int:
        return len(self.data)

    @property
    def physical_id(self) -> str:
        return self.handle_name


@frozen
class FileStateHandle:
    """State in a file of its own, named by an absolute path or URI."""

    file_path: str
    state_size: int

    @property
    def physical_id(self) -> str:
        return self.file_path


@frozen
class RelativeFileStateHandle:
    """State in a file that lies in the folder of the ``_metadata`` that names it.

    file_path: the absolute path, or None as long as nobody has said which folder that is: the
    codec leaves it None, ``storage.checkpoints`` fills it in, writers of files know it at once.
    """

    relative_path: str
    state_size: int
    file_path: str | None = field(default=None, kw_only=True)

    @property
    def physical_id(self) -> str:
        """Identity of the bytes; the relative path until the folder is known."""
        return self.relative_path if self.file_path is None else self.file_path


class StateScope(Enum):
    """Owner of a segment's file: one checkpoint, or several; values as in the format."""

    EXCLUSIVE = 0
    SHARED = 1


@frozen
class SegmentFileStateHandle:
    """State in a part of a bigger file: `state_size` bytes from `start_position`."""

    file_path: str
    start_position: int
    state_size: int
    scope: StateScope
    logical_file_id: str

    @property
    def physical_id(self) -> str:
        return self.file_path


@frozen
class EmptySegmentFileStateHandle:
    """Replaces a segment of no bytes."""

    @property
    def state_size(self) -> int:
        return 0

    @property
    def physical_id(self) -> str:
        return "empty"


@frozen
class PlaceholderStreamStateHandle:
    """Replaces a shared file that the driver has registered already; never in a ``_metadata``."""

    physical_id: str
    state_size: int


class StateDistribution(Enum):
    """How operator state is spread when it is restored; values as in the format."""

    SPLIT_DISTRIBUTE = 0
    UNION = 1
    BROADCAST = 2


@frozen
class StateMetaInfo:
    """One named operator state: how it is spread, and where each element begins in the stream."""

    mode: StateDistribution
    offsets: tuple[int, ...]


@frozen
class OperatorStreamStateHandle:
    """Operator state of one subtask: its named states, all in one stream.

    states: in the order of the file, which restoring with another parallelism depends on.
    """

    states: Mapping[str, StateMetaInfo]
    delegate: StreamStateHandle

    @property
    def state_size(self) -> int:
        return self.delegate.state_size


@frozen
class FileMergingOperatorStreamStateHandle:
    """Operator state in a segment of a file that several checkpoints share.

    empty: there was nothing to write; then `delegate` is an empty segment.
    """

    states: Mapping[str, StateMetaInfo]
    task_owned_directory: str
    shared_directory: str
    empty: bool
    delegate: SegmentFileStateHandle | EmptySegmentFileStateHandle

    @property
    def state_size(self) -> int:
        return self.delegate.state_size


@frozen
class KeyGroupsStateHandle:
    """Keyed state by key groups, in a backend's own form.

    offsets: where each key group of `key_groups` begins in `delegate`, in their order.
    """

    key_groups: KeyGroupRange
    offsets: tuple[int, ...]
    delegate: StreamStateHandle
    state_handle_id: str

    def __post_init__(self) -> None:
        assert len(self.offsets) == len(self.key_groups), "one offset for each key group"

    def offset_of(self, key_group: int) -> int:
        assert key_group in self.key_groups, f"key group {key_group} is not in {self.key_groups}"
        return self.offsets[key_group - self.key_groups.first]

    @property
    def state_size(self) -> int:
        """Bytes of the whole stream, whichever part `key_groups` names."""
        return self.delegate.state_size

    @property
    def checkpointed_size(self) -> int:
        return self.state_size

    @property
    def physical_id(self) -> str:
        return self.delegate.physical_id


@frozen
class KeyGroupsSavepointStateHandle:
    """Keyed state by key groups in the canonical form, which every backend reads.

    offsets: as in `KeyGroupsStateHandle`; 0 if a key group has no state.
    """

    key_groups: KeyGroupRange
    offsets: tuple[int, ...]
    delegate: StreamStateHandle

    def __post_init__(self) -> None:
        assert len(self.offsets) == len(self.key_groups), "one offset for each key group"

    def offset_of(self, key_group: int) -> int:
        assert key_group in self.key_groups, f"key group {key_group} is not in {self.key_groups}"
        return self.offsets[key_group - self.key_groups.first]

    @property
    def state_size(self) -> int:
        return self.delegate.state_size

    @property
    def checkpointed_size(self) -> int:
        return self.state_size


@frozen
class HandleAndLocalPath:
    """A file of a backend's folder: its name there, and where its bytes are."""

    local_path: str
    handle: StreamStateHandle


@frozen
class IncrementalRemoteKeyedStateHandle:
    """Keyed state as the files of a backend's folder, of which some are shared by checkpoints.

    backend_id: UUID of the backend instance that wrote it. meta: description of the states.
    checkpointed_size: bytes that this checkpoint has written, unlike `state_size`, which is all.
    """

    checkpoint_id: int
    backend_id: str
    key_groups: KeyGroupRange
    checkpointed_size: int
    meta: StreamStateHandle
    shared_state: tuple[HandleAndLocalPath, ...]
    private_state: tuple[HandleAndLocalPath, ...]
    state_handle_id: str

    @property
    def state_size(self) -> int:
        files = (*self.shared_state, *self.private_state)
        return self.meta.state_size + sum(file.handle.state_size for file in files)


@frozen
class StateChange:
    """One entry of a changelog. key_group: -1 for a change of the states' description."""

    key_group: int
    change: bytes


@frozen
class InMemoryChangelogStateHandle:
    """A part of a changelog, inline: the changes with sequence numbers in [`start`, `end`)."""

    key_groups: KeyGroupRange
    start: int
    end: int
    changes: tuple[StateChange, ...]
    state_handle_id: str

    @property
    def state_size(self) -> int:
        return sum(len(change.change) for change in self.changes)

    @property
    def checkpointed_size(self) -> int:
        return self.state_size


@frozen
class HandleAndOffset:
    """A run of changelog bytes: from `offset` of the stream on."""

    offset: int
    handle: StreamStateHandle


@frozen
class ChangelogStateHandleStream:
    """A part of a changelog, in files; `storage_id` names the kind of changelog storage."""

    key_groups: KeyGroupRange
    handles: tuple[HandleAndOffset, ...]
    state_size: int
    checkpointed_size: int
    state_handle_id: str
    storage_id: str


@frozen
class ChangelogStateBackendHandle:
    """Keyed state as a materialised snapshot and the changes made since.

    materialization_id: number of that snapshot, -1 before the first.
    """

    key_groups: KeyGroupRange
    materialized: tuple[KeyedStateHandle, ...]
    non_materialized: tuple[ChangelogStateHandle, ...]
    materialization_id: int
    checkpoint_id: int
    checkpointed_size: int
    state_handle_id: str

    @property
    def state_size(self) -> int:
        return sum(part.state_size for part in (*self.materialized, *self.non_materialized))


@frozen
class InputChannelStateHandle:
    """In-flight data that a barrier overtook in one input channel.

    offsets: where each buffer begins in `delegate`. state_size: bytes of this channel alone.
    """

    subtask_index: int
    gate_index: int
    channel_index: int
    offsets: tuple[int, ...]
    state_size: int
    delegate: StreamStateHandle


@frozen
class ResultSubpartitionStateHandle:
    """In-flight data that a barrier overtook in one output; otherwise as an input channel's."""

    subtask_index: int
    partition_index: int
    subpartition_index: int
    offsets: tuple[int, ...]
    state_size: int
    delegate: StreamStateHandle


@frozen
class MergedInputChannelStateHandle:
    """In-flight data of all input channels of a subtask that share one file.

    channel_offsets: packed; ``checkpoint.metadata.channels`` unfolds them.
    """

    subtask_index: int
    state_size: int
    delegate: StreamStateHandle
    channel_offsets: bytes


@frozen
class MergedResultSubpartitionStateHandle:
    """In-flight data of all outputs of a subtask that share one file; otherwise as the inputs'."""

    subtask_index: int
    state_size: int
    delegate: StreamStateHandle
    channel_offsets: bytes


StreamStateHandle = (
    ByteStreamStateHandle
    | FileStateHandle
    | RelativeFileStateHandle
    | SegmentFileStateHandle
    | EmptySegmentFileStateHandle
    | PlaceholderStreamStateHandle
    | KeyGroupsStateHandle
)
"""One run of bytes. Flink also nests a key-groups handle where a stream is asked for."""

OperatorStateHandle = OperatorStreamStateHandle | FileMergingOperatorStreamStateHandle
"""Operator state of one subtask."""

ChangelogStateHandle = InMemoryChangelogStateHandle | ChangelogStateHandleStream
"""A part of a changelog."""

KeyedStateHandle = (
    KeyGroupsStateHandle
    | KeyGroupsSavepointStateHandle
    | IncrementalRemoteKeyedStateHandle
    | ChangelogStateBackendHandle
    | InMemoryChangelogStateHandle
    | ChangelogStateHandleStream
)
"""Keyed state of one subtask, or a part of it."""

InputStateHandle = InputChannelStateHandle | MergedInputChannelStateHandle
"""In-flight data of inputs."""

OutputStateHandle = ResultSubpartitionStateHandle | MergedResultSubpartitionStateHandle
"""In-flight data of outputs."""
