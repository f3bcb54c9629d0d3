"""A whole snapshot is read by what opens files alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from golden import FIXTURES, expected

import flinkformat as ff
from flinkformat.handles import FileStateHandle, IncrementalRemoteKeyedStateHandle

SNAPSHOTS = (
    "keyed-heap-savepoint-canonical",
    "keyed-heapfile-chk1",
    "keyed-rocks-savepoint-native",
    "keyed-rocks-chk1",
    "unaligned-chk",
)


def opened(path: str) -> BinaryIO:
    return Path(path).open("rb")


def moved_here(name: str, meta: ff.CheckpointMetadata) -> ff.CheckpointMetadata:
    """The snapshot with the files that the fixture holds in the place of those of its machine."""
    was = expected(name).get("originalSharedParent") or expected(name).get("originalLocation")

    def here(stream: ff.Stream) -> Any:
        handle = stream.handle
        if isinstance(handle, FileStateHandle) and was:
            return replace(handle, file_path=handle.file_path.replace(was, str(FIXTURES / name)))
        return handle

    return ff.replace_streams(meta, here)


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_the_entries_of_a_snapshot_of_flink(name: str) -> None:
    meta = moved_here(name, ff.read(FIXTURES / name))
    files = ff.StateFiles(opened, folder=str(FIXTURES / name))
    entries = [
        entry
        for operator in meta.operators
        for state in ff.keyed_states(operator, files)
        for entry in state.entries()
    ]
    lists = [
        state.state.name
        for operator in meta.operators
        for _, states in ff.operator_states(operator, files)
        for state in states
    ]
    assert entries or lists
    assert all(entry.key is not None for entry in entries)


def test_no_snapshot_and_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ff.read(tmp_path / "chk-1")
    (tmp_path / "_metadata").write_bytes(b"\x00" * 20)
    with pytest.raises(ff.FormatError) as caught:
        ff.read(tmp_path)
    assert str(tmp_path / "_metadata") in caught.value.where


def test_the_same_bytes_are_written_back() -> None:
    data = (FIXTURES / "meta-basic-v6" / "_metadata").read_bytes()
    assert ff.encode(ff.read(FIXTURES / "meta-basic-v6"), version=6) == data


@pytest.mark.parametrize("name", ["../escaped.sst", "000001\0.sst"])
def test_files_of_a_database_have_names_of_files(name: str) -> None:
    folder = FIXTURES / "keyed-rocks-savepoint-native"
    files = ff.StateFiles(opened, folder=str(folder))
    found = 0
    for operator in ff.read(folder).operators:
        for index, state in operator.subtasks.items():
            keyed = getattr(state, "managed_keyed", None)
            if not isinstance(keyed, IncrementalRemoteKeyedStateHandle):
                continue
            assert isinstance(state, ff.SubtaskState)
            first, *others = keyed.private_state
            named = replace(keyed, private_state=(replace(first, local_path=name), *others))
            subtasks = {index: replace(state, managed_keyed=named)}
            [broken] = ff.keyed_states(replace(operator, subtasks=subtasks), files)
            with pytest.raises(ff.FormatError, match="no file can have"):
                list(broken.entries())
            found += 1
    assert found
