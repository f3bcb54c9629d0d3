"""States that share files: read back as they were, and nothing counts or stays before its time."""

from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.handles import (
    ByteStreamStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    SegmentFileStateHandle,
    StateScope,
    StreamStateHandle,
)
from flinkformat.key_groups import KeyGroupRange
from flinkformat.metadata import decode, encode
from flinkformat.snapshots import CheckpointMetadata, OperatorState, SubtaskState
from tests.storage.checkpoint_folders import (
    EXCLUSIVE,
    JOB,
    KIB,
    ONE,
    TornFiles,
    files_below,
    stream_of,
)
from tidegate.errors import StorageFailed
from tidegate.model.files import FileChecksum
from tidegate.model.ids import OperatorId
from tidegate.model.settings import CheckpointSettings
from tidegate.storage.checkpoints import CheckpointStorage
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.stores import Stores
from tidegate.storage.streams import FileMerging


def merged(
    folder: object, *, threshold: int = 0, largest: int = 32 * KIB * KIB, files: MemoryFiles
) -> CheckpointStorage:
    settings = CheckpointSettings(
        storage="filesystem",
        directory=str(folder),
        inline_threshold_bytes=threshold,
        merged_file_max_bytes=largest,
    )
    return CheckpointStorage(JOB, settings, Stores(files))


def in_files(folder: Path, **options: int) -> CheckpointStorage:
    return merged(folder, files=MemoryFiles(), **options)


def begun(storage: CheckpointStorage) -> FileMerging:
    merging = storage.merge_files(ONE)
    assert merging is not None
    return merging


def written(
    storage: CheckpointStorage, merging: FileMerging, name: str, *pieces: bytes
) -> StreamStateHandle:
    with stream_of(storage, ONE, EXCLUSIVE, name, merging=merging) as stream:
        for piece in pieces:
            stream.write(piece)
        return stream.close_and_get_handle()


def test_states_of_one_subtask_are_segments_of_one_file(tmp_path: Path) -> None:
    storage = in_files(tmp_path)
    merging = begun(storage)
    handles = [
        written(storage, merging, name, *pieces)
        for name, pieces in {"1-0-a": [b"one"], "1-0-b": [b"tw", b"o!"], "1-0-c": [b"3"]}.items()
    ]
    assert merging.checksums == {}, "nothing is durable yet"
    merging.close()
    place = f"{tmp_path}/{JOB}/chk-1/1-0-a"
    exclusive = StateScope.EXCLUSIVE
    assert handles == [
        SegmentFileStateHandle(place, 0, 3, exclusive, "1-0-a"),
        SegmentFileStateHandle(place, 3, 4, exclusive, "1-0-b"),
        SegmentFileStateHandle(place, 7, 1, exclusive, "1-0-c"),
    ]
    assert files_below(tmp_path) == {f"{JOB}/chk-1/1-0-a"}
    assert merging.checksums == {place: FileChecksum(google_crc32c.value(b"onetwo!3"), 8)}
    assert [storage.files.read_handle(handle) for handle in handles] == [b"one", b"two!", b"3"]
    assert storage.files.read_handle(handles[1], offset=1, size=2) == b"wo"


def test_small_state_stays_in_its_handle_all_the_same(tmp_path: Path) -> None:
    storage = in_files(tmp_path, threshold=20)
    merging = begun(storage)
    small = written(storage, merging, "1-0-a", b"x" * 19)
    assert isinstance(small, ByteStreamStateHandle)
    assert isinstance(written(storage, merging, "1-0-b", b"x" * 20), SegmentFileStateHandle)
    merging.close()
    assert files_below(tmp_path) == {f"{JOB}/chk-1/1-0-b"}


def test_without_state_there_is_no_file(tmp_path: Path) -> None:
    merging = begun(in_files(tmp_path))
    merging.close()
    assert files_below(tmp_path) == set() and merging.checksums == {}


def test_a_file_that_has_its_size_takes_no_further_state(tmp_path: Path) -> None:
    storage = in_files(tmp_path, largest=10)
    merging = begun(storage)
    for name, size in (("1-0-a", 6), ("1-0-b", 6), ("1-0-c", 30), ("1-0-d", 1)):
        written(storage, merging, name, b"x" * size)
    merging.close()
    sizes = {file.name: file.stat().st_size for file in (tmp_path / JOB / "chk-1").iterdir()}
    assert sizes == {"1-0-a": 12, "1-0-c": 30, "1-0-d": 1}
    assert {Path(place).name: file.size for place, file in merging.checksums.items()} == sizes


