"""A changelog in a test: files in a dict, a driver's registry, and uploads that wait to be run."""

from collections.abc import Callable, Iterable

from flinkformat.handles import FileStateHandle, StreamStateHandle
from flinkformat.snapshots import SharingFilesStrategy, SubtaskState
from flinkformat.state_streams import files_of, shared_handles
from tests.worlds.storage import FilesInDict
from tidegate.checkpoint.registry import SharedStateRegistry
from tidegate.errors import StorageFailed
from tidegate.model.files import FileChecksum
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import ChangelogSettings
from tidegate.state.log.changelog import ChangeLog
from tidegate.state.scope import StateScope
from tidegate.storage.places import CheckpointScope
from tidegate.storage.store import Checksum
from tidegate.storage.streams import CheckpointStateOutputStream

SMALL = ChangelogSettings(persist_bytes=200, in_flight_bytes=2_000)


class _File:
    """A file that is there once it is closed."""

    def __init__(self, files: dict[str, bytes], name: str) -> None:
        self._files = files
        self._name = name
        self._data = b""
        self.checksums: dict[str, FileChecksum] = {}

    def write(self, data: bytes) -> None:
        self._data += data

    def close(self) -> FileStateHandle:
        self._files[self._name] = self._data
        found = Checksum()
        found.add(self._data)
        self.checksums[self._name] = found.file
        return FileStateHandle(self._name, len(self._data))

    def abort(self) -> None:
        self._files.pop(self._name, None)


class Logs(FilesInDict):
    """Where logs and checkpoints go, and what the driver knows of the files.

    waiting: calls that are to be run off the loop. fails: whether uploads do.
    meanwhile: each is called as a file is written.
    """

    where = "a test's logs"

    def __init__(self, settings: ChangelogSettings = SMALL) -> None:
        super().__init__()
        self.registry = SharedStateRegistry()
        self.waiting: list[Callable[[], None]] = []
        self.meanwhile: list[Callable[[], None]] = []
        self.fails = False
        self._settings = settings

    def log(self, scope: StateScope) -> ChangeLog:
        """A new subtask's log."""
        return ChangeLog(
            scope,
            self._settings,
            lambda sharing: Place(self, sharing, shared=True),
            self.waiting.append,
        )

    def run(self) -> None:
        """Run what waits."""
        while self.waiting:
            self.waiting.pop(0)()

    # --- the driver ---

    def acknowledged(self, state: SubtaskState, checkpoint: int) -> SubtaskState:
        """A subtask's share has come; the state as the driver keeps it."""
        known = self.registry.register_state(state, CheckpointId(checkpoint))
        for handle in shared_handles(known):
            assert all(path in self.files for path in files_of(handle)), "a file is gone"
        return known

    def completed(self, checkpoint: int) -> None:
        """A checkpoint is complete, and the only one that is kept."""
        for path in self.registry.release_below(CheckpointId(checkpoint)):
            del self.files[path]


class Place:
    """Where a checkpoint, or what is of none, is written; what is one's own stays inline."""

    def __init__(
        self,
        logs: Logs,
        sharing: SharingFilesStrategy = SharingFilesStrategy.FORWARD_BACKWARD,
        *,
        shared: bool = False,
    ) -> None:
        self._shared = shared
        self.sharing = sharing
        self.named: dict[str, FileChecksum] = {}
        self._logs = logs
        self._written: list[CheckpointStateOutputStream] = []

    def new_name(self) -> str:
        return self._logs.new_name()

    def stream(
        self, scope: CheckpointScope = CheckpointScope.EXCLUSIVE, *, merged: bool = True
    ) -> CheckpointStateOutputStream:
        if self._logs.fails:
            raise StorageFailed("The store is away")
        if self._logs.meanwhile:
            self._logs.meanwhile.pop(0)()
        name = self.new_name()
        shared = self._shared or scope is CheckpointScope.SHARED
        stream = CheckpointStateOutputStream(
            name,
            (lambda: _File(self._logs.files, name)) if shared else None,
            buffer_max=1 if shared else 1 << 40,
        )
        self._written.append(stream)
        return stream

    def write(
        self,
        parts: Iterable[bytes],
        scope: CheckpointScope = CheckpointScope.EXCLUSIVE,
        *,
        merged: bool = True,
    ) -> StreamStateHandle:
        with self.stream() as stream:
            for part in parts:
                stream.write(part)
            return stream.close_and_get_handle()

    def names(self, checksums: dict[str, FileChecksum], fresh_bytes: int) -> None:
        self.named.update(checksums)

    def discard(self) -> None:
        self.delete(self.checksums)

    def delete(self, places: Iterable[str]) -> None:
        for place in list(places):
            del self._logs.files[place]

    @property
    def checksums(self) -> dict[str, FileChecksum]:
        return {
            place: found for stream in self._written for place, found in stream.checksums.items()
        }
