"""What a subtask starts from is copied whole, or linked where it lies on the same disk."""

from pathlib import Path

import pytest

from tests.state.files_world import SETTINGS, Driver
from tidegate.errors import FormatError, RestoreRefused
from tidegate.model.handles import StreamStateHandle
from tidegate.model.settings import CheckpointSettings
from tidegate.storage.checkpoints import CheckpointScope

DATA = bytes(range(256)) * 300


def written(driver: Driver, data: bytes = DATA) -> StreamStateHandle:
    place = driver.place(1)
    handle = place.write([data], CheckpointScope.EXCLUSIVE)
    driver.checksums.update(place.checksums)
    return handle


def on(folder: Path) -> Driver:
    return Driver(CheckpointSettings(storage="filesystem", directory=str(folder / "checkpoints")))


@pytest.mark.parametrize("linked", [False, True])
def test_a_file_on_the_same_disk_is_linked_only_for_who_asks_for_it(
    tmp_path: Path, linked: bool
) -> None:
    driver, target = on(tmp_path), tmp_path / "target"
    handle = written(driver)
    driver.reader().copy(handle, target, linked=linked)
    assert target.read_bytes() == DATA
    assert target.is_symlink() == linked
    target.unlink()
    assert driver.reader().read(handle) == DATA


@pytest.mark.parametrize("data", [b"in the handle", DATA])
def test_what_is_no_file_of_this_machine_is_copied(tmp_path: Path, data: bytes) -> None:
    driver, target = Driver(SETTINGS), tmp_path / "target"
    driver.reader().copy(written(driver, data), target, linked=True)
    assert target.read_bytes() == data
    assert not target.is_symlink()


def test_a_file_is_not_linked_before_all_of_it_was_checked(tmp_path: Path) -> None:
    driver, target = on(tmp_path), tmp_path / "target"
    handle = written(driver)
    file = Path(handle.physical_id)
    file.write_bytes(DATA[:-1] + b"x")
    with pytest.raises(FormatError, match="is not as it was written"):
        driver.reader().copy(handle, target, linked=True)
    file.write_bytes(DATA[:-1])
    with pytest.raises(RestoreRefused, match="were written"):
        driver.reader().copy(handle, target, linked=True)
    file.unlink()
    with pytest.raises(RestoreRefused, match="is missing"):
        driver.reader().copy(handle, target, linked=True)
    assert not target.is_symlink()
