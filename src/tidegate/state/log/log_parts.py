"""Parts of a changelog, and the interfaces that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidegate.model.ids import CheckpointId
from tidegate.state.format.blocks import Block, section_bytes
from tidegate.state.format.headers import KeyedHeader, header_bytes
from tidegate.storage.checkpoints import CheckpointScope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flinkformat.handles import StreamStateHandle
    from flinkformat.snapshots import SharingFilesStrategy
    from tidegate.model.files import FileChecksum
    from tidegate.model.ids import OperatorId
    from tidegate.state.format.headers import StateHeader
    from tidegate.storage.streams import CheckpointStateOutputStream

    Append = Callable[[int, StateHeader, int, int, bytes, bytes], None]


class LogPlace(Protocol):
    """Destination of files that many checkpoints name, such as `storage.places.SharedPlace`."""

    @property
    def sharing(self) -> SharingFilesStrategy:
        """True if older files may be named."""
        ...

    @property
    def checksums(self) -> dict[str, FileChecksum]:
        """crc32c and size of each file written, by its place."""
        ...

    def new_name(self) -> str:
        """A file name that nothing else has."""
        ...

    def stream(
        self, scope: CheckpointScope = CheckpointScope.SHARED, *, merged: bool = False
    ) -> CheckpointStateOutputStream: ...

    def write(
        self,
        parts: Iterable[bytes],
        scope: CheckpointScope = CheckpointScope.SHARED,
        *,
        merged: bool = False,
    ) -> StreamStateHandle:
        """Writes one file, or keeps few bytes inline."""
        ...

    def delete(self, places: Iterable[str]) -> None:
        """Deletes files that nobody knows."""
        ...


class LoggedRows(Protocol):
    """Keyed rows whose changes are logged."""

    @property
    def key_type(self) -> bytes | None:
        """Snapshot of the keys' serializer; None until a key was seen."""
        ...

    @property
    def undrained(self) -> int:
        """Number of written entries that are not in the log."""
        ...

    def drain(self, rows: int) -> None:
        """Logs about this many of them, in their current form."""
        ...


class Materialization(Protocol):
    """A base on its way, in the background.

    `encode` is called on the loop until it gives True, `write` off it after the last time, and
    before that when much is waiting; then `take` on the loop. waiting: bytes for `write`.
    """

    @property
    def waiting(self) -> int:
        """Bytes that are encoded but not written."""
        ...

    def encode(self, budget_ms: float) -> bool:
        """Encodes for about this long; True at the end. Raises UserError."""
        ...

    @property
    def write(self) -> Callable[[], None]:
        """Writes encoded bytes. Blocking. Raises StorageFailed."""
        ...

    def take(self) -> None:
        """Called once it is durable: the next checkpoints depend on it."""
        ...

    def give_up(self) -> None:
        """Deletes what was written, since nobody depends on it. Blocking."""
        ...


class Changes:
    """Changed entries, collected by key group."""

    def __init__(self) -> None:
        self._states: dict[StateHeader, int] = {}
        self._groups: dict[int, list[Block]] = {}
        self.size = 0

    def add(
        self, group: int, state: StateHeader, kind: int, rows: int, keys: bytes, values: bytes
    ) -> None:
        """Adds a block of one state; arguments as of `blocks.Block`."""
        index = self._states.setdefault(state, len(self._states))
        self._groups.setdefault(group, []).append(Block(kind, index, rows, keys, values))
        self.size += len(keys) + len(values)

    def header(
        self, operator: OperatorId, number: int, max_parallelism: int, key: bytes | None
    ) -> bytes:
        """Header of their stream."""
        states = list(self._states)
        return header_bytes(
            KeyedHeader(operator, CheckpointId(number), max_parallelism, key, states, None)
        )

    def sections(self, compress: Callable[[bytes], bytes] | None) -> Iterable[tuple[int, bytes]]:
        """Key group and section, in order."""
        for group in sorted(self._groups):
            yield group, b"".join(section_bytes(group, self._groups[group], compress))
