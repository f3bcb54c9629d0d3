"""Samples of a snapshot: the states of one operator by name, and a few entries of each.

A sample is cut from the real bytes, in streams as a backend restores them: the header as it is, and
of the entries the first blocks, or elements, of each state. So whoever restores a sample judges the
whole, as far as that can be.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flinkformat.handles import (
    ByteStreamStateHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    StateMetaInfo,
)
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import FINISHED
from tidegate.errors import FileMissing, TidegateError
from tidegate.model.restore import RestoredOperatorState
from tidegate.state.disk.by_entry import wholes_of
from tidegate.state.disk.files import COLUMNS_FILE, download
from tidegate.state.disk.restore import by_form
from tidegate.state.disk.store import PREFIX_BYTES, RocksDBMemory, RocksDBStore, after, prefix_of
from tidegate.state.format.blocks import (
    COLUMNS,
    PRESENT,
    Block,
    KeyedHeader,
    KeyedStreamWriter,
    OperatorHeader,
    header_bytes,
    keyed_header,
    rocksdb_header,
)
from tidegate.state.format.streams import ElementReader, StreamReader, in_streams
from tidegate.storage.reading import StateReader
from tidegate.typeinfo.serializers import SerializerSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from flinkformat.handles import KeyedStateHandle, OperatorStateHandle
    from flinkformat.snapshots import OperatorState
    from tidegate.model.settings import RocksDBSettings
    from tidegate.state.format.blocks import RocksDBHeader, RocksDBState, StateHeader
    from tidegate.storage.reading import StateReads
    from tidegate.storage.state_files import StateFiles

ROWS: Final = 1_000
"""Entries of a state after which no more of it are wanted; what is read comes in blocks."""

BYTES: Final = 32 << 20
"""Bytes of one operator's keyed state that are looked at, unless told otherwise."""

_ENTRIES_OF_ONE: Final = 100
"""Entries, at most, that a sample has of a map or list that is stored by entry."""


@dataclass(slots=True)
class Sampled:
    """Samples of one operator so far.

    rows: by state. bytes_left: how much may still be read. complete: all there is was looked at,
    so that a state without rows has none.
    """

    rows: Counter[str] = field(default_factory=Counter[str])
    bytes_left: int = BYTES
    complete: bool = True


@dataclass(slots=True)
class OperatorSample:
    """parts: as a backend restores them, one by one. errors: what could not be sampled.

    keyed, operator: how each state was written, by name. columns: Arrow types by name; None without
    columnar state. key: type of the keys; None if there is none. elements: how many each
    operator state has. sampled: entries by state.
    """

    parts: list[RestoredOperatorState] = field(default_factory=list[RestoredOperatorState])
    errors: list[TidegateError] = field(default_factory=list[TidegateError])
    keyed: dict[str, list[StateHeader]] = field(default_factory=dict[str, "list[StateHeader]"])
    operator: dict[str, list[StateHeader]] = field(default_factory=dict[str, "list[StateHeader]"])
    columns: dict[str, str] | None = None
    key: str | None = None
    elements: dict[str, int] = field(default_factory=dict[str, int])
    sampled: Sampled = field(default_factory=Sampled)

    def has_none(self, state: str) -> bool:
        """True if a state is known to have no entries."""
        if state in self.elements:
            return self.elements[state] == 0
        return self.sampled.complete and not self.sampled.rows[state]

    def take_keyed(self, header: KeyedHeader, handle: KeyGroupsStateHandle) -> None:
        for state in header.states:
            self.keyed.setdefault(state.name, []).append(state)
        if header.key is not None:
            self.key = str(SerializerSnapshot.from_bytes(header.key).type_info)
        if header.columns is not None:
            # Import PyArrow only for columnar state.
            from tidegate.state.columns.columnar import columns_of

            key, columns = columns_of(header.columns)
            self.columns = (self.columns or {}) | columns
            self.key = str(key)
        self.parts.append(RestoredOperatorState(managed_keyed=(handle,)))


