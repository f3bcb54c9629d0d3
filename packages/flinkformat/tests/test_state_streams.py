"""Runs of bytes are found, and replaced, in every kind of handle."""

from dataclasses import replace

import pytest
from golden import FIXTURES, GOOD

import flinkformat as ff
from flinkformat.handles import (
    ByteStreamStateHandle,
    EmptySegmentFileStateHandle,
    FileMergingOperatorStreamStateHandle,
    FileStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    PlaceholderStreamStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StateScope,
    StreamStateHandle,
)
from flinkformat.key_groups import KeyGroupRange
from flinkformat.state_streams import file_of

SEGMENT = SegmentFileStateHandle("/shared/a", 7, 3, StateScope.SHARED, "a")


@pytest.mark.parametrize(
    ("handle", "file"),
    [
        (FileStateHandle("/a", 1), "/a"),
        (SEGMENT, "/shared/a"),
        (RelativeFileStateHandle("a", 1, file_path="/chk/a"), "/chk/a"),
        (RelativeFileStateHandle("a", 1), None),
        (KeyGroupsStateHandle(KeyGroupRange(0, 0), (0,), FileStateHandle("/a", 1), "h"), "/a"),
        (ByteStreamStateHandle("a", b"x"), None),
        (EmptySegmentFileStateHandle(), None),
        (PlaceholderStreamStateHandle("a", 1), None),
    ],
)
def test_the_file_behind_a_handle(handle: StreamStateHandle, file: str | None) -> None:
    assert file_of(handle) == file


@pytest.mark.parametrize("name", GOOD)
def test_every_stream_of_a_golden_snapshot_is_replaced(name: str) -> None:
    meta = ff.read(FIXTURES / name)
    found = list(ff.streams(meta))
    assert ff.replace_streams(meta, lambda stream: stream.handle) == meta

    def elsewhere(stream: ff.Stream) -> StreamStateHandle:
        handle = stream.handle
        if isinstance(handle, SegmentFileStateHandle | FileStateHandle):
            return replace(handle, file_path=f"/moved{handle.file_path}")
        return handle

    moved = ff.replace_streams(meta, elsewhere)
    files = [file for stream in found if (file := file_of(stream.handle)) is not None]
    assert [file.removeprefix("/moved") for file in ff.files_of(moved)] == files
    assert all(file.startswith("/moved") for file in ff.files_of(moved))


def test_a_stream_says_whose_it_is() -> None:
    meta = ff.read(FIXTURES / "meta-basic-v6")
    roles = {stream.role for stream in ff.streams(meta)}
    assert {ff.Role.COORDINATOR, ff.Role.OPERATOR, ff.Role.KEYED} <= roles
    for stream in ff.streams(meta):
        assert stream.owner in meta.operators
        assert (stream.subtask is None) == (stream.role is ff.Role.COORDINATOR)


def test_operator_state_in_a_segment_may_move_to_a_file_of_its_own() -> None:
    merged = FileMergingOperatorStreamStateHandle({}, "/task", "/shared", False, SEGMENT)
    own = FileStateHandle("/new", 3)
    assert ff.replace_streams(merged, lambda _: own) == OperatorStreamStateHandle({}, own)
