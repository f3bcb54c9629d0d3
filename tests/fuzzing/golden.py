"""Writes golden/: files of RocksDB differ each time they are written, and an input is to stay.

`python -m tests.fuzzing.golden` writes them anew.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from flinkformat import metadata
from flinkformat.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    RelativeFileStateHandle,
)
from flinkformat.snapshots import FINISHED
from tests.snapshots.snapshot_world import JobWorld, Kind
from tidegate.storage.state_files import resolve_relative

GOLDEN = Path(__file__).parent / "golden"
META = "meta"
"""The description of the key space, beside its files."""


def write() -> None:
    """The key space of a subtask after its first checkpoint."""
    with JobWorld(Kind("rocksdb", inline_threshold=0)) as world:
        world.work()
        folder = world.checkpoint()
        files = dict(world.files.files)
    decoded = metadata.decode(files[f"{folder}/_metadata"], lambda: "new")
    read = resolve_relative(decoded, folder)
    state = read.operators[0].subtasks[0]
    assert state is not FINISHED
    handle = state.managed_keyed
    assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
    shutil.rmtree(GOLDEN, ignore_errors=True)
    GOLDEN.mkdir()
    named = [
        (each.local_path, each.handle) for each in (*handle.shared_state, *handle.private_state)
    ]
    for name, stream in [*named, (META, handle.meta)]:
        if isinstance(stream, FileStateHandle | RelativeFileStateHandle):
            (GOLDEN / name).write_bytes(files[stream.file_path])
        else:
            assert isinstance(stream, ByteStreamStateHandle), "small files are in their handles"
            (GOLDEN / name).write_bytes(stream.data)


if __name__ == "__main__":
    write()