class Sampler:
    """Takes samples of one snapshot. disk: of the backend that is to restore it, if on disk."""

    def __init__(self, files: StateFiles, disk: RocksDBSettings | None) -> None:
        self._files = files
        self._disk = disk

    def sample(self, state: OperatorState) -> OperatorSample:
        """Samples one operator's state. Blocking. Unreadable parts become errors of the sample."""
        made = OperatorSample()
        for subtask in state.subtasks.values():
            if subtask is FINISHED:
                continue
            try:
                if subtask.managed_operator is not None:
                    self._take_operator(made, subtask.managed_operator)
                if subtask.managed_keyed is not None:
                    self._take_keyed(made, subtask.managed_keyed, state.max_parallelism)
            except FileMissing:
                continue  # which files are missing is told of the snapshot as a whole
            except TidegateError as error:
                if error.what not in {known.what for known in made.errors}:
                    made.errors.append(error)
        return made

    def _take_operator(self, made: OperatorSample, handle: OperatorStateHandle) -> None:
        if not handle.state_size:
            return
        for name, info in handle.states.items():
            made.elements[name] = made.elements.get(name, 0) + len(info.offsets)
        with self._files.open_handle(handle.delegate) as stream:
            header, sample = operator_sample(handle, stream, made.sampled)
        for state in header.states:
            made.operator.setdefault(state.name, []).append(state)
        made.parts.append(RestoredOperatorState(managed_operator=(sample,)))

    def _take_keyed(
        self, made: OperatorSample, whole: KeyedStateHandle, max_parallelism: int
    ) -> None:
        groups = KeyGroupRange(0, max_parallelism - 1)
        handles = list(in_streams([whole], groups, self._files.read_handle))
        if self._disk is not None:
            by_form(handles, "")
        for handle in handles:
            if isinstance(handle, KeyGroupsStateHandle):
                with self._files.open_handle(handle.delegate) as stream:
                    made.take_keyed(*keyed_sample(handle, stream, made.sampled))
            elif isinstance(handle, IncrementalRemoteKeyedStateHandle) and self._disk is not None:
                self._take_folder(made, handle, self._disk)
            else:
                made.parts.append(RestoredOperatorState(managed_keyed=(handle,)))

    def _take_folder(
        self,
        made: OperatorSample,
        handle: IncrementalRemoteKeyedStateHandle,
        disk: RocksDBSettings,
    ) -> None:
        with tempfile.TemporaryDirectory(prefix="tidegate-check-") as scratch:
            folder, reader = Path(scratch) / "sample", StateReader(self._files, {})
            made.take_keyed(*folder_sample(handle, folder, reader, disk, made.sampled))


def keyed_sample(
    handle: KeyGroupsStateHandle, stream: BinaryIO, sampled: Sampled
) -> tuple[KeyedHeader, KeyGroupsStateHandle]:
    """The header, and some entries of each state. stream: of the handle's bytes; seekable.

    Raises FormatError.
    """
    where = handle.delegate.physical_id
    reader = StreamReader(stream, handle.state_size, where)
    header = reader.header
    data = bytearray()
    written = KeyedStreamWriter(data.extend, header, handle.key_groups)
    for group, blocks in _sections(handle, reader, sampled):
        written.add(group, blocks)
    sample = ByteStreamStateHandle(f"sample of {where}", bytes(data))
    return header, replace(handle, offsets=written.offsets, delegate=sample)


def _sections(
    handle: KeyGroupsStateHandle, reader: StreamReader, sampled: Sampled
) -> Iterator[tuple[int, list[Block]]]:
    header, rows = reader.header, sampled.rows
    names = [state.name for state in header.states]
    for group in handle.key_groups:
        offset = handle.offset_of(group)
        if not offset or (header.columns is None and all(rows[name] >= ROWS for name in names)):
            continue
        size = reader.section_size(offset)
        if size > sampled.bytes_left:
            sampled.complete = False
            continue
        sampled.bytes_left -= size
        taken: list[Block] = []
        for block in reader.blocks(group, offset):
            if block.kind == COLUMNS:
                taken.append(block)
            elif block.state < len(names) and rows[names[block.state]] < ROWS:
                rows[names[block.state]] += block.rows
                taken.append(block)
        yield group, taken


