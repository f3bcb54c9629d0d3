"""Local folders: copies that a restore may take, and folders of slots that are gone."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flinkformat.key_groups import KeyGroupRange
from tests.state.files_world import JOB, Driver, contents, fill
from tidegate.errors import RestoreRefused, StorageFailed
from tidegate.model.ids import CheckpointId, JobId, SlotId
from tidegate.state.disk.files import IncrementalFiles, download
from tidegate.state.disk.local_folders import LocalFolders, default_root

if TYPE_CHECKING:
    from flinkformat.handles import IncrementalRemoteKeyedStateHandle

ONE, TWO, THREE = (CheckpointId(number) for number in range(1, 4))
OWNER = os.getuid()
A, B = b"a" * 100, b"b" * 100
PRIVATE = {"CURRENT": b"MANIFEST-4", "MANIFEST-4": b"m" * 30}


class Machine:
    """A machine with slots of one job."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.driver = Driver()

    def slot(
        self, name: str, *, keeps: bool = True, takes: bool = True, copies: Path | None = None
    ) -> LocalFolders:
        return LocalFolders(JOB, SlotId(name), [self.root], copies=copies, keeps=keeps, takes=takes)

    def checkpoint(
        self, slot: LocalFolders, checkpoint: CheckpointId, **files: bytes
    ) -> IncrementalRemoteKeyedStateHandle:
        """A subtask's share of a checkpoint, uploaded and kept."""
        uploads = IncrementalFiles("b", KeyGroupRange(0, 127), threads=1)
        folder = fill(slot.new_folder(), **files, **PRIVATE)
        place = self.driver.place(checkpoint)
        handle = uploads.upload(folder, checkpoint, place, shared=True, meta=b"meta")
        slot.keep(handle, folder)
        return self.driver.acknowledged(handle, place)

    def lose_the_snapshot(self) -> None:
        self.driver.storage.files.delete_files(self.driver.files)

    def copies(self) -> set[str]:
        return {file.parent.parent.name for file in self.root.rglob("copies/*/*/CURRENT")}

    def everything(self) -> list[Path]:
        return sorted(self.root.rglob("*"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "local")


def test_a_restore_on_the_machine_reads_the_copy(machine: Machine) -> None:
    handle = machine.checkpoint(machine.slot("a"), ONE, _1=A, _2=B)
    machine.driver.storage.files.delete_files(
        [file.handle.physical_id for file in handle.shared_state]
    )
    again = machine.slot("b")
    folder = again.new_folder()
    assert download(handle, folder, machine.driver.reader(), local=again) == b"meta"
    assert contents(folder) == {"000001.sst": A, "000002.sst": B, **PRIVATE}


def test_what_a_restored_backend_writes_does_not_change_the_copy(machine: Machine) -> None:
    slot = machine.slot("a")
    handle = machine.checkpoint(slot, ONE, _1=A)
    for _ in range(2):
        folder = slot.new_folder()
        assert slot.take(handle, folder)
        assert contents(folder) == {"000001.sst": A, **PRIVATE}
        with (folder / "MANIFEST-4").open("ab") as manifest:
            manifest.write(b"more")
        (folder / "000001.sst").unlink()


def test_without_a_copy_or_where_none_is_wanted_the_snapshot_is_read(machine: Machine) -> None:
    unwilling = machine.slot("a", takes=False)
    handle = machine.checkpoint(unwilling, ONE, _1=A)
    elsewhere = LocalFolders(JobId("f" * 32), SlotId("b"), [machine.root], takes=True)
    for slot in (unwilling, elsewhere):
        folder = slot.new_folder()
        assert not slot.take(handle, folder) and not folder.exists()
        assert download(handle, folder, machine.driver.reader(), local=slot) == b"meta"
        assert contents(folder) == {"000001.sst": A, **PRIVATE}
    machine.lose_the_snapshot()
    with pytest.raises(RestoreRefused):
        download(handle, slot.new_folder(), machine.driver.reader(), local=slot)


@pytest.mark.parametrize("name", ["000001.sst", "CURRENT"])
def test_a_copy_with_other_bytes_than_were_uploaded_is_not_taken(
    machine: Machine, name: str
) -> None:
    slot = machine.slot("a")
    handle = machine.checkpoint(slot, ONE, _1=A, _2=B)
    [file] = machine.root.rglob(f"copies/*/*/{name}")
    whole = file.read_bytes()
    file.unlink()
    file.write_bytes(b"x" * len(whole))
    folder = slot.new_folder()
    assert download(handle, folder, machine.driver.reader(), local=slot) == b"meta"
    assert contents(folder) == {"000001.sst": A, "000002.sst": B, **PRIVATE}


@pytest.mark.parametrize("harm", ["shorter", "missing", "more", "torn"])
def test_a_copy_that_is_not_whole_is_not_taken(machine: Machine, harm: str) -> None:
    slot = machine.slot("a")
    handle = machine.checkpoint(slot, ONE, _1=A, _2=B)
    [file] = machine.root.rglob("copies/*/*/000001.sst")
    match harm:
        case "shorter":
            file.write_bytes(A[:-1])
        case "missing":
            file.unlink()
        case "more":
            (file.parent / "000009.sst").write_bytes(b"")
        case _:
            handle = replace(handle, state_handle_id="1-0-another")
    folder = slot.new_folder()
    assert not slot.take(handle, folder)
    assert not folder.exists()


def test_a_copy_that_vanishes_while_it_is_taken_leaves_no_folder(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = machine.slot("a")
    handle = machine.checkpoint(slot, ONE, _1=A, _2=B)
    link = os.link

    def vanishing(source: Path, target: Path) -> None:
        link(source, target)
        machine.slot("b").on_complete(TWO)

    monkeypatch.setattr(os, "link", vanishing)
    folder = slot.new_folder()
    assert not slot.take(handle, folder) and not folder.exists()


def test_copies_go_once_a_newer_checkpoint_is_complete_or_theirs_is_given_up(
    machine: Machine,
) -> None:
    a, b = machine.slot("a"), machine.slot("b")
    machine.checkpoint(a, ONE, _1=A)
    machine.checkpoint(b, ONE, _1=A)
    machine.checkpoint(a, TWO, _2=B)
    assert machine.copies() == {"chk-1", "chk-2"}
    a.on_aborted(TWO)
    assert machine.copies() == {"chk-1"}
    a.on_complete(ONE)
    assert machine.copies() == {"chk-1"}
    kept = machine.checkpoint(b, THREE, _3=B)
    b.on_complete(THREE)
    assert machine.copies() == {"chk-3"}
    b.on_complete(TWO)  # told late
    assert a.take(kept, a.new_folder())


def test_where_no_copies_are_wanted_nothing_is_kept(machine: Machine) -> None:
    slot = machine.slot("a", keeps=False)
    machine.checkpoint(slot, ONE, _1=A)
    assert machine.copies() == set()
    assert not [path for path in machine.everything() if path.name.endswith(".sst")]


def test_copies_may_be_on_another_disk(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    slot = machine.slot("a", copies=tmp_path / "other")
    with monkeypatch.context() as patched:
        rename = Path.rename
        patched.setattr(
            Path,
            "rename",
            lambda self, target: refuse() if self.parent.name == "a" else rename(self, target),
        )
        handle = machine.checkpoint(slot, ONE, _1=A)
    folder = slot.new_folder()
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", refuse)
        assert slot.take(handle, folder)
    assert contents(folder) == {"000001.sst": A, **PRIVATE}
    assert machine.copies() == set()
    slot.close(over=True)
    assert list((tmp_path / "other").rglob("*.sst")) == []


# --- slots that come and go -------------------------------------------------------------------


def test_nothing_is_made_before_a_folder_is_asked_for(machine: Machine) -> None:
    slot = machine.slot("a")
    slot.on_complete(ONE)
    slot.on_aborted(TWO)
    assert not slot.in_use
    slot.close(over=True)
    assert not machine.root.exists()


def test_each_folder_is_a_new_one_spread_over_the_roots(tmp_path: Path) -> None:
    roots = [tmp_path / "1", tmp_path / "2"]
    slot = LocalFolders(JOB, SlotId("a"), roots)
    folders = [slot.new_folder() for _ in range(4)]
    assert len(set(folders)) == 4 and not any(folder.exists() for folder in folders)
    assert [folder.is_relative_to(roots[0]) for folder in folders] == [True, False, True, False]
    slot.close(over=False)
    assert [list(root.iterdir()) for root in roots] == [[], []]


def test_a_slot_that_ends_before_its_job_leaves_its_copies_to_those_after_it(
    machine: Machine,
) -> None:
    slot = machine.slot("a")
    handle = machine.checkpoint(slot, ONE, _1=A)
    fill(slot.new_folder(), _1=A)
    slot.close(over=False)
    assert [path for path in machine.everything() if path.name.startswith("a")] == []
    again = machine.slot("b")
    assert again.take(handle, again.new_folder())


def test_the_last_slot_of_a_job_that_needs_it_no_more_leaves_nothing(machine: Machine) -> None:
    a, b = machine.slot("a"), machine.slot("b")
    machine.checkpoint(a, ONE, _1=A)
    b.new_folder()
    a.close(over=True)
    assert machine.copies() == {"chk-1"}  # the other may need it still
    b.close(over=True)
    assert machine.everything() == []


@pytest.mark.slow
def test_slots_that_begin_while_others_end_never_meet_half_a_folder(machine: Machine) -> None:
    def live(name: str) -> None:
        for number in range(1_000):
            slot = machine.slot(f"{name}-{number}")
            slot.new_folder()
            slot.close(over=True)

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(live, name) for name in ("a", "b")]:
            done.result(timeout=60)
    assert machine.everything() == []


KILLED = """
import sys
from pathlib import Path
from tidegate.model.ids import JobId, SlotId
from tidegate.state.disk.local_folders import LocalFolders

folders = LocalFolders(JobId(sys.argv[1]), SlotId("killed"), [Path(sys.argv[2])])
folder = folders.new_folder()
folder.mkdir()
(folder / "000001.sst").write_bytes(b"x")
print("ready", flush=True)
sys.stdin.read()
"""


def test_the_folders_of_a_killed_slot_go_and_those_of_a_living_one_stay(machine: Machine) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, JOB, str(machine.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            machine.slot("a").new_folder()
            assert list(machine.root.rglob("killed/*/*.sst"))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=10)
    assert list(machine.root.rglob("killed/*/*.sst"))
    other_job = LocalFolders(JobId("f" * 32), SlotId("c"), [machine.root])
    other_job.new_folder()
    assert list(machine.root.rglob("killed*"))
    machine.slot("b").new_folder()
    assert list(machine.root.rglob("killed*")) == []


def test_a_root_that_cannot_be_written_is_told_with_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    slot = LocalFolders(JOB, SlotId("a"), [tmp_path / "file"])
    with pytest.raises(StorageFailed, match="Cannot make local folders") as raised:
        slot.new_folder()
    assert str(tmp_path / "file") in raised.value.where
    assert "state.backend.rocksdb.localdir" in raised.value.remedy
    slot.close(over=True)


def test_the_default_root_is_of_this_user_alone() -> None:
    assert default_root().name == f"tidegate-{os.getuid()}"


# --- whose folders they are -----------------------------------------------------------------------


def test_folders_are_for_their_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        machine = Machine(tmp_path / "root")
        slot = machine.slot("one")
        machine.checkpoint(slot, ONE, **{"a.sst": A})
    finally:
        os.umask(before)
    for folder in (machine.root, machine.root / JOB):
        assert folder.stat().st_mode & 0o777 == 0o700
    slot.close(over=True)


def test_a_folder_of_ours_that_others_may_enter_is_shut(tmp_path: Path) -> None:
    (tmp_path / JOB).mkdir()
    (tmp_path / JOB).chmod(0o777)
    slot = Machine(tmp_path).slot("one")
    slot.new_folder()
    assert (tmp_path / JOB).stat().st_mode & 0o777 == 0o700
    slot.close(over=True)


@pytest.mark.parametrize("made", ["root", "job"])
def test_a_folder_that_another_user_has_made_is_refused(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    (root / JOB if made == "job" else root).mkdir(parents=True)
    monkeypatch.setattr(os, "getuid", lambda: 4_711)
    monkeypatch.setattr(
        "tidegate.state.disk.local_folders._SYSTEM", -1 if made == "root" else OWNER
    )
    with pytest.raises(StorageFailed, match="Cannot make local folders") as refused:
        Machine(root).slot("one").new_folder()
    assert refused.value.where == str(root / JOB if made == "job" else root)


def test_a_link_in_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / JOB).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageFailed, match="Cannot make local folders"):
        Machine(tmp_path).slot("one").new_folder()
    assert not any((tmp_path / "elsewhere").iterdir())


def test_copies_of_another_user_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    slot = machine.slot("one")
    handle = machine.checkpoint(slot, ONE, **{"a.sst": A})
    slot.close(over=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_711)
    folder = tmp_path / "taken"
    assert not machine.slot("two").take(handle, folder) and not folder.exists()
    monkeypatch.undo()
    assert machine.slot("two").take(handle, folder)
