"""Whether the files of a RocksDB folder in a snapshot belong together, where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.state.manifest import CURRENT, live_files, manifest_name, other_files, sst_sizes
from tidegate.state.format import RocksDBHeader, rocksdb_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from flinkformat.handles import IncrementalRemoteKeyedStateHandle, StreamStateHandle

    Read = Callable[[StreamStateHandle], bytes]


def check_database(handle: IncrementalRemoteKeyedStateHandle, read: Read) -> RocksDBHeader:
    """Look through the folder that a handle describes; its description of the states.

    Raises FormatError, and what `read` raises.
    """
    where = handle.meta.physical_id
    header = rocksdb_header(memoryview(read(handle.meta)), where)
    files = {file.local_path: file.handle for file in (*handle.shared_state, *handle.private_state)}
    current = read(files[CURRENT]) if CURRENT in files else b""
    manifest = files[manifest_name(current, files, where)]
    live = live_files(read(manifest), manifest.physical_id)
    sizes = sst_sizes({name: each.state_size for name, each in files.items()})
    if live is not None and sizes != live:
        raise other_files(sizes, live, manifest.physical_id)
    return header