def test_what_is_given_up_leaves_nothing_open_and_no_file_under_way(tmp_path: Path) -> None:
    storage = in_files(tmp_path, largest=10)
    merging = begun(storage)
    written(storage, merging, "1-0-a", b"x" * 10)
    written(storage, merging, "1-0-b", b"x")
    merging.abort()
    merging.abort()
    storage.files.delete_files(merging.checksums)
    assert files_below(tmp_path) == set()


def test_a_state_that_is_given_up_takes_no_other_with_it(tmp_path: Path) -> None:
    storage = in_files(tmp_path)
    merging = begun(storage)
    before = written(storage, merging, "1-0-a", b"before")
    with stream_of(storage, ONE, EXCLUSIVE, "1-0-b", merging=merging) as stream:
        stream.write(b"nobody's")
    after = written(storage, merging, "1-0-c", b"after")
    merging.close()
    assert (
        storage.files.read_handle(before) == b"before"
        and storage.files.read_handle(after) == b"after"
    )


def test_two_states_at_once_are_a_mistake_that_is_noticed(tmp_path: Path) -> None:
    storage = in_files(tmp_path)
    merging = begun(storage)
    first, second = (
        stream_of(storage, ONE, EXCLUSIVE, name, merging=merging) for name in ("1-0-a", "1-0-b")
    )
    first.write(b"a")
    second.write(b"b")
    with pytest.raises(AssertionError, match="one state at a time"):
        first.write(b"a")
    merging.abort()


def test_a_file_that_cannot_be_closed_is_no_file() -> None:
    world = TornFiles()
    storage = merged("memory:/c", files=world)
    merging = begun(storage)
    written(storage, merging, "1-0-a", b"x")
    with pytest.raises(StorageFailed, match="disk is full"):
        merging.close()
    assert merging.checksums == {}
    merging.abort()
    assert world.files == {}


def test_a_savepoint_and_a_driver_that_keeps_state_itself_share_no_files(tmp_path: Path) -> None:
    """A savepoint can be moved: its handles are relative, and a segment's place is absolute."""
    assert in_files(tmp_path).merge_files(ONE, target=str(tmp_path / "savepoint-1")) is None
    assert CheckpointStorage(JOB, CheckpointSettings()).merge_files(ONE) is None


@given(
    states=st.lists(st.binary(max_size=40), max_size=30),
    largest=st.integers(0, 100),
    threshold=st.integers(0, 20),
)
def test_every_state_is_read_back_through_the_metadata(
    states: list[bytes], largest: int, threshold: int
) -> None:
    world = MemoryFiles()
    storage = merged("memory:/c", largest=largest, threshold=threshold, files=world)
    merging = begun(storage)
    handles = [
        written(storage, merging, f"1-0-{n}", *(bytes([byte]) for byte in state))
        for n, state in enumerate(states)
    ]
    merging.close()
    groups = KeyGroupRange(0, 0)
    operators = tuple(
        OperatorState(
            operator_id=OperatorId(n.to_bytes(16)),
            parallelism=1,
            max_parallelism=1,
            subtasks={
                0: SubtaskState(
                    managed_operator=OperatorStreamStateHandle({}, handle),
                    managed_keyed=KeyGroupsStateHandle(groups, (0,), handle, "k"),
                )
            },
        )
        for n, handle in enumerate(handles)
    )
    metadata = CheckpointMetadata(checkpoint_id=ONE, operators=operators)
    found = decode(encode(metadata), lambda: "k")
    assert found.operators == operators
    for operator, state in zip(found.operators, states, strict=True):
        subtask = operator.subtasks[0]
        assert isinstance(subtask, SubtaskState)
        assert subtask.managed_keyed is not None and subtask.managed_operator is not None
        for delegate in (subtask.managed_operator.delegate, subtask.managed_keyed.delegate):
            assert storage.files.read_handle(delegate) == state
    assert set(merging.checksums) == set(world.files)
    for place, (crc, size, _) in merging.checksums.items():
        assert google_crc32c.value(world.files[place]) == crc and len(world.files[place]) == size
    sizes = sorted(file.size for file in merging.checksums.values())
    assert sum(size < largest for size in sizes) <= 1, "only the last file may be smaller"
