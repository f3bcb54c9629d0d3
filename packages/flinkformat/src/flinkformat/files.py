"""The bytes behind handles, which are in the metadata itself or in files."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, Self

from flinkformat.errors import FormatError
from flinkformat.handles import RelativeFileStateHandle
from flinkformat.state_streams import place_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from flinkformat.handles import StreamStateHandle

_PART_BYTES: Final = 4 << 20
"""Bytes that are in memory at once while a file is copied."""


class StateBytes(Protocol):
    """Reads the bytes behind handles. where: name of the place in errors."""

    where: str

    def at(self, where: str) -> Self: ...

    def read(self, handle: StreamStateHandle) -> bytes:
        """All bytes of a handle."""
        ...

    def read_part(self, handle: StreamStateHandle, start: int, size: int | None) -> bytes:
        """Reads bytes from an offset, or all after it; fewer at the end."""
        ...

    def copy(self, handle: StreamStateHandle, target: Path) -> None:
        """Writes all bytes of a handle to a new file of this machine."""
        ...


class StateFiles:
    """Reads handles by a function that opens files, such as ``lambda path: open(path, "rb")``.

    open_file: from a path, as the metadata names it, to a stream that can seek. folder: of the
    snapshot, in which files with relative names lie. Raises FormatError for a handle that names no
    file, and what `open_file` raises.
    """

    def __init__(
        self, open_file: Callable[[str], BinaryIO], folder: str = "", where: str = ""
    ) -> None:
        self._open_file = open_file
        self._folder = folder
        self.where = where or folder

    def at(self, where: str) -> StateFiles:
        return StateFiles(self._open_file, self._folder, where)

    def read(self, handle: StreamStateHandle) -> bytes:
        return self.read_part(handle, 0, None)

    def read_part(self, handle: StreamStateHandle, start: int, size: int | None) -> bytes:
        left = handle.state_size - start
        with self._opened(handle, start) as stream:
            return stream.read(max(left if size is None else min(size, left), 0))

    def copy(self, handle: StreamStateHandle, target: Path) -> None:
        with target.open("xb") as file:
            for start in range(0, handle.state_size, _PART_BYTES):
                file.write(self.read_part(handle, start, _PART_BYTES))

    def _opened(self, handle: StreamStateHandle, start: int) -> BinaryIO:
        if isinstance(handle, RelativeFileStateHandle) and handle.file_path is None:
            handle = replace(handle, file_path=str(Path(self._folder, handle.relative_path)))
        place = place_of(handle)
        if place is None:
            raise FormatError(
                f"A {type(handle).__name__} names no file",
                where=self.where,
                expected="a file, or the state itself",
                found=type(handle).__name__,
            )
        if isinstance(place, bytes):
            stream: BinaryIO = BytesIO(place)
        else:
            stream, start = self._open_file(place.path), place.start + start
        stream.seek(start)
        return stream
