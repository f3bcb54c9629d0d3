"""Parts of a changelog, the bases behind them, and the files that both are in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flinkformat.handles import HandleAndOffset, InMemoryChangelogStateHandle
from flinkformat.state_streams import files_of
from tidegate.state.format.blocks import Block, section_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from flinkformat.handles import KeyedStateHandle
    from tidegate.model.files import FileChecksum
    from tidegate.state.format.blocks import StateHeader

    Part = HandleAndOffset | InMemoryChangelogStateHandle
    Append = Callable[[int, StateHeader, int, int, bytes, bytes], None]


class Changes:
    """Entries as they have become, gathered by key group."""

    def __init__(self) -> None:
        self._states: dict[StateHeader, int] = {}
        self._groups: dict[int, list[Block]] = {}
        self.size = self.rows = 0

    def add(
        self, group: int, state: StateHeader, kind: int, rows: int, keys: bytes, values: bytes
    ) -> None:
        """Add a block of one state; as `blocks.Block` has it."""
        index = self._states.setdefault(state, len(self._states))
        self._groups.setdefault(group, []).append(Block(kind, index, rows, keys, values))
        self.size += len(keys) + len(values)
        self.rows += rows

    @property
    def states(self) -> list[StateHeader]:
        return list(self._states)

    def sections(self, compress: Callable[[bytes], bytes] | None) -> Iterable[tuple[int, bytes]]:
        """Key group and section, in order."""
        for group in sorted(self._groups):
            yield group, b"".join(section_bytes(group, self._groups[group], compress))


@dataclass(slots=True, eq=False, weakref_slot=True)
class Batch:
    """A part of the log. changes: None once it is durable, as `part`."""

    number: int
    key: bytes | None
    changes: Changes | None
    part: Part | None = None
    size: int = 0

    @property
    def places(self) -> Iterator[str]:
        """Where its file is, if it is in one by now."""
        if isinstance(self.part, HandleAndOffset):
            yield self.part.handle.physical_id


@dataclass(slots=True, eq=False, weakref_slot=True)
class Base:
    """A snapshot of all keyed rows. handles: None as long as it is not durable.

    position: the number of the first part of the log that counts with it.
    """

    number: int
    position: int
    handles: tuple[KeyedStateHandle, ...] | None = None

    @property
    def places(self) -> Iterator[str]:
        """Where its files are, once it is durable."""
        for handle in self.handles or ():
            yield from files_of(handle)


class LogFiles:
    """Files that a log has written, by place, as long as anything may name them.

    A file that an acknowledgement has named is the driver's to delete; any other is the log's. Its
    methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._checksums: dict[str, FileChecksum] = {}
        self._acknowledged: set[str] = set()

    def wrote(self, checksums: Mapping[str, FileChecksum]) -> None:
        """Adds files, each with its crc32c and size."""
        self._checksums.update(checksums)

    def acknowledged(self, places: Iterable[str]) -> None:
        """The driver learns of a checkpoint with these files."""
        self._acknowledged.update(place for place in places if place in self._checksums)

    def checksums(self, places: Iterable[str]) -> dict[str, FileChecksum]:
        """Checksums of files that were written here."""
        return {place: self._checksums[place] for place in places if place in self._checksums}

    def needless(self, used: Collection[str]) -> list[str]:
        """Forgets all but the used files; returns those to delete."""
        forgotten = self._checksums.keys() - used
        for place in forgotten:
            del self._checksums[place]
        doomed = [place for place in forgotten if place not in self._acknowledged]
        self._acknowledged -= forgotten
        return doomed
