"""Whole snapshots of ours, with a file of theirs changed, and folders of RocksDB."""

from __future__ import annotations

import itertools
import shutil
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from google_crc32c import value as crc32c

from flinkformat.state.manifest import live_files
from tests.fuzzing.cases import SLOW_FLOOR, Opened, Reader
from tests.fuzzing.golden import GOLDEN, META
from tests.snapshots.damages import Snapshots
from tests.snapshots.snapshot_world import Kind
from tests.state.disk_world import SMALL
from tidegate.errors import ConfigError, FormatError, StorageFailed
from tidegate.snapshots.checking import fsck
from tidegate.state.disk.store import RocksDBMemory, RocksDBStore
from tidegate.state.format.blocks import rocksdb_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_RECORD: Final = struct.Struct("<IHB")

KINDS = {
    "HashMap": Kind("hashmap", in_flight=True),
    "compressed, merged": Kind("hashmap", compression=True, merged=True, in_flight=True),
    "inline": Kind("hashmap", inline_threshold=20_000, in_flight=True),
    "incremental": Kind("incremental"),
}


def readers_of_folders() -> list[Reader]:
    """Fsck tells of what it finds; it refuses a folder where there is nothing to check."""
    return [
        Reader(f"fsck, {name}", _fsck(kind), (ConfigError,), floor=SLOW_FLOOR)
        for name, kind in KINDS.items()
    ] + [
        Reader("RocksDB's manifests", _manifests, (FormatError,)),
        Reader(
            "folders of RocksDB", _rocksdb_folders, (FormatError, StorageFailed), floor=SLOW_FLOOR
        ),
    ]


def _fsck(kind: Kind) -> Callable[[], Opened]:
    def opened() -> Opened:
        snapshots = Snapshots(kind)
        # As if an older release had written them: no checksum keeps a change from being looked at.
        for folder in (snapshots.chk(2), snapshots.chk(3), snapshots.native):
            snapshots.unchecked(folder)
        whole = dict(snapshots.files)
        places = sorted(whole)
        roots = (snapshots.chk(2), snapshots.chk(3), snapshots.native, snapshots.canonical)
        places = [p for p in places if p.startswith((*roots, f"{snapshots.folder}/shared"))]

        def read(index: int, data: bytes) -> None:
            snapshots.files = {**whole, places[index]: data}
            folder = next((root for root in roots if places[index].startswith(root)), roots[1])
            fsck.check(snapshots.stores, folder)

        return Opened([whole[place] for place in places], read)

    return opened


def _golden() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(GOLDEN.iterdir())}


def _manifests() -> Opened:
    """Once as files, and once as records whose checksums are right whatever is in them."""
    whole = next(data for name, data in _golden().items() if name.startswith("MANIFEST"))
    records = list(logged(whole))

    def read(index: int, data: bytes) -> None:
        if index == 0:
            live_files(data, "here")
            return
        changed = [*records]
        changed[index - 1] = data
        live_files(b"".join(map(framed, changed)), "here")

    return Opened([whole, *records], read)


def logged(log: bytes) -> Iterator[bytes]:
    """The records of a short log of RocksDB."""
    position = 0
    while position < len(log):
        _, size, _ = _RECORD.unpack_from(log, position)
        position += _RECORD.size + size
        yield log[position - size : position]


def framed(record: bytes) -> bytes:
    """The same as it stands in a log, where it is short enough."""
    record = record[: 1 << 15]
    crc = crc32c(b"\1" + record)
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    return _RECORD.pack(masked, len(record), 1) + record


def _rocksdb_folders() -> Opened:
    """A folder as a restore finds it.

    No record of the manifest is changed under a checksum made to fit: RocksDB trusts its own
    checksums, and who can forge one can write any state there is.
    """
    files = _golden()
    places = list(files)
    memory = RocksDBMemory(SMALL)
    root = tempfile.TemporaryDirectory(prefix="tidegate-fuzz-")
    numbers = itertools.count()

    def read(index: int, data: bytes) -> None:
        content = {**files, places[index]: data}
        header = rocksdb_header(memoryview(content.pop(META)), "here")
        folder = Path(root.name, str(next(numbers)))
        folder.mkdir()
        try:
            for name, of in content.items():
                (folder / name).write_bytes(of)
            store = RocksDBStore(folder, memory)
            try:
                for state in header.states:
                    list(store.scan(bytes(2) + bytes([state.number % 256])))
                list(store.scan(b""))
            finally:
                store.destroy()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    return Opened(list(files.values()), read)
