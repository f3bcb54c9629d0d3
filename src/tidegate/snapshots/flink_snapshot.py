"""A checkpoint or savepoint of Flink: its operators, and all their state as values."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike, fspath
from typing import TYPE_CHECKING

from flinkformat import metadata
from flinkformat.handles import FileStateHandle, SegmentFileStateHandle
from flinkformat.state import reading
from flinkformat.state_streams import replace_streams
from tidegate.checkpoint.provenance import provenance_of
from tidegate.errors import ConfigError
from tidegate.storage import paths
from tidegate.storage.reading import StateReader
from tidegate.storage.state_files import MetadataFile, StateFiles, resolve_relative

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flinkformat.handles import StreamStateHandle
    from flinkformat.snapshots import CheckpointMetadata, OperatorState
    from flinkformat.state.operator_state import FlinkOperatorState
    from flinkformat.state.reading import FlinkKeyedState


class FlinkSnapshot:
    """A checkpoint or savepoint of Flink. Made by `open`; reads files as state is requested.

    path: its folder. metadata: what its ``_metadata`` says, every file by its place.
    """

    def __init__(self, path: str, read: CheckpointMetadata) -> None:
        self.path = path
        self.metadata = read
        self._reader = StateReader(StateFiles(), {}, where=path)

    @staticmethod
    def open(path: str | PathLike[str], *, moved: Mapping[str, str] | None = None) -> FlinkSnapshot:
        """Opens the snapshot in a folder.

        moved: from a folder as the snapshot names it to where that is now; for checkpoints, whose
        shared files have absolute places. Raises RestoreRefused if there is none, FormatError
        for a ``_metadata`` that can't be read, ConfigError for one of Tidegate's own.
        """
        file = StateFiles().read_metadata(fspath(path))
        return FlinkSnapshot.decoded(file.data, file.directory, moved=moved)

    @staticmethod
    def decoded(
        data: bytes, directory: str, *, moved: Mapping[str, str] | None = None
    ) -> FlinkSnapshot:
        """The snapshot of a ``_metadata`` that was read already; arguments as of `open`."""
        numbers = iter(range(2**63))
        where = f"{directory}/{paths.METADATA}"
        with MetadataFile(data, directory, where).being_decoded():
            decoded = metadata.decode(data, lambda: f"handle-{next(numbers)}")
            ours = provenance_of(decoded)
        if ours is not None:
            raise ConfigError(
                "The snapshot is one of Tidegate's own, not of Flink's",
                where=where,
                remedy="Start a job from it as it is, with --from.",
            )
        places = {paths.absolute(old): paths.absolute(new) for old, new in (moved or {}).items()}
        found = replace_streams(
            resolve_relative(decoded, directory), lambda stream: _moved(stream.handle, places)
        )
        return FlinkSnapshot(directory, found)

    @property
    def operators(self) -> tuple[OperatorState, ...]:
        return self.metadata.operators

    def keyed_state(self, operator: OperatorState) -> Iterator[FlinkKeyedState]:
        """Keyed state of each subtask that has some. Raises FormatError."""
        return reading.keyed_states(operator, self._reader)

    def operator_state(
        self, operator: OperatorState
    ) -> Iterator[tuple[int, list[FlinkOperatorState]]]:
        """Index and operator state of each subtask that has some. Raises FormatError."""
        return reading.operator_states(operator, self._reader)

    def read(self, operator: OperatorState, index: int, stream: StreamStateHandle) -> bytes:
        """All bytes of a stream of a subtask. Raises RestoreRefused, FormatError, StorageFailed."""
        where = reading.where_of(operator, index, self.path)
        return self._reader.at(where).read(reading.readable(stream, where))


def _moved(handle: StreamStateHandle, places: Mapping[str, str]) -> StreamStateHandle:
    if isinstance(handle, FileStateHandle | SegmentFileStateHandle):
        here = paths.absolute(handle.file_path)
        for old, new in places.items():
            if here.startswith(f"{old}/"):
                return replace(handle, file_path=paths.join(new, here.removeprefix(f"{old}/")))
    return handle
