"""Files written by a log, and which of them it must delete itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tidegate.model.files import FileChecksum


@dataclass(slots=True)
class _File:
    checksum: FileChecksum
    acknowledged: bool = False


class LogFiles:
    """By place, as long as anything may name them. Its methods may be called from any thread.

    A file that an acknowledgement has named is the driver's to delete; any other is the log's.
    """

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}

    def wrote(self, checksums: Mapping[str, FileChecksum]) -> None:
        """Adds files, each with its crc32c and size."""
        self._files.update({place: _File(found) for place, found in checksums.items()})

    def acknowledged(self, places: Iterable[str]) -> None:
        """The driver learns of a checkpoint with these files."""
        for place in places:
            if place in self._files:
                self._files[place].acknowledged = True

    def checksums(self, places: Iterable[str]) -> dict[str, FileChecksum]:
        """Checksums of files that were written here."""
        return {place: self._files[place].checksum for place in places if place in self._files}

    def needless(self, used: Collection[str]) -> list[str]:
        """Forgets all but the used files; returns those to delete."""
        forgotten = {place: self._files.pop(place) for place in self._files.keys() - used}
        return [place for place, file in forgotten.items() if not file.acknowledged]
