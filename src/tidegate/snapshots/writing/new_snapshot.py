"""A folder that becomes a snapshot, used by all offline tools.

Files of state come first, ``_metadata`` last and whole; what is written before that counts for
nothing.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from flinkformat.state_streams import Place, place_of, replace_streams
from tidegate.checkpoint.signing import encoded
from tidegate.errors import ConfigError
from tidegate.model.chance import SeededChance
from tidegate.model.ids import Attempt, Epoch
from tidegate.model.settings import CheckpointSettings
from tidegate.storage import paths
from tidegate.storage.secret_file import signing_key
from tidegate.storage.state_files import StateFiles
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flinkformat.handles import StreamStateHandle
    from flinkformat.snapshots import CheckpointMetadata, SubtaskState
    from flinkformat.state_streams import Stream
    from tidegate.model.files import FileChecksum
    from tidegate.storage.reading import StateReader
    from tidegate.storage.streams import CheckpointStateOutputStream


class NewSnapshot:
    """Writes the files of one new snapshot. Blocking; methods raise StorageFailed.

    key_file: holds the key that signs it. checksums: of the files, by their places. Raises
    ConfigError where the folder holds a snapshot already.
    """

    def __init__(self, folder: str, key_file: str | None = None) -> None:
        folder = paths.absolute(folder)
        if Stores().open(folder).info(paths.METADATA) is not None:
            raise ConfigError(
                "There is a snapshot in the folder already",
                where=folder,
                remedy="Name a folder that is empty, or not there yet.",
            )
        self._folder = folder
        self._key_file = key_file
        self._files = StateFiles(signed=key_file is not None)
        self._streams = self._files.streams_into(
            folder, inline_threshold_bytes=CheckpointSettings().inline_threshold_bytes
        )
        self._bits64 = SeededChance(secrets.randbits(64)).bits64
        self._copies: dict[Place, StreamStateHandle] = {}
        self.checksums: dict[str, FileChecksum] = {}

    def write(self, pieces: Iterable[bytes | memoryview]) -> StreamStateHandle:
        """Writes bytes to a file; keeps few bytes inline."""

        def write(stream: CheckpointStateOutputStream) -> None:
            for piece in pieces:
                stream.write(piece)

        return self.written(write)

    def written(self, write: Callable[[CheckpointStateOutputStream], None]) -> StreamStateHandle:
        """A file that a call fills; deleted if that raises."""
        name = paths.state_file(Epoch(0), Attempt(0), self._bits64())
        stream = self._streams.create_stream(name)
        try:
            write(stream)
            handle = stream.close_and_get_handle()
        except BaseException:
            stream.close()
            raise
        self.checksums.update(stream.checksums)
        return handle

    def copied(self, state: SubtaskState, reader: StateReader) -> SubtaskState:
        """A handle's copy in this folder; each file is copied once."""

        def copy(stream: Stream) -> StreamStateHandle:
            place = place_of(stream.handle)
            if not isinstance(place, Place):
                return stream.handle
            if place not in self._copies:
                self._copies[place] = self.write(reader.parts(stream.handle))
            return self._copies[place]

        return replace_streams(state, copy)

    def complete(self, snapshot: CheckpointMetadata) -> None:
        """Completes the snapshot, whose state was written here."""
        data = encoded(snapshot, signing_key(self._key_file))
        self._files.write_metadata(self._folder, data)
