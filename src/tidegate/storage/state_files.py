"""Files of snapshots, of any job: state by its handle, ``_metadata``, and their deletion.

Everything is named by its absolute place, so that nothing has to be known of a job.
`tidegate.storage.checkpoints` says where a running job puts its checkpoints. All calls block.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar

from google_crc32c import value as crc32c

from flinkformat.frozen import frozen
from flinkformat.handles import RelativeFileStateHandle, StreamStateHandle
from flinkformat.state_streams import place_of, replace_streams
from tidegate.errors import FileMissing, FormatError, RestoreRefused, StorageFailed
from tidegate.storage import paths
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.store import open_stream, publish, try_all
from tidegate.storage.stores import Stores
from tidegate.storage.streams import CheckpointStreamFactory

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from flinkformat.state_streams import SnapshotPart, Stream

T = TypeVar("T", bound="SnapshotPart")

_REMEDY: Final = f"Name the folder of a checkpoint (…/chk-7) or savepoint, or its {paths.METADATA}."
_SUBSUMED: Final = (
    "A running job deletes a checkpoint as soon as it is not needed: take an existing one, or "
    "a savepoint ('tidegate savepoint'), which stays."
)


@frozen
class MetadataFile:
    """A ``_metadata`` that was read.

    directory: the snapshot's folder, its external pointer. place: of the file itself.
    """

    data: bytes
    directory: str
    place: str

    @contextlib.contextmanager
    def being_decoded(self) -> Generator[None]:
        """Within this block, errors about the bytes name the file and a remedy."""
        try:
            yield
        except (FormatError, RestoreRefused) as error:
            error.where = ", ".join(filter(None, [self.place, error.where]))
            error.remedy = error.remedy or "Put the file back as it was, or name another snapshot."
            raise


class StateFiles:
    """Files of snapshots, read, written and deleted by their places.

    stores: opens every place that they may lie in; a ``memory:`` world of their own is empty.
    signed: whether files have to be known by their SHA-256.
    """

    def __init__(self, stores: Stores | None = None, *, signed: bool = False) -> None:
        self._stores = stores or Stores(MemoryFiles())
        self.signed = signed

    def open_handle(self, handle: StreamStateHandle, *, buffer_bytes: int = 1 << 20) -> BinaryIO:
        """A handle's bytes as a seekable stream.

        buffer_bytes: as of `open_stream`. Raises FileMissing if the file is gone, StorageFailed
        where it cannot be read.
        """
        place = place_of(handle)
        assert place is not None, "relative handles are resolved, placeholders replaced"
        if isinstance(place, bytes):
            return io.BytesIO(place)
        store, name = self._stores.locate(place.path)
        return open_stream(
            store, name, start=place.start, size=place.size, buffer_bytes=buffer_bytes
        )

    def read_handle(
        self, handle: StreamStateHandle, *, offset: int = 0, size: int | None = None
    ) -> bytes:
        """A part of a handle's bytes in one read; all of them unless told otherwise."""
        with self.open_handle(handle) as stream:
            stream.seek(offset)
            return stream.read(-1 if size is None else size)

    def streams_into(self, folder: str, *, inline_threshold_bytes: int) -> CheckpointStreamFactory:
        """Stream factory for the state of a snapshot that stands alone in a folder.

        inline_threshold_bytes: state smaller than this stays in its handle.
        """
        folder = paths.absolute(folder)
        store = self._stores.open(folder)
        return CheckpointStreamFactory(folder, store, True, inline_threshold_bytes, self.signed)

    def write_metadata(self, location: str, data: bytes) -> str:
        """Completes a snapshot by writing its ``_metadata``; returns its external pointer.

        Raises StorageFailed if there is a ``_metadata``; as after every failed write, it is
        open whether this one stands.
        """
        location = paths.absolute(location)
        publish(self._stores.open(location), paths.METADATA, data)
        return location

    def check_snapshot(
        self, location: str, metadata: tuple[int, int], files: Mapping[str, int]
    ) -> None:
        """Checks that this process can read a snapshot. metadata: size and crc32c of that file.

        files: sizes of the others by path. Raises StorageFailed if one is not what was written.
        """
        store = self._stores.open(location)
        data = store.read(paths.METADATA)
        if (len(data), crc32c(data)) != metadata:
            raise _misread(paths.METADATA, location)
        there = {paths.name(file.path): file.size for file in store.list()} if files else {}
        for path, size in files.items():
            found = there.get(paths.name(path))
            if found is None:  # it is in no snapshot's own folder
                elsewhere, name = self._stores.locate(path)
                info = elsewhere.info(name)
                found = None if info is None else info.size
            if found is None:
                raise FileMissing(f"There is no file {paths.name(path)}", where=path)
            if found != size:
                raise _misread(paths.name(path), path)

    def read_metadata(self, pointer: str) -> MetadataFile:
        """Reads the snapshot that a folder, or its ``_metadata``, names.

        Raises RestoreRefused if there is none.
        """
        pointer = paths.absolute(pointer)
        if paths.name(pointer) == paths.METADATA:
            return self._read_metadata_of(paths.parent(pointer), pointer)
        store, name = self._stores.locate(pointer)
        if store.info(name) is not None:
            return MetadataFile(store.read(name), paths.parent(pointer), pointer)
        if not store.is_folder(name):
            raise RestoreRefused(
                f"Cannot find checkpoint or savepoint file/directory '{pointer}' on file system "
                f"'{paths.scheme_of(pointer)}'.",
                where=pointer,
                remedy=_REMEDY if paths.checkpoint_of(pointer) is None else _SUBSUMED,
            )
        return self._read_metadata_of(pointer, pointer)

    def _read_metadata_of(self, directory: str, pointer: str) -> MetadataFile:
        try:
            data = self._stores.open(directory).read(paths.METADATA)
        except FileMissing as error:
            raise RestoreRefused(
                f"Cannot find meta data file '{paths.METADATA}' in directory '{directory}'.",
                where=pointer,
                remedy="A checkpoint without it was never completed; name another one. A "
                "checkpoint folder holds them as <job-id>/chk-<n>.",
            ) from error
        return MetadataFile(data, directory, paths.join(directory, paths.METADATA))

    def missing(self, files: Iterable[str]) -> list[str]:
        """Absolute places without a file, in order; lists each folder once."""
        wanted = sorted(files)
        there = {
            paths.join(folder, info.path)
            for folder in dict.fromkeys(paths.parent(file) for file in wanted)
            for info in self._stores.open(folder).list()
        }
        return [file for file in wanted if file not in there]

    def discard(self, location: str, files: Iterable[str]) -> None:
        """Deletes a snapshot: ``_metadata`` first, then its files, then its folder.

        files: absolute places, as in the handles. So a ``_metadata`` that can be read is whole.
        Tries everything, then raises the first StorageFailed.
        """
        location = paths.absolute(location)
        store, folder = self._stores.locate(location)
        store.delete([paths.join(folder, paths.METADATA)])
        try_all((partial(self.delete_files, list(files)), partial(store.delete_folder, folder)))

    def delete_files(self, files: Iterable[str]) -> None:
        located = [self._stores.locate(file) for file in files]
        try_all(partial(store.delete, [name]) for store, name in located)


def resolve_relative(value: T, directory: str) -> T:
    """A copy of metadata or a handle whose relative handles are resolved against a folder."""
    folder = paths.absolute(directory)

    def resolved(stream: Stream) -> StreamStateHandle:
        handle = stream.handle
        if isinstance(handle, RelativeFileStateHandle):
            return replace(handle, file_path=paths.join(folder, handle.relative_path))
        return handle

    return replace_streams(value, resolved)


def _misread(name: str, where: str) -> StorageFailed:
    return StorageFailed(
        f"{name} does not read as it was written",
        where=where,
        remedy="Name a folder on another store; look after this one.",
    )
