from __future__ import annotations

from itertools import count
from pathlib import Path

import google_crc32c
import pytest
from google_crc32c import value as crc32c

from flinkformat.handles import (
    ByteStreamStateHandle,
    EmptySegmentFileStateHandle,
    FileStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StateScope,
)
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import FINISHED, CheckpointMetadata, OperatorState, SubtaskState
from tests.storage.checkpoint_folders import (
    EXCLUSIVE,
    JOB,
    KIB,
    MIB,
    ONE,
    SHARED,
    TWO,
    TornFiles,
    files_below,
    stream_of,
)
from tidegate.errors import FileMissing, RestoreRefused, StorageFailed
from tidegate.model.elements import Barrier, CheckpointOptions
from tidegate.model.files import FileChecksum
from tidegate.model.ids import (
    Attempt,
    CheckpointId,
    Epoch,
    ExecutionId,
    JobId,
    OperatorId,
    SubtaskId,
    VertexId,
)
from tidegate.model.settings import CheckpointSettings
from tidegate.storage.checkpoints import (
    CheckpointStorage,
)
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.places import CheckpointScope
from tidegate.storage.state_files import resolve_relative
from tidegate.storage.stores import Stores

OTHER_JOB = JobId("f" * 32)


def in_files(folder: Path, job: JobId = JOB) -> CheckpointStorage:
    return CheckpointStorage(job, CheckpointSettings(storage="filesystem", directory=str(folder)))


def in_driver_memory(world: MemoryFiles | None = None) -> CheckpointStorage:
    return CheckpointStorage(JOB, CheckpointSettings(), Stores(world or MemoryFiles()))


@pytest.mark.feature("F021")
def test_the_folders_of_a_job_are_made_at_its_start(tmp_path: Path) -> None:
    storage = in_files(tmp_path)
    storage.initialize_base_locations()
    location = storage.initialize_location(ONE)
    assert location == f"{tmp_path}/{JOB}/chk-1"
    made = {folder.name for folder in (tmp_path / JOB).iterdir() if folder.is_dir()}
    assert made == {"chk-1", "shared", "taskowned"}


def test_a_folder_that_cannot_be_written_fails_with_a_storage_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageFailed) as caught:
        in_files(tmp_path / "file").initialize_base_locations()
    assert caught.value.what.startswith(
        "Failed to create checkpoint storage at checkpoint coordinator side"
    )
    assert str(tmp_path / "file") in caught.value.where
    assert caught.value.remedy


def test_the_metadata_of_a_checkpoint_lies_in_its_folder_and_is_read_back(tmp_path: Path) -> None:
    storage = in_files(tmp_path)
    location = storage.initialize_location(ONE)
    pointer = storage.files.write_metadata(location, b"metadata")
    assert pointer == location
    assert files_below(tmp_path) == {f"{JOB}/chk-1/_metadata"}
    for named in (pointer, f"{pointer}/", f"{pointer}/_metadata", f"file:{pointer}"):
        found = storage.files.read_metadata(named)
        assert (found.data, found.directory) == (b"metadata", location)


def test_a_metadata_that_reads_otherwise_than_it_was_written_is_told(tmp_path: Path) -> None:
    storage = in_files(tmp_path)
    pointer = storage.files.write_metadata(storage.initialize_location(ONE), b"metadata")
    written, another = ((8, crc32c(data)) for data in (b"metadata", b"METADATA"))
    storage.files.check_snapshot(pointer, written, {})
    with pytest.raises(StorageFailed, match="_metadata does not read as it was written"):
        storage.files.check_snapshot(pointer, another, {})
    (tmp_path / JOB / "chk-1" / "_metadata").unlink()
    with pytest.raises(StorageFailed, match="no file _metadata"):
        storage.files.check_snapshot(pointer, written, {})


def test_a_snapshot_is_looked_at_with_all_its_files_wherever_they_are(tmp_path: Path) -> None:
    storage = in_files(tmp_path)
    pointer = storage.files.write_metadata(storage.initialize_location(ONE), b"metadata")
    written = (8, crc32c(b"metadata"))
    within, elsewhere = Path(pointer) / "state", tmp_path / "shared-state"
    for file in (within, elsewhere):
        file.write_bytes(b"12345")
    files = {str(within): 5, str(elsewhere): 5}
    storage.files.check_snapshot(pointer, written, files)
    with pytest.raises(StorageFailed, match="state does not read as it was written"):
        storage.files.check_snapshot(pointer, written, {**files, str(within): 6})
    elsewhere.unlink()
    with pytest.raises(StorageFailed, match="no file shared-state"):
        storage.files.check_snapshot(pointer, written, files)


