"""Reads the state that a subtask starts from: complete and unchanged, or not at all."""

from __future__ import annotations

import threading
from io import BytesIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from flinkformat.handles import (
    ByteStreamStateHandle,
    EmptySegmentFileStateHandle,
    FileStateHandle,
    RelativeFileStateHandle,
)
from tidegate.errors import FileMissing, FormatError, RestoreRefused, StorageFailed
from tidegate.model.files import checksum_name
from tidegate.storage.paths import absolute, is_local
from tidegate.storage.store import Checksum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from flinkformat.handles import StreamStateHandle
    from tidegate.model.files import FileChecksum
    from tidegate.storage.state_files import StateFiles

PART_BYTES: Final = 4 << 20
"""Bytes of a file that are read at a time: each part may be a request over the network."""

_LOCAL_PART_BYTES: Final = 1 << 20
"""The same of a file of this machine: what a core's cache holds is checked and written quicker."""

_READ_MAX: Final = 8 << 20
"""Bytes of a handle that are read into memory at once: a file that is mapped stays open."""

_IN_METADATA: Final = (ByteStreamStateHandle, EmptySegmentFileStateHandle)
"""Handles of bytes that are in ``_metadata`` itself, or of none."""

_REMEDY: Final = "Put the file back as it was, or start from another checkpoint."


class StateReads(Protocol):
    """A reader of the handles of a snapshot, such as `StateReader`."""

    def read(self, handle: StreamStateHandle) -> bytes:
        """All bytes of a handle."""
        ...

    def view(
        self, handle: StreamStateHandle, new_file: Callable[[], Path] | None = None
    ) -> memoryview:
        """All bytes of a handle; many of them from its file or a new one, as they are needed."""
        ...

    def copy(self, handle: StreamStateHandle, target: Path) -> None:
        """Write all bytes of a handle to a new file."""
        ...

    def holds(self, handle: StreamStateHandle, file: Path) -> bool:
        """True where a file of this machine has what was written as that handle."""
        ...

    @property
    def where(self) -> str:
        """Where the handles are, for errors."""
        ...


