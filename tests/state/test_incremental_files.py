"""Incremental checkpoints: what is uploaded, what is only named again, and what comes back."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from flinkformat.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    HandleAndLocalPath,
    IncrementalRemoteKeyedStateHandle,
    PlaceholderStreamStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
)
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import SubtaskState
from tests.state.disk_world import Disk
from tests.state.files_world import SETTINGS, Driver, contents, fill, merging
from tests.state.world import Subtask
from tidegate.api.state import ValueStateDescriptor
from tidegate.errors import (
    CheckpointAborted,
    FormatError,
    RestoreRefused,
    StorageFailed,
)
from tidegate.model.elements import SnapshotKind
from tidegate.model.ids import CheckpointId
from tidegate.model.restore import RestoredOperatorState
from tidegate.model.settings import RocksDBSettings
from tidegate.state.disk.files import IncrementalFiles, download
from tidegate.storage import paths
from tidegate.storage.memory import MemoryWriter
from tidegate.typeinfo.types import Types

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.model.settings import CheckpointSettings

GROUPS = KeyGroupRange(0, 127)
ONE, TWO, THREE, FOUR = (CheckpointId(number) for number in range(1, 5))
A, B, C, D = (letter * 100 for letter in (b"a", b"b", b"c", b"d"))
PRIVATE = {"CURRENT": b"MANIFEST-4", "MANIFEST-4": b"m" * 30, "OPTIONS-5": b"o" * 30}


def new_files(
    *, threads: int = 1, restored: IncrementalRemoteKeyedStateHandle | None = None
) -> IncrementalFiles:
    return IncrementalFiles("b" * 8, GROUPS, threads=threads, restored=restored)


class Uploads:
    """A subtask that uploads folders, and acknowledges them."""

    def __init__(self, driver: Driver, folder: Path, files: IncrementalFiles) -> None:
        self.driver = driver
        self.files = files
        self._folder = folder
        self._made = 0

    def sent(
        self,
        checkpoint: CheckpointId,
        kind: SnapshotKind = SnapshotKind.CHECKPOINT,
        *,
        shared: bool = True,
        target: str | None = None,
        **files: bytes,
    ) -> tuple[IncrementalRemoteKeyedStateHandle, IncrementalRemoteKeyedStateHandle]:
        """The handle as it is sent, and as the driver keeps it."""
        self._made += 1
        folder = fill(self._folder / f"folder-{self._made}", **files, **PRIVATE)
        place = self.driver.place(checkpoint, kind, target=target)
        sent = self.files.upload(folder, checkpoint, place, shared=shared, meta=b"meta")
        if kind.is_savepoint:
            place.close()
            return sent, sent
        return sent, self.driver.acknowledged(sent, place)


@pytest.fixture
def uploads(tmp_path: Path) -> Uploads:
    return Uploads(Driver(), tmp_path, new_files())


def kinds(handle: IncrementalRemoteKeyedStateHandle) -> dict[str, type]:
    return {file.local_path: type(file.handle) for file in handle.shared_state}


def fresh(handle: IncrementalRemoteKeyedStateHandle) -> list[str]:
    """The shareable files that were written for it."""
    return [
        file.local_path
        for file in handle.shared_state
        if not isinstance(file.handle, PlaceholderStreamStateHandle)
    ]


def test_the_first_checkpoint_writes_all_and_the_next_only_what_is_new(uploads: Uploads) -> None:
    first, _ = uploads.sent(ONE, _1=A, _2=B)
    assert fresh(first) == ["000001.sst", "000002.sst"]
    assert first.checkpointed_size == first.state_size
    uploads.files.named.on_complete(ONE)
    second, kept = uploads.sent(TWO, _2=B, _3=C)
    assert fresh(second) == ["000003.sst"]
    assert second.checkpointed_size == second.state_size - len(B)
    assert kept.state_size == second.state_size
    assert kinds(kept) == {"000002.sst": FileStateHandle, "000003.sst": FileStateHandle}


def test_shared_files_go_to_the_shared_folder_and_all_others_to_the_checkpoints_own(
    uploads: Uploads,
) -> None:
    handle, _ = uploads.sent(ONE, _1=A)
    [shared] = handle.shared_state
    assert isinstance(shared.handle, FileStateHandle)
    assert "/shared/" in shared.handle.file_path
    assert paths.epoch_of(shared.handle.file_path) == 1
    for file in handle.private_state:
        assert isinstance(file.handle, RelativeFileStateHandle | ByteStreamStateHandle)
    assert {paths.name(paths.parent(path)) for path in uploads.driver.files} == {"shared", "chk-1"}


def test_small_files_stay_in_their_handle_and_are_written_again(uploads: Uploads) -> None:
    first, _ = uploads.sent(ONE, _1=b"small", _2=A)
    assert kinds(first) == {"000001.sst": ByteStreamStateHandle, "000002.sst": FileStateHandle}
    uploads.files.named.on_complete(ONE)
    second, _ = uploads.sent(TWO, _1=b"small", _2=A)
    assert fresh(second) == ["000001.sst"]


def test_private_files_share_a_file_where_files_are_merged(tmp_path: Path) -> None:
    uploads = Uploads(Driver(merging()), tmp_path, new_files())
    handle, _ = uploads.sent(ONE, _1=A, _2=B)
    segments = [
        file.handle
        for file in handle.private_state
        if isinstance(file.handle, SegmentFileStateHandle)
    ]
    assert len({segment.file_path for segment in segments}) == 1 and len(segments) == 2
    assert kinds(handle) == {"000001.sst": FileStateHandle, "000002.sst": FileStateHandle}


# --- which files may be named again -----------------------------------------------------------


def test_until_a_checkpoint_is_known_to_be_complete_its_files_are_written_again(
    uploads: Uploads,
) -> None:
    uploads.sent(ONE, _1=A)
    assert fresh(uploads.sent(TWO, _1=A)[0]) == ["000001.sst"]


def test_files_of_a_given_up_checkpoint_are_written_again(uploads: Uploads) -> None:
    uploads.sent(ONE, _1=A)
    uploads.files.named.on_complete(ONE)
    uploads.sent(TWO, _1=A, _2=B)
    uploads.files.named.on_aborted(TWO)
    uploads.files.named.on_complete(TWO)  # a word that comes too late changes nothing
    assert fresh(uploads.sent(THREE, _1=A, _2=B)[0]) == ["000002.sst"]


def test_a_file_is_not_named_again_that_a_checkpoint_in_the_balance_does_without(
    uploads: Uploads,
) -> None:
    _, first = uploads.sent(ONE, _1=A)
    _, second = uploads.sent(TWO, _1=A)  # not yet told that the first is complete
    uploads.files.named.on_complete(ONE)
    # The second completes, and the first is deleted, before the subtask hears of it.
    uploads.driver.subsume(first)
    sent, third = uploads.sent(THREE, _1=A)
    assert fresh(sent) == ["000001.sst"]
    assert third.shared_state != second.shared_state
    uploads.files.named.on_complete(THREE)
    assert fresh(uploads.sent(FOUR, _1=A)[0]) == []


def test_the_word_of_a_savepoint_or_of_an_older_checkpoint_changes_nothing(
    uploads: Uploads,
) -> None:
    uploads.sent(ONE, _1=A)
    uploads.sent(TWO, _1=A, _2=B)
    uploads.files.named.on_complete(TWO)
    for checkpoint in (ONE, FOUR):
        uploads.files.named.on_complete(checkpoint)
        uploads.files.named.on_aborted(checkpoint)
    uploads.files.named.on_aborted(TWO)
    assert fresh(uploads.sent(THREE, _1=A, _2=B)[0]) == []


def test_a_full_checkpoint_writes_all_anew_and_later_ones_name_its_files(uploads: Uploads) -> None:
    _, first = uploads.sent(ONE, _1=A)
    uploads.files.named.on_complete(ONE)
    sent, full = uploads.sent(TWO, SnapshotKind.FULL_CHECKPOINT, _1=A)
    assert fresh(sent) == ["000001.sst"] and full.shared_state != first.shared_state
    uploads.files.named.on_complete(TWO)
    _, third = uploads.sent(THREE, _1=A)
    assert third.shared_state == full.shared_state


@pytest.mark.parametrize("shared", [True, False])
def test_a_savepoint_stands_alone(uploads: Uploads, shared: bool) -> None:
    uploads.sent(ONE, _1=A)
    uploads.files.named.on_complete(ONE)
    target = "memory:/savepoints/savepoint-1"
    before = uploads.driver.files
    handle, _ = uploads.sent(TWO, SnapshotKind.SAVEPOINT, shared=shared, target=target, _1=A)
    assert kinds(handle) == {"000001.sst": RelativeFileStateHandle}
    assert all(path.startswith(target) for path in uploads.driver.files - before)
    assert fresh(uploads.sent(THREE, _1=A, _2=B)[0]) == ["000002.sst"]


def test_a_checkpoint_that_is_not_incremental_owns_all_its_files(uploads: Uploads) -> None:
    for checkpoint in (ONE, TWO):
        handle, _ = uploads.sent(checkpoint, shared=False, _1=A)
        uploads.files.named.on_complete(checkpoint)
        assert handle.shared_state == ()
        assert "000001.sst" in [file.local_path for file in handle.private_state]
        assert handle.checkpointed_size == handle.state_size
    assert len(uploads.driver.registry) == 0
    assert not any("/shared/" in path for path in uploads.driver.files)


def test_after_a_restore_the_files_of_the_restored_checkpoint_are_named_again(
    uploads: Uploads, tmp_path: Path
) -> None:
    _, restored = uploads.sent(ONE, _1=A, _2=b"small")
    again = Uploads(uploads.driver, tmp_path / "again", new_files(restored=restored))
    assert fresh(again.sent(TWO, _1=A, _2=b"small", _3=C)[0]) == ["000002.sst", "000003.sst"]


def test_a_claimed_savepoints_files_are_named_by_their_absolute_places(
    uploads: Uploads, tmp_path: Path
) -> None:
    target = "memory:/savepoints/savepoint-1"
    savepoint, _ = uploads.sent(ONE, SnapshotKind.SAVEPOINT, target=target, _1=A)
    [file] = savepoint.shared_state
    claimed = SubtaskState(managed_keyed=savepoint)
    uploads.driver.registry.register_state(claimed, ONE)
    again = Uploads(uploads.driver, tmp_path / "again", new_files(restored=savepoint))
    sent, kept = again.sent(TWO, _1=A)
    assert fresh(sent) == []
    assert isinstance(file.handle, RelativeFileStateHandle) and file.handle.file_path is not None
    assert kept.shared_state == (
        HandleAndLocalPath("000001.sst", FileStateHandle(file.handle.file_path, len(A))),
    )


# --- uploads that fail or are given up --------------------------------------------------------


def test_files_are_written_in_parallel_and_no_more_than_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(3, timeout=10)
    under_way: list[int] = [0]
    most: list[int] = []
    write = MemoryWriter.write

    def slow(writer: MemoryWriter, data: bytes) -> None:
        if data[:1] in b"abcdef" and len(data) == 100:
            under_way[0] += 1
            most.append(under_way[0])
            together.wait()
            under_way[0] -= 1
        write(writer, data)

    monkeypatch.setattr(MemoryWriter, "write", slow)
    uploads = Uploads(Driver(), tmp_path, new_files(threads=3))
    names = {f"_{n}": bytes([97 + n]) * 100 for n in range(6)}
    handle, _ = uploads.sent(ONE, **names)
    assert max(most) == 3
    restored = tmp_path / "restored"
    download(handle, restored, uploads.driver.reader(), threads=3)
    assert contents(restored)["000005.sst"] == b"f" * 100


@pytest.mark.parametrize("threads", [1, 4])
def test_an_upload_that_fails_leaves_nothing_and_the_next_one_starts_from_what_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    uploads = Uploads(Driver(), tmp_path, new_files(threads=threads))
    uploads.sent(ONE, _1=A)
    uploads.files.named.on_complete(ONE)
    before = uploads.driver.files
    write = MemoryWriter.write

    def full(writer: MemoryWriter, data: bytes) -> None:
        if data == C:
            raise StorageFailed("the disk is full")
        write(writer, data)

    folder = fill(tmp_path / "folder", _1=A, _2=B, _3=C, _4=D)
    place = uploads.driver.place(TWO)
    with monkeypatch.context() as patched:
        patched.setattr(MemoryWriter, "write", full)
        with pytest.raises(StorageFailed, match="disk is full"):
            uploads.files.upload(folder, TWO, place, shared=True, meta=b"meta")
    place.discard()
    assert uploads.driver.files == before
    assert fresh(uploads.sent(THREE, _1=A, _2=B)[0]) == ["000002.sst"]


@pytest.mark.parametrize("threads", [1, 4])
def test_an_upload_that_is_given_up_ends_at_its_next_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr("tidegate.state.disk.files.PART_BYTES", 10)
    uploads = Uploads(Driver(), tmp_path, new_files(threads=threads))
    place = uploads.driver.place(ONE)
    parts: list[bytes] = []
    write = MemoryWriter.write

    def counted(writer: MemoryWriter, data: bytes) -> None:
        write(writer, data)
        parts.append(data)
        if len(parts) == 3:
            place.give_up(ONE)

    monkeypatch.setattr(MemoryWriter, "write", counted)
    folder = fill(tmp_path / "folder", _1=A, _2=B)
    with pytest.raises(CheckpointAborted):
        uploads.files.upload(folder, ONE, place, shared=True, meta=b"meta")
    assert len(parts) <= 3 + threads
    place.discard()
    assert uploads.driver.files == set()


def test_a_file_that_cannot_be_read_fails_the_upload_and_is_named(
    uploads: Uploads, tmp_path: Path
) -> None:
    folder = fill(tmp_path / "folder")
    (folder / "000001.sst").symlink_to(folder / "gone")
    with pytest.raises(StorageFailed, match=r"Cannot read 000001\.sst"):
        uploads.files.upload(folder, ONE, uploads.driver.place(ONE), shared=True, meta=b"")


# --- download ---------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("settings", [SETTINGS, merging()])
def test_a_folder_comes_back_as_it_was(
    tmp_path: Path, threads: int, settings: CheckpointSettings
) -> None:
    uploads = Uploads(Driver(settings), tmp_path, new_files(threads=threads))
    uploads.sent(ONE, _1=A, _2=b"small", _3=C)
    uploads.files.named.on_complete(ONE)
    _, handle = uploads.sent(TWO, _1=A, _2=b"small", _4=D)
    folder = tmp_path / "restored"
    assert download(handle, folder, uploads.driver.reader(), threads=threads) == b"meta"
    assert contents(folder) == {
        "000001.sst": A,
        "000002.sst": b"small",
        "000004.sst": D,
        **PRIVATE,
    }


def damaged(uploads: Uploads, how: str) -> IncrementalRemoteKeyedStateHandle:
    _, handle = uploads.sent(ONE, _1=A, _2=B)
    file = handle.shared_state[1].handle
    assert isinstance(file, FileStateHandle)
    files = uploads.driver.world.files
    match how:
        case "missing":
            del files[file.file_path]
        case "truncated":
            files[file.file_path] = B[:-1]
        case _:
            files[file.file_path] = B[:-1] + b"!"
    return handle


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    ("how", "error", "says"),
    [
        ("missing", RestoreRefused, "A file of state is missing: "),
        ("truncated", RestoreRefused, "has 99 bytes, and 100 were written: "),
        ("corrupt", FormatError, "is not as it was written: "),
    ],
)
def test_a_damaged_file_is_refused_by_name_with_operator_and_checkpoint(
    uploads: Uploads, tmp_path: Path, how: str, error: type[Exception], says: str, threads: int
) -> None:
    handle = damaged(uploads, how)
    folder = tmp_path / "restored"
    with pytest.raises(error) as raised:
        download(handle, folder, uploads.driver.reader(), threads=threads)
    text = str(raised.value)
    assert says + handle.shared_state[1].handle.physical_id in text
    assert "where: operator 'counts', checkpoint 1" in text and "what to do: " in text
    assert not folder.exists()


def test_a_download_that_is_given_up_leaves_no_folder(uploads: Uploads, tmp_path: Path) -> None:
    _, handle = uploads.sent(ONE, _1=A)
    reader = uploads.driver.reader()
    reader.give_up()
    with pytest.raises(StorageFailed, match="given up"):
        download(handle, tmp_path / "restored", reader.at("another operator"))
    assert not (tmp_path / "restored").exists()


def test_a_folder_that_cannot_be_written_is_told(uploads: Uploads, tmp_path: Path) -> None:
    _, handle = uploads.sent(ONE, _1=A)
    twice = replace(handle, shared_state=(*handle.shared_state, *handle.shared_state))
    with pytest.raises(StorageFailed, match=r"Cannot write 000001\.sst") as raised:
        download(twice, tmp_path / "restored", uploads.driver.reader(), threads=1)
    assert "operator 'counts'" in raised.value.where


@pytest.mark.parametrize("name", ["../escaped", "", "..", "/etc/passwd", "000001\0.sst"])
def test_a_name_that_leads_out_of_the_folder_is_refused(
    uploads: Uploads, tmp_path: Path, name: str
) -> None:
    _, handle = uploads.sent(ONE, _1=A)
    outside = (HandleAndLocalPath(name, handle.shared_state[0].handle),)
    with pytest.raises(FormatError, match="no name that a file in a folder can have"):
        download(replace(handle, shared_state=outside), tmp_path / "r", uploads.driver.reader())


# --- a key space of RocksDB -------------------------------------------------------------------


@pytest.mark.feature("F249")
def test_of_ten_thousand_keys_a_checkpoint_writes_the_ten_that_changed() -> None:
    disk = Disk(RocksDBSettings())
    count = ValueStateDescriptor("count", Types.LONG())

    def taken(subtask: Subtask, checkpoint: CheckpointId) -> IncrementalRemoteKeyedStateHandle:
        pending = subtask.backend.snapshot(checkpoint)
        pending.finish()
        state = pending.upload(disk)
        sent, kept = state.managed_keyed, disk.resolved(state).managed_keyed
        assert isinstance(sent, IncrementalRemoteKeyedStateHandle)
        assert isinstance(kept, IncrementalRemoteKeyedStateHandle)
        assert len(fresh(sent)) == 1
        subtask.backend.on_complete(checkpoint)
        return kept

    try:
        first = Subtask(local=disk.local())
        expected = {key: key for key in range(10_000)}
        set_all(first, count, expected)
        taken(first, ONE)
        changed = {key: -key for key in range(100, 110)}
        set_all(first, count, changed)
        second = taken(first, TWO)
        assert second.checkpointed_size < 0.05 * second.state_size
        first.backend.close()

        again = Subtask(local=disk.local())
        again.backend.restore(RestoredOperatorState(managed_keyed=(second,)), disk)
        again.backend.keyed_state(count)
        assert again.dump("count") == {**expected, **changed}
        again.on(5).backend.keyed_state(count).clear()
        assert taken(again, THREE).checkpointed_size < 0.05 * second.state_size
        again.backend.close()
    finally:
        disk.close()


def set_all(subtask: Subtask, count: ValueStateDescriptor, values: dict[int, int]) -> None:
    state = subtask.backend.keyed_state(count)
    for key, value in values.items():
        subtask.on(key)
        state.update(value)