def test_two_jobs_share_a_folder_and_not_a_checkpoint(tmp_path: Path) -> None:
    first, second = in_files(tmp_path, JOB), in_files(tmp_path, OTHER_JOB)
    for storage, data in ((first, b"first"), (second, b"second")):
        storage.initialize_base_locations()
        storage.files.write_metadata(storage.initialize_location(ONE), data)
    assert first.files.read_metadata(f"{tmp_path}/{JOB}/chk-1").data == b"first"
    assert second.files.read_metadata(f"{tmp_path}/{OTHER_JOB}/chk-1").data == b"second"


def test_a_checkpoint_is_never_replaced(tmp_path: Path) -> None:
    storage = in_files(tmp_path)
    location = storage.initialize_location(ONE)
    storage.files.write_metadata(location, b"first")
    with pytest.raises(StorageFailed, match="holds a checkpoint already"):
        storage.initialize_location(ONE)
    with pytest.raises(StorageFailed, match="is not replaced"):
        storage.files.write_metadata(location, b"second")
    assert storage.files.read_metadata(location).data == b"first"


@pytest.mark.feature("F025")
def test_small_state_stays_in_its_handle_and_large_state_goes_to_a_file(tmp_path: Path) -> None:
    storage = in_files(tmp_path)
    small = stream_of(storage, ONE, EXCLUSIVE, "1-0-a")
    small.write(b"x" * KIB)
    handle = small.close_and_get_handle()
    assert handle == ByteStreamStateHandle(f"{tmp_path}/{JOB}/chk-1/1-0-a", b"x" * KIB)
    assert files_below(tmp_path) == set()
    assert small.checksums == {}

    large = stream_of(storage, ONE, EXCLUSIVE, "1-0-b")
    for _ in range(1024):
        large.write(b"y" * KIB)
    assert large.position == MIB
    handle = large.close_and_get_handle()
    place = f"{tmp_path}/{JOB}/chk-1/1-0-b"
    assert handle == RelativeFileStateHandle("1-0-b", MIB, file_path=place)
    assert large.checksums == {place: FileChecksum(google_crc32c.value(b"y" * MIB), MIB)}
    assert files_below(tmp_path) == {f"{JOB}/chk-1/1-0-b"}
    assert storage.files.read_handle(handle) == b"y" * MIB


@pytest.mark.feature("F023")
def test_all_states_of_a_checkpoint_go_to_its_folder_and_of_a_savepoint_to_the_target(
    tmp_path: Path,
) -> None:
    storage, numbers = in_files(tmp_path), count(1)
    subtask = ExecutionId(SubtaskId(VertexId(b"v" * 16), 0), Attempt(0), Epoch(1))

    def folders(target: str | None) -> list[str]:
        barrier = Barrier(ONE, 0, CheckpointOptions(target=target))
        place = storage.place(barrier, subtask, lambda: next(numbers))
        for scope in (EXCLUSIVE, EXCLUSIVE, SHARED):
            place.write([b"x" * MIB], scope)
        return [file.rpartition("/")[0] for file in place.checksums]

    own, savepoint = f"{tmp_path}/{JOB}/chk-1", f"{tmp_path}/savepoint"
    assert folders(None) == [own, own, f"{tmp_path}/{JOB}/shared"]
    assert folders(savepoint) == [savepoint] * 3


def test_the_threshold_itself_goes_to_a_file(tmp_path: Path) -> None:
    storage = in_files(tmp_path)
    for size, kind in ((20 * KIB - 1, ByteStreamStateHandle), (20 * KIB, RelativeFileStateHandle)):
        stream = stream_of(storage, ONE, EXCLUSIVE, f"1-0-{size}")
        stream.write(b"x" * size)
        assert isinstance(stream.close_and_get_handle(), kind)


