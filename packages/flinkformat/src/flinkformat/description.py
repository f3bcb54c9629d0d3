"""A snapshot's metadata as plain values, ready for JSON.

Names of handles and fields are Flink's, so that its tools and ours can be compared line by line.
Bytes are shown as hexadecimal digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.handles import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    EmptySegmentFileStateHandle,
    FileMergingOperatorStreamStateHandle,
    FileStateHandle,
    HandleAndLocalPath,
    IncrementalRemoteKeyedStateHandle,
    InMemoryChangelogStateHandle,
    InputChannelStateHandle,
    InputStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    MergedInputChannelStateHandle,
    MergedResultSubpartitionStateHandle,
    OperatorStateHandle,
    OutputStateHandle,
    PlaceholderStreamStateHandle,
    RelativeFileStateHandle,
    ResultSubpartitionStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from flinkformat.metadata.channels import unmerge_input, unmerge_output
from flinkformat.snapshots import FINISHED, Finished, SavepointType

if TYPE_CHECKING:
    from flinkformat.snapshots import (
        CheckpointMetadata,
        CheckpointProperties,
        OperatorState,
        SubtaskState,
    )

Shown = dict[str, object]


def describe(metadata: CheckpointMetadata, *, directory: str) -> Shown:
    """Content of the metadata as plain values. directory: folder of relative files."""
    return {
        "checkpointId": metadata.checkpoint_id,
        "properties": _properties(metadata.properties),
        "masterStates": [
            {"name": state.name, "version": state.version, "bytes": state.payload.hex()}
            for state in metadata.master_states
        ],
        "operatorStates": [
            _Describer(directory).operator(operator) for operator in metadata.operators
        ],
    }


def _properties(properties: CheckpointProperties | None) -> Shown | None:
    if properties is None:
        return None
    kind = properties.snapshot_type
    shown: Shown = {
        "snapshotClass": f"org.apache.flink.runtime.checkpoint.{type(kind).__name__}",
        "snapshotName": kind.name,
        "isSavepoint": kind.is_savepoint,
        "sharingFilesStrategy": kind.sharing.value,
    }
    if isinstance(kind, SavepointType):
        shown["formatType"] = kind.format.value
        shown["postCheckpointAction"] = kind.action.value
    return shown | {
        "forced": properties.forced,
        "discardSubsumed": properties.discard_subsumed,
        "discardFinished": properties.discard_finished,
        "discardCancelled": properties.discard_cancelled,
        "discardFailed": properties.discard_failed,
        "discardSuspended": properties.discard_suspended,
        "unclaimed": properties.unclaimed,
    }


class _Describer:
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def operator(self, operator: OperatorState) -> Shown:
        lower, upper = operator.operator_id[:8], operator.operator_id[8:]
        coordinator = operator.coordinator_state
        return {
            "operatorId": operator.operator_id.hex(),
            "lowerPart": int.from_bytes(lower, signed=True),
            "upperPart": int.from_bytes(upper, signed=True),
            "name": operator.name,
            "uid": operator.uid,
            "parallelism": operator.parallelism,
            "maxParallelism": operator.max_parallelism,
            "fullyFinished": operator.fully_finished,
            "coordinatorState": None if coordinator is None else self.stream(coordinator),
            "subtaskStates": {
                str(index): self.subtask(state) for index, state in operator.subtasks.items()
            },
        }

    def subtask(self, state: SubtaskState | Finished) -> Shown:
        if state is FINISHED:
            return {"finished": True}
        operator_states = (state.managed_operator, state.raw_operator)
        keyed_states = (state.managed_keyed, state.raw_keyed)
        managed, raw = ([] if s is None else [self.named(s)] for s in operator_states)
        managed_keyed, raw_keyed = ([] if s is None else [self.keyed(s)] for s in keyed_states)
        return {
            "finished": False,
            "managedOperatorState": managed,
            "rawOperatorState": raw,
            "managedKeyedState": managed_keyed,
            "rawKeyedState": raw_keyed,
            "inputChannelState": [self.channels(s) for s in state.input_channel],
            "resultSubpartitionState": [self.channels(s) for s in state.result_subpartition],
        }

    def stream(self, handle: StreamStateHandle) -> Shown:
        shown: Shown = {"type": type(handle).__name__}
        match handle:
            case ByteStreamStateHandle():
                return shown | {"handleName": handle.handle_name, "data": handle.data.hex()}
            case FileStateHandle():
                return shown | {"filePath": handle.file_path, "stateSize": handle.state_size}
            case RelativeFileStateHandle():
                return shown | {
                    "relativePath": handle.relative_path,
                    "filePath": handle.file_path or f"{self._directory}/{handle.relative_path}",
                    "stateSize": handle.state_size,
                }
            case SegmentFileStateHandle():
                return shown | {
                    "filePath": handle.file_path,
                    "startPos": handle.start_position,
                    "stateSize": handle.state_size,
                    "scope": handle.scope.name,
                    "logicalFileId": handle.logical_file_id,
                }
            case EmptySegmentFileStateHandle():
                return shown | {
                    "filePath": handle.physical_id,
                    "startPos": 0,
                    "stateSize": 0,
                    "scope": "EXCLUSIVE",
                    "logicalFileId": "DUMMY",
                }
            case KeyGroupsStateHandle():
                return self.keyed(handle)
            case PlaceholderStreamStateHandle():
                return shown | {"filePath": handle.physical_id, "stateSize": handle.state_size}

    def named(self, handle: OperatorStateHandle) -> Shown:
        states = {
            name: {"mode": info.mode.name, "offsets": list(info.offsets)}
            for name, info in handle.states.items()
        }
        shown: Shown = {"type": type(handle).__name__, "states": states}
        if isinstance(handle, FileMergingOperatorStreamStateHandle):
            if handle.empty:
                shown["type"] = "EmptyFileMergingOperatorStreamStateHandle"
            shown["taskOwnedDir"] = handle.task_owned_directory
            shown["sharedDir"] = handle.shared_directory
        return shown | {"delegate": self.stream(handle.delegate)}

    def keyed(self, handle: KeyedStateHandle) -> Shown:
        shown: Shown = {
            "type": type(handle).__name__,
            "keyGroupRange": [handle.key_groups.first, handle.key_groups.last],
        }
        if not isinstance(handle, KeyGroupsSavepointStateHandle):
            shown["stateHandleId"] = handle.state_handle_id
        match handle:
            case KeyGroupsStateHandle() | KeyGroupsSavepointStateHandle():
                return shown | {
                    "offsets": list(handle.offsets),
                    "delegate": self.stream(handle.delegate),
                }
            case IncrementalRemoteKeyedStateHandle():
                return shown | {
                    "checkpointId": handle.checkpoint_id,
                    "backendIdentifier": handle.backend_id,
                    "checkpointedSize": handle.checkpointed_size,
                    "metaStateHandle": self.stream(handle.meta),
                    "sharedState": [self.file(file) for file in handle.shared_state],
                    "privateState": [self.file(file) for file in handle.private_state],
                }
            case ChangelogStateBackendHandle():
                return shown | {
                    "type": "ChangelogStateBackendHandleImpl",
                    "materialized": [self.keyed(part) for part in handle.materialized],
                    "nonMaterialized": [self.keyed(part) for part in handle.non_materialized],
                    "materializationID": handle.materialization_id,
                    "checkpointId": handle.checkpoint_id,
                    "checkpointedSize": handle.checkpointed_size,
                }
            case InMemoryChangelogStateHandle():
                return shown | {
                    "from": handle.start,
                    "to": handle.end,
                    "changes": [
                        {"keyGroup": change.key_group, "change": change.change.hex()}
                        for change in handle.changes
                    ],
                }
            case ChangelogStateHandleStream():
                return shown | {
                    "type": "ChangelogStateHandleStreamImpl",
                    "handlesAndOffsets": [
                        {"offset": part.offset, "handle": self.stream(part.handle)}
                        for part in handle.handles
                    ],
                    "stateSize": handle.state_size,
                    "checkpointedSize": handle.checkpointed_size,
                    "storageIdentifier": handle.storage_id,
                }

    def file(self, file: HandleAndLocalPath) -> Shown:
        return {"localPath": file.local_path, "handle": self.stream(file.handle)}

    def channels(self, handle: InputStateHandle | OutputStateHandle) -> Shown:
        shown: Shown = {
            "type": type(handle).__name__,
            "subtaskIndex": handle.subtask_index,
            "stateSize": handle.state_size,
            "delegate": self.stream(handle.delegate),
        }
        match handle:
            case InputChannelStateHandle() | ResultSubpartitionStateHandle():
                return shown | _channel(handle)
            case MergedInputChannelStateHandle():
                unmerged = unmerge_input(handle)
            case MergedResultSubpartitionStateHandle():
                unmerged = unmerge_output(handle)
        return shown | {
            "serializedChannelOffsets": handle.channel_offsets.hex(),
            "unmerged": [_channel(plain) for plain in unmerged],
        }


def _channel(handle: InputChannelStateHandle | ResultSubpartitionStateHandle) -> Shown:
    if isinstance(handle, InputChannelStateHandle):
        place = {"gateIdx": handle.gate_index, "inputChannelIdx": handle.channel_index}
    else:
        place = {
            "partitionIdx": handle.partition_index,
            "subPartitionIdx": handle.subpartition_index,
        }
    return {
        "subtaskIndex": handle.subtask_index,
        **place,
        "offsets": list(handle.offsets),
        "stateSize": handle.state_size,
    }