class StateReader:
    """Reads handles of one snapshot, and checks each file against its known size and checksum.

    checksums: of files and segments, by `checksum_name`; of any other the size alone is held, save
    where snapshots are signed: then it is refused. where: for errors. May be used by several
    threads at once.
    """

    def __init__(
        self,
        files: StateFiles,
        checksums: Mapping[str, FileChecksum],
        *,
        where: str = "",
        given_up: threading.Event | None = None,
    ) -> None:
        self._files = files
        self._checksums = checksums
        self.where = where
        self._given_up = given_up or threading.Event()

    def at(self, where: str) -> StateReader:
        """A reader of the same files, whose errors name a place, such as an operator."""
        return StateReader(self._files, self._checksums, where=where, given_up=self._given_up)

    def give_up(self) -> None:
        self._given_up.set()

    def read(self, handle: StreamStateHandle) -> bytes:
        found = BytesIO()  # in which all bytes are but once
        for part in self.parts(handle):
            found.write(part)
        return found.getvalue()

    def read_part(self, handle: StreamStateHandle, start: int, size: int | None) -> bytes:
        """Reads bytes from an offset, or all after it; unchecked, and fewer at the end. Blocking.

        Raises RestoreRefused if the file is gone, StorageFailed where it cannot be read.
        """
        parts: list[bytes] = []
        left = size
        try:
            with self._files.open_handle(handle) as stream:
                stream.seek(start)
                while left != 0:
                    part = stream.read(PART_BYTES if left is None else min(left, PART_BYTES))
                    if not part:
                        break
                    parts.append(part)
                    left = None if left is None else left - len(part)
        except FileMissing as error:
            raise self._missing(handle) from error
        return b"".join(parts)

    def view(
        self, handle: StreamStateHandle, new_file: Callable[[], Path] | None = None
    ) -> memoryview:
        """All bytes of a handle, mapped rather than loaded if large. Blocking. Raises as `copy`.

        A file of this machine is mapped once it was checked: it may be deleted meanwhile, and
        nobody makes a file of state shorter. Others are copied to a new file, which soon has no
        name any more, and to memory where there is none.
        """
        if handle.state_size <= _READ_MAX:
            return memoryview(self.read(handle))
        own = _own_file(handle)
        # A mapped file could be changed after its signature was checked.
        if own is not None and not self._files.signed:
            for _ in self.parts(handle):
                pass
            if (mapped := _mapped(own)) is not None:
                return mapped
        if new_file is None:
            return memoryview(self.read(handle))
        file = new_file()
        try:
            self.copy(handle, file)
            return _mapped(file) or memoryview(file.read_bytes())
        finally:
            file.unlink(missing_ok=True)

    def copy(self, handle: StreamStateHandle, target: Path) -> None:
        """Writes all bytes of a handle to a new file of this machine. Blocking.

        Raises RestoreRefused if the file is gone or has another size, FormatError where its
        bytes are others, StorageFailed where it cannot be read, or the new one not be written, or
        all was given up.
        """
        try:
            with target.open("xb") as file:
                for part in self.parts(handle):
                    file.write(part)
        except OSError as error:
            raise StorageFailed(
                f"Cannot write {target.name}: {error.strerror or error}",
                where=self._place(str(target)),
                remedy="See that the local folders for state have room and can be written.",
            ) from error

    def holds(self, handle: StreamStateHandle, file: Path) -> bool:
        try:
            if isinstance(handle, ByteStreamStateHandle):
                return file.read_bytes() == handle.data
            found = self._checksum_for(handle)
            with file.open("rb") as stream:
                while part := stream.read(_LOCAL_PART_BYTES):
                    found.add(part)
            self._hold(handle, found)
        except (OSError, FormatError, RestoreRefused):
            return False
        return True

    def parts(self, handle: StreamStateHandle) -> Iterator[bytes]:
        """All bytes of a handle, part by part. Blocking. Raises as `copy`, also at the end."""
        found = self._checksum_for(handle)
        size = _LOCAL_PART_BYTES if is_local(handle.physical_id) else PART_BYTES
        try:
            with self._files.open_handle(handle, buffer_bytes=0) as stream:
                while part := stream.read(size):
                    if self._given_up.is_set():
                        raise StorageFailed(
                            "The state was given up while it was read", where=self.where
                        )
                    found.add(part)
                    yield part
        except FileMissing as error:
            raise self._missing(handle) from error
        self._hold(handle, found)

    def _missing(self, handle: StreamStateHandle) -> RestoreRefused:
        return RestoreRefused(
            f"A file of state is missing: {handle.physical_id}", where=self.where, remedy=_REMEDY
        )

    def _checksum_for(self, handle: StreamStateHandle) -> Checksum:
        """Checksum of a handle's bytes.

        Raises RestoreRefused if they should be signed and are not.
        """
        known = self._known(handle)
        signed = known is not None and bool(known.sha256)
        if self._files.signed and not signed and not isinstance(handle, _IN_METADATA):
            raise RestoreRefused(
                f"A file of state is not signed: {handle.physical_id}",
                where=self.where,
                remedy="Start from a snapshot that was written with the key.",
            )
        return Checksum(sha256=signed)

    def _known(self, handle: StreamStateHandle) -> FileChecksum | None:
        name = checksum_name(handle)
        return None if name is None else self._checksums.get(name)

    def _hold(self, handle: StreamStateHandle, found: Checksum) -> None:
        if found.size != handle.state_size:
            raise RestoreRefused(
                f"A file of state has {found.size} bytes, and {handle.state_size} were written: "
                f"{handle.physical_id}",
                where=self.where,
                remedy=_REMEDY,
            )
        known = self._known(handle)
        if known is not None and known != found.file:
            raise FormatError(
                f"A file of state is not as it was written: {handle.physical_id}",
                where=self.where,
                remedy=_REMEDY,
                expected=_told(known),
                found=_told(found.file),
            )

    def _place(self, file: str) -> str:
        return f"{self.where}, {file}" if self.where else file


def _told(file: FileChecksum) -> str:
    digest = f", SHA-256 {file.sha256}" if file.sha256 else ""
    return f"crc32c {file.crc32c:08x} of {file.size} bytes{digest}"


class InlineReader:
    """Reads bytes kept in the handle itself, where there is no storage. where: for errors."""

    def __init__(self, where: str) -> None:
        self.where = where

    def read(self, handle: StreamStateHandle) -> bytes:
        assert isinstance(handle, ByteStreamStateHandle), "nothing else is inline"
        return handle.data

    def view(
        self, handle: StreamStateHandle, new_file: Callable[[], Path] | None = None
    ) -> memoryview:
        return memoryview(self.read(handle))

    def copy(self, handle: StreamStateHandle, target: Path) -> None:
        target.write_bytes(self.read(handle))

    def holds(self, handle: StreamStateHandle, file: Path) -> bool:
        return file.read_bytes() == self.read(handle)


def _own_file(handle: StreamStateHandle) -> Path | None:
    if not isinstance(handle, FileStateHandle | RelativeFileStateHandle):
        return None
    return Path(absolute(handle.physical_id)) if is_local(handle.physical_id) else None


def _mapped(file: Path) -> memoryview | None:
    """A file's bytes, mapped; None if it is empty, missing, or can't be mapped."""
    try:
        with file.open("rb") as stream:
            return memoryview(mmap(stream.fileno(), 0, access=ACCESS_READ))
    except (OSError, ValueError):
        return None
