"""Keyed state as it is read: every form of a snapshot as keyed streams, laid over each other.

A changelog is its base, then the parts of the log; of state in memory that checkpoints share, each
file holds some key groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.handles import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    IncrementalRemoteKeyedStateHandle,
    InMemoryChangelogStateHandle,
    KeyGroupsStateHandle,
)
from tidegate.errors import FormatError
from tidegate.state.format.blocks import section_offsets
from tidegate.state.format.headers import keyed_header, sections_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flinkformat.handles import KeyedStateHandle, StreamStateHandle
    from flinkformat.key_groups import KeyGroupRange

    Read = Callable[[StreamStateHandle], bytes]


def bases(handles: Iterable[KeyedStateHandle]) -> Iterator[KeyedStateHandle]:
    """Handles with each changelog replaced by its base."""
    for handle in handles:
        if isinstance(handle, ChangelogStateBackendHandle):
            yield from handle.materialized
        else:
            yield handle


def log_streams(
    handles: Iterable[KeyedStateHandle], wanted: KeyGroupRange, read: Read
) -> Iterator[KeyGroupsStateHandle]:
    """The parts of logs that hold key groups of a range, in order, each with its bytes.

    They are laid over the `bases`. Raises FormatError.
    """
    for handle in handles:
        if not isinstance(handle, ChangelogStateBackendHandle):
            continue
        for part in handle.non_materialized:
            groups = part.key_groups.intersection(wanted)
            if isinstance(part, InMemoryChangelogStateHandle):
                data = b"".join(change.change for change in part.changes)
                yield _stream(groups, data, part.state_handle_id)
                continue
            for each in part.handles:
                data = read(each.handle)[each.offset :]
                yield _stream(groups, data, each.handle.physical_id)


def _stream(groups: KeyGroupRange, data: bytes, name: str) -> KeyGroupsStateHandle:
    view = memoryview(data)
    keyed_header(view, name)
    found = section_offsets(view, name)
    if len(found) > len(set(group for group, _ in found)):
        raise FormatError("A part of a changelog has a key group twice", where=name)
    offsets = dict(found)
    of_each = tuple(offsets.get(group, 0) for group in groups)
    return KeyGroupsStateHandle(groups, of_each, ByteStreamStateHandle(name, data), name)


def in_streams(
    handles: Iterable[KeyedStateHandle],
    wanted: KeyGroupRange,
    read: Callable[[StreamStateHandle], bytes],
) -> Iterator[KeyedStateHandle]:
    """The handles, with those of such checkpoints as the streams that hold key groups of a range.

    Those of a changelog come as its base, and after all bases the logs. Raises FormatError.
    """
    given = list(handles)
    for handle in bases(given):
        # State on disk always has files of its own, beside those that it shares.
        if isinstance(handle, IncrementalRemoteKeyedStateHandle) and not handle.private_state:
            yield from _streams_of(handle, wanted, memoryview(read(handle.meta)))
        else:
            yield handle
    yield from log_streams(given, wanted, read)


def _streams_of(
    handle: IncrementalRemoteKeyedStateHandle, wanted: KeyGroupRange, meta: memoryview
) -> Iterator[KeyGroupsStateHandle]:
    header = sections_header(meta, handle.meta.physical_id)
    places = {file.local_path: file.handle for file in handle.shared_state}
    for name, sections in header.files.items():
        offsets = {group: offset for group, offset in sections if group in wanted}
        if offsets:
            of_each = tuple(offsets.get(group, 0) for group in handle.key_groups)
            yield KeyGroupsStateHandle(handle.key_groups, of_each, places[name], name)
