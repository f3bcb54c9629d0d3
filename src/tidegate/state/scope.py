"""The subtask of an operator that state belongs to, and the streams of its keyed state."""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from flinkformat.frozen import frozen
from flinkformat.handles import KeyGroupsStateHandle
from tidegate.state.format.blocks import KeyedHeader, KeyedStreamWriter, compressor
from tidegate.storage.places import CheckpointScope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from flinkformat.handles import KeyedStateHandle
    from flinkformat.key_groups import KeyGroupRange
    from tidegate.clock import Clock
    from tidegate.loops.cells import KeyCell
    from tidegate.model.ids import CheckpointId, OperatorId
    from tidegate.state.format.blocks import Block, ColumnsHeader, StateHeader
    from tidegate.storage.places import Place
    from tidegate.storage.streams import CheckpointStateOutputStream
    from tidegate.typeinfo.types import TypeInformation

    # Writes what is left of a stream, and gives who has written it.
    Write = Callable[[Callable[[bytes], None]], KeyedStreamWriter]

    # The handle of a snapshot, and the bytes in it by state.
    Uploaded = tuple[KeyedStateHandle, Mapping[str, int]]


class BesideRows(Protocol):
    """Columnar state as at a barrier, which is written with the rows; `columns` has it."""

    @property
    def header(self) -> ColumnsHeader:
        """The description of all of it in a stream's header."""
        ...

    def steps(self) -> Iterator[int]:
        """Copy; a step copies a page and gives the number of its rows."""
        ...

    def blocks(self) -> dict[int, list[Block]]:
        """Rows of each key group that has keys, once they are copied."""
        ...

    def release(self) -> None:
        """Free what is kept for it."""
        ...


@frozen
class Target:
    """The stream that a snapshot of rows in memory writes, and what its handle says.

    checkpoint: in its header. open: begins it while more is encoded. upload: writes what is left,
    by the function that it is given, to the stream that was opened before, if one was; its last
    argument says that nothing is left.
    """

    checkpoint: CheckpointId
    open: Callable[[Place], CheckpointStateOutputStream]
    upload: Callable[[Place, CheckpointStateOutputStream | None, Write, bool], Uploaded]
    compressed: bool = True


@frozen
class StateScope:
    """One operator in one subtask, and the key on which its keyed state stands.

    key_type: as declared; None for the types that the keys have. name, uid: of the operator, for
    errors. compression: of what snapshots write. pair_cell: the key with a namespace beside it.
    """

    operator: OperatorId
    key_groups: KeyGroupRange
    max_parallelism: int
    clock: Clock
    cell: KeyCell
    key_type: TypeInformation | None = None
    name: str = ""
    uid: str | None = None
    compression: bool = False
    pair_cell: KeyCell = field(init=False)

    def __post_init__(self) -> None:
        # Of the same form, since compiled state reaches into either.
        object.__setattr__(self, "pair_cell", type(self.cell)())

    @property
    def where(self) -> str:
        """Names the operator in errors."""
        uid = f" (uid '{self.uid}')" if self.uid else ""
        return f"operator '{self.name or self.operator.hex()}'{uid}"

    @property
    def compress(self) -> Callable[[bytes], bytes] | None:
        """Makes parts of a snapshot smaller; None if they are written as they are."""
        return compressor() if self.compression else None

    def writer(
        self,
        write: Callable[[bytes], object],
        checkpoint: CheckpointId,
        *,
        key: bytes | None = None,
        states: Sequence[StateHeader] = (),
        columns: ColumnsHeader | None = None,
        compressed: bool = True,
    ) -> KeyedStreamWriter:
        """Begins a stream of its keyed state; the header's fields as in `KeyedHeader`.

        compressed: as the job has it; or else the stream is written as it is.
        """
        header = KeyedHeader(
            self.operator, checkpoint, self.max_parallelism, key, list(states), columns
        )
        compress = self.compress if compressed else None
        return KeyedStreamWriter(write, header, self.key_groups, compress)

    def write_columns(
        self, write: Callable[[bytes], object], checkpoint: CheckpointId, columns: BesideRows
    ) -> tuple[int, ...]:
        """Write a stream of columns alone; gives the offsets of its key groups."""
        stream, blocks = self.writer(write, checkpoint, columns=columns.header), columns.blocks()
        for group in self.key_groups:
            stream.add(group, blocks.get(group, ()))
        return stream.offsets

    def whole_stream(self, checkpoint: CheckpointId) -> Target:
        """The stream that a checkpoint writes for itself."""
        upload = partial(_upload_whole, self.key_groups, self.handle_name(checkpoint))
        return Target(checkpoint, _open_whole, upload)

    def base_stream(self, number: CheckpointId, name: str) -> Target:
        """The stream of a changelog's base. name: of its handle."""
        upload = partial(_upload_whole, self.key_groups, name)
        return Target(number, _open_whole, upload, compressed=False)

    def handle_name(self, checkpoint: CheckpointId) -> str:
        """The name of the handle of all its keyed state in one stream."""
        groups = self.key_groups
        return f"{self.operator.hex()}-{checkpoint}-{groups.first}-{groups.last}"


def total_by_state(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Bytes by state over several parts of a snapshot."""
    total: dict[str, int] = {}
    for part in parts:
        for name, size in part.items():
            total[name] = total.get(name, 0) + size
    return total


def _open_whole(place: Place) -> CheckpointStateOutputStream:
    return place.stream(CheckpointScope.EXCLUSIVE, merged=False)


def _upload_whole(
    key_groups: KeyGroupRange,
    name: str,
    place: Place,
    stream: CheckpointStateOutputStream | None,
    write: Write,
    is_empty: bool,
) -> Uploaded:
    del is_empty
    with stream or place.stream() as stream:
        written = write(stream.write)
        handle = stream.close_and_get_handle()
    keyed = KeyGroupsStateHandle(key_groups, written.offsets, handle, name)
    return keyed, total_by_state(written.held.values())
