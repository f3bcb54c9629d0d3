"""Parts of a changelog, and the interfaces that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flinkformat.handles import HandleAndOffset, InMemoryChangelogStateHandle
from flinkformat.state_streams import files_of
from tidegate.model.ids import CheckpointId
from tidegate.state.format.blocks import Block, section_bytes
from tidegate.state.format.headers import KeyedHeader, header_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flinkformat.handles import KeyedStateHandle
    from tidegate.model.ids import OperatorId
    from tidegate.state.format.headers import StateHeader

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

    def header(
        self, operator: OperatorId, number: int, max_parallelism: int, key: bytes | None
    ) -> bytes:
        """The bytes that open a stream of them."""
        states = list(self._states)
        return header_bytes(
            KeyedHeader(operator, CheckpointId(number), max_parallelism, key, states, None)
        )

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
