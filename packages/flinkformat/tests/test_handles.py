from __future__ import annotations

import pickle

import pytest

from flinkformat.handles import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    EmptySegmentFileStateHandle,
    FileMergingOperatorStreamStateHandle,
    FileStateHandle,
    HandleAndLocalPath,
    HandleAndOffset,
    IncrementalRemoteKeyedStateHandle,
    InMemoryChangelogStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    PlaceholderStreamStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StateChange,
    StateScope,
    StreamStateHandle,
)
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import (
    CHECKPOINT,
    EMPTY,
    FINISHED,
    MasterState,
    SavepointFormatType,
    SavepointType,
    SharingFilesStrategy,
    SubtaskState,
)

TWO = KeyGroupRange(4, 5)
FILE = FileStateHandle("file:/c/f", 100)


@pytest.mark.parametrize(
    ("handle", "size", "physical_id"),
    [
        (ByteStreamStateHandle("h", b"abc"), 3, "h"),
        (FILE, 100, "file:/c/f"),
        (RelativeFileStateHandle("f", 7), 7, "f"),
        (RelativeFileStateHandle("f", 7, file_path="/c/chk-1/f"), 7, "/c/chk-1/f"),
        (SegmentFileStateHandle("s", 10, 5, StateScope.SHARED, "l"), 5, "s"),
        (EmptySegmentFileStateHandle(), 0, "empty"),
        (PlaceholderStreamStateHandle("p", 9), 9, "p"),
        (KeyGroupsStateHandle(TWO, (0, 9), FILE, "id"), 100, "file:/c/f"),
    ],
)
def test_a_stream_knows_its_size_and_the_name_of_its_bytes(
    handle: StreamStateHandle, size: int, physical_id: str
) -> None:
    assert (handle.state_size, handle.physical_id) == (size, physical_id)


CHANGES = InMemoryChangelogStateHandle(TWO, 0, 2, (StateChange(-1, b"ab"), StateChange(4, b"")), "")
FILES = ChangelogStateHandleStream(TWO, (HandleAndOffset(3, FILE),), 50, 20, "id", "filesystem")


@pytest.mark.parametrize(
    ("handle", "size", "written"),
    [
        (KeyGroupsStateHandle(TWO, (0, 9), FILE, "id"), 100, 100),
        (KeyGroupsSavepointStateHandle(TWO, (0, 9), FILE), 100, 100),
        (
            IncrementalRemoteKeyedStateHandle(
                1,
                "backend",
                TWO,
                8,
                ByteStreamStateHandle("meta", b"1234"),
                (HandleAndLocalPath("1.sst", FILE),),
                (HandleAndLocalPath("CURRENT", ByteStreamStateHandle("c", b"1234")),),
                "id",
            ),
            108,
            8,
        ),
        (CHANGES, 2, 2),
        (FILES, 50, 20),
        (ChangelogStateBackendHandle(TWO, (), (CHANGES, FILES), -1, 7, 22, "id"), 52, 22),
    ],
)
def test_keyed_state_tells_its_size_from_what_its_checkpoint_has_written(
    handle: KeyedStateHandle, size: int, written: int
) -> None:
    assert (handle.state_size, handle.checkpointed_size) == (size, written)
    assert SubtaskState(managed_keyed=handle, raw_keyed=handle).state_size == 2 * size


def test_a_key_group_is_found_by_its_place_in_the_range() -> None:
    for handle in (
        KeyGroupsStateHandle(TWO, (10, 20), FILE, "id"),
        KeyGroupsSavepointStateHandle(TWO, (10, 20), FILE),
    ):
        assert [handle.offset_of(key_group) for key_group in TWO] == [10, 20]
        with pytest.raises(AssertionError, match="key group 6"):
            handle.offset_of(6)


def test_operator_state_is_as_big_as_its_stream() -> None:
    segment = SegmentFileStateHandle("s", 10, 5, StateScope.EXCLUSIVE, "l")
    merged = FileMergingOperatorStreamStateHandle({}, "t", "s", False, segment)
    plain = OperatorStreamStateHandle({}, FILE)
    assert SubtaskState(managed_operator=plain, raw_operator=merged).state_size == 105


def test_the_marks_stay_themselves_in_another_process() -> None:
    assert pickle.loads(pickle.dumps(FINISHED)) is FINISHED
    assert pickle.loads(pickle.dumps(EMPTY)).is_empty
    assert pickle.loads(pickle.dumps(MasterState("m", 1, b"x"))) == MasterState("m", 1, b"x")


def test_only_savepoints_of_a_stop_are_waited_for_and_only_a_drain_ends_the_input() -> None:
    native = SavepointFormatType.NATIVE
    kinds = (
        SavepointType.savepoint(native),
        SavepointType.suspend(native),
        SavepointType.terminate(native),
    )
    assert [kind.is_synchronous for kind in kinds] == [False, True, True]
    assert [kind.should_drain for kind in kinds] == [False, False, True]
    assert {kind.sharing for kind in kinds} == {SharingFilesStrategy.NO_SHARING}
    assert not CHECKPOINT.is_savepoint