def test_shared_state_has_an_absolute_place_and_that_of_a_savepoint_a_relative(
    tmp_path: Path,
) -> None:
    storage = in_files(tmp_path / "c")
    shared = stream_of(storage, ONE, CheckpointScope.SHARED, "1-0-a")
    shared.write(b"x" * MIB)
    place = f"{tmp_path}/c/{JOB}/shared/1-0-a"
    assert shared.close_and_get_handle() == FileStateHandle(place, MIB)

    target = storage.initialize_savepoint_location(str(tmp_path / "s"), 0xABC)
    assert target == f"{tmp_path}/s/savepoint-012345-000000000abc"
    stream = stream_of(storage, ONE, CheckpointScope.SHARED, "1-0-b", target=target)
    stream.write(b"x" * MIB)
    handle = stream.close_and_get_handle()
    assert handle == RelativeFileStateHandle("1-0-b", MIB, file_path=f"{target}/1-0-b")
    with pytest.raises(StorageFailed, match="exists"):
        storage.initialize_savepoint_location(str(tmp_path / "s"), 0xABC)


@pytest.mark.feature("F026")
def test_a_stream_closed_without_a_handle_leaves_nothing(tmp_path: Path) -> None:
    storage = in_files(tmp_path)
    with stream_of(storage, ONE, EXCLUSIVE, "1-0-a") as stream:
        stream.write(b"x" * MIB)
        assert files_below(tmp_path) == {f"{JOB}/chk-1/1-0-a"}
    assert files_below(tmp_path) == set()
    with stream_of(storage, ONE, EXCLUSIVE, "1-0-b") as kept:
        kept.write(b"x" * MIB)
        kept.close_and_get_handle()
    assert files_below(tmp_path) == {f"{JOB}/chk-1/1-0-b"}


@pytest.mark.feature("F026")
def test_no_handle_names_a_file_that_was_not_written_to_its_end() -> None:
    world = TornFiles()
    settings = CheckpointSettings(storage="filesystem", directory="memory:/c")
    storage = CheckpointStorage(JOB, settings, Stores(world))
    stream = stream_of(storage, ONE, EXCLUSIVE, "1-0-a")
    stream.write(b"x" * MIB)
    with pytest.raises(StorageFailed, match="disk is full"):
        stream.close_and_get_handle()
    assert world.files == {}
    stream.close()


@pytest.mark.feature("F020")
@pytest.mark.parametrize("target", [None, "memory:/savepoints/savepoint-1"])
def test_without_a_folder_every_location_is_in_memory(target: str | None) -> None:
    files = MemoryFiles()
    storage = CheckpointStorage(JOB, CheckpointSettings(), Stores(files))
    assert storage.initialize_location(CheckpointId(1)).startswith("memory:")
    for scope in CheckpointScope:
        with stream_of(storage, CheckpointId(1), scope, f"s-{scope.value}", target=target) as out:
            out.write(b"state")
            handle = out.close_and_get_handle()
        assert isinstance(handle, ByteStreamStateHandle)
        assert storage.files.read_handle(handle) == b"state"
    assert not files.files


@pytest.mark.feature("F024")
def test_without_a_folder_state_stays_in_handles_up_to_five_mebibytes() -> None:
    world = MemoryFiles()
    storage = in_driver_memory(world)
    storage.initialize_base_locations()
    stream = stream_of(storage, ONE, EXCLUSIVE, "1-0-a")
    stream.write(b"x" * 5 * MIB)
    handle = stream.close_and_get_handle()
    assert isinstance(handle, ByteStreamStateHandle)
    assert len(handle.data) == 5 * MIB
    assert world.files == {}
    pointer = storage.files.write_metadata(storage.initialize_location(ONE), b"m")
    assert storage.files.read_metadata(pointer).data == b"m"

    large = stream_of(storage, ONE, EXCLUSIVE, "1-0-b")
    with pytest.raises(StorageFailed) as caught:
        large.write(b"x" * (5 * MIB + 1))
    assert "larger than the maximum permitted memory-backed state" in caught.value.what
    assert "Size=5242881, maxSize=5242880" in caught.value.what
    assert "execution.checkpointing.dir" in caught.value.remedy


def test_driver_memory_with_a_folder_puts_only_the_metadata_there(tmp_path: Path) -> None:
    settings = CheckpointSettings(storage="jobmanager", directory=str(tmp_path))
    storage = CheckpointStorage(JOB, settings)
    stream = stream_of(storage, ONE, EXCLUSIVE, "1-0-a")
    stream.write(b"x" * MIB)
    assert isinstance(stream.close_and_get_handle(), ByteStreamStateHandle)
    storage.files.write_metadata(storage.initialize_location(ONE), b"m")
    assert files_below(tmp_path) == {f"{JOB}/chk-1/_metadata"}


