"""New snapshots: migrated state as ours, the streams of its operators and the savepoint of them.

The smallest writer that a migration needs: all entries of an operator at once, whatever wrote them.
Bytes: docs/formats/keyed-state.md, docs/formats/operator-state.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flinkformat.handles import KeyGroupsStateHandle, OperatorStreamStateHandle, StateMetaInfo
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import (
    CheckpointMetadata,
    CheckpointProperties,
    OperatorState,
    SavepointFormatType,
    SavepointType,
    SubtaskState,
)
from tidegate.checkpoint.provenance import Provenance, to_master_state
from tidegate.checkpoint.signing import encoded
from tidegate.errors import ConfigError
from tidegate.model.settings import CheckpointSettings
from tidegate.model.versions import versions
from tidegate.state.format import (
    PRESENT,
    Block,
    KeyedHeader,
    KeyedStreamWriter,
    OperatorHeader,
    StateHeader,
    element_bytes,
    header_bytes,
)
from tidegate.state.misfits import encoded_as_declared
from tidegate.storage import paths
from tidegate.storage.secret_file import signing_key
from tidegate.storage.state_files import StateFiles
from tidegate.storage.stores import Stores
from tidegate.typeinfo.serializers import serializer_of
from tidegate.typeinfo.types import TupleTypeInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flinkformat.handles import StateDistribution, StreamStateHandle
    from tidegate.model.files import FileChecksum
    from tidegate.model.ids import CheckpointId, OperatorId
    from tidegate.typeinfo.types import TypeInformation


@dataclass(frozen=True, slots=True)
class KeyedStateOf:
    """A keyed state, as the state backends hold it.

    kind: of `state.kinds.Kind`. namespace: its type, where entries are under pairs of a key and a
    namespace. ttl: whether values are pairs of a time and a value. entries: by key group.
    """

    name: str
    kind: str
    type_info: TypeInformation | None
    namespace: TypeInformation | None
    ttl: bool
    entries: Mapping[int, list[tuple[Any, Any]]]


@dataclass(frozen=True, slots=True)
class OperatorStateOf:
    """An operator state of one subtask. kind: ``operator list`` or ``broadcast``."""

    name: str
    kind: str
    type_info: TypeInformation
    mode: StateDistribution
    elements: list[Any]


@dataclass(frozen=True, slots=True)
class OperatorOf:
    """All state of an operator. key: type of the keys. subtasks: operator state by index."""

    id: OperatorId
    uid: str | None
    name: str | None
    parallelism: int
    max_parallelism: int
    key: TypeInformation | None
    keyed: Sequence[KeyedStateOf]
    subtasks: Mapping[int, Sequence[OperatorStateOf]]


class NewSnapshot:
    """A folder that becomes a snapshot: files first, ``_metadata`` last. Blocking.

    key_file: holds the key that signs it. Raises ConfigError where there is one in it already. What
    is written before `complete` counts for nothing.
    """

    def __init__(self, target: str, checkpoint: CheckpointId, key_file: str | None = None) -> None:
        self._key_file = key_file
        self.path = paths.absolute(target)
        self.checksums: dict[str, FileChecksum] = {}
        if Stores().open(self.path).info(paths.METADATA) is not None:
            raise ConfigError(
                "There is a snapshot in the folder already",
                where=self.path,
                remedy="Name a folder that is empty, or not there yet.",
            )
        self._files = StateFiles(signed=key_file is not None)
        self._streams = self._files.streams_into(
            self.path, inline_threshold_bytes=CheckpointSettings().inline_threshold_bytes
        )

    def write(self, name: str, data: bytes) -> StreamStateHandle:
        """Write a state, to a file of that name unless it is small. Raises StorageFailed."""
        with self._streams.create_stream(name) as stream:
            stream.write(data)
            handle = stream.close_and_get_handle()
            self.checksums |= stream.checksums
        return handle

    def complete(self, snapshot: CheckpointMetadata) -> None:
        """Make it a snapshot. Raises StorageFailed."""
        self._files.write_metadata(self.path, encoded(snapshot, signing_key(self._key_file)))


def write_savepoint(
    target: str,
    checkpoint: CheckpointId,
    operators: Sequence[OperatorOf],
    *,
    key_file: str | None = None,
) -> None:
    """Write a savepoint of ours into a folder. key_file: holds the key that signs it.

    Raises ConfigError where there is one, StorageFailed, UserError for a value that can't be
    written.
    """
    new = NewSnapshot(target, checkpoint, key_file)
    writer = _Writer(new, checkpoint)
    states = tuple([writer.operator(each) for each in operators])
    savepoint = SavepointType.savepoint(SavepointFormatType.CANONICAL)
    provenance = Provenance({"versions": versions()}, new.checksums)
    new.complete(
        CheckpointMetadata(
            checkpoint_id=checkpoint,
            operators=states,
            master_states=(to_master_state(provenance),),
            properties=CheckpointProperties.for_savepoint(savepoint, forced=True),
        )
    )


class _Writer:
    def __init__(self, new: NewSnapshot, checkpoint: CheckpointId) -> None:
        self._new = new
        self._checkpoint = checkpoint

    def operator(self, operator: OperatorOf) -> OperatorState:
        """Write its streams, a file for each subtask and kind of state."""
        subtasks: dict[int, SubtaskState] = {}
        for index in range(operator.parallelism):
            keyed = self._keyed(operator, index)
            states = self._operator_states(operator, index)
            if keyed is not None or states is not None:
                subtasks[index] = SubtaskState(managed_keyed=keyed, managed_operator=states)
        return OperatorState(
            operator_id=operator.id,
            parallelism=operator.parallelism,
            max_parallelism=operator.max_parallelism,
            name=operator.name,
            uid=operator.uid,
            subtasks=subtasks,
        )

    def _keyed(self, operator: OperatorOf, index: int) -> KeyGroupsStateHandle | None:
        groups = KeyGroupRange.of(index, operator.parallelism, operator.max_parallelism)
        if not any(group in state.entries for state in operator.keyed for group in groups):
            return None
        assert operator.key is not None, "where there are entries there are keys"
        key = serializer_of(operator.key)
        header = KeyedHeader(
            operator.id,
            self._checkpoint,
            operator.max_parallelism,
            key.snapshot().to_bytes(),
            [_header(state) for state in operator.keyed],
            None,
        )
        written = bytearray()
        stream = KeyedStreamWriter(written.extend, header, groups)
        for group in groups:
            blocks = [
                _block(operator, operator.key, number, group)
                for number, state in enumerate(operator.keyed)
                if group in state.entries
            ]
            stream.add(group, blocks)
        handle = self._new.write(f"{operator.id.hex()}-{index}-keyed", bytes(written))
        name = f"{operator.id.hex()}-{self._checkpoint}-{groups.first}-{groups.last}"
        return KeyGroupsStateHandle(groups, stream.offsets, handle, name)

    def _operator_states(
        self, operator: OperatorOf, index: int
    ) -> OperatorStreamStateHandle | None:
        states = operator.subtasks.get(index)
        if not states:
            return None
        headers = [
            StateHeader(s.name, s.kind, serializer_of(s.type_info).snapshot().to_bytes())
            for s in states
        ]
        stream = bytearray(header_bytes(OperatorHeader(operator.id, self._checkpoint, headers)))
        infos: dict[str, StateMetaInfo] = {}
        for state in states:
            offsets: list[int] = []
            serializer = serializer_of(state.type_info)
            where = f"operator '{_shown(operator)}', state '{state.name}'"
            for element in state.elements:
                offsets.append(len(stream))
                stream += element_bytes(encoded_as_declared(serializer, [element], where))
            infos[state.name] = StateMetaInfo(state.mode, tuple(offsets))
        handle = self._new.write(f"{operator.id.hex()}-{index}-operator", bytes(stream))
        return OperatorStreamStateHandle(infos, handle)


def _header(state: KeyedStateOf) -> StateHeader:
    spaces = state.namespace and serializer_of(state.namespace).snapshot().to_bytes()
    written = serializer_of(state.type_info).snapshot().to_bytes()
    return StateHeader(state.name, state.kind, written, spaces, ttl=state.ttl)


def _block(operator: OperatorOf, key: TypeInformation, number: int, group: int) -> Block:
    state = operator.keyed[number]
    pairs = state.entries[group]
    if state.namespace is not None:
        key = TupleTypeInfo([key, state.namespace])
    where = f"operator '{_shown(operator)}', state '{state.name}'"
    keys = encoded_as_declared(serializer_of(key), [k for k, _ in pairs], f"{where}, keys")
    values = [value for _, value in pairs]
    entries = encoded_as_declared(
        serializer_of(state.type_info), values, where, lambda index: pairs[index][0]
    )
    return Block(PRESENT, number, len(pairs), keys, entries)


def _shown(operator: OperatorOf) -> str:
    return operator.uid or operator.name or operator.id.hex()