def operator_sample(
    handle: OperatorStateHandle, stream: BinaryIO, sampled: Sampled
) -> tuple[OperatorHeader, OperatorStreamStateHandle]:
    """Samples operator state: the first elements of each state."""
    where = handle.delegate.physical_id
    reader = ElementReader(stream, handle.delegate.state_size, where)
    header = reader.header
    data = header_bytes(header)
    states: dict[str, StateMetaInfo] = {}
    for name, info in handle.states.items():
        offsets: list[int] = []
        for offset in islice(info.offsets, max(0, ROWS - sampled.rows[name])):
            offsets.append(len(data))
            data += reader.stored(offset)
        sampled.rows[name] += len(offsets)
        states[name] = replace(info, offsets=tuple(offsets))
    sample = ByteStreamStateHandle(f"sample of {where}", data)
    return header, OperatorStreamStateHandle(states, sample)


def folder_sample(
    handle: IncrementalRemoteKeyedStateHandle,
    folder: Path,
    reader: StateReads,
    settings: RocksDBSettings,
    sampled: Sampled,
) -> tuple[KeyedHeader, KeyGroupsStateHandle]:
    """Reads what the key space holds, and some entries of each state. Blocking.

    folder: a new one of this machine. Of a key space that has more bytes than are left to look at,
    and of columnar state, there are no entries. Raises FormatError, RestoreRefused, StorageFailed.
    """
    where = handle.meta.physical_id
    meta = rocksdb_header(memoryview(reader.read(handle.meta)), where)
    columns = next(
        (
            keyed_header(memoryview(reader.read(file.handle)), where).columns
            for file in (*handle.shared_state, *handle.private_state)
            if file.local_path == COLUMNS_FILE
        ),
        None,
    )
    header = KeyedHeader(
        meta.operator, meta.checkpoint, meta.max_parallelism, meta.key, meta.in_blocks(), columns
    )
    data = bytearray()
    written = KeyedStreamWriter(data.extend, header, handle.key_groups)
    if handle.state_size > sampled.bytes_left:
        sampled.complete = False
    else:
        sampled.bytes_left -= handle.state_size
        download(handle, folder, reader)
        store = RocksDBStore(folder, RocksDBMemory(settings))
        try:
            for group in handle.key_groups:
                written.add(group, list(_sampled_blocks(store, meta, group, sampled)))
        finally:
            store.destroy()
    sample = ByteStreamStateHandle(f"sample of {where}", bytes(data))
    name = handle.state_handle_id
    return header, KeyGroupsStateHandle(handle.key_groups, written.offsets, sample, name)


def _sampled_blocks(
    store: RocksDBStore, meta: RocksDBHeader, group: int, sampled: Sampled
) -> Iterator[Block]:
    first = 0
    for state in meta.states:
        left = max(0, ROWS - sampled.rows[state.name])
        for name, piece in islice(_entries(store, state, group), left):
            # A block each: to join pickles one would have to make their values.
            sampled.rows[state.name] += 1
            yield Block(PRESENT, first + piece[0], 1, name[PREFIX_BYTES:], piece[1:])
        first += len(state.versions)


def _entries(store: RocksDBStore, state: RocksDBState, group: int) -> Iterator[tuple[bytes, bytes]]:
    """Names and pieces of a state's entries; a map's or list's are one for each form."""
    if state.by_entry:
        wholes = wholes_of(store, state, group, _ENTRIES_OF_ONE)
        return ((name, piece) for name, pieces in wholes for piece in pieces)
    prefix = prefix_of(group, state.number)
    return store.scan(prefix, after(prefix))