def test_a_pointer_to_nothing_is_refused_in_flinks_words(tmp_path: Path) -> None:
    storage = in_files(tmp_path)
    with pytest.raises(RestoreRefused) as caught:
        storage.files.read_metadata(str(tmp_path / "none"))
    assert caught.value.what == (
        f"Cannot find checkpoint or savepoint file/directory '{tmp_path}/none' "
        "on file system 'file'."
    )
    (tmp_path / "chk-3").mkdir()
    for pointer in (tmp_path / "chk-3", tmp_path / "chk-3/_metadata"):
        with pytest.raises(RestoreRefused) as caught:
            storage.files.read_metadata(str(pointer))
        assert caught.value.what == (
            f"Cannot find meta data file '_metadata' in directory '{tmp_path}/chk-3'."
        )


def test_a_discarded_checkpoint_leaves_shared_files_and_nothing_else(tmp_path: Path) -> None:
    storage = in_files(tmp_path)
    storage.initialize_base_locations()
    places: list[str] = []
    for checkpoint in (ONE, TWO):
        location = storage.initialize_location(checkpoint)
        stream = stream_of(storage, checkpoint, EXCLUSIVE, "1-0-a")
        stream.write(b"x" * MIB)
        places += stream.checksums or [f"{location}/1-0-a"]
        stream.close_and_get_handle()
        storage.files.write_metadata(location, b"m")
    shared = stream_of(storage, ONE, CheckpointScope.SHARED, "1-0-s")
    shared.write(b"x" * MIB)
    shared.close_and_get_handle()

    storage.files.discard(storage.location(ONE), [places[0], str(tmp_path / "gone")])
    assert files_below(tmp_path) == {
        f"{JOB}/chk-2/_metadata",
        f"{JOB}/chk-2/1-0-a",
        f"{JOB}/shared/1-0-s",
    }
    assert not (tmp_path / JOB / "chk-1").exists()
    storage.files.delete_files(shared.checksums)
    assert not (tmp_path / JOB / "shared/1-0-s").exists()


def test_discarding_deletes_the_metadata_first(tmp_path: Path) -> None:
    storage = in_files(tmp_path)
    location = storage.initialize_location(ONE)
    storage.files.write_metadata(location, b"m")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageFailed):
        storage.files.discard(location, [str(tmp_path / "folder")])
    assert files_below(tmp_path) == set()


def test_every_kind_of_handle_is_opened(tmp_path: Path) -> None:
    storage = in_files(tmp_path)
    (tmp_path / "f").write_bytes(b"0123456789")
    file = FileStateHandle(str(tmp_path / "f"), 10)
    segment = SegmentFileStateHandle(str(tmp_path / "f"), 3, 4, StateScope.EXCLUSIVE, "l")
    expected = {
        file: b"0123456789",
        FileStateHandle(f"file://{tmp_path}/f", 10): b"0123456789",
        ByteStreamStateHandle("b", b"inline"): b"inline",
        segment: b"3456",
        EmptySegmentFileStateHandle(): b"",
        KeyGroupsStateHandle(KeyGroupRange(0, 0), (0,), file, "k"): b"0123456789",
    }
    for handle, data in expected.items():
        with storage.files.open_handle(handle) as stream:
            assert stream.read() == data
    assert storage.files.read_handle(file, offset=2, size=3) == b"234"
    with pytest.raises(FileMissing):
        storage.files.open_handle(FileStateHandle(str(tmp_path / "none"), 1))


def test_relative_handles_are_resolved_wherever_they_stand() -> None:
    relative = RelativeFileStateHandle("1-0-a", 10)
    resolved = RelativeFileStateHandle("1-0-a", 10, file_path="/moved/1-0-a")
    absolute = FileStateHandle("/shared/x", 10)

    def state(handle: RelativeFileStateHandle) -> SubtaskState:
        groups = KeyGroupsStateHandle(KeyGroupRange(0, 0), (0,), handle, "k")
        plain = KeyGroupsStateHandle(KeyGroupRange(0, 0), (0,), absolute, "k")
        return SubtaskState(
            managed_operator=OperatorStreamStateHandle({}, handle),
            managed_keyed=groups,
            raw_keyed=plain,
        )

    def metadata(handle: RelativeFileStateHandle) -> CheckpointMetadata:
        operator = OperatorState(
            operator_id=OperatorId(b"i" * 16),
            parallelism=2,
            max_parallelism=128,
            subtasks={0: state(handle), 1: FINISHED},
        )
        return CheckpointMetadata(checkpoint_id=ONE, operators=(operator,))

    assert resolve_relative(metadata(relative), "/moved/") == metadata(resolved)
    assert resolve_relative(state(relative), "/moved") == state(resolved)


