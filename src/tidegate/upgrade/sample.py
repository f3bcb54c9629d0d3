"""Samples of a snapshot: the states of one operator by name, and a few entries of each."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flinkformat.handles import IncrementalRemoteKeyedStateHandle, KeyGroupsStateHandle
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import FINISHED
from tidegate.errors import FileMissing, TidegateError
from tidegate.model.restore import RestoredOperatorState
from tidegate.state.format.samples import Sampled, keyed_sample, operator_sample
from tidegate.state.format.streams import in_streams
from tidegate.storage.reading import StateReader
from tidegate.typeinfo.serializers import SerializerSnapshot

if TYPE_CHECKING:
    from flinkformat.handles import KeyedStateHandle, OperatorStateHandle
    from flinkformat.snapshots import OperatorState
    from tidegate.model.settings import RocksDBSettings
    from tidegate.state.format.headers import KeyedHeader, StateHeader
    from tidegate.storage.state_files import StateFiles


@dataclass(slots=True)
class OperatorSample:
    """parts: as a backend restores them, one by one. errors: what could not be sampled.

    keyed, operator: how each state was written, by name. columns: Arrow types by name; None without
    columnar state. key: type of the keys; None if there is none. elements: how many each
    operator state has. sampled: entries by state.
    """

    parts: list[RestoredOperatorState] = field(default_factory=list[RestoredOperatorState])
    errors: list[TidegateError] = field(default_factory=list[TidegateError])
    keyed: dict[str, list[StateHeader]] = field(default_factory=dict[str, "list[StateHeader]"])
    operator: dict[str, list[StateHeader]] = field(default_factory=dict[str, "list[StateHeader]"])
    columns: dict[str, str] | None = None
    key: str | None = None
    elements: dict[str, int] = field(default_factory=dict[str, int])
    sampled: Sampled = field(default_factory=Sampled)

    def has_none(self, state: str) -> bool:
        """True if a state is known to have no entries."""
        if state in self.elements:
            return self.elements[state] == 0
        return self.sampled.complete and not self.sampled.rows[state]

    def take_keyed(self, header: KeyedHeader, handle: KeyGroupsStateHandle) -> None:
        for state in header.states:
            self.keyed.setdefault(state.name, []).append(state)
        if header.key is not None:
            self.key = str(SerializerSnapshot.from_bytes(header.key).type_info)
        if header.columns is not None:
            # Import PyArrow only for columnar state.
            from tidegate.state.columns.columnar import columns_of

            key, columns = columns_of(header.columns)
            self.columns = (self.columns or {}) | columns
            self.key = str(key)
        self.parts.append(RestoredOperatorState(managed_keyed=(handle,)))


class Sampler:
    """Takes samples of one snapshot. disk: of the backend that is to restore it, if on disk."""

    def __init__(self, files: StateFiles, disk: RocksDBSettings | None) -> None:
        self._files = files
        self._disk = disk

    def sample(self, state: OperatorState) -> OperatorSample:
        """Samples one operator's state. Blocking. Unreadable parts become errors of the sample."""
        made = OperatorSample()
        for subtask in state.subtasks.values():
            if subtask is FINISHED:
                continue
            try:
                if subtask.managed_operator is not None:
                    self._take_operator(made, subtask.managed_operator)
                if subtask.managed_keyed is not None:
                    self._take_keyed(made, subtask.managed_keyed, state.max_parallelism)
            except FileMissing:
                continue  # which files are missing is told of the snapshot as a whole
            except TidegateError as error:
                if error.what not in {known.what for known in made.errors}:
                    made.errors.append(error)
        return made

    def _take_operator(self, made: OperatorSample, handle: OperatorStateHandle) -> None:
        if not handle.state_size:
            return
        for name, info in handle.states.items():
            made.elements[name] = made.elements.get(name, 0) + len(info.offsets)
        with self._files.open_handle(handle.delegate) as stream:
            header, sample = operator_sample(handle, stream, made.sampled)
        for state in header.states:
            made.operator.setdefault(state.name, []).append(state)
        made.parts.append(RestoredOperatorState(managed_operator=(sample,)))

    def _take_keyed(
        self, made: OperatorSample, whole: KeyedStateHandle, max_parallelism: int
    ) -> None:
        groups = KeyGroupRange(0, max_parallelism - 1)
        handles = list(in_streams([whole], groups, self._files.read_handle))
        if self._disk is not None:
            from tidegate.state.disk.restore import by_form

            by_form(handles, "")
        for handle in handles:
            if isinstance(handle, KeyGroupsStateHandle):
                with self._files.open_handle(handle.delegate) as stream:
                    made.take_keyed(*keyed_sample(handle, stream, made.sampled))
            elif isinstance(handle, IncrementalRemoteKeyedStateHandle) and self._disk is not None:
                self._take_folder(made, handle, self._disk)
            else:
                made.parts.append(RestoredOperatorState(managed_keyed=(handle,)))

    def _take_folder(
        self,
        made: OperatorSample,
        handle: IncrementalRemoteKeyedStateHandle,
        disk: RocksDBSettings,
    ) -> None:
        from tidegate.state.disk.canonical import folder_sample

        with tempfile.TemporaryDirectory(prefix="tidegate-check-") as scratch:
            folder, reader = Path(scratch) / "sample", StateReader(self._files, {})
            made.take_keyed(*folder_sample(handle, folder, reader, disk, made.sampled))
