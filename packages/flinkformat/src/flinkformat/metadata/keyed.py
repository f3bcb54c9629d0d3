"""Keyed-state handles as bytes (docs/formats/metadata.md, section 4).

Of the kinds that older writers used, 3, 5, 8 and 10 are read and come back as the newer ones.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from flinkformat.handles import (
    ChangelogStateBackendHandle,
    ChangelogStateHandle,
    ChangelogStateHandleStream,
    HandleAndLocalPath,
    HandleAndOffset,
    IncrementalRemoteKeyedStateHandle,
    InMemoryChangelogStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    StateChange,
    StreamStateHandle,
)
from flinkformat.metadata.streams import (
    NULL,
    NewId,
    read_key_group_offsets,
    read_key_group_range,
    read_size,
    read_some_stream,
    write_key_group_offsets,
    write_key_group_range,
    write_stream,
)

if TYPE_CHECKING:
    from flinkformat.metadata.wire import Reader, Writer

KEY_GROUPS_OLD: Final = 3
INCREMENTAL_OLD: Final = 5
SAVEPOINT: Final = 7
CHANGELOG_IN_MEMORY: Final = 9
INCREMENTAL: Final = 11
KEY_GROUPS: Final = 12
CHANGELOG_FILES: Final = 13
CHANGELOG: Final = 14

OLD_STORAGE_ID: Final = "filesystem"

_UUID: Final = re.compile(r"-".join(f"([0-9a-f]{{1,{size}}})" for size in (8, 4, 4, 4, 12)))


class KeyedReader:
    """Reads keyed-state handles, which may contain each other."""

    def __init__(self, reader: Reader, new_id: NewId) -> None:
        self._reader = reader
        self._new_id = new_id

    def handle(self) -> KeyedStateHandle | None:
        start = self._reader.offset
        match self._reader.u8("the type of a keyed state handle"):
            case 0:
                return None
            case 3 | 12 as kind:
                return self._key_groups(has_id=kind == KEY_GROUPS)
            case 5 | 11 as kind:
                return self._incremental(old=kind == INCREMENTAL_OLD)
            case 7:
                return KeyGroupsSavepointStateHandle(
                    *read_key_group_offsets(self._reader), self._stream()
                )
            case 8 | 14 as kind:
                with self._reader.nested():
                    return self._changelog(has_checkpoint=kind == CHANGELOG)
            case 9:
                return self._in_memory()
            case 10 | 13 as kind:
                return self._changelog_files(has_storage=kind == CHANGELOG_FILES)
            case kind:
                raise self._reader.fail(
                    f"Reading invalid KeyedStateHandle, type: {kind}",
                    expected="a type of keyed state handle: 0, 3, 5, or 7 to 14",
                    found=str(kind),
                    offset=start,
                )

    def _stream(self) -> StreamStateHandle:
        return read_some_stream(self._reader, self._new_id)

    def _handle_id(self) -> str:
        return self._reader.utf("the id of a state handle")

    def _key_groups(self, *, has_id: bool) -> KeyGroupsStateHandle:
        key_groups, offsets = read_key_group_offsets(self._reader)
        delegate = self._stream()
        handle_id = self._handle_id() if has_id else self._new_id()
        return KeyGroupsStateHandle(key_groups, offsets, delegate, handle_id)

    def _incremental(self, *, old: bool) -> IncrementalRemoteKeyedStateHandle:
        checkpoint = self._reader.i64("the id of a checkpoint")
        backend = _uuid(self._reader.utf("the id of a state backend"))
        key_groups = read_key_group_range(self._reader)
        written = -1 if old else read_size(self._reader, "the checkpointed size")
        meta = self._stream()
        shared = self._reader.many("shared files", self._file)
        private = self._reader.many("private files", self._file)
        if written < 0:
            sizes = (file.handle.state_size for file in (*shared, *private))
            written = max(0, meta.state_size + sum(sizes))
        handle_id = self._new_id() if old else self._handle_id()
        return IncrementalRemoteKeyedStateHandle(
            checkpoint, backend, key_groups, written, meta, shared, private, handle_id
        )

    def _file(self) -> HandleAndLocalPath:
        return HandleAndLocalPath(self._reader.utf("the local path of a file"), self._stream())

    def _changelog(self, *, has_checkpoint: bool) -> ChangelogStateBackendHandle:
        key_groups = read_key_group_range(self._reader)
        written = read_size(self._reader, "the checkpointed size")
        materialized = self._reader.many("materialized handles", self.handle)
        changes = self._reader.many("changelog handles", self._change_part)
        materialization = self._reader.i64("the id of a materialization")
        checkpoint = self._reader.i64("the id of a checkpoint") if has_checkpoint else None
        return ChangelogStateBackendHandle(
            key_groups,
            tuple(handle for handle in materialized if handle is not None),
            changes,
            materialization,
            materialization if checkpoint is None else checkpoint,
            written,
            self._handle_id(),
        )

    def _change_part(self) -> ChangelogStateHandle:
        start = self._reader.offset
        handle = self.handle()
        if not isinstance(handle, InMemoryChangelogStateHandle | ChangelogStateHandleStream):
            raise self._reader.fail(
                "a part of a changelog is not one",
                expected="a keyed state handle of type 9, 10 or 13",
                found=type(handle).__name__,
                offset=start,
            )
        return handle

    def _in_memory(self) -> InMemoryChangelogStateHandle:
        key_groups = read_key_group_range(self._reader)
        start = self._reader.i64("the first sequence number")
        end = self._reader.i64("the last sequence number")
        changes = self._reader.many("changes", self._change)
        return InMemoryChangelogStateHandle(key_groups, start, end, changes, self._handle_id())

    def _change(self) -> StateChange:
        return StateChange(self._reader.i32("a key group"), self._reader.blob("a change"))

    def _changelog_files(self, *, has_storage: bool) -> ChangelogStateHandleStream:
        key_groups = read_key_group_range(self._reader)
        handles = self._reader.many("changelog files", self._handle_and_offset)
        size = read_size(self._reader, "the size of a changelog")
        written = read_size(self._reader, "the checkpointed size")
        handle_id = self._handle_id()
        storage = self._reader.utf("the changelog storage") if has_storage else OLD_STORAGE_ID
        return ChangelogStateHandleStream(key_groups, handles, size, written, handle_id, storage)

    def _handle_and_offset(self) -> HandleAndOffset:
        return HandleAndOffset(self._reader.i64("an offset"), self._stream())


def _uuid(text: str) -> str:
    """Parses a UUID; for any other text, derives one from its bytes as Java does."""
    if match := _UUID.fullmatch(text.lower()):
        sizes = (8, 4, 4, 4, 12)
        return "-".join(part.zfill(size) for part, size in zip(match.groups(), sizes, strict=True))
    digest = hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()
    bits = int.from_bytes(digest) & ~(0xF << 76) & ~(0x3 << 62) | 3 << 76 | 2 << 62
    digits = f"{bits:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def write_keyed(writer: Writer, handle: KeyedStateHandle | None) -> None:
    match handle:
        case None:
            writer.u8(NULL)
        case KeyGroupsStateHandle():
            writer.u8(KEY_GROUPS)
            write_key_group_offsets(writer, handle.key_groups, handle.offsets)
            write_stream(writer, handle.delegate)
            writer.utf(handle.state_handle_id)
        case KeyGroupsSavepointStateHandle():
            writer.u8(SAVEPOINT)
            write_key_group_offsets(writer, handle.key_groups, handle.offsets)
            write_stream(writer, handle.delegate)
        case IncrementalRemoteKeyedStateHandle():
            _write_incremental(writer, handle)
        case ChangelogStateBackendHandle():
            _write_changelog(writer, handle)
        case InMemoryChangelogStateHandle():
            _write_in_memory(writer, handle)
        case ChangelogStateHandleStream():
            _write_changelog_files(writer, handle)


def _write_incremental(writer: Writer, handle: IncrementalRemoteKeyedStateHandle) -> None:
    def write_file(file: HandleAndLocalPath) -> None:
        writer.utf(file.local_path)
        write_stream(writer, file.handle)

    writer.u8(INCREMENTAL)
    writer.i64(handle.checkpoint_id)
    writer.utf(handle.backend_id)
    write_key_group_range(writer, handle.key_groups)
    writer.i64(handle.checkpointed_size)
    write_stream(writer, handle.meta)
    writer.many(handle.shared_state, write_file)
    writer.many(handle.private_state, write_file)
    writer.utf(handle.state_handle_id)


def _write_changelog(writer: Writer, handle: ChangelogStateBackendHandle) -> None:
    writer.u8(CHANGELOG)
    write_key_group_range(writer, handle.key_groups)
    writer.i64(handle.checkpointed_size)
    writer.many(handle.materialized, lambda part: write_keyed(writer, part))
    writer.many(handle.non_materialized, lambda part: write_keyed(writer, part))
    writer.i64(handle.materialization_id)
    writer.i64(handle.checkpoint_id)
    writer.utf(handle.state_handle_id)


def _write_in_memory(writer: Writer, handle: InMemoryChangelogStateHandle) -> None:
    writer.u8(CHANGELOG_IN_MEMORY)
    write_key_group_range(writer, handle.key_groups)
    writer.i64(handle.start)
    writer.i64(handle.end)
    writer.i32(len(handle.changes))
    for change in handle.changes:
        writer.i32(change.key_group)
        writer.blob(change.change)
    writer.utf(handle.state_handle_id)


def _write_changelog_files(writer: Writer, handle: ChangelogStateHandleStream) -> None:
    writer.u8(CHANGELOG_FILES)
    write_key_group_range(writer, handle.key_groups)
    writer.i32(len(handle.handles))
    for part in handle.handles:
        writer.i64(part.offset)
        write_stream(writer, part.handle)
    writer.i64(handle.state_size)
    writer.i64(handle.checkpointed_size)
    writer.utf(handle.state_handle_id)
    writer.utf(handle.storage_id)