def test_a_sweep_takes_what_earlier_runs_left_and_no_kept_checkpoint_names(tmp_path: Path) -> None:
    storage = in_files(tmp_path)

    def state(checkpoint: int, scope: CheckpointScope, name: str) -> str:
        with stream_of(storage, CheckpointId(checkpoint), scope, name) as stream:
            stream.write(b"x" * MIB)
            handle = stream.close_and_get_handle()
        assert isinstance(handle, FileStateHandle | RelativeFileStateHandle)
        assert handle.file_path is not None
        return handle.file_path

    for checkpoint in (1, 2, 3, 5):
        location = storage.initialize_location(CheckpointId(checkpoint))
        storage.files.write_metadata(location, b"metadata")
    storage.initialize_location(CheckpointId(4))
    used = {
        state(1, EXCLUSIVE, f"1-0-{1:016x}"),
        state(2, SHARED, f"1-0-{2:016x}"),
        state(3, EXCLUSIVE, f"1-1-{3:016x}"),
    }
    ours = {state(5, EXCLUSIVE, f"2-0-{4:016x}"), state(5, SHARED, f"2-0-{5:016x}")}
    for number, scope in enumerate((EXCLUSIVE, SHARED), 6):
        state(2, scope, f"1-1-{number:016x}")
    storage.sweep(Epoch(2), CheckpointId(5), kept=[CheckpointId(3)], used=used)
    left = {str(tmp_path / file) for file in files_below(tmp_path)}
    metadata = {str(tmp_path / JOB / f"chk-{number}" / "_metadata") for number in (3, 5)}
    assert left == used | ours | metadata
    folders = {path.name for path in (tmp_path / JOB).glob("chk-*")}
    assert folders == {"chk-1", "chk-3", "chk-5"}


def test_a_sweep_keeps_files_that_checkpoints_name_by_another_spelling(tmp_path: Path) -> None:
    storage = in_files(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    storage.files.write_metadata(storage.initialize_location(TWO), b"metadata")
    names = [f"1-0-{number:016x}" for number in range(4)]
    for name, scope in zip(names, (EXCLUSIVE, EXCLUSIVE, SHARED, SHARED), strict=True):
        with stream_of(storage, TWO, scope, name) as stream:
            stream.write(b"x" * MIB)
            stream.close_and_get_handle()
    through = CheckpointSettings(storage="filesystem", directory=str(tmp_path / "link"))
    used = {f"{tmp_path}/{JOB}/chk-2/{names[0]}", f"{tmp_path}/{JOB}/shared/{names[2]}"}
    linked = CheckpointStorage(JOB, through)
    linked.sweep_shared(Epoch(1), Attempt(1), used=used)
    assert files_below(tmp_path / JOB / "shared") == {names[2]}
    linked.sweep(Epoch(2), CheckpointId(3), kept=[TWO], used=used)
    assert files_below(tmp_path / JOB) == {
        "chk-2/_metadata",
        f"chk-2/{names[0]}",
        f"shared/{names[2]}",
    }


def test_a_sweep_among_files_that_were_listed_before_leaves_later_ones(tmp_path: Path) -> None:
    storage = in_files(tmp_path)
    storage.files.write_metadata(storage.initialize_location(TWO), b"metadata")
    listed = []
    for number in range(2):
        listed.append(storage.files_of_job())
        with stream_of(storage, TWO, SHARED, f"1-0-{number:016x}") as stream:
            stream.write(b"x" * MIB)
            stream.close_and_get_handle()
    for there, left in ((listed[0], {0, 1}), (listed[1], {1})):
        storage.sweep(Epoch(2), CheckpointId(3), kept=[TWO], used=(), among=there)
        names = {f"1-0-{number:016x}" for number in left}
        assert files_below(tmp_path / JOB / "shared") == names
